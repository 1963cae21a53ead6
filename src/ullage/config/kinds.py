"""The types of values that keys accept: each is read from a file and parsed from the environment."""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.broker.embedded_info import runs_here
from ullage.config.problems import Wrong, show_value
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.config.key_row import KeyRow

DECIMALS = 12
"""Maximum number of decimal places of an amount, as many as a ledger stores."""
MANY = Context(prec=60)
"""A decimal context with enough digits for any amount; the caller's own context may have fewer."""
LONGEST = 1_000
"""Longest name, address or path, in characters."""
SERVER_NAME = re.compile(r"(?!.*__)[a-zA-Z0-9_-]{0,31}[a-zA-Z0-9-]")
NO_SERVER_NAME = (
    "invalid name of an MCP server, which begins the names of its tools: "
    "use up to 32 letters, digits, - and single _, and no _ at the end"
)
_HEADER = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"env:[A-Z_][A-Z0-9_]*|file:[^\0\r\n]+")
"""References to keys. Names of variables are in capitals only, so that most literal keys do not match."""
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True}
_BOOLEANS |= {"false": False, "0": False, "no": False, "off": False}

NO_LITERAL = (
    "do not write the key itself here. Either put it into a variable (export NAME=…) and write "
    '"env:NAME", in capitals, or put it into a private file (chmod 600 PATH) and write "file:PATH"'
)


class ValueKind(NamedTuple):
    """A type of value."""

    words: str
    """Its description in documents and errors."""
    read: Callable[[Any, KeyRow], Any]
    """Checks and converts a value of a TOML file; raises Wrong."""
    parse: Callable[[str], Any] = str
    """Converts the text of an environment variable to the value that a file would have; raises Wrong."""


def read(value: object, row: KeyRow) -> Any:
    """Returns the value of a key from its value in a file; raises Wrong if it is invalid."""
    if row.is_none(value):
        return None
    return KINDS[row.kind].read(value, row)


def parse(text: str, row: KeyRow) -> Any:
    """Returns the value of a key from an environment variable; raises Wrong if it is invalid."""
    return read(text if row.is_none(text) else KINDS[row.kind].parse(text), row)


def allowed(row: KeyRow) -> str:
    """Returns a description of the values that a key accepts."""
    words = KINDS[row.kind].words
    if row.choices:
        words = " or ".join(f'"{each}"' for each in row.choices)
    elif row.kind in ("whole", "dollars"):
        words += f" from {row.least:,}" + ("" if row.most is None else f" to {row.most:,}")
    return words if row.word is None else f'{words}, or "{row.word}"'


def _wrong(value: object, row: KeyRow) -> Wrong:
    return Wrong(f"must be {allowed(row)}, not {show_value(value)}")


def _whole(value: object, row: KeyRow) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not _is_within(value, row):
        raise _wrong(value, row)
    return value


def _dollars(value: object, row: KeyRow) -> Decimal:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise _wrong(value, row)
    amount = Decimal(value)
    if not amount.is_finite() or not _is_within(amount, row):
        raise _wrong(value, row)
    exponent = MANY.normalize(amount).as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > DECIMALS or len(amount.as_tuple().digits) > MANY.prec:
        raise Wrong(f"has more than {DECIMALS} decimal places")
    return amount.copy_abs()  # turns -0 into 0


def _is_within(value: int | Decimal, row: KeyRow) -> bool:
    return row.least <= value and (row.most is None or value <= row.most)


def _flag(value: object, row: KeyRow) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, row)
    return value


def _text(value: object, row: KeyRow) -> str:
    if not isinstance(value, str):
        raise _wrong(value, row)
    if len(value) > (row.most or LONGEST):
        raise Wrong(f"is longer than {row.most or LONGEST:,} characters")
    if not _is_unicode(value):
        raise Wrong("contains bytes that are not valid text")
    return value


def _line(value: object, row: KeyRow) -> str:
    text = _text(value, row)
    if not text.isprintable():
        raise Wrong("contains characters that are not printable")
    return text


def _name(value: object, row: KeyRow) -> str:
    text = _line(value, row)
    if not text.strip():
        raise _wrong(value, row)
    return text


def _choice(value: object, row: KeyRow) -> str:
    if not isinstance(value, str) or value not in row.choices:
        raise _wrong(value, row)
    return value


