"""Migration steps that add checksums, remove texts stored twice, and index the texts of turns.

A step reads and writes rows in the format that was current when the step was released. So the rules that it
needs are here or in modules that are part of the file's format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.store.pieces import text_in
from ullage.store.sqlite.driver import IN_AN_EVENT
from ullage.store.values import Unreadable, read, seal, seal_beginning, seal_event, seal_session

if TYPE_CHECKING:
    from ullage.store.sqlite.driver import SqliteConnection


def add_checksums(connection: SqliteConnection) -> None:
    """Adds a checksum to each event, session and remembered item."""
    for table in ("events", "sessions", "items"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN checksum BLOB")
    connection.execute("ALTER TABLE sessions ADD COLUMN last BLOB")
    sessions = connection.execute("SELECT id, name, created, updated, length FROM sessions").fetchall()
    for key, name, created, updated, length in sessions:
        last = _seal_events(connection, key, seal_beginning(name))
        connection.execute(
            "UPDATE sessions SET last = ?, checksum = ? WHERE id = ?",
            (last, seal_session(name, created, updated, length, last), key),
        )
    for number, kind, content in connection.execute("SELECT number, kind, content FROM items").fetchall():
        checksum = seal(number, kind, content)
        connection.execute("UPDATE items SET checksum = ? WHERE number = ?", (checksum, number))


def _seal_events(connection: SqliteConnection, session: int, last: bytes) -> bytes:
    rows = connection.execute(
        "SELECT rowid, number, kind, data FROM events WHERE session = ? ORDER BY number", (session,)
    )
    while some := rows.fetchmany(1_000):
        for key, number, kind, data in some:
            last = seal_event(last, number, kind, data)
            connection.execute("UPDATE events SET checksum = ? WHERE rowid = ?", (last, key))
    return last


def name_events(connection: SqliteConnection) -> None:
    """Makes each piece whose text is in an event of its session refer to the event, and removes its text."""
    connection.execute("ALTER TABLE kept ADD COLUMN event INTEGER")
    connection.execute("CREATE INDEX kept_by_session ON kept (session)")
    rows = connection.execute(
        "SELECT kept.session, pieces.hash, pieces.id FROM kept JOIN pieces ON pieces.id = kept.piece"
    )
    sought: dict[int, dict[str, int]] = {}
    for session, letters, piece in rows:
        sought.setdefault(session, {})[letters] = piece
    for session, pieces in sought.items():
        events = connection.execute("SELECT number, data FROM events WHERE session = ?", (session,))
        while some := events.fetchmany(1_000):
            for number, data in some:
                _name_event(connection, session, pieces, number, data)
    connection.execute(
        "UPDATE pieces SET text = ? WHERE id IN (SELECT piece FROM kept WHERE event IS NOT NULL)",
        (IN_AN_EVENT,),
    )


def _name_event(
    connection: SqliteConnection, session: int, pieces: dict[str, int], number: int, data: str | bytes
) -> None:
    try:
        text = text_in(read(data))
    except Unreadable:
        return  # reading the event will report the damage
    from ullage.fitting.pieces import letters_of  # noqa: PLC0415 - a new file does not need it

    piece = None if text is None else pieces.pop(letters_of(text), None)
    if piece is not None:
        connection.execute(
            "UPDATE kept SET event = ? WHERE piece = ? AND session = ?", (number, piece, session)
        )


def index_all_turns(connection: SqliteConnection) -> None:
    """Fills the index of words with stems by passage, and with the text of every turn."""
    from ullage.store.pieces import index_again, index_turns  # noqa: PLC0415 - the same

    connection.execute("DROP TABLE words")
    connection.dialect.words.create(connection)
    connection.execute("DROP INDEX kept_by_session")
    connection.execute("CREATE INDEX kept_by_event ON kept (session, event)")
    connection.execute("ALTER TABLE sessions ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0")
    index_again(connection)
    for (session,) in connection.execute("SELECT id FROM sessions ORDER BY id").fetchall():
        index_turns(connection, session)
