"""Anthropic's messages API: an answer has blocks, and is complete with `message_stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ullage.broker.dialect import Dialect, Progress
from ullage.broker.dialects.shared import JSON, AnswerState, Part, decode_frame, mapping, merge_options, text
from ullage.broker.events import Finished, Reasoning, Text
from ullage.broker.frames import SseFramer
from ullage.broker.refusals import refusal
from ullage.models import model_info
from ullage.wire import Request, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.broker.ask import Ask
    from ullage.broker.dialect import Frame
    from ullage.broker.endpoint import Key
    from ullage.broker.events import Event
    from ullage.target import ApiName

API: ApiName = "anthropic.messages"
VERSION = "2023-06-01"
MAX_OUTPUT = 4_096
"""The output limit in tokens for an unknown model, because this API requires one."""

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
    """Returns the body of a request, with streaming enabled; usage always comes."""
    written = write(Request(model=model, messages=ask.messages, tools=ask.tools), API)
    info = model_info(model)
    default = MAX_OUTPUT if info is None or info.max_output is None else info.max_output
    written |= {"stream": True, "max_tokens": default if ask.max_output is None else ask.max_output}
    return merge_options(written, ask.options)


def headers(key: Key | None) -> Mapping[str, str]:
    """Returns the API's version, and the key if there is one."""
    sent = {**JSON, "anthropic-version": VERSION}
    return sent if key is None else {**sent, "x-api-key": key.reveal()}


class MessagesReader:
    """Reads the events of one answer."""

    def __init__(self) -> None:
        self._ending = AnswerState(API, REASONS)
        self._answer = ""
        self._word: str | None = None
        self._usage: dict[str, Any] = {}
        self._open: dict[Any, tuple[Part, Any]] = {}

    @property
    def whole(self) -> bool:
        """True once the reason for the end has come."""
        return self._ending.over or self._word is not None

    def read(self, frame: Frame) -> Iterator[Event | Progress]:
        """Returns the events of a frame."""
        if self._ending.over or not frame.data.strip() or frame.data.strip() == "[DONE]":
            return
        event = decode_frame(frame)
        handle = self._handlers.get(text(event.get("type")) or frame.event)
        if handle is not None:
            yield from handle(self, event)

    def end(self) -> Iterator[Event]:
        """Yields the last event if the reason for the end has come; raises StreamBroken if it has not."""
        if self.whole and not self._ending.over:
            return self._ending.finish(self._word)
        return self._ending.end()

    def _start(self, event: dict[str, Any]) -> Iterator[Event]:
        message = mapping(event.get("message"))
        self._answer = text(message.get("id"))
        yield from self._merge_usage(message.get("usage"))

    def _merge_usage(self, usage: Any) -> Iterator[Event]:
        """Yields the usage so far; each later object replaces only the numbers that it has."""
        self._usage |= {name: value for name, value in mapping(usage).items() if value is not None}
        yield from self._ending.read_usage(self._usage)

    def _block(self, event: dict[str, Any]) -> Iterator[Event | Progress]:
        block = mapping(event.get("content_block"))
        kind = block.get("type")
        yield Progress(0)
        if kind == "tool_use":
            part = Part(id=text(block.get("id")), name=text(block.get("name")))
            self._open[_index(event)] = (part, block.get("input"))
        elif kind == "text" and text(block.get("text")):
            yield Text(block["text"])
        elif kind == "thinking" and text(block.get("thinking")):
            yield Reasoning(block["thinking"])

    def _delta(self, event: dict[str, Any]) -> Iterator[Event | Progress]:
        delta = mapping(event.get("delta"))
        kind = delta.get("type")
        if kind == "text_delta" and text(delta.get("text")):
            yield Text(delta["text"])
        elif kind == "thinking_delta" and text(delta.get("thinking")):
            yield Reasoning(delta["thinking"])
        elif kind == "input_json_delta" and _index(event) in self._open:
            yield from self._open[_index(event)][0].add(text(delta.get("partial_json")))
        elif kind == "signature_delta" and text(delta.get("signature")):
            yield Progress(len(delta["signature"]))

    def _stop(self, event: dict[str, Any]) -> Iterator[Event | Progress]:
        part, given = self._open.pop(_index(event), (None, None))
        if part is None or not part.name:
            return
        if not "".join(part.arguments) and given:
            yield from part.add(given)  # a few servers send the whole arguments at the block's beginning
        yield self._ending.call(part, self._answer)

    def _message_delta(self, event: dict[str, Any]) -> Iterator[Event]:
        self._word = text(mapping(event.get("delta")).get("stop_reason")) or self._word
        yield from self._merge_usage(event.get("usage"))

    def _message_stop(self, _: dict[str, Any]) -> Iterator[Event]:
        yield from self._ending.finish(self._word)

    def _error(self, event: dict[str, Any]) -> Iterator[Event]:
        raise refusal(None, event)
        yield  # makes this function an iterator like the others

    _handlers: ClassVar[
        Mapping[str, Callable[[MessagesReader, dict[str, Any]], Iterator[Event | Progress]]]
    ] = {
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
