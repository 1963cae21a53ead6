"""Sessions: their rows, their events, the list of sessions, and how a session is deleted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ullage.errors import StoreError
from ullage.store.connection import PIECES, session_lock
from ullage.store.values import (
    Damaged,
    Unreadable,
    column,
    read,
    seal_beginning,
    seal_event,
    seal_session,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ullage.store.connection import Connection, Database
    from ullage.store.values import Column

_TITLE = 60  # characters
_TITLE_EVENTS = 20  # events that are searched for the user's first words
_COLUMNS = "SELECT id, name, created, updated, length, last, checksum "


class Session(NamedTuple):
    """A conversation in the list of sessions."""

    id: str
    created: float
    """Seconds since the epoch."""
    updated: float
    """Time of its last event, in seconds since the epoch."""
    events: int
    title: str
    """The first words of its user; empty if there are none."""
    damaged: bool = False
    """True if its row or one of its first events is damaged."""


class SessionRow(NamedTuple):
    """The row of one session."""

    key: int
    name: Column
    created: float
    updated: float
    length: int
    """Number of its events."""
    last: bytes
    """Checksum of its last event, which covers the whole history."""

    def checksum(self) -> bytes:
        """Returns the checksum of this row."""
        return seal_session(self.name, self.created, self.updated, self.length, self.last)


EventRow: TypeAlias = tuple[int, "Column", "Column", bytes]
"""An event as its table stores it: number, kind, data, checksum."""
SavedEvent: TypeAlias = tuple[str, Any]
"""An event as the journal returns it: kind, data."""


# Rows -------------------------------------------------------------------------------------------------


def find(connection: Connection, session: str) -> SessionRow | None:
    """Returns the row of a session, or None if it does not exist; raises Damaged if the row was changed."""
    name = column(session)
    found = connection.execute(f"{_COLUMNS} FROM sessions WHERE name = ?", (name,)).fetchone()
    if found is None:
        # A session that is missing only from a damaged index must not be created a second time.
        if connection.execute(f"SELECT 1 {_write_from(connection)} WHERE name = ?", (name,)).fetchone():
            raise Damaged(f"the index of sessions has lost session {session!r}", session)
        return None
    row = SessionRow(found[0], name, *found[2:6])
    if row.checksum() != found[6]:
        raise Damaged(f"the row of session {session!r} was changed", session)
    return row


def _write_from(connection: Connection) -> str:
    return f"FROM sessions{connection.dialect.unindexed}"


def begin(connection: Connection, session: str) -> SessionRow:
    """Returns the row of a session; creates a missing one."""
    row = find(connection, session)
    if row is not None:
        return row
    now, name = time.time(), column(session)
    row = SessionRow(0, name, now, now, 0, seal_beginning(name))
    (key,) = connection.execute(
        "INSERT INTO sessions (name, created, updated, length, last, checksum) VALUES (?, ?, ?, ?, ?, ?) "
        "RETURNING id",
        (*row[1:], row.checksum()),
    ).fetchone()
    return row._replace(key=int(key))


def add_event(connection: Connection, row: SessionRow, kind: Column, data: Column) -> SessionRow:
    """Stores the session's next event and returns the new row; raises Damaged if the last event is gone."""
    number = row.length
    if number:
        before = connection.execute(
            "SELECT checksum FROM events WHERE session = ? AND number = ?", (row.key, number - 1)
        ).fetchone()
        if before is None or before[0] != row.last:
            raise Damaged(f"event {number - 1} of session {text_of(row.name)!r} is missing", row.name)
    last = seal_event(row.last, number, kind, data)
    row = row._replace(length=number + 1, updated=time.time(), last=last)
    connection.execute(
        "INSERT INTO events (session, number, kind, data, checksum) VALUES (?, ?, ?, ?, ?)",
        (row.key, number, kind, data, last),
    )
    connection.execute(
        "UPDATE sessions SET length = ?, updated = ?, last = ?, checksum = ? WHERE id = ?",
        (row.length, row.updated, row.last, row.checksum(), row.key),
    )
    return row


