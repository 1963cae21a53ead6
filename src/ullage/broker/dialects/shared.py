"""Shared parts of all readers: access to values, calls that come in pieces, and the state of an answer."""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ullage.broker.dialect import Progress
from ullage.broker.events import Finished, ToolCall, Used
from ullage.broker.jsontext import dump, load
from ullage.errors import StreamBroken
from ullage.usage import Usage, usage_from
from ullage.wire import usage_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.broker.dialect import Frame
    from ullage.broker.endpoint import Key
    from ullage.broker.events import Event
    from ullage.target import ApiName

QUOTED = 120
"""Most characters of a provider's answer that an error repeats."""

MARKS = re.compile(r'\\.|\\\Z|["{}\[\]]', re.DOTALL)
"""Pattern of the characters that change the depth in a JSON text: quotes, brackets, and escapes."""

JSON = {"content-type": "application/json"}


# Requests


def bearer(key: Key | None) -> Mapping[str, str]:
    """Returns the headers of most APIs: the key as a bearer token, or none without a key."""
    return JSON if key is None else {**JSON, "authorization": f"Bearer {key.reveal()}"}


def merge_options(body: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a body with the caller's options added; an option that is None removes the member."""
    return {name: value for name, value in {**body, **options}.items() if value is not None}


# Answers


def decode_frame(frame: Frame) -> dict[str, Any]:
    """Returns the object in a frame; raises StreamBroken, which quotes the start, if it has no object."""
    value = load(frame.data)
    if isinstance(value, dict):
        return value
    raise StreamBroken(
        f"the answer has a part that is not a JSON object: {quote_start(frame.data)}. Check that the address "
        "is that of the API.",
        may_retry=True,
    )


def quote_start(text: str) -> str:
    """Returns the beginning of a text, as an error may show it."""
    return repr(text if len(text) <= QUOTED else text[:QUOTED] + "…")


def mapping(value: Any) -> dict[str, Any]:
    """Returns the value if it is an object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[dict[str, Any]]:
    """Returns the objects of a list; an empty list for any other value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Returns the value if it is a string, otherwise an empty string."""
    return value if isinstance(value, str) else ""


def usage_of(usage: Any, api: ApiName) -> Usage | None:
    """Returns a usage object of this API as a Usage, with the charge if stated; None if it is not one."""
    counts = usage_counts(usage, api)
    return None if counts is None else usage_from(counts, usage.get("cost"))


def make_stream_broken(what: str = "the answer") -> StreamBroken:
    """Returns the error for a stream that ended too early."""
    return StreamBroken(f"{what} broke off: the connection or the server failed. Ask again.", may_retry=True)


@dataclass
class Part:
    """A call that comes in pieces."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    _depth: int = 0
    _quoted: bool = False
    _escaped: bool = False
    _closed: bool = False

    def add(self, given: Any) -> Iterator[Progress]:
        """Adds a piece of the arguments: text, or a whole object that replaces them all."""
        if isinstance(given, dict):
            self.arguments = [dump(given).decode()]
            self._closed = True
            yield Progress(len(self.arguments[0]))
        elif isinstance(given, str) and given:
            self.arguments.append(given)
            self._follow(given)
            yield Progress(len(given))

    @property
    def whole(self) -> bool:
        """True once the JSON object of the arguments is complete."""
        return self._closed

    def _follow(self, piece: str) -> None:
        """Counts the open brackets, so that no piece is read twice."""
        start, self._escaped = int(self._escaped), False
        for found in MARKS.finditer(piece, start):
            mark = found[0]
            if mark[0] == "\\":
                self._escaped = len(mark) == 1
            elif mark == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += 1 if mark in "{[" else -1
                self._closed = self._closed or self._depth <= 0

    def call(self, number: int, answer: str) -> ToolCall:
        """Returns the call; if it came without an id, the id is made from its content."""
        arguments = "".join(self.arguments)
        arguments = arguments if arguments.strip() else "{}"
        identity = self.id or make_id(answer, str(number), self.name, arguments)
        return ToolCall(identity, self.name, arguments)


def make_id(*of: str) -> str:
    """Returns an id for a call without one: the same for the same stream, another for any other call."""
    digest = hashlib.sha256("\0".join(of).encode("utf-8", "surrogatepass")).digest()
    return "call_" + b32encode(digest[:15]).decode().lower()


class AnswerState:
    """The state that every reader keeps: the last usage, the end, and the ids of calls."""

    def __init__(self, api: ApiName, reasons: Mapping[str, Finished]) -> None:
        self.api = api
        self.reasons = reasons
        self.usage: Usage | None = None
        self.calls = 0
        self.refused = False
        self.over = False
        self._ids: set[str] = set()

    def call(self, part: Part, answer: str) -> ToolCall:
        """Returns the event for a complete call; an id that an earlier call has is replaced."""
        if part.id in self._ids:
            part.id = ""
        made = part.call(self.calls, answer)
        self._ids.add(made.id)
        self.calls += 1
        return made

    def set_usage(self, usage: Usage | None) -> Iterator[Event]:
        """Yields the event for a usage, if it is new."""
        if usage is not None and usage != self.usage:
            self.usage = usage
            yield Used(usage)

    def read_usage(self, usage: Any) -> Iterator[Event]:
        """Yields the event for a usage object of the API."""
        yield from self.set_usage(usage_of(usage, self.api))

    def finish(self, word: Any) -> Iterator[Event]:
        """Yields the last event; `word` is the provider's name for the reason of the end."""
        self.over = True
        ended = self.reasons.get(text(word)) or Finished("other", text(word)[:QUOTED])
        if self.refused:
            ended = Finished("refused", "refusal")
        elif self.calls and (ended.reason == "stop" or not word):
            ended = Finished("tool_calls")  # several servers send `stop`, or nothing, although calls are open
        yield ended

    def end(self) -> Iterator[Event]:
        """Yields nothing after the last event; raises StreamBroken if that has not come."""
        if not self.over:
            raise make_stream_broken()
        yield from ()
