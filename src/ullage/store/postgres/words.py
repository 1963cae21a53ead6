"""The index of words in PostgreSQL: a table of our own stems, without any text.

The stems are those of SQLite's index, and `context.search.rank` orders what is found, so both stores give the
same hits in the same order. PostgreSQL's own text search has other words.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from ullage.context.search import index_forms
from ullage.store.words import SessionWords, WordQueries

if TYPE_CHECKING:
    from ullage.store.connection import Connection

LONGEST = 200
"""Characters of the longest stem that is stored whole; an index of PostgreSQL takes 2,700 bytes."""

# Each passage once, with the piece as the session, or the first session, kept it.
_HOLDING = (
    "SELECT held.passage, kept.id, held.times, passages.size, kept.session * :places + kept.event "
    "FROM (SELECT passage, sum(times) AS times FROM words WHERE {term} GROUP BY passage) AS held "
    "JOIN passages ON passages.id = held.passage JOIN kept ON kept.piece = passages.piece AND {whose}"
)


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

    def of(self, connection: Connection, session: int | None) -> SessionWords:
        """Returns the words of a session, or of all if the session is None."""
        return SessionWords(connection, session, _QUERIES)


def _short(stem: str) -> str:
    """Returns a stem whose length an index can take; equal stems stay equal, and others different."""
    if len(stem) <= LONGEST:
        return stem
    return stem[:LONGEST] + hashlib.blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


_QUERIES = WordQueries(_HOLDING, "stem", _short)
