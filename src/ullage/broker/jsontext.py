"""Reads and writes JSON with integers of any length; orjson stops at 64 bits."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

HALF = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
"""Pattern of an escaped surrogate without its other half."""
LONG = re.compile(r"\d{19}")
"""Pattern of digits that may be an integer of more than 64 bits, which orjson would round."""
MOST_DIGITS = 4_000
"""Most digits of an integer; Python rejects many more, because reading them takes quadratic time."""


def dump(value: Any) -> bytes:
    """Returns the value as JSON; raises TypeError or ValueError if JSON cannot hold it."""
    try:
        return orjson.dumps(value)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8")


def load(text: str) -> Any:
    """Returns the value of a JSON text; None if it is not JSON.

    It also reads NaN and lone surrogates, which servers in Python send although they are not valid JSON.
    """
    try:
        if not LONG.search(text):
            return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(HALF.sub(r"\\ufffd", text), parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)
