"""OpenAI's responses API: an answer has items, comes as events, and is complete with `response.completed`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ullage.broker.dialect import Dialect, Progress
from ullage.broker.dialects.shared import (
    AnswerState,
    Part,
    bearer,
    decode_frame,
    items,
    mapping,
    merge_options,
    text,
)
from ullage.broker.events import Finished, Reasoning, Text
from ullage.broker.frames import SseFramer
from ullage.broker.refusals import refusal
from ullage.wire import Request, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.broker.ask import Ask
    from ullage.broker.dialect import Frame
    from ullage.broker.events import Event
    from ullage.target import ApiName

API: ApiName = "openai.responses"

REASONS = {
    "completed": Finished("stop"),
    "max_output_tokens": Finished("length"),
    "content_filter": Finished("refused", "content_filter"),
}
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that call a tool, and the field of their arguments."""
WAITING = frozenset({"response.queued", "response.in_progress", "response.keepalive"})
"""Events that only say that the server is still working."""


def body(model: str, ask: Ask) -> dict[str, Any]:
    """Returns the body of a request; it has the whole conversation, so the provider need not store it."""
    written = write(Request(model=model, messages=ask.messages, tools=ask.tools), API)
    for tool in written.get("tools", ()):
        if tool.get("type") == "function":
            tool.setdefault("strict", False)  # the chat API's default, for which our schemas are written
    written |= {"stream": True, "store": False}
    if ask.max_output is not None:
        written["max_output_tokens"] = ask.max_output
    return merge_options(written, ask.options)


class ResponsesReader:
    """Reads the events of one answer."""

    def __init__(self) -> None:
        self._ending = AnswerState(API, REASONS)
        self._answer = ""
        self._called: set[str] = set()
        self._pieces: dict[str, Part] = {}

    @property
    def whole(self) -> bool:
        """True once the last event has come."""
        return self._ending.over

    def read(self, frame: Frame) -> Iterator[Event | Progress]:
        """Returns the events of a frame."""
        if self._ending.over or not frame.data.strip() or frame.data.strip() == "[DONE]":
            return
        event = decode_frame(frame)
        kind = text(event.get("type")) or frame.event
        handle = self._handlers.get(kind)
        if handle is not None:
            yield from handle(self, event)
        elif kind.startswith("response.") and kind not in WAITING:
            yield Progress(0)  # a tool on the server's side, or the beginning of an item

    def end(self) -> Iterator[Event]:
        """Yields nothing; raises StreamBroken if the answer is not complete."""
        return self._ending.end()

    def _read_id(self, event: dict[str, Any]) -> Iterator[Event]:
        self._answer = text(mapping(event.get("response")).get("id"))
        yield from ()

    def _text(self, event: dict[str, Any]) -> Iterator[Event]:
        if text(event.get("delta")):
            yield Text(event["delta"])

    def _refusal(self, event: dict[str, Any]) -> Iterator[Event]:
        self._ending.refused = True
        yield from self._text(event)

    def _reasoning(self, event: dict[str, Any]) -> Iterator[Event]:
        if text(event.get("delta")):
            yield Reasoning(event["delta"])

    def _summary(self, event: dict[str, Any]) -> Iterator[Event]:
        if event.get("summary_index"):  # the parts of a summary are paragraphs
            yield Reasoning("\n\n")

    def _piece(self, event: dict[str, Any]) -> Iterator[Progress]:
        return self._pieces.setdefault(_place(event), Part()).add(event.get("delta"))

    def _arguments(self, event: dict[str, Any]) -> Iterator[Event]:
        if isinstance(event.get("arguments"), str):
            self._pieces[_place(event)] = Part(arguments=[event["arguments"]])
        yield from ()

    def _item(self, event: dict[str, Any]) -> Iterator[Event | Progress]:
        yield from self._call(mapping(event.get("item")), _place(event))

    def _call(self, item: dict[str, Any], place: str) -> Iterator[Event | Progress]:
        """Yields the call of a finished item, once; the last event of the answer repeats all items."""
        member = CALLS.get(text(item.get("type")))
        known = {name for name in (text(item.get("id")), text(item.get("call_id"))) if name} or {place}
        if member is None or not text(item.get("name")) or known & self._called:
            return
        self._called |= known
        part = Part(id=text(item.get("call_id")), name=item["name"])
        yield from part.add(item.get(member))
        if not "".join(part.arguments):
            part.arguments = self._pieces.get(place, part).arguments
        yield self._ending.call(part, self._answer)

    def _end(self, event: dict[str, Any]) -> Iterator[Event | Progress]:
        response = mapping(event.get("response"))
        for index, item in enumerate(items(response.get("output"))):
            yield from self._call(item, str(index))
        yield from self._ending.read_usage(response.get("usage"))
        details = mapping(response.get("incomplete_details"))
        incomplete = event.get("type") == "response.incomplete"
        word = (text(details.get("reason")) or "incomplete") if incomplete else "completed"
        yield from self._ending.finish(word)

    def _raise_failure(self, event: dict[str, Any]) -> Iterator[Event]:
        response = mapping(event.get("response"))
        yield from self._ending.read_usage(response.get("usage"))
        error = response.get("error") or event.get("error")
        if not error:
            error = {name: event[name] for name in ("code", "message") if text(event.get(name))}
        raise refusal(
            None, {"error": error or {"message": "the provider failed in the middle of its answer"}}
        )

    _handlers: ClassVar[
        Mapping[str, Callable[[ResponsesReader, dict[str, Any]], Iterator[Event | Progress]]]
    ] = {
        "response.created": _read_id,
        "response.output_text.delta": _text,
        "response.refusal.delta": _refusal,
        "response.reasoning_summary_part.added": _summary,
        "response.reasoning_summary_text.delta": _reasoning,
        "response.reasoning_text.delta": _reasoning,
        "response.function_call_arguments.delta": _piece,
        "response.custom_tool_call_input.delta": _piece,
        "response.function_call_arguments.done": _arguments,
        "response.output_item.done": _item,
        "response.completed": _end,
        "response.incomplete": _end,
        "response.failed": _raise_failure,
        "response.cancelled": _raise_failure,
        "error": _raise_failure,
    }


def _place(event: Mapping[str, Any]) -> str:
    """Returns the index or id of the item that an event is about."""
    index = event.get("output_index")
    return str(index) if isinstance(index, int) else text(event.get("item_id"))


DIALECT = Dialect(path="/responses", body=body, headers=bearer, framer=SseFramer, reader=ResponsesReader)
