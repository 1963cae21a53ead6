"""Saved states of window folds, so that resuming a session replays only the newest events.

A row is valid for one history: it contains the checksum of the last event that the state includes. A row that
does not match the history, or is damaged, is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.context.journal import SavedFold
from ullage.store.values import seal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.store.connection import Connection
    from ullage.store.sessions import SessionRow

MOST = 4
"""Most states that a session keeps; the oldest is deleted first."""


def load(connection: Connection, row: SessionRow, name: str) -> SavedFold | None:
    """Returns the state of this name if it belongs to the session's history, else None."""
    found = connection.execute(
        "SELECT folds.id, folds.events, folds.history, state, parts, folds.checksum, events.checksum "
        "FROM folds JOIN events ON events.session = folds.session AND events.number = folds.events - 1 "
        "WHERE folds.session = ? AND folds.name = ?",
        (row.key, name),
    ).fetchone()
    if found is None:
        return None
    key, events, history, state, parts, checksum, last = found
    if history != last or checksum != seal(name, events, history, state, parts):
        return None
    rows = connection.execute(
        "SELECT number, data, checksum FROM fold_logs WHERE fold = ? ORDER BY number", (key,)
    ).fetchall()
    whole = [number for number, data, own in rows if own == seal(number, data)] == list(range(parts))
    return SavedFold(state, tuple([data for _, data, _ in rows])) if whole else None


def save(  # noqa: PLR0917 - the columns of a row
    connection: Connection, row: SessionRow, name: str, state: bytes, part: bytes, number: int
) -> bool:
    """Saves a state with part `number` of its log; returns False if that part is not the next one."""
    found = connection.execute(
        "SELECT id, parts FROM folds WHERE session = ? AND name = ?", (row.key, name)
    ).fetchone()
    if number and (found is None or found[1] != number):
        return False
    if found is not None and not number:
        _delete(connection, [found[0]])
        found = None
    values = (row.last, row.length, state, number + 1)
    checksum = seal(name, row.length, row.last, state, number + 1)
    if found is None:
        (key,) = connection.execute(
            "INSERT INTO folds (history, events, state, parts, checksum, session, name) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
            (*values, checksum, row.key, name),
        ).fetchone()
    else:
        key = found[0]
        connection.execute(
            "UPDATE folds SET history = ?, events = ?, state = ?, parts = ?, checksum = ? WHERE id = ?",
            (*values, checksum, key),
        )
    connection.execute(
        "INSERT INTO fold_logs (fold, number, data, checksum) VALUES (?, ?, ?, ?)",
        (key, number, part, seal(number, part)),
    )
    kept = connection.execute(
        "SELECT id FROM folds WHERE session = ? ORDER BY events DESC, id DESC", (row.key,)
    ).fetchall()
    _delete(connection, [key for (key,) in kept[MOST:]])
    return True


def _delete(connection: Connection, keys: Iterable[int]) -> None:
    """Deletes states with the parts of their logs."""
    for key in keys:
        connection.execute("DELETE FROM fold_logs WHERE fold = ?", (key,))
        connection.execute("DELETE FROM folds WHERE id = ?", (key,))
