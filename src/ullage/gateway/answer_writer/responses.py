"""Writes answers of OpenAI's responses API: items, each with an id, in events with sequence numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.broker.events import Reasoning, Text
from ullage.gateway.answer_writer.collected import encode_event
from ullage.gateway.tool_names import CalledTool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.gateway.answer_writer.collected import AnswerHead, AnswerPart, CollectedAnswer
    from ullage.usage import Usage

INCOMPLETE: Mapping[str, str] = {"length": "max_output_tokens", "refused": "content_filter"}
"""Reason of an event → the reason of an incomplete answer."""
ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": None,
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
"""The fields of a request that its answer repeats, and their defaults."""


class ResponsesStream:
    """Writes the events of one answer."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._number = 0
        self._index = 0
        self._kind: type[Text | Reasoning] | None = None
        self._pieces: list[str] = []

    def begin(self) -> Iterator[bytes]:
        """Yields the events before the first item."""
        begun = _response(self._head, "in_progress", [])
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)

    def add(self, part: AnswerPart) -> Iterator[bytes]:
        """Yields the events of a part; an item ends when another kind of part begins."""
        if isinstance(part, CalledTool):
            yield from self._close()
            yield from self._call(part)
            return
        if type(part) is not self._kind:
            yield from self._close()
            yield from self._begin_item(part)
            self._kind = type(part)
        self._pieces.append(part.text)
        yield self._item_event(f"{_family(part)}.delta", part, delta=part.text)

    def end(self, answer: CollectedAnswer) -> Iterator[bytes]:
        """Yields the end of the last item, and the whole answer."""
        yield from self._close()
        made = whole(self._head, answer)
        yield self._event(f"response.{made['status']}", response=made)

    def _begin_item(self, part: Text | Reasoning) -> Iterator[bytes]:
        item = _item(self._head, self._index, part)
        empty: dict[str, Any] = {"content": []} if isinstance(part, Text) else {"summary": []}
        added = {**item, **empty, "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=self._index, item=added)
        yield self._item_event(f"{_holder(part)}.added", part, part=_content(type(part)("")))

    def _close(self) -> Iterator[bytes]:
        if self._kind is None:
            return
        part = self._kind("".join(self._pieces))
        self._kind, self._pieces = None, []
        yield self._item_event(f"{_family(part)}.done", part, text=part.text)
        yield self._item_event(f"{_holder(part)}.done", part, part=_content(part))
        yield from self._end_item(part)

    def _call(self, called: CalledTool) -> Iterator[bytes]:
        item = _item(self._head, self._index, called)
        member = "input" if called.is_custom else "arguments"
        added = {**item, member: "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=self._index, item=added)
        family = "response.custom_tool_call_input" if called.is_custom else "response.function_call_arguments"
        place = {"item_id": item["id"], "output_index": self._index}
        yield self._event(f"{family}.delta", **place, delta=called.arguments)
        yield self._event(f"{family}.done", **place, name=called.name, **{member: called.arguments})
        yield from self._end_item(called)

    def _end_item(self, part: AnswerPart) -> Iterator[bytes]:
        item = _item(self._head, self._index, part)
        yield self._event("response.output_item.done", output_index=self._index, item=item)
        self._index += 1

    def _item_event(self, kind: str, of: Text | Reasoning, /, **more: Any) -> bytes:
        place: dict[str, Any] = {"item_id": _item(self._head, self._index, of)["id"]}
        place["output_index"] = self._index
        place["content_index" if isinstance(of, Text) else "summary_index"] = 0
        if kind.startswith("response.output_text"):
            place["logprobs"] = []
        return self._event(kind, **place, **more)

    def _event(self, kind: str, **more: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return encode_event({"type": kind, "sequence_number": number, **more})


def whole(head: AnswerHead, answer: CollectedAnswer) -> dict[str, Any]:
    """Returns an answer as one object."""
    items = [_item(head, index, part) for index, part in enumerate(answer.parts)]
    cut = INCOMPLETE.get(answer.reason)
    made = _response(head, "completed" if cut is None else "incomplete", items)
    made["incomplete_details"] = None if cut is None else {"reason": cut}
    made["usage"] = _usage(answer.used)
    return made


def _response(head: AnswerHead, status: str, items: list[Any]) -> dict[str, Any]:
    asked = head.asked
    return {
        "id": head.make_id("resp"),
        "object": "response",
        "created_at": head.created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": head.model,
        "output": items,
        "previous_response_id": None,
        "usage": None,
        **{name: asked.get(name, default) for name, default in ECHOED.items()},
    }


def _item(head: AnswerHead, index: int, part: AnswerPart) -> dict[str, Any]:
    """Returns a finished item of the output."""
    if isinstance(part, Text):
        item = {"id": head.make_id("msg", index), "type": "message", "status": "completed"}
        return {**item, "role": "assistant", "content": [_content(part)]}
    if isinstance(part, Reasoning):
        return {"id": head.make_id("rs", index), "type": "reasoning", "summary": [_content(part)]}
    call = {"call_id": part.id, "name": part.name, "status": "completed"}
    if part.is_custom:
        kind = {"id": head.make_id("ctc", index), "type": "custom_tool_call"}
        return {**kind, **call, "input": part.arguments}
    kind = {"id": head.make_id("fc", index), "type": "function_call"}
    namespace = {} if part.namespace is None else {"namespace": part.namespace}
    return {**kind, **call, "arguments": part.arguments, **namespace}


def _content(part: Text | Reasoning) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
    return {"type": "summary_text", "text": part.text}


def _family(part: Text | Reasoning) -> str:
    """Returns the name that the events of a part's text share."""
    return "response.output_text" if isinstance(part, Text) else "response.reasoning_summary_text"


def _holder(part: Text | Reasoning) -> str:
    """Returns the name that the events of the part itself share."""
    return "response.content_part" if isinstance(part, Text) else "response.reasoning_summary_part"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached_read},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
