"""Cuts the bytes of an answer into frames, which are server-sent events or lines of JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from ullage.broker.dialect import Frame
from ullage.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BYTES = 8 * 1024 * 1024
"""Most bytes of a line or an event, which limits the memory; no model sends a larger one."""

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


def _too_large(what: str, most: int) -> ProviderError:
    return ProviderError(
        f"the answer has {what} of more than {most:,} bytes, which no model sends. Check the address.",
        code="frame_too_large",
    )


class _Lines:
    """Cuts bytes into lines, and raises an error for a line that is too long."""

    def __init__(self, ends: re.Pattern[bytes], most: int) -> None:
        self._ends = ends
        self._most = most
        self._open = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        *lines, rest = self._ends.split(chunk)
        for line in lines:
            yield self._close_line(line)
        self._add(rest)

    def rest(self) -> bytes:
        return self._close_line(b"")

    def _close_line(self, line: bytes) -> bytes:
        self._add(line)
        whole = bytes(self._open)
        self._open.clear()
        return whole

    def _add(self, piece: bytes) -> None:
        if len(self._open) + len(piece) > self._most:
            self._open.clear()
            raise _too_large("a line", self._most)
        self._open += piece


class SseFramer:
    """Cuts server-sent events by the WHATWG rules; an event without a blank line after it is dropped."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._lines = _Lines(_LINE_END, most)
        self._after_return = False
        self._first = True
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yields the events that are complete now."""
        if not chunk:
            return
        # A line feed right after a carriage return belongs to it, even if the network split them.
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_return = chunk.endswith(b"\r")
        for line in self._lines.feed(chunk):
            if not line:
                yield from self._dispatch()
            else:
                self._field(line)
            self._first = False

    def end(self) -> Iterable[Frame]:
        """Returns nothing, because an unfinished event does not count."""
        return ()

    def _field(self, line: bytes) -> None:
        if self._first:
            line = line.removeprefix(_BOM)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if (
            name == b"error" and value[:1] == b"{"
        ):  # some llama.cpp servers send an error in a field of its own
            name, value = b"data", b'{"error":' + value + b"}"
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._most:
                raise _too_large("an event", self._most)
            self._data.append(value.decode("utf-8", "replace"))
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")

    def _dispatch(self) -> Iterator[Frame]:
        data, event = self._data, self._event
        self._data, self._event, self._size = [], "", 0
        if data:
            yield Frame("\n".join(data), event)


class JsonLinesFramer:
    """Cuts lines of JSON. Empty lines are ignored, and a complete last line needs no line end."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._lines = _Lines(re.compile(rb"\n"), most)

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yields the lines that are complete now."""
        for line in self._lines.feed(chunk):
            if text := line.strip():
                yield Frame(text.decode("utf-8", "replace"))

    def end(self) -> Iterator[Frame]:
        """Yields the last line, unless it was cut."""
        text = self._lines.rest().strip()
        if not text:
            return
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            return
        yield Frame(text.decode())
