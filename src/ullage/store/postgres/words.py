"""The index of words in PostgreSQL: a table of our own stems, without any text.

The stems are those of SQLite's index, and `context.search.rank` orders what is found, so both stores give the
same hits in the same order. PostgreSQL's own text search has other words.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from ullage.context.search import SESSION_PLACES, index_forms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.context.search import Posting
    from ullage.store.connection import Connection

LONGEST = 200
"""Characters of the longest stem that is stored whole; an index of PostgreSQL takes 2,700 bytes."""

_LAST = "\U0010ffff"  # comes after every letter

# Each passage once, with the piece as the session, or the first session, kept it.
_HOLDING = (
    "SELECT held.passage, kept.id, held.times, passages.size, kept.session * :places + kept.event "
    "FROM (SELECT passage, sum(times) AS times FROM words WHERE {term} GROUP BY passage) AS held "
    "JOIN passages ON passages.id = held.passage JOIN kept ON kept.piece = passages.piece AND {whose}"
)
_TERMS = {"is": "stem = :term", "begins": "stem >= :term AND stem < :end"}
_WHOSE = {
    True: "kept.session = (SELECT min(session) FROM kept AS first WHERE first.piece = passages.piece)",
    False: "kept.session = :session",
}
_TOTAL = {
    True: "SELECT count(*), sum(size) FROM passages",
    False: "SELECT count(*), sum(size) FROM kept JOIN passages ON passages.piece = kept.piece "
    "WHERE kept.session = :session",
}


class WordTable:
    """The index of words as a table."""

    def create(self, connection: Connection) -> None:
        """Makes the tables of the index."""
        connection.execute(
            "CREATE TABLE passages (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "piece BIGINT NOT NULL, size INTEGER NOT NULL)"
        )
        connection.execute("CREATE INDEX passages_by_piece ON passages (piece, size)")
        connection.execute(
            'CREATE TABLE words (stem TEXT COLLATE "C" NOT NULL, '
            "passage BIGINT NOT NULL REFERENCES passages ON DELETE CASCADE, times INTEGER NOT NULL, "
            "PRIMARY KEY (stem, passage))"
        )
        connection.execute("CREATE INDEX words_by_passage ON words (passage)")

    def add(self, connection: Connection, piece: int, text: str) -> None:
        """Indexes the text of a piece."""
        for forms in index_forms(text):
            (key,) = connection.execute(
                "INSERT INTO passages (piece, size) VALUES (?, ?) RETURNING id", (piece, len(forms))
            ).fetchone()
            counted = Counter(map(_short, forms))
            connection.execute(
                "INSERT INTO words (stem, passage, times) "
                "SELECT stem, ?, times FROM unnest(?::text[], ?::integer[]) AS given (stem, times)",
                (key, list(counted), list(counted.values())),
            )

    def remove(self, connection: Connection, piece: int, _: str) -> None:
        """Takes the words of a piece out of the index."""
        connection.execute("DELETE FROM passages WHERE piece = ?", (piece,))

    def clear(self, connection: Connection) -> None:
        """Takes everything out of the index."""
        connection.execute("DELETE FROM passages")

    def of(self, connection: Connection, session: int | None) -> PostgresWords:
        """Returns the words of a session, or of all if the session is None."""
        return PostgresWords(connection, session)


class PostgresWords:
    """The words of one session, or of all if the session is None."""

    def __init__(self, connection: Connection, session: int | None) -> None:
        self._connection = connection
        self._session = session

    def total(self) -> tuple[int, int]:
        """Returns the number of passages, and the number of stems in all of them."""
        values = {} if self._session is None else {"session": self._session}
        count, stems = self._connection.execute(_TOTAL[self._session is None], values).fetchone()
        return count, stems or 0

    def holding(self, stem: str) -> Sequence[Posting]:
        """The passages that have the stem."""
        return self._found("is", _short(stem))

    def beginning(self, letters: str) -> Sequence[Posting]:
        """The passages with stems that begin so, each of them once."""
        return self._found("begins", letters)

    def _found(self, how: str, term: str) -> Sequence[Posting]:
        query = _HOLDING.format(term=_TERMS[how], whose=_WHOSE[self._session is None])
        values = {"term": term, "end": term + _LAST, "session": self._session, "places": SESSION_PLACES}
        return self._connection.execute(query, values).fetchall()


def _short(stem: str) -> str:
    """Returns a stem whose length an index can take; equal stems stay equal, and others different."""
    if len(stem) <= LONGEST:
        return stem
    return stem[:LONGEST] + hashlib.blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
