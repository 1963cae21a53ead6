"""The index of words in SQLite: FTS5 over our own stems, without any text.

FTS5 knows which passages have a stem and how often. Words can only be removed from the index with the text
that they came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.context.search import index_forms
from ullage.store.words import SessionWords, WordQueries

if TYPE_CHECKING:
    from ullage.store.connection import Connection

# Each passage once, with the piece as the session, or the first session, kept it. The words come first: they
# are the few, and the rest is looked up for them. In a damaged file, the size may be anything.
_HOLDING = (
    "SELECT held.doc, kept.id, held.times, max(1, CAST(passages.size AS INTEGER)), "
    "kept.session * :places + kept.event "
    "FROM (SELECT doc, count(*) AS times FROM places WHERE {term} GROUP BY doc) AS held "
    "CROSS JOIN passages ON passages.id = held.doc CROSS JOIN kept ON kept.piece = passages.piece AND {whose}"
)
_QUERIES = WordQueries(_HOLDING, "term")


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
