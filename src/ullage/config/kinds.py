"""The kinds of values that keys hold: how each is read from a file and from the environment."""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.broker.about import runs_here
from ullage.config.problems import Wrong, shown
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.config.keys import Row

DECIMALS = 12
"""The most digits behind the point of an amount, as many as a bill keeps."""
MANY = Context(prec=60)
"""Digits enough for any amount, whatever precision the caller's own decimal context has."""
LONGEST = 1_000
"""The most characters of a name, an address or a path."""
SERVER_NAME = re.compile(r"(?!.*__)[a-zA-Z0-9_-]{0,31}[a-zA-Z0-9-]")
NO_SERVER_NAME = (
    "an MCP server cannot be named so, as its name stands before those of its tools: "
    "use up to 32 letters, digits, - and single _, and no _ at the end"
)
_HEADER = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"env:[A-Z_][A-Z0-9_]*|file:[^\0\r\n]+")
"""Names of variables in capitals only: most keys that are put there by mistake are not."""
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True}
_BOOLEANS |= {"false": False, "0": False, "no": False, "off": False}

NO_LITERAL = (
    'a key is not written here: put it into a variable, export NAME=…, and write "env:NAME" (in capitals), '
    'or into a file that only you can read, chmod 600 PATH, and write "file:PATH"'
)


class Kind(NamedTuple):
    """A kind of value."""

    words: str
    """What it is, for documents and errors."""
    read: Callable[[Any, Row], Any]
    """From what a TOML file holds; raises Wrong."""
    parse: Callable[[str], Any] = str
    """From the text of an environment variable to what a file would hold; raises Wrong."""


def read(value: object, row: Row) -> Any:
    """A value of a file as the key takes it; raises Wrong."""
    if row.word is not None and value == row.word:
        return None
    return KINDS[row.kind].read(value, row)


def parse(text: str, row: Row) -> Any:
    """A value of the environment as the key takes it; raises Wrong."""
    return read(text if text == row.word else KINDS[row.kind].parse(text), row)


def allowed(row: Row) -> str:
    """What a key takes, in words."""
    words = KINDS[row.kind].words
    if row.choices:
        words = " or ".join(f'"{each}"' for each in row.choices)
    elif row.kind in ("whole", "dollars"):
        words += f" from {row.least:,}" + ("" if row.most is None else f" to {row.most:,}")
    return words if row.word is None else f'{words}, or "{row.word}"'


def _wrong(value: object, row: Row) -> Wrong:
    return Wrong(f"is {allowed(row)}; {shown(value)} is not")


def _whole(value: object, row: Row) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not _is_within(value, row):
        raise _wrong(value, row)
    return value


def _dollars(value: object, row: Row) -> Decimal:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise _wrong(value, row)
    amount = Decimal(value)
    if not amount.is_finite() or not _is_within(amount, row):
        raise _wrong(value, row)
    exponent = MANY.normalize(amount).as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > DECIMALS or len(amount.as_tuple().digits) > MANY.prec:
        raise Wrong(f"has more than {DECIMALS} digits behind the point")
    return amount.copy_abs()  # 0 has no sign


def _is_within(value: int | Decimal, row: Row) -> bool:
    return row.least <= value and (row.most is None or value <= row.most)


def _flag(value: object, row: Row) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, row)
    return value


def _text(value: object, row: Row) -> str:
    if not isinstance(value, str):
        raise _wrong(value, row)
    if len(value) > (row.most or LONGEST):
        raise Wrong(f"is longer than {row.most or LONGEST:,} characters")
    if not _is_unicode(value):
        raise Wrong("has bytes in it that are no text")
    return value


def _line(value: object, row: Row) -> str:
    text = _text(value, row)
    if not text.isprintable():
        raise Wrong("has characters in it that do not print")
    return text


def _name(value: object, row: Row) -> str:
    text = _line(value, row)
    if not text.strip():
        raise _wrong(value, row)
    return text


def _choice(value: object, row: Row) -> str:
    if not isinstance(value, str) or value not in row.choices:
        raise _wrong(value, row)
    return value


def _texts(value: object, row: Row) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong(value, row)
    if any("\0" in each or not _is_unicode(each) for each in value):
        raise Wrong("has a text in it that no program can be given")
    return tuple(value)


