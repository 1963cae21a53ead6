"""The index of words in SQLite: FTS5 over our own stems, without any text.

FTS5 knows which passages have a stem and how often. `passages` has the piece that a passage is a part of, and
its number of stems. Words can only be removed from the index with the text that they came from. The queries
of `SessionWords` are those of PostgreSQL's index as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ullage.context.search import SESSION_PLACES, index_forms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.context.search import Posting
    from ullage.store.connection import Connection

_LAST = "\U0010ffff"  # comes after every letter

# Each passage once, with the piece as the session, or the first session, kept it. The words come first: they
# are the few, and the rest is looked up for them.
_HOLDING = (
    "SELECT held.doc, kept.id, held.times, passages.size, kept.session * :places + kept.event "
    "FROM (SELECT doc, count(*) AS times FROM places WHERE {term} GROUP BY doc) AS held "
    "CROSS JOIN passages ON passages.id = held.doc CROSS JOIN kept ON kept.piece = passages.piece AND {whose}"
)
_WHOSE = {
    True: "kept.session = (SELECT min(session) FROM kept AS first WHERE first.piece = passages.piece)",
    False: "kept.session = :session",
}
_TOTAL = {
    True: "SELECT count(*), sum(size) FROM passages",
    False: "SELECT count(*), sum(size) FROM kept JOIN passages ON passages.piece = kept.piece "
    "WHERE kept.session = :session",
}


class FtsIndex:
    """The index of words in FTS5."""

    def create(self, connection: Connection) -> None:
        """Makes the tables of the index."""
        connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5 (stems, content = '', columnsize = 0, tokenize = 'ascii')"
        )
        connection.execute("CREATE VIRTUAL TABLE places USING fts5vocab (words, instance)")
        connection.execute(
            "CREATE TABLE passages (id INTEGER PRIMARY KEY, piece INTEGER NOT NULL, size INTEGER NOT NULL)"
        )
        connection.execute("CREATE INDEX passages_by_piece ON passages (piece, size)")

    def add(self, connection: Connection, piece: int, text: str) -> None:
        """Indexes the text of a piece."""
        for forms in index_forms(text):
            (key,) = connection.execute(
                "INSERT INTO passages (piece, size) VALUES (?, ?) RETURNING id", (piece, len(forms))
            ).fetchone()
            connection.execute("INSERT INTO words (rowid, stems) VALUES (?, ?)", (key, " ".join(forms)))

    def remove(self, connection: Connection, piece: int, text: str) -> None:
        """Takes the words of a piece out of the index."""
        keys = connection.execute("SELECT id FROM passages WHERE piece = ? ORDER BY id", (piece,)).fetchall()
        for (key,), forms in zip(keys, index_forms(text), strict=False):
            connection.execute(
                "INSERT INTO words (words, rowid, stems) VALUES ('delete', ?, ?)", (key, " ".join(forms))
            )
        connection.execute("DELETE FROM passages WHERE piece = ?", (piece,))

    def clear(self, connection: Connection) -> None:
        """Takes everything out of the index."""
        connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        connection.execute("DELETE FROM passages")

    def of(self, connection: Connection, session: int | None) -> SessionWords:
        """Returns the words of a session, or of all if the session is None."""
        return SessionWords(connection, session, _QUERIES)


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
        return self._found("{} = :term", self._queries.stored(stem))

    def beginning(self, letters: str) -> Sequence[Posting]:
        """Returns the passages with stems that begin so, each of them once."""
        return self._found("{0} >= :term AND {0} < :end", letters)

    def _found(self, condition: str, term: str) -> Sequence[Posting]:
        where = condition.format(self._queries.stem)
        query = self._queries.holding.format(term=where, whose=_WHOSE[self._session is None])
        values = {"term": term, "end": term + _LAST, "session": self._session, "places": SESSION_PLACES}
        return self._connection.execute(query, values).fetchall()


_QUERIES = WordQueries(_HOLDING, "term")
