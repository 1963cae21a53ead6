"""Deletes a session with all data that only it uses, but never while another process has it open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import StoreError
from ullage.store import pieces
from ullage.store.connection import PIECES, session_lock
from ullage.store.values import column

if TYPE_CHECKING:
    from ullage.store.connection import Connection, Database


def delete(database: Database, session: str) -> bool:
    """Deletes a session, its events, and the pieces that no other session uses. Its costs stay in the book.

    Returns False if there is no such session. Raises StoreError if another process has the session open.
    """
    with database.reading() as connection:
        key = _key_of(connection, session)
    if key is None:
        return False
    with database.locks.exclude_others(key) as alone:
        if not alone:
            raise StoreError(
                f"session {session!r} is open in another process and was not deleted. "
                "End that process, then try again"
            )
        with database.writing(PIECES, session_lock(session)) as connection:
            if _key_of(connection, session) != key:  # another process was faster
                return False
            pieces.release(connection, key)
            connection.execute("DELETE FROM folds WHERE session = ?", (key,))
            connection.execute("DELETE FROM events WHERE session = ?", (key,))
            connection.execute("DELETE FROM sessions WHERE id = ?", (key,))
    return True


def _key_of(connection: Connection, session: str) -> int | None:
    """Returns the key of a session without a check, so that a damaged session can be deleted too."""
    row = connection.execute("SELECT id FROM sessions WHERE name = ?", (column(session),)).fetchone()
    return None if row is None else int(row[0])