def _phrases(value: object, row: Row) -> tuple[str, ...]:
    phrases = _texts(value, row)
    if not all(each.strip() for each in phrases):
        raise Wrong("has an empty phrase in it, which would stand in every question")
    if not all(each.isprintable() for each in phrases):
        raise Wrong("has a phrase in it with characters that do not print")
    if any(len(each) > LONGEST for each in phrases):
        raise Wrong(f"has a phrase in it of more than {LONGEST:,} characters")
    return phrases


def _table(value: object, row: Row) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise Wrong(
            f"is {allowed(row)}; {'a value in it' if isinstance(value, dict) else shown(value)} is not"
        )
    return value


def _headers(value: object, row: Row) -> Mapping[str, str]:
    headers = _table(value, row)
    if not all(map(_HEADER.fullmatch, headers)):
        raise Wrong("has a name in it that no header can have: letters, digits, - and _ only")
    if len({each.lower() for each in headers}) < len(headers):
        raise Wrong("has a header in it twice: capitals make no difference")
    if not all(map(is_header_value, headers.values())):
        raise Wrong("has a value in it that no header can have: it is one line of plain ASCII")
    return MappingProxyType(dict(headers))


def is_header_value(text: str) -> bool:
    """Whether a text can be sent as the value of a header."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()


def _pairs(value: object, row: Row) -> Mapping[str, str]:
    value = _table(value, row)
    if not all(map(_VARIABLE.fullmatch, value)):
        raise Wrong("has a name in it that no variable can have: letters, digits and _ only")
    if any("\0" in each for each in value.values()):
        raise Wrong("has a value in it that no program can be given")
    return MappingProxyType(dict(value))


def _reference(value: object, _: Row) -> str:
    if not isinstance(value, str) or not _REFERENCE.fullmatch(value) or len(value) > LONGEST:
        raise Wrong(NO_LITERAL)  # whatever it is, it is not shown
    return value


def _endpoint(value: object, row: Row) -> str:
    text = _name(value, row)
    if "://" in text:
        return _url(text, row)
    from ullage.broker.providers import ALIASES, KNOWN  # noqa: PLC0415 - only for a model of one's own

    if ALIASES.get(text.lower(), text.lower()) not in KNOWN:
        known = ", ".join(KNOWN)
        raise Wrong(
            f"{shown(text)} is neither a provider ({known}) nor an address such as http://127.0.0.1:8080/v1"
        )
    return text


def _url(value: object, row: Row) -> str:
    """An address of a server, without anything that could be a secret; it is not shown where it is wrong."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - the same

    text = _name(value, row)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", text):
        raise Wrong("is no address of a server, such as http://127.0.0.1:8080/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise Wrong("is an address without user, password, ? and #: a key is given by itself")
    return text


def _is_unicode(text: str) -> bool:
    return not any(0xD800 <= ord(each) <= 0xDFFF for each in text)


# Texts of the environment


def _parse_whole(text: str) -> object:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        return text


def _parse_dollars(text: str) -> object:
    return number(text.strip().removeprefix("$")) if text.strip() else text


def number(text: str) -> Decimal:
    """A number with all its digits; what is none, or could not be kept, is not a number."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


KINDS: Mapping[str, Kind] = {
    "whole": Kind("a whole number", _whole, _parse_whole),
    "dollars": Kind("an amount of dollars", _dollars, _parse_dollars),
    "flag": Kind("true or false", _flag, lambda text: _BOOLEANS.get(text.strip().lower(), text)),
    "text": Kind("a text", _text),
    "line": Kind("a text on one line", _line),
    "name": Kind("a name", _name),
    "model": Kind("a model", _name),
    "choice": Kind("one of several words", _choice),
    "texts": Kind("a list of texts", _texts),
    "phrases": Kind("a list of words or phrases", _phrases),
    "pairs": Kind("a table of texts", _pairs),
    "headers": Kind("a table of texts", _headers),
    "reference": Kind('"env:NAME" or "file:PATH"', _reference),
    "endpoint": Kind("a provider or an address", _endpoint),
    "url": Kind("an address", _url),
}


def leads_somewhere(spec: str) -> str | None:
    """Why a model's name, given as `ullage model use` takes it, leads nowhere; None where it does."""
    if runs_here(spec):
        return None
    from ullage.broker.providers import endpoint_for  # noqa: PLC0415 - only for a model of one's own

    try:
        endpoint_for(spec, key="asked for later", environ={})
    except ConfigurationError as error:
        return str(error)
    return None