def _texts(value: object, row: KeyRow) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong(value, row)
    if any("\0" in each or not _is_unicode(each) for each in value):
        raise Wrong("contains a text that cannot be an argument of a program")
    return tuple(value)


def _phrases(value: object, row: KeyRow) -> tuple[str, ...]:
    phrases = _texts(value, row)
    if not all(each.strip() for each in phrases):
        raise Wrong("contains an empty phrase, which would match every question")
    if not all(each.isprintable() for each in phrases):
        raise Wrong("contains a phrase with characters that are not printable")
    if any(len(each) > LONGEST for each in phrases):
        raise Wrong(f"contains a phrase of more than {LONGEST:,} characters")
    return phrases


def _table(value: object, row: KeyRow) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(value, row)
    if not all(isinstance(each, str) for each in value.values()):
        raise Wrong(f"must be {allowed(row)}; a value in it is not a text")
    return value


def _headers(value: object, row: KeyRow) -> Mapping[str, str]:
    headers = _table(value, row)
    if not all(map(_HEADER.fullmatch, headers)):
        raise Wrong("contains an invalid header name: use letters, digits, - and _ only")
    if len({each.lower() for each in headers}) < len(headers):
        raise Wrong("contains a header twice: upper and lower case are the same")
    if not all(map(is_header_value, headers.values())):
        raise Wrong("contains an invalid header value: use one line of printable ASCII")
    return MappingProxyType(dict(headers))


def is_header_value(text: str) -> bool:
    """Returns True if a text is a valid value of an HTTP header."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()


def _pairs(value: object, row: KeyRow) -> Mapping[str, str]:
    value = _table(value, row)
    if not all(map(_VARIABLE.fullmatch, value)):
        raise Wrong("contains an invalid variable name: use letters, digits and _ only")
    if any("\0" in each for each in value.values()):
        raise Wrong("contains a value that cannot be in a program's environment")
    return MappingProxyType(dict(value))


def _reference(value: object, _: KeyRow) -> str:
    if not isinstance(value, str) or not _REFERENCE.fullmatch(value) or len(value) > LONGEST:
        raise Wrong(NO_LITERAL)  # the value may be a key, so the message does not show it
    return value


def _endpoint(value: object, row: KeyRow) -> str:
    text = _name(value, row)
    if "://" in text:
        return _url(text, row)
    from ullage.broker.registry import ALIASES, PROVIDERS  # noqa: PLC0415 - only needed for a configured model

    if ALIASES.get(text.lower(), text.lower()) not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise Wrong(
            f"must be a provider ({known}) or an address such as http://127.0.0.1:8080/v1, "
            f"not {show_value(text)}"
        )
    return text


def _url(value: object, row: KeyRow) -> str:
    """Returns the address of a server; an address that may contain a secret is invalid and never shown."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - only needed for an address

    text = _name(value, row)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", text):
        raise Wrong("must be the address of a server, such as http://127.0.0.1:8080/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise Wrong("must be an address without user, password, ? and #: keys have their own setting")
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
    """Returns an exact number; NaN if the text is not a number or is too large."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


KINDS: Mapping[str, ValueKind] = {
    "whole": ValueKind("a whole number", _whole, _parse_whole),
    "dollars": ValueKind("an amount of dollars", _dollars, _parse_dollars),
    "flag": ValueKind("true or false", _flag, lambda text: _BOOLEANS.get(text.strip().lower(), text)),
    "text": ValueKind("a text", _text),
    "line": ValueKind("a text on one line", _line),
    "name": ValueKind("a name", _name),
    "model": ValueKind("a model", _name),
    "choice": ValueKind("one of several words", _choice),
    "texts": ValueKind("a list of texts", _texts),
    "phrases": ValueKind("a list of words or phrases", _phrases),
    "pairs": ValueKind("a table of texts", _pairs),
    "headers": ValueKind("a table of texts", _headers),
    "reference": ValueKind('"env:NAME" or "file:PATH"', _reference),
    "endpoint": ValueKind("a provider or an address", _endpoint),
    "url": ValueKind("an address", _url),
}


def leads_somewhere(spec: str) -> str | None:
    """Returns the reason why a model's name, as for `ullage model use`, is invalid; None if it is valid."""
    if runs_here(spec):
        return None
    from ullage.broker.registry import endpoint_for  # noqa: PLC0415 - only needed for a configured model

    try:
        endpoint_for(spec, key="asked for later", environ={})
    except ConfigurationError as error:
        return str(error)
    return None
