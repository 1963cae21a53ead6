"""Anthropic's messages: an answer of blocks, whole with `message_stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ullage.broker.dialect import Dialect
from ullage.broker.dialects.shared import JSON, Ending, Part, decoded, mapping, merged, text
from ullage.broker.events import Finished, Reasoning, Text
from ullage.broker.frames import SseFramer
from ullage.broker.refusals import refusal
from ullage.models import model_info
from ullage.wire import Request, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.broker.dialect import Frame
    from ullage.broker.endpoint import Key
    from ullage.broker.events import Event
    from ullage.broker.provider import Ask

API = "anthropic.messages"
VERSION = "2023-06-01"
MAX_OUTPUT = 4_096
"""What is asked for where nothing is known of the model: this API cannot be asked without a limit."""

REASONS = {
    "end_turn": Finished("stop"),
    "stop_sequence": Finished("stop", "stop_sequence"),
    "max_tokens": Finished("length"),
    "model_context_window_exceeded": Finished("length", "model_context_window_exceeded"),
    "tool_use": Finished("tool_calls"),
    "refusal": Finished("refused", "refusal"),
    "pause_turn": Finished("other", "pause_turn"),
}


def body(model: str, ask: Ask) -> dict[str, Any]:
    """A request's body, with streaming switched on; usage always comes."""
    written = write(Request(model=model, messages=ask.messages, tools=ask.tools), API)
    info = model_info(model)
    default = MAX_OUTPUT if info is None or info.max_output is None else info.max_output
    written |= {"stream": True, "max_tokens": default if ask.max_output is None else ask.max_output}
    return merged(written, ask.options)


def headers(key: Key | None) -> Mapping[str, str]:
    """The API's version, and the key where there is one."""
    told = {**JSON, "anthropic-version": VERSION}
    return told if key is None else {**told, "x-api-key": key.reveal()}


class MessagesReader:
    """Reads the events of one answer."""

    def __init__(self) -> None:
        self._ending = Ending(API, REASONS)
        self._answer = ""
        self._word: str | None = None
        self._usage: dict[str, Any] = {}
        self._open: dict[Any, tuple[Part, Any]] = {}

    def read(self, frame: Frame) -> Iterator[Event]:
        """What an event tells."""
        if self._ending.over or not frame.data.strip() or frame.data.strip() == "[DONE]":
            return
        event = decoded(frame)
        handle = self._handlers.get(text(event.get("type")) or frame.event)
        if handle is not None:
            yield from handle(self, event)

    def end(self) -> Iterator[Event]:
        """Nothing; raises StreamBroken where the answer was not at its end."""
        return self._ending.end()

    def _start(self, event: dict[str, Any]) -> Iterator[Event]:
        message = mapping(event.get("message"))
        self._answer = text(message.get("id"))
        yield from self._used(message.get("usage"))

    def _used(self, usage: Any) -> Iterator[Event]:
        """The usage so far: what comes later replaces figure by figure, and leaves most of them out."""
        self._usage |= {name: value for name, value in mapping(usage).items() if value is not None}
        yield from self._ending.told(self._usage)

    def _block(self, event: dict[str, Any]) -> Iterator[Event]:
        block = mapping(event.get("content_block"))
        kind = block.get("type")
        if kind == "tool_use":
            part = Part(id=text(block.get("id")), name=text(block.get("name")))
            self._open[_index(event)] = (part, block.get("input"))
        elif kind == "text" and text(block.get("text")):
            yield Text(block["text"])
        elif kind == "thinking" and text(block.get("thinking")):
            yield Reasoning(block["thinking"])

    def _delta(self, event: dict[str, Any]) -> Iterator[Event]:
        delta = mapping(event.get("delta"))
        kind = delta.get("type")
        if kind == "text_delta" and text(delta.get("text")):
            yield Text(delta["text"])
        elif kind == "thinking_delta" and text(delta.get("thinking")):
            yield Reasoning(delta["thinking"])
        elif kind == "input_json_delta" and _index(event) in self._open:
            self._open[_index(event)][0].add(text(delta.get("partial_json")))

    def _stop(self, event: dict[str, Any]) -> Iterator[Event]:
        part, given = self._open.pop(_index(event), (None, None))
        if part is None or not part.name:
            return
        if not "".join(part.arguments) and given:
            part.add(given)  # a few servers send the arguments whole, at the block's beginning
        yield self._ending.call(part, self._answer)

    def _message_delta(self, event: dict[str, Any]) -> Iterator[Event]:
        self._word = text(mapping(event.get("delta")).get("stop_reason")) or self._word
        yield from self._used(event.get("usage"))

    def _message_stop(self, _: dict[str, Any]) -> Iterator[Event]:
        yield from self._ending.finished(self._word)

    def _error(self, event: dict[str, Any]) -> Iterator[Event]:
        raise refusal(None, event)
        yield  # an iterator, as the others are

    _handlers: ClassVar[Mapping[str, Callable[[MessagesReader, dict[str, Any]], Iterator[Event]]]] = {
        "message_start": _start,
        "content_block_start": _block,
        "content_block_delta": _delta,
        "content_block_stop": _stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "error": _error,
    }


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else -1


DIALECT = Dialect(path="/messages", body=body, headers=headers, framer=SseFramer, reader=MessagesReader)
