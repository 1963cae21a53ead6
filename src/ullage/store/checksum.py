"""Checksums of rows, so that a bit that changed on the disk is an error and never a different text.

Each event's checksum includes the one before it, so the checksum of a session's last event covers its whole
history.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ullage.store.values import Column

Part = str | bytes | int | float | None

_SIZE = 16  # bytes


def seal(*parts: Part) -> bytes:
    """Returns the checksum of these columns in this order; the type of each one counts too."""
    made = _hasher()(digest_size=_SIZE)
    for part in parts:
        kind, data = _bytes_of(part)
        made.update(b"%c%d:" % (kind, len(data)))
        made.update(data)
    return bytes(made.digest())


@functools.cache
def _hasher() -> Any:
    import hashlib  # noqa: PLC0415 - takes 3 ms to load, and the prompt needs none of it

    return hashlib.blake2b


def _bytes_of(part: Part) -> tuple[bytes, bytes]:
    if isinstance(part, str):
        return b"t", part.encode("utf-8", "surrogatepass")
    if isinstance(part, bytes):
        return b"b", part
    if isinstance(part, float):
        return b"f", part.hex().encode()
    return (b"n", b"") if part is None else (b"i", b"%d" % part)


def seal_beginning(name: Column) -> bytes:
    """Returns the checksum that stands for the history of a session without events."""
    return seal("session", name)


def seal_event(before: bytes, number: int, kind: Column, data: Column) -> bytes:
    """Returns the checksum of an event that follows the event with the checksum `before`.

    It is computed for each event of a conversation that is opened, so it is written for speed.
    """
    made = _hasher()(before, digest_size=_SIZE)
    tag, name = _bytes_of(kind)
    other, content = _bytes_of(data)
    made.update(b"%r %c%d:%b%c%d:" % (number, tag, len(name), name, other, len(content)))
    made.update(content)
    return bytes(made.digest())


def seal_session(name: Column, created: float, updated: float, length: int, last: bytes) -> bytes:
    """Returns the checksum of a session's own row; `last` is the checksum of its last event."""
    return seal(name, created, updated, length, last)
