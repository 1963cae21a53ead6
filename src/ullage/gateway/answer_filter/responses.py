"""Filters answers of OpenAI's responses API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.gateway.answer_filter.shared import RECALL, RecallCall, sum_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BEGINNINGS = frozenset({"response.created", "response.in_progress", "response.queued"})
ENDS = frozenset({"response.completed", "response.incomplete"})


class ResponsesFilter:
    """Filters the events of one answer."""

    def __init__(self) -> None:
        self.calls: list[RecallCall] = []
        self.has_other_calls = False
        self._round = 1
        self._number = 0
        self._shown = 0
        self._id: Any = None
        self._output: list[Any] = []
        self._total: Any = None
        self._ending: dict[str, Any] = {}
        self._begin_items()

    def _begin_items(self) -> None:
        self._places: dict[Any, int] = {}
        self._recalls: set[Any] = set()
        self._thinks: set[Any] = set()
        self._thoughts: list[Any] = []
        self._held: list[dict[str, Any]] = []

    def feed(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the events that the client gets for an event of the upstream."""
        kind = str(event.get("type"))
        if kind in BEGINNINGS:
            self._id = self._id or (event.get("response") or {}).get("id")
            if self._round == 1:
                yield self._number_event(event)
        elif kind in ENDS:
            self._ending = event
            used = (event.get("response") or {}).get("usage")
            self._total = used if self._total is None else sum_usage(self._total, used)
        elif "output_index" in event:
            yield from self._item(event, kind)
        else:
            yield self._number_event(event)

    def next_round(self) -> None:
        """Begins another round."""
        self._round += 1
        self.calls, self.has_other_calls = [], False
        self._begin_items()

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yields the last event, with the items and the usage of all rounds."""
        yield from self._flush()
        response = dict(self._ending.get("response") or {})
        if self._id is not None:
            response["id"] = self._id
        items = self._output or split(response)[0].get("output") or []
        yield self._number_event(
            {**self._ending, "response": {**response, "output": items, "usage": self._total}}
        )

    def _item(self, event: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
        index, item = event["output_index"], event.get("item") or {}
        if _is_recall(item):
            self._recalls.add(index)
        if index in self._recalls:
            if kind == "response.output_item.done":
                called = RecallCall(str(item.get("call_id")), str(item.get("arguments") or ""))
                self.calls.append(called._replace(before=tuple(self._thoughts)))
                self._thoughts, self._held = [], []
            return
        if item.get("type") == "reasoning":
            self._thinks.add(index)
        if index in self._thinks:
            self._held.append(event)
            if kind == "response.output_item.done":
                self._thoughts.append(item)
            return
        yield from self._flush()
        yield self._number_item(event)

    def _flush(self) -> Iterator[dict[str, Any]]:
        held, self._held, self._thoughts = self._held, [], []
        for event in held:
            yield self._number_item(event)

    def _number_item(self, event: dict[str, Any]) -> dict[str, Any]:
        """Returns an event with the number that its item has for the client."""
        index = event["output_index"]
        if index not in self._places:
            self._places[index] = self._shown
            self._shown += 1
        if event.get("type") == "response.output_item.done":
            self._output.append(event["item"])
            self.has_other_calls = self.has_other_calls or _is_call(event["item"])
        return self._number_event({**event, "output_index": self._places[index]})

    def _number_event(self, event: dict[str, Any]) -> dict[str, Any]:
        number, self._number = self._number, self._number + 1
        return {**event, "sequence_number": number}


def _is_recall(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call" and item.get("name") == RECALL


def _is_call(item: Mapping[str, Any]) -> bool:
    return str(item.get("type")).endswith("_call") and isinstance(item.get("call_id"), str)


def split(answer: dict[str, Any]) -> tuple[dict[str, Any], list[RecallCall], bool]:
    """Returns a whole answer without recall calls, these calls, and True if others are left."""
    calls: list[RecallCall] = []
    kept: list[Any] = []
    thoughts: list[Any] = []
    for item in answer.get("output") or ():
        if _is_recall(item):
            called = RecallCall(str(item.get("call_id")), str(item.get("arguments") or ""), tuple(thoughts))
            calls.append(called)
            kept, thoughts = [each for each in kept if each not in thoughts], []
            continue
        thoughts = [*thoughts, item] if item.get("type") == "reasoning" else []
        kept.append(item)
    return {**answer, "output": kept}, calls, any(map(_is_call, kept))


def make_hidden_turn(calls: Sequence[RecallCall], results: Sequence[str]) -> list[Any]:
    """Returns the hidden items."""
    items: list[Any] = []
    for call in calls:
        items += call.before
        called = {"type": "function_call", "call_id": call.id, "name": RECALL}
        items.append({**called, "arguments": call.arguments or "{}"})
    items += [
        {"type": "function_call_output", "call_id": call.id, "output": result}
        for call, result in zip(calls, results, strict=True)
    ]
    return items


def tool(function: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the recall tool in the form of this API."""
    return {"type": "function", **function["function"], "strict": False}
