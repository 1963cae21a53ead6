"""The tally of an answer: its usage, and whether it is complete, read from the bytes that passed.

Nothing is parsed while the answer streams. At its end only the events that carry usage are parsed. If
no event does, the whole answer is read, so that its text can be counted.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import orjson

from ullage.broker.dialects import DIALECTS
from ullage.broker.dialects.shared import mapping, usage_of
from ullage.broker.events import Reasoning, Text, ToolCall, Used
from ullage.errors import UllageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.target import ApiName
    from ullage.usage import Usage

MOST_KEPT = 4 * 1024 * 1024
"""Most bytes of an answer that are kept until its end, for its count."""
BYTES_A_TOKEN = 4
"""Bytes of a stream that are counted as one token, in the part that was not kept. A stream has more bytes for
each token, so the count is too high and never too low."""

PLACES = (("usage", ""), ("message", "usage"), ("response", "usage"), ("x_groq", "usage"))
"""The places of the usage in an event or an answer: a member, and the member inside it."""
ENDS: Mapping[ApiName, re.Pattern[bytes]] = {
    "openai.chat": re.compile(rb'data:\s*\[DONE\]|"finish_reason"\s*:\s*"|"error"\s*:\s*[{"]'),
    "openai.responses": re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"'),
    "anthropic.messages": re.compile(rb'"type"\s*:\s*"(?:message_stop|error)"'),
}
"""The marks of a complete stream, by API."""
END = 256
"""Bytes at the end of a stream where its mark is looked for first."""
_USAGE = re.compile(rb'"usage"\s*:\s*\{')


class Tally:
    """Collects the bytes of one answer."""

    def __init__(self, api: ApiName, *, streamed: bool) -> None:
        self._api = api
        self._streamed = streamed
        self._pieces: list[bytes] = []
        self._size = 0
        self._dropped = 0
        self._is_complete = not streamed
        self.begun: float | None = None
        """The time of the first bytes, by `time.perf_counter`; None before them."""

    def add(self, chunk: bytes) -> None:
        """Adds the next bytes; in a very long answer the middle is only counted."""
        if self.begun is None:
            self.begun = time.perf_counter()
        self._pieces.append(chunk)
        self._size += len(chunk)
        while self._size > MOST_KEPT and len(self._pieces) > 2:
            gone = len(self._pieces.pop(1))
            self._size -= gone
            self._dropped += gone

    @property
    def size(self) -> int:
        """The bytes that came."""
        return self._size + self._dropped

    def is_complete(self) -> bool:
        """Returns True if the answer has the mark of its end."""
        if not self._is_complete:
            mark, whole = ENDS[self._api], self._whole()
            found = mark.search(whole, max(0, len(whole) - END)) or mark.search(whole)
            self._is_complete = found is not None
        return self._is_complete

    def usage(self) -> Usage | None:
        """Returns the usage that the upstream reported; None if it reported none."""
        found: dict[str, Any] = {}
        for value in self._values():
            for first, then in PLACES:
                inner = value.get(first)
                if not inner:
                    continue
                if then:
                    inner = mapping(inner).get(then)
                if inner:
                    # Anthropic reports the input at the beginning and the output at the end
                    found |= {name: each for name, each in mapping(inner).items() if each is not None}
        return usage_of(found, self._api) or self._usage_in_events()

    def text(self) -> str:
        """Returns all that the model wrote, for a count of our own."""
        if not self._streamed:
            value = next(self._values(), {})
            return "".join(_strings([value.get(name) for name in ("choices", "content", "output")]))
        written: list[str] = []
        for event in self._events():
            if isinstance(event, Text | Reasoning):
                written.append(event.text)
            elif isinstance(event, ToolCall):
                written += (event.name, event.arguments)
        return "".join(written)

    @property
    def unread(self) -> int:
        """Tokens of the part that was not kept, estimated high."""
        return self._dropped // BYTES_A_TOKEN

    def _whole(self) -> bytes:
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0] if self._pieces else b""

    def _values(self) -> Iterator[dict[str, Any]]:
        """Yields the JSON objects that may have usage."""
        if not self._streamed:
            yield _object(self._whole())
            return
        whole = self._whole().replace(b"\r\n", b"\n")
        end = 0
        while found := _USAGE.search(whole, end):
            start = max(end, whole.rfind(b"\n\n", end, found.start()))
            end = whole.find(b"\n\n", found.end())
            end = len(whole) if end < 0 else end
            lines = whole[start:end].splitlines()
            yield _object(b"".join(line[5:].strip() for line in lines if line.startswith(b"data:")))

    def _usage_in_events(self) -> Usage | None:
        """Returns a usage that stands in a field of its own, such as the timings of llama.cpp."""
        if not self._streamed or b'"timings"' not in self._whole():
            return None
        used = [event.usage for event in self._events() if isinstance(event, Used)]
        return used[-1] if used else None

    def _events(self) -> Iterator[Any]:
        """Yields the events of a stream, up to the place where it broke off or failed."""
        dialect = DIALECTS[self._api]
        framer, reader = dialect.framer(), dialect.reader()
        try:
            for frame in framer.feed(self._whole()):
                yield from reader.read(frame)
            yield from reader.end()
        except UllageError:  # the events so far are the result
            return


def _object(data: bytes) -> dict[str, Any]:
    try:
        return mapping(orjson.loads(data))
    except orjson.JSONDecodeError:
        return {}


def _strings(value: Any) -> Iterator[str]:
    """Yields all strings in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
