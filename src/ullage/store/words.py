"""The index of words in SQLite: FTS5 over our own stems, without any text.

FTS5 knows which passages have a stem and how often. `passages` has the piece that a passage is a part of, and
its number of stems. Words can only be taken out of the index by the text that they stood in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.context.search import SESSION_PLACES, index_forms

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_TERMS = {"is": "term = :term", "begins": "term >= :term AND term < :end"}
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

    def of(self, connection: Connection, session: int | None) -> SqliteWords:
        """Returns the words of a session, or of all if the session is None."""
        return SqliteWords(connection, session)


class SqliteWords:
    """The words of one session, or of all if the session is None."""

    def __init__(self, connection: Connection, session: int | None) -> None:
        self._connection = connection
        self._session = session

    def total(self) -> tuple[int, int]:
        """Returns the number of passages, and the number of stems in all of them."""
        query = _TOTAL[self._session is None]
        count, stems = self._connection.execute(query, {"session": self._session}).fetchone()
        return count, stems or 0

    def holding(self, stem: str) -> Sequence[Posting]:
        """The passages that have the stem."""
        return self._found("is", stem)

    def beginning(self, letters: str) -> Sequence[Posting]:
        """The passages with stems that begin so, each of them once."""
        return self._found("begins", letters)

    def _found(self, how: str, term: str) -> Sequence[Posting]:
        query = _HOLDING.format(term=_TERMS[how], whose=_WHOSE[self._session is None])
        own = {"session": self._session, "places": SESSION_PLACES}
        values = {"term": term, "end": term + _LAST, **own}
        return self._connection.execute(query, values).fetchall()