def event_rows(connection: Connection, key: int, before: int | None = None) -> Sequence[EventRow]:
    """Returns the rows of a session's events, or of those with a number below `before`."""
    return connection.execute(
        "SELECT number, kind, data, checksum FROM events WHERE session = ? AND number < ? ORDER BY number",
        (key, 2**62 if before is None else before),
    ).fetchall()


def events_of(row: SessionRow, rows: Sequence[EventRow]) -> Iterator[SavedEvent]:
    """Yields the events of a session; raises Damaged at the first damaged event."""
    session = text_of(row.name)
    if len(rows) != row.length:
        raise Damaged(f"session {session!r} has only {len(rows)} of its {row.length} events", session)
    last = seal_beginning(row.name)
    for place, (number, kind, data, checksum) in enumerate(rows):
        if number != place or seal_event(last, number, kind, data) != checksum:
            raise Damaged(f"event {place} of session {session!r} was changed", session)
        last = checksum
        yield text_of(kind), read(data)
    if last != row.last:
        raise Damaged(f"the last event of session {session!r} was changed", session)


def salvage(name: Column, rows: Iterable[EventRow]) -> Iterator[SavedEvent | None]:
    """Yields the readable events of a session; None for each damaged event."""
    last = seal_beginning(name)
    for number, kind, data, checksum in rows:
        whole = seal_event(last, number, kind, data) == checksum
        last = checksum
        yield (text_of(kind), read(data)) if whole else None


# The list ---------------------------------------------------------------------------------------------


def latest(database: Database, most: int) -> Sequence[Session]:
    """Returns the conversations with at least one event, the most recently continued first."""
    with database.reading() as connection:
        # Without an index, because a damaged index would silently hide a session.
        rows = connection.execute(
            f"{_COLUMNS} {_write_from(connection)} WHERE length > 0 ORDER BY updated DESC, id DESC LIMIT ?",
            (max(0, min(most, 2**31)),),
        ).fetchall()
        return tuple([_read_session(connection, SessionRow(*row[:6]), row[6]) for row in rows])


def _read_session(connection: Connection, row: SessionRow, checksum: bytes) -> Session:
    try:
        whole = row.checksum() == checksum
        first = list(salvage(row.name, event_rows(connection, row.key, _TITLE_EVENTS)))
        title = next(filter(None, (_user_words(event[1]) for event in first if event)), "")
        return Session(
            text_of(row.name),
            float(row.created),
            float(row.updated),
            int(row.length),
            title,
            damaged=not whole or None in first or len(first) < min(row.length, _TITLE_EVENTS),
        )
    except (TypeError, ValueError) as error:  # a column has another type than was written
        raise Unreadable(str(error)) from error


def _user_words(data: Mapping[str, Any]) -> str:
    """Returns the beginning of a user's message, if the event is or contains one."""
    for message in (data, *data.values()):
        if isinstance(message, dict) and message.get("role") == "user":
            asked = message.get("content")
            if isinstance(asked, str | list):  # without the output of earlier commands
                asked = asked[data.get("quoted", 0) :]
            words = " ".join(_text(asked).split())
            return words if len(words) <= _TITLE else words[: _TITLE - 1].rstrip() + "…"
    return ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def delete(database: Database, session: str) -> bool:
    """Deletes a session, its events, and the pieces that no other session uses. Its costs stay in the book.

    Returns False if there is no such session. Raises StoreError if another process has the session open.
    """
    from ullage.store import pieces  # noqa: PLC0415 - the prompt does not need it

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
            connection.execute(
                "DELETE FROM fold_logs WHERE fold IN (SELECT id FROM folds WHERE session = ?)", (key,)
            )
            connection.execute("DELETE FROM folds WHERE session = ?", (key,))
            connection.execute("DELETE FROM events WHERE session = ?", (key,))
            connection.execute("DELETE FROM sessions WHERE id = ?", (key,))
    return True


def _key_of(connection: Connection, session: str) -> int | None:
    """Returns the key of a session without a check, so that a damaged session can be deleted too."""
    row = connection.execute("SELECT id FROM sessions WHERE name = ?", (column(session),)).fetchone()
    return None if row is None else int(row[0])
