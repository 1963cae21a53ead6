"""The fields of JSON texts: arguments of calls, and results that tools give as JSON."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from itertools import islice
from typing import Any

import orjson

from ullage.fitting.values import VALUE_CHARS, clean, is_identifier

MOST = 96
"""The most fields that are read from one JSON text."""

LITERAL_CHARS = 20_000
"""A longer text is not read as a Python literal, which takes fifty times as long as JSON."""

_NESTED = frozenset({'{"', "{'"})
# A key and its value, in JSON that may be cut short or stand inside a string.
_PAIR = re.compile(r'"([^"\\\n]{1,40})"\s?:\s?(?:"([^"\n]{1,200})"|(-?\d[\d.]*))(?=\s?[,}\]])')
_NOT_NAME = re.compile(r"[^\w.\-\[\]]+")


def load_json(text: str) -> Any:
    """Returns the JSON object or list in a text; None if the text is neither."""
    if text[:1] + text[-1:] not in ("{}", "[]"):  # a log line may begin like a list
        return None
    try:
        value = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        value = _load_literal(text)
    return value if isinstance(value, dict | list) else None


def _load_literal(text: str) -> Any:
    """Returns the value of a dict or a list as Python prints it: many tools give `str(result)`."""
    # A text with a backslash is left alone, because an unknown escape would warn.
    if len(text) > LITERAL_CHARS or not text.startswith(("{'", "[{'", "['")) or "\\" in text:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def scan_fields(text: str, most: int = MOST) -> list[tuple[str, str]]:
    """Returns the (key, value) pairs of JSON that was cut short; none if the text is not JSON at all."""
    if not text.startswith(("{", "[")) or '":' not in text:
        return []
    # A string that contains JSON has its quotation marks escaped.
    pairs = islice(_PAIR.finditer(text.replace('\\"', '"')), most)
    return [(name_of(pair[1]), clean(pair[2] or pair[3])) for pair in pairs]


def list_fields(value: Any, most: int = MOST) -> list[tuple[str, str]]:
    """Returns the (key, value) pairs of nested JSON in order; the items of a list have the list's key."""
    found: list[tuple[str, str]] = []
    stack: list[tuple[str, Any]] = [("", value)]
    while stack and len(found) < most:
        key, value = stack.pop()
        kind = type(value)  # orjson gives no subclasses
        if kind is str:
            is_nested = len(value) > VALUE_CHARS or value[:2] in _NESTED
            if is_nested and (inner := load_json(value.strip())) is not None:
                stack.append((key, inner))
            elif value:
                found.append((key, clean(value) if len(value) <= VALUE_CHARS else value))
        elif kind is dict:
            if key and _is_keyed_by_data(value):
                found += [(key, clean(k)) for k in islice(value, most) if len(k) <= VALUE_CHARS]
                stack += [(key, v) for v in reversed(value.values())]
            else:
                stack += [(name_of(k[:40]), v) for k, v in reversed(value.items())]
        elif kind is list:
            stack += [(key, v) for v in reversed(value)]
        elif kind is int or kind is float:
            found.append((key, str(value)))
    return found


@lru_cache(1_000)
def name_of(key: str) -> str:
    """Returns a JSON key as a name that can be written before an equals sign."""
    return _NOT_NAME.sub("_", key)


def _is_keyed_by_data(value: dict[str, Any]) -> bool:
    """Returns True if the keys of an object are ids or dates, not names of fields."""
    first = next(iter(value), "")[:40]
    return sum(map(str.isdigit, first)) >= 2 and is_identifier(first)
