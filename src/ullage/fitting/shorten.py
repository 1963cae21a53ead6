"""Shorter forms of one text: head and tail, error lines, a placeholder, and the handle of the whole."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HANDLE_LENGTH = 8

_LINE_CHARACTERS = 300  # of one error line
_ERROR_CHARACTERS = 1_200  # of all of them
_ERROR_LINES = 2  # from each end, for each mark
_ENOUGH_LINES = 6  # so many, and the other marks are not looked for


def handle_of(text: str, taken: Mapping[str, bytes]) -> tuple[str, bytes]:
    """The handle of a text and the hash behind it; longer where `taken` has it for another text."""
    digest = _hash(text)
    letters = _letters(digest)
    length = HANDLE_LENGTH
    while taken.get(letters[:length], digest) != digest:
        length += 1
    return letters[:length], digest


def letters_of(text: str) -> str:
    """The whole hash of a text in the letters of its handle, which are the first of these."""
    return _letters(_hash(text))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _letters(digest: bytes) -> str:
    return base64.b32encode(digest).decode().rstrip("=").lower()


def mark_of(tokens: int, handle: str | None) -> str:
    """The line that stands where the middle of a text was."""
    recall = f", recall {handle}" if handle else ""
    return f"[... {tokens} tokens cut{recall} ...]"


def cut_middle(
    text: str, room: int, tokens: int, count: Callable[[str], int], handle: str | None = None
) -> str:
    """Head and tail of `text` around a mark, at most `room` tokens where the mark alone fits.

    `tokens` is what the whole text counts. Counts are not additive over pieces, so the share of
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
    """The first characters, back to a line's end where one is near."""
    head = text[:keep]
    end = head.rfind("\n", keep * 4 // 5)
    return head if end < 0 else head[:end]


def _tail(text: str, keep: int) -> str:
    """The last characters, on to a line's start where one is near."""
    tail = text[len(text) - keep :]
    start = tail.find("\n", 0, keep // 5)
    return tail if start < 0 else tail[start + 1 :]


def is_error(text: str, marks: Sequence[str]) -> bool:
    """Whether a tool output tells of something that went wrong."""
    lowered = text.lower()
    for mark in marks:  # noqa: SIM110 - any() costs three times as much, on every output
        if mark in lowered:
            return True
    return False


def error_lines(text: str, marks: Sequence[str]) -> str:
    """The lines that tell what went wrong: the first and the last that each mark stands in."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters grow in lower case, and their lines would be off
        text = lowered
    starts: set[int] = set()
    for mark in marks:
        if len(starts) < _ENOUGH_LINES:
            starts |= _line_starts(lowered, mark)
    lines = [text[start : start + _LINE_CHARACTERS].partition("\n")[0].strip() for start in sorted(starts)]
    found = "\n".join(dict.fromkeys(filter(None, lines)))
    if len(found) > _ERROR_CHARACTERS:
        found = f"{_head(found, _ERROR_CHARACTERS // 2)}\n[...]\n{_tail(found, _ERROR_CHARACTERS // 2)}"
    return found


def _line_starts(text: str, mark: str) -> set[int]:
    """Where the first and the last lines begin that have `mark` in them."""
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
