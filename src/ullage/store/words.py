"""Looks words up in the index of a database: the queries are the same for SQLite and PostgreSQL.

The index knows which passages have a stem and how often. `passages` has the piece that a passage is a part
of, and its number of stems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ullage.context.search import SESSION_PLACES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.context.search import Posting
    from ullage.store.connection import Connection

_LAST = "\U0010ffff"  # comes after every letter

_WHOSE = {
    True: "kept.session = (SELECT min(session) FROM kept AS first WHERE first.piece = passages.piece)",
    False: "kept.session = :session",
}
_TOTAL = {
    True: "SELECT count(*), sum(size) FROM passages",
    False: "SELECT count(*), sum(size) FROM kept JOIN passages ON passages.piece = kept.piece "
    "WHERE kept.session = :session",
}


class WordQueries(NamedTuple):
    """The statements of one kind of index that differ from those of others."""

    holding: str
    """Finds the passages of a term; `{term}` and `{whose}` are conditions."""
    stem: str
    """The column of the stems."""
    stored: Callable[[str], str] = str
    """Returns a stem as the index keeps it."""


class SessionWords:
    """The words of one session, or of all if the session is None."""

    def __init__(self, connection: Connection, session: int | None, queries: WordQueries) -> None:
        self._connection = connection
        self._session = session
        self._queries = queries

    def total(self) -> tuple[int, int]:
        """Returns the number of passages, and the number of stems in all of them."""
        values = {} if self._session is None else {"session": self._session}
        count, stems = self._connection.execute(_TOTAL[self._session is None], values).fetchone()
        return count, stems or 0

    def holding(self, stem: str) -> Sequence[Posting]:
        """Returns the passages that have the stem."""
        return self._find_postings("{} = :term", self._queries.stored(stem))

    def beginning(self, letters: str) -> Sequence[Posting]:
        """Returns the passages with a stem that begins with these letters, each passage once."""
        return self._find_postings("{0} >= :term AND {0} < :end", letters)

    def _find_postings(self, condition: str, term: str) -> Sequence[Posting]:
        where = condition.format(self._queries.stem)
        query = self._queries.holding.format(term=where, whose=_WHOSE[self._session is None])
        values = {"term": term, "end": term + _LAST, "session": self._session, "places": SESSION_PLACES}
        return self._connection.execute(query, values).fetchall()
