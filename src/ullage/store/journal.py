"""Conversations in SQLite: their events, their pieces, and what is remembered across them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ullage.context.journal import Event, Item, Piece
from ullage.errors import Conflict
from ullage.store import pieces
from ullage.store.files import told
from ullage.store.values import LARGEST, column, read, text_of, written

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from ullage.store.database import Database


class SqliteJournal:
    """A journal whose every change is on the disk when the call returns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, session: str, number: int, event: Event) -> None:
        """Keeps the event, if it is the session's next."""
        kind, data = column(event.kind), written(dict(event.data))
        with self._database.writing() as connection:
            key, length = known(connection, session)
            if number != length:
                raise Conflict(session, number, length)
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (key, number, kind, data))
            connection.execute(
                "UPDATE sessions SET length = ?, updated = ? WHERE id = ?", (number + 1, time.time(), key)
            )

    def events(self, session: str) -> Sequence[Event]:
        """All events of a session in order."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT kind, data FROM events WHERE session = (SELECT id FROM sessions WHERE name = ?) "
                "ORDER BY number",
                (column(session),),
            ).fetchall()
        with told(self._database.name):  # outside the lock, which a long conversation would keep for long
            return tuple(Event(text_of(kind), read(data)) for kind, data in rows)

    def keep(self, session: str, texts: Iterable[str]) -> None:
        """Keeps texts by their full hash; writes nothing where the session has them all."""
        hashed = pieces.hashed(texts)
        with self._database.reading() as connection:
            missing = pieces.missing(connection, session, hashed)
        if missing:
            with self._database.writing() as connection:
                key, _ = known(connection, session)
                pieces.keep(connection, key, missing)

    def recall(self, handle: str, session: str | None = None) -> Piece | None:
        """The earliest piece whose hash begins with the handle, that session's own first."""
        with self._database.reading() as connection:
            return pieces.recall(connection, handle, session)

    def search(self, words: str, session: str | None = None, most: int = 20) -> Sequence[Piece]:
        """The pieces with all the words, or words that begin so, the best match first."""
        with self._database.reading() as connection:
            return pieces.search(connection, words, session, most)

    def remember(self, content: str, kind: str = "") -> Item:
        """Keeps an item under the next number."""
        with self._database.writing() as connection:
            row = (column(kind), column(content))
            number = connection.execute("INSERT INTO items (kind, content) VALUES (?, ?)", row).lastrowid
        return Item(int(number or 0), kind, content)

    def items(self) -> Sequence[Item]:
        """What is remembered, in the order in which it was."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT number, kind, content FROM items ORDER BY number")
            return tuple(Item(number, text_of(kind), text_of(content)) for number, kind, content in rows)

    def forget(self, number: int) -> bool:
        """Forgets an item."""
        if not 0 < number <= LARGEST:
            return False
        with self._database.writing() as connection:
            return connection.execute("DELETE FROM items WHERE number = ?", (number,)).rowcount > 0


def known(connection: sqlite3.Connection, session: str) -> tuple[int, int]:
    """The key of a session and the number of its events; a new one where there is none."""
    name = column(session)
    row = connection.execute("SELECT id, length FROM sessions WHERE name = ?", (name,)).fetchone()
    if row is not None:
        return int(row[0]), int(row[1])
    now = time.time()
    inserted = connection.execute(
        "INSERT INTO sessions (name, created, updated) VALUES (?, ?, ?)", (name, now, now)
    )
    return int(inserted.lastrowid or 0), 0
