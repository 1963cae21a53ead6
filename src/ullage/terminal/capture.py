"""Captures the output of a command as text of limited length."""

from __future__ import annotations

import codecs
from collections import deque

from ullage.terminal.plain_text import Plain


class Capture:
    """Takes the output of one command as bytes, and returns text of limited length at the end."""

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
        """Takes the next bytes; they may be split anywhere."""
        text = self._decode(data)
        if text:
            self.plain.feed(text)

    def text(self) -> tuple[str, str | None]:
        """Returns the text to show, and the whole text if that is longer; to be called once, at the end."""
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
    """Returns the head and tail of a long text with the number of missing characters between."""
    if len(text) <= most:
        return text
    half = max(0, most - len(_mark(len(text)))) // 2
    head, tail = text[:half], text[len(text) - half :]
    end, start = head.rfind("\n", half * 4 // 5), tail.find("\n", 0, half // 5)
    head, tail = head[:end] if end >= 0 else head, tail[start + 1 :] if start >= 0 else tail
    return f"{head}{_mark(len(text) - len(head) - len(tail))}{tail}"


def _mark(lost: int) -> str:
    return f"\n[... {lost:,} characters left out ...]\n"
