"""Shorter forms of one text: head and tail, or its error lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.fitting.values import head_of, tail_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LINE_CHARACTERS = 300  # of one error line
_ERROR_CHARACTERS = 1_200  # of all of them
_ERROR_LINES = 2  # from each end, for each mark
_ENOUGH_LINES = 6  # after so many lines, the other marks are not searched for


def mark_of(tokens: int, handle: str | None) -> str:
    """Returns the line that replaces the middle of a text."""
    recall = f", recall {handle}" if handle else ""
    return f"[... {tokens} tokens cut{recall} ...]"


def cut_middle(
    text: str, room: int, tokens: int, count: Callable[[str], int], handle: str | None = None
) -> str:
    """Returns head and tail of `text` around a mark, in at most `room` tokens; at least the mark.

    `tokens` is the count of the whole text. Counts are not additive over pieces, so the share of
    characters is a first guess that is checked and corrected.
    """
    share = room / max(1, tokens)
    for _ in range(8):
        keep = int(len(text) * share)
        if keep < 8:
            break
        head, tail = _head(text, keep - keep // 2), _tail(text, keep // 2)
        kept = len(head) + len(tail)
        mark = mark_of(round(tokens * (1 - kept / len(text))), handle)
        cut = f"{head}\n{mark}\n{tail}"
        used = count(cut)
        if used <= room:
            return cut
        share *= min(0.9, room / used)
    return mark_of(tokens, handle)


def _head(text: str, keep: int) -> str:
    """Returns the first characters, cut at the end of a line if one is near, else at the end of a word."""
    head = text[:keep]
    end = head.rfind("\n", keep * 4 // 5)
    return head_of(text, keep) or head if end < 0 else head[:end]


def _tail(text: str, keep: int) -> str:
    """Returns the last characters, from the start of a line if one is near, else from the start of a word."""
    tail = text[len(text) - keep :]
    start = tail.find("\n", 0, keep // 5)
    return tail_of(text, keep) or tail if start < 0 else tail[start + 1 :]


def is_error(text: str, marks: Sequence[str]) -> bool:
    """Returns True if a tool output reports an error."""
    lowered = text.lower()
    for mark in marks:  # noqa: SIM110 - any() costs three times as much, on every output
        if mark in lowered:
            return True
    return False


def error_lines(text: str, marks: Sequence[str]) -> str:
    """Returns the error lines of a text: the first and the last lines that contain each mark."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters grow in lower case, and their lines would be off
        text = lowered
    starts: set[int] = set()
    for mark in marks:
        if len(starts) < _ENOUGH_LINES:
            starts |= _line_starts(lowered, mark)
    lines = [_line_from(text, start) for start in sorted(starts)]
    found = "\n".join(dict.fromkeys(filter(None, lines)))
    if len(found) > _ERROR_CHARACTERS:
        found = f"{_head(found, _ERROR_CHARACTERS // 2)}\n[...]\n{_tail(found, _ERROR_CHARACTERS // 2)}"
    return found


def _line_from(text: str, start: int) -> str:
    """Returns the line that begins at `start`, cut at the end of a word if it is long."""
    line = text[start : start + 2 * _LINE_CHARACTERS].partition("\n")[0].strip()
    return head_of(line, _LINE_CHARACTERS) or line[:_LINE_CHARACTERS]


def _line_starts(text: str, mark: str) -> set[int]:
    """Returns the starts of the first and the last line that contain `mark`."""
    starts: set[int] = set()
    at = text.find(mark)
    while at >= 0 and len(starts) < _ERROR_LINES:
        starts.add(text.rfind("\n", 0, at) + 1)
        end = text.find("\n", at)
        at = text.find(mark, end) if end >= 0 else -1
    at = text.rfind(mark) if at >= 0 else -1
    while at >= 0 and len(starts) < 2 * _ERROR_LINES:
        start = text.rfind("\n", 0, at) + 1
        starts.add(start)
        at = text.rfind(mark, 0, start)
    return starts
