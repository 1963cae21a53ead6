"""Cuts a text to the part that matches a query, and finds the query's words in it."""

from __future__ import annotations

import re
from math import log
from typing import TYPE_CHECKING

from ullage.fitting.relevance import passages, stems

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

GAP = "…"
"""Marks a place where text was left out."""
SHORT_CHARS = 160
"""Most characters of a turn beside a hit."""

_WORD = re.compile(r"[^\W_]+")
_LEAST = 24  # characters; a shorter part of a passage is of no use


def take_excerpt(text: str, sought: Collection[str], room: int, measure: Callable[[str], int]) -> str:
    """Returns the text, or its passages with the most stems, in at most `room` units of `measure`.

    Empty if the room is too small for any passage.
    """
    if measure(text) <= room:
        return text
    parts = passages(text, most=None)
    chosen: set[int] = set()
    for number in _by_relevance(parts, sought):
        if measure(_joined(parts, {*chosen, number})) > room:
            break
        chosen.add(number)
    if chosen:
        return _joined(parts, chosen)
    best = _by_relevance(parts, sought)
    return _cut(parts[best[0]], sought, room, measure) if best else ""


def _by_relevance(parts: Sequence[str], sought: Collection[str]) -> list[int]:
    """Returns the passages, those with the most stems first; a stem that few passages have counts more."""
    having = [frozenset(stems(part)).intersection(sought) for part in parts]
    holders = {stem: sum(stem in each for each in having) for stem in sought}
    worth = [sum(log(1 + len(parts) / holders[stem]) for stem in sorted(each)) for each in having]
    return sorted(range(len(parts)), key=lambda number: (-worth[number], number))


def _joined(parts: Sequence[str], chosen: Collection[int]) -> str:
    """Joins passages in the order of the text, with a mark for each gap."""
    lines: list[str] = []
    last = -1
    for number in sorted(chosen):
        if number != last + 1:
            lines.append(GAP)
        lines.append(parts[number].strip("\n"))
        last = number
    if last != len(parts) - 1:
        lines.append(GAP)
    return "\n".join(lines)


def _cut(passage: str, sought: Collection[str], room: int, measure: Callable[[str], int]) -> str:
    """Returns the part of a passage around the first word of the query, as long as the room allows."""
    first = next(find_words(passage, sought), (0, 0))[0]
    length = len(passage)
    while length >= _LEAST:
        start = max(0, min(first - length // 4, len(passage) - length))
        part = passage[start : start + length].strip()
        shown = f"{GAP if start else ''}{part}{GAP if start + length < len(passage) else ''}"
        if measure(shown) <= room:
            return shown
        length = length * 3 // 4
    return ""


def shorten_beside(text: str) -> str:
    """Returns a turn beside a hit, shortened to one line."""
    line = " ".join(text[: 2 * SHORT_CHARS].split())
    if len(line) <= SHORT_CHARS and len(text) <= 2 * SHORT_CHARS:
        return line
    return line[: SHORT_CHARS - 1].rsplit(" ", 1)[0] + GAP


def find_words(text: str, sought: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yields the begin and end of each word that has one of the stems, in order."""
    unspaced = [stem for stem in sought if not stem.isascii()]
    for word in _WORD.finditer(text):
        found = frozenset(stems(word.group())).intersection(sought)
        if not found:
            continue
        run = word.group().lower()
        inside = sorted(run.find(stem) for stem in unspaced if stem in run and stem != run)
        if inside and len(run) == len(word.group()):
            for at in inside:
                width = max(len(stem) for stem in unspaced if run.startswith(stem, at))
                yield word.start() + at, word.start() + at + width
        else:
            yield word.span()
