"""Values of facts: each is one bounded line, never cut inside a word; and tests for their shapes."""

from __future__ import annotations

import re
from functools import lru_cache

VALUE_CHARS = 200
"""Of a longer value, only the identifiers in it are kept."""
READ_CHARS = 1_600
"""Of a longer text, only the head and the tail are read."""
SEPARATOR = " · "
"""Separates the facts of a line; no fact contains it."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_INNER_DOT = re.compile(r" ·(?= )")
_IDENTIFIER = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z_@-])\S{5,}|[A-Z0-9]{5,}|\S+@\S+\.\S+")
_NUMBER = re.compile(r"[\d.,:%$ +-]*")
_HASH = re.compile(r"[0-9a-f]{7,64}")
_MEASURE = re.compile(r"[+-]?\d[\d.,:/-]*(?:[A-Za-z]{0,3}|\(?[^\x00-\x7f]+\)?)")
_MOMENT = re.compile(
    r"(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\d{4}-\d\d-\d\dT\S+"
)
_ROW = re.compile(r"[dl-](?:[r-][w-][xsStT-]){3}[.+@]?\s")
# Chinese and Japanese have no spaces: a text is cut behind a mark.
_GAP = re.compile(r"\s|(?<=[，。、；：！？])")
_LAST_GAP = re.compile(rf".*({_GAP.pattern})", re.DOTALL)


def one_line(text: str) -> str:
    """Returns the text without control characters and line breaks."""
    return text if text.isprintable() else _UNPRINTABLE.sub(" ", text)


def clean(text: str) -> str:
    """Returns the text as a value: on one line, with single spaces, and without the separator."""
    if not text.isprintable():
        text = " ".join(one_line(text).split())
    if "·" in text:
        text = _INNER_DOT.sub(" -", text).strip(" ·")
    return text.strip()


def head_of(text: str, most: int) -> str:
    """Returns the beginning of a text, cut at the end of a word; empty if its first word is too long."""
    if len(text) <= most:
        return text
    gap = _LAST_GAP.match(text, max(0, most - VALUE_CHARS), most + 1)
    return text[: gap.start(1)].rstrip() if gap else ""


def tail_of(text: str, most: int) -> str:
    """Returns the end of a text, from the start of a word; empty if its last word is too long."""
    if len(text) <= most:
        return text
    start = len(text) - most
    gap = _GAP.search(text, start - 1, start + VALUE_CHARS)
    return text[gap.end() :].lstrip() if gap else ""


@lru_cache(4)  # those who read a text ask for its ends one after another
def ends_of(text: str, most: int = READ_CHARS) -> str:
    """Returns the head and the tail of a long text as two lines; a short text unchanged."""
    if len(text) <= most:
        return text
    return f"{head_of(text, most // 2)}\n{tail_of(text, most // 2)}"


def is_identifier(value: str) -> bool:
    """Returns True if a word looks like an id, a code or an address."""
    return _IDENTIFIER.fullmatch(value) is not None


def is_hash(value: str) -> bool:
    """Returns True if a word may be a hash: digits and the letters a to f."""
    return _HASH.fullmatch(value) is not None


def is_measure(value: str) -> bool:
    """Returns True if a word is a date, a duration or a size: digits, and perhaps a unit or a country."""
    return _MEASURE.fullmatch(value) is not None


def is_number(value: str) -> bool:
    """Returns True if a value is a plain number, or consists of punctuation."""
    return _NUMBER.fullmatch(value) is not None


def is_moment(value: str) -> bool:
    """Returns True if a value is a time of day, or a date with a time of day."""
    return (":" in value or "T" in value) and _MOMENT.fullmatch(value) is not None


def is_row(line: str) -> bool:
    """Returns True for a row of `ls -l`."""
    return line[:1] in {"-", "d", "l"} and _ROW.match(line) is not None


def day_of(value: str) -> str:
    """Returns the date of a value that is a date with a time of day, else the value."""
    return value[:10] if len(value) > 10 and value[4:5] == "-" and is_moment(value) else value
