"""Values in columns: texts with any characters, JSON that is read back unchanged, exact dollars, checksums.

Each row has a checksum, so that a bit that changed on the disk is an error and never a different text. Each
event's checksum includes the one before it, so the checksum of a session's last event covers its whole
history.
"""

from __future__ import annotations

import functools
import json
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import Any

import orjson

from ullage.cost.book import check_amount
from ullage.errors import StoreError

Column = str | bytes


class RawText(bytes):
    """Text in a column that is not stored as text: with lone surrogates, or JSON by the standard encoder."""

    __slots__ = ()


LARGEST = 2**63 - 1
_PICODOLLARS = 12  # digits after the point: a token of the cheapest model costs about 10,000 picodollars

# orjson would silently convert these objects. They go to the fallback, which refuses them.
_AS_GIVEN = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def column(text: str) -> Column:
    """Returns text for a column; as bytes if it has lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return RawText(text.encode("utf-8", "surrogatepass"))
    return text


def text_of(value: Column) -> str:
    """Returns the text that `column` has encoded."""
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise Unreadable(f"a text column contains a {type(value).__name__}")
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Unreadable(str(error)) from error


def encode_value(value: Any) -> Column:
    """Returns a JSON value for a column: text by orjson, or bytes by the slower standard encoder.

    orjson refuses lone surrogates, integers over 64 bits and floats that are not numbers. The type of the
    column shows which decoder must read it.
    """
    try:
        text = orjson.dumps(value, option=_AS_GIVEN)
    except TypeError:  # also its JSONEncodeError
        return _encode_by_json(value)
    # orjson silently writes NaN and infinity as null.
    return _encode_by_json(value) if b"null" in text and orjson.loads(text) != value else text.decode()


def _encode_by_json(value: Any) -> RawText:
    text = json.dumps(value, separators=(",", ":"))
    if _has_other_keys(value):
        raise TypeError("the keys of an object must be strings, or they cannot be read back unchanged")
    return RawText(text.encode())


def _has_other_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return any(not isinstance(key, str) or _has_other_keys(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(map(_has_other_keys, value))


class Unreadable(Exception):  # noqa: N818 - becomes a StoreError as soon as the file is known
    """A column whose value Ullage did not write."""


class Damaged(Unreadable):
    """A stored row is damaged. `what` names the row, and `session` its session if it has one."""

    def __init__(self, what: str, session: Column | None = None) -> None:
        self.what = what
        self.session = None if session is None else text_of(session)
        super().__init__(what)


def remedy(session: str | None) -> str:
    """Returns advice for a damaged store."""
    if session is None:
        return "Restore a backup, or move it away to start with an empty store"
    import shlex  # noqa: PLC0415 - only for a damaged store

    name = shlex.quote(session)
    return (
        f"Restore a backup. Or save the readable events with `ullage sessions show {name}`, "
        f"and remove the session with `ullage sessions delete {name}`"
    )


def read(value: Column) -> Any:
    """Returns the value that `encode_value` has encoded; a tuple becomes a list."""
    try:
        return orjson.loads(value) if isinstance(value, str) else json.loads(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def picodollars(amount: Decimal) -> int:
    """Returns an amount as a whole number of 1e-12 dollars, rounded up."""
    if not amount:
        return 0
    if check_amount(amount).adjusted() > 20:  # larger than any column, and too long to write out
        return LARGEST + 1
    with localcontext(prec=60):
        return int(amount.scaleb(_PICODOLLARS).to_integral_value(ROUND_CEILING))


def dollars(pico: int) -> Decimal:
    """Returns the amount without trailing zeros."""
    amount = Decimal(pico).scaleb(-_PICODOLLARS).normalize()
    return amount.quantize(Decimal(1)) if amount == amount.to_integral_value() else amount


class TooLarge(StoreError):  # noqa: N818 - as Unreadable is
    """A number is too large for an integer column. A retry does not help."""


def fitting(number: int, what: str) -> int:
    """Returns the number if it fits into an integer column, else raises TooLarge."""
    if -LARGEST <= number <= LARGEST:
        return number
    raise TooLarge(f"{what} is larger than the store can keep ({LARGEST}): nothing was booked")


# Checksums ----------------------------------------------------------------------------------------------

ColumnPart = str | bytes | int | float | None

_SIZE = 16  # bytes


def seal(*parts: ColumnPart) -> bytes:
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


def _bytes_of(part: ColumnPart) -> tuple[bytes, bytes]:
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
