"""OpenAI's responses: an answer of items, told event by event, whole with `response.completed`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ullage.broker.dialect import Dialect
from ullage.broker.dialects.shared import Ending, Part, bearer, decoded, items, mapping, merged, text
from ullage.broker.events import Finished, Reasoning, Text
from ullage.broker.frames import SseFramer
from ullage.broker.refusals import refusal
from ullage.wire import Request, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.broker.dialect import Frame
    from ullage.broker.events import Event
    from ullage.broker.provider import Ask

API = "openai.responses"

REASONS = {
    "completed": Finished("stop"),
    "max_output_tokens": Finished("length"),
    "content_filter": Finished("refused", "content_filter"),
}
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that call something of ours, and where what they give it stands."""


def body(model: str, ask: Ask) -> dict[str, Any]:
    """A request's body; the whole conversation is in it, so that nothing need be stored over there."""
    written = write(Request(model=model, messages=ask.messages, tools=ask.tools), API)
    for tool in written.get("tools", ()):
        if tool.get("type") == "function":
            tool.setdefault("strict", False)  # the chat API's default, which our schemas are written for
    written |= {"stream": True, "store": False}
    if ask.max_output is not None:
        written["max_output_tokens"] = ask.max_output
    return merged(written, ask.options)


class ResponsesReader:
    """Reads the events of one answer."""

    def __init__(self) -> None:
        self._ending = Ending(API, REASONS)
        self._answer = ""
        self._called: set[str] = set()
        self._pieces: dict[str, Part] = {}

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

    def _created(self, event: dict[str, Any]) -> Iterator[Event]:
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
        if event.get("summary_index"):  # a summary has several parts, which are paragraphs
            yield Reasoning("\n\n")

    def _piece(self, event: dict[str, Any]) -> Iterator[Event]:
        self._pieces.setdefault(_place(event), Part()).add(event.get("delta"))
        yield from ()

    def _arguments(self, event: dict[str, Any]) -> Iterator[Event]:
        if isinstance(event.get("arguments"), str):
            self._pieces[_place(event)] = Part(arguments=[event["arguments"]])
        yield from ()

    def _item(self, event: dict[str, Any]) -> Iterator[Event]:
        yield from self._call(mapping(event.get("item")), _place(event))

    def _call(self, item: dict[str, Any], place: str) -> Iterator[Event]:
        """The call that a finished item is, once: the last event of the answer repeats all items."""
        member = CALLS.get(text(item.get("type")))
        known = {name for name in (text(item.get("id")), text(item.get("call_id"))) if name} or {place}
        if member is None or not text(item.get("name")) or known & self._called:
            return
        self._called |= known
        part = Part(id=text(item.get("call_id")), name=item["name"])
        part.add(item.get(member))
        if not "".join(part.arguments):
            part.arguments = self._pieces.get(place, part).arguments
        yield self._ending.call(part, self._answer)

    def _end(self, event: dict[str, Any]) -> Iterator[Event]:
        response = mapping(event.get("response"))
        for index, item in enumerate(items(response.get("output"))):
            yield from self._call(item, str(index))
        yield from self._ending.told(response.get("usage"))
        details = mapping(response.get("incomplete_details"))
        incomplete = event.get("type") == "response.incomplete"
        word = (text(details.get("reason")) or "incomplete") if incomplete else "completed"
        yield from self._ending.finished(word)

    def _failed(self, event: dict[str, Any]) -> Iterator[Event]:
        response = mapping(event.get("response"))
        yield from self._ending.told(response.get("usage"))
        told = response.get("error") or event.get("error")
        if not told:
            told = {name: event[name] for name in ("code", "message") if text(event.get(name))}
        raise refusal(None, {"error": told or {"message": "the provider failed in the middle of its answer"}})

    _handlers: ClassVar[Mapping[str, Callable[[ResponsesReader, dict[str, Any]], Iterator[Event]]]] = {
        "response.created": _created,
        "response.output_text.delta": _text,
        "response.refusal.delta": _refusal,
        "response.reasoning_summary_part.added": _summary,
        "response.reasoning_summary_text.delta": _reasoning,
        "response.reasoning_text.delta": _reasoning,
        "response.function_call_arguments.delta": _piece,
        "response.function_call_arguments.done": _arguments,
        "response.output_item.done": _item,
        "response.completed": _end,
        "response.incomplete": _end,
        "response.failed": _failed,
        "response.cancelled": _failed,
        "error": _failed,
    }


def _place(event: Mapping[str, Any]) -> str:
    """Which item of the answer an event is about."""
    index = event.get("output_index")
    return str(index) if isinstance(index, int) else text(event.get("item_id"))


DIALECT = Dialect(path="/responses", body=body, headers=bearer, framer=SseFramer, reader=ResponsesReader)
