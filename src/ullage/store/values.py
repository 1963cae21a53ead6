"""How values stand in columns: text with any characters, JSON that comes back as it was, exact dollars."""

from __future__ import annotations

import json
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import Any

import orjson

from ullage.errors import ConfigurationError, StoreError

Column = str | bytes

LARGEST = 2**63 - 1
_PICODOLLARS = 12  # digits behind the point: a token of the cheapest model costs some 10,000 picodollars

# Objects that orjson would quietly turn into something else go to the fallback, which refuses them.
_AS_GIVEN = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def column(text: str) -> Column:
    """Text for a column: as it is, or as bytes where it has lone surrogates, which UTF-8 cannot write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def text_of(value: Column) -> str:
    """The text that `column` was given."""
    try:
        return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Unreadable(str(error)) from error


def written(value: Any) -> Column:
    """A JSON value for a column: text by orjson, or bytes by the slower encoder for what orjson refuses.

    Lone surrogates, integers over 64 bits and floats that are no number are among that; the type of the
    column tells which of the two must read it.
    """
    try:
        text = orjson.dumps(value, option=_AS_GIVEN)
    except TypeError:  # also its JSONEncodeError
        return _slowly(value)
    # orjson writes NaN and infinity as null without a word.
    return _slowly(value) if b"null" in text and orjson.loads(text) != value else text.decode()


def _slowly(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"))
    if _has_other_keys(value):
        raise TypeError("the keys of an object must be text to come back as they were")
    return text.encode()


def _has_other_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return any(not isinstance(key, str) or _has_other_keys(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(map(_has_other_keys, value))


class Unreadable(Exception):  # noqa: N818 - it becomes a StoreError as soon as the file is known
    """A column that nothing of ours has written."""


def read(value: Column) -> Any:
    """The value that `written` was given; a tuple has become a list."""
    try:
        return orjson.loads(value) if isinstance(value, str) else json.loads(value)
    except ValueError as error:
        raise Unreadable(str(error)) from error


def picodollars(amount: Decimal) -> int:
    """An amount as a whole number of 1e-12 dollars; what is finer than that is rounded up."""
    if not amount.is_finite() or amount < 0:
        raise ConfigurationError(f"{amount} is no amount of dollars that can be booked: give one from 0 up")
    if amount.adjusted() > 20:  # beyond any sum that fits, and too long to write out
        return LARGEST + 1
    with localcontext(prec=60):
        return int(amount.scaleb(_PICODOLLARS).to_integral_value(ROUND_CEILING))


def dollars(pico: int) -> Decimal:
    """The amount, without the zeros at its end."""
    amount = Decimal(pico).scaleb(-_PICODOLLARS).normalize()
    return amount.quantize(Decimal(1)) if amount == amount.to_integral_value() else amount


def fitting(number: int, what: str) -> int:
    """The number, where it fits an integer column."""
    if -LARGEST <= number <= LARGEST:
        return number
    raise StoreError(f"{what} is larger than the store can keep ({LARGEST}): nothing was booked")
