"""What the readers of all dialects have in common: careful access, calls put together, the one ending."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b32encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from ullage.broker.events import Finished, ToolCall, Used
from ullage.errors import StreamBroken
from ullage.usage import Usage, read_usage
from ullage.wire.usage import counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.broker.dialect import Frame
    from ullage.broker.endpoint import Key
    from ullage.broker.events import Event

QUOTED = 120
"""The most characters of a provider's answer that an error repeats."""

HALF = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
"""The escape of one half of a character without its other half."""

JSON = {"content-type": "application/json"}


# Asking


def bearer(key: Key | None) -> Mapping[str, str]:
    """The headers of most APIs: the key as a bearer's, none without a key."""
    return JSON if key is None else {**JSON, "authorization": f"Bearer {key.reveal()}"}


def merged(body: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """A body with the caller's options over it; an option that is None takes the member out."""
    return {name: value for name, value in {**body, **options}.items() if value is not None}


# Reading


def decoded(frame: Frame) -> dict[str, Any]:
    """The object in a frame; raises StreamBroken, quoting a little of it, where it is none."""
    try:
        value = orjson.loads(frame.data)
    except orjson.JSONDecodeError:
        value = _loosely(frame.data)
    if isinstance(value, dict):
        return value
    raise StreamBroken(
        f"the answer holds what is no JSON object: {quoted(frame.data)}. Check that the address is that of "
        "the API and not of something before it.",
        may_retry=True,
    )


def _loosely(data: str) -> Any:
    """What servers in Python send that is no JSON by the book: NaN, and halves of a character; else None."""
    try:
        return json.loads(HALF.sub(r"\\ufffd", data))
    except (ValueError, RecursionError):
        return None


def quoted(text: str) -> str:
    """The beginning of a text, as an error may show it."""
    return repr(text if len(text) <= QUOTED else text[:QUOTED] + "…")


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is an object, an empty one where it is not."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """The value where it is a string, an empty one where it is not."""
    return value if isinstance(value, str) else ""


def usage_of(usage: Any, api: str) -> Usage | None:
    """A usage object of this API as a Usage, with what the provider says that it charged; None for none."""
    return None if counts(usage, api) is None else read_usage(usage, api)


def broken(what: str = "the answer") -> StreamBroken:
    """The error for a stream that ended before its end."""
    return StreamBroken(
        f"{what} ended before its end: the connection or the server gave up. Ask again.", may_retry=True
    )


@dataclass
class Part:
    """A call of which pieces have come."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, given: Any) -> None:
        """Adds a piece of the arguments: text, or a whole object that stands for them all."""
        if isinstance(given, str):
            self.arguments.append(given)
        elif isinstance(given, dict):
            self.arguments = [orjson.dumps(given).decode()]

    @property
    def whole(self) -> bool:
        """Whether the arguments are all there."""
        try:
            orjson.loads("".join(self.arguments))
        except orjson.JSONDecodeError:
            return False
        return True

    def call(self, number: int, answer: str) -> ToolCall:
        """The call, with an id made from what it is where it came without one."""
        arguments = "".join(self.arguments)
        arguments = arguments if arguments.strip() else "{}"
        identity = self.id or made_id(answer, str(number), self.name, arguments)
        return ToolCall(identity, self.name, arguments)


def made_id(*of: str) -> str:
    """An id for a call that has none: the same for the same stream, another for any other call."""
    digest = hashlib.sha256("\0".join(of).encode("utf-8", "surrogatepass")).digest()
    return "call_" + b32encode(digest[:15]).decode().lower()


class Ending:
    """The state that every reader keeps: what was used last, how it ended, and that it ended once."""

    def __init__(self, api: str, reasons: Mapping[str, Finished]) -> None:
        self.api = api
        self.reasons = reasons
        self.usage: Usage | None = None
        self.calls = 0
        self.refused = False
        self.over = False
        self._ids: set[str] = set()

    def call(self, part: Part, answer: str) -> ToolCall:
        """The event for a call that is all there; an id that an earlier call has is none."""
        if part.id in self._ids:
            part.id = ""
        made = part.call(self.calls, answer)
        self._ids.add(made.id)
        self.calls += 1
        return made

    def used(self, usage: Usage | None) -> Iterator[Event]:
        """The event for a usage, where it says something new."""
        if usage is not None and usage != self.usage:
            self.usage = usage
            yield Used(usage)

    def told(self, usage: Any) -> Iterator[Event]:
        """The event for a usage object as it came."""
        yield from self.used(usage_of(usage, self.api))

    def finished(self, word: Any) -> Iterator[Event]:
        """The last event, for the provider's word for the end."""
        self.over = True
        ended = self.reasons.get(text(word)) or Finished("other", text(word)[:QUOTED])
        if self.refused:
            ended = Finished("refused", "refusal")
        elif self.calls and (ended.reason == "stop" or not word):
            ended = Finished("tool_calls")  # several servers say stop, or nothing, where calls are open
        yield ended

    def end(self) -> Iterator[Event]:
        """Nothing after the last event; raises StreamBroken where that has not come."""
        if not self.over:
            raise broken()
        yield from ()
