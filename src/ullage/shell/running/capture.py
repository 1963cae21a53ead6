"""What a command printed, as text that is bounded at both ends."""

from __future__ import annotations

import codecs
from collections import deque

from ullage.shell.running.plain import Plain


class Capture:
    """The output of one command: its bytes go in as they come, bounded text comes out at the end."""

    def __init__(self, *, most_chars: int, most_whole: int) -> None:
        self._most_chars = most_chars
        self._room = most_whole // 2
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._lost = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.plain = Plain(self._keep)

    def feed(self, data: bytes) -> None:
        """Take the next bytes, however they were cut."""
        text = self._decode(data)
        if text:
            self.plain.feed(text)

    def text(self) -> tuple[str, str | None]:
        """What to show of the output, and the whole of it where that is more; for once, at the end."""
        self.plain.feed(self._decode(b"", True))
        self.plain.end()
        tail = "".join(self._tail)
        over = max(0, len(tail) - self._room) if self._lost else 0
        parts = ["".join(self._head), tail[over:]]
        whole = _mark(self._lost + over).join(parts) if self._lost else "".join(parts)
        shown = cut(whole, self._most_chars)
        return shown, None if shown == whole else whole

    def _keep(self, text: str) -> None:
        free = self._room - self._head_size
        if free > 0:
            self._head.append(text[:free])
            self._head_size += len(self._head[-1])
            text = text[free:]
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size - len(self._tail[0]) >= self._room:
            lost = len(self._tail.popleft())
            self._tail_size -= lost
            self._lost += lost


def cut(text: str, most: int) -> str:
    """Head and tail of a text around a line that says how much is missing; the text itself if it is short."""
    if len(text) <= most:
        return text
    half = max(0, most - len(_mark(len(text)))) // 2
    head, tail = text[:half], text[len(text) - half :]
    end, start = head.rfind("\n", half * 4 // 5), tail.find("\n", 0, half // 5)
    head, tail = head[:end] if end >= 0 else head, tail[start + 1 :] if start >= 0 else tail
    return f"{head}{_mark(len(text) - len(head) - len(tail))}{tail}"


def _mark(lost: int) -> str:
    return f"\n[... {lost:,} characters left out ...]\n"
