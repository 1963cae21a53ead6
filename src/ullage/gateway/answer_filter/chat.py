"""Filters answers of OpenAI's chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.gateway.answer_filter.shared import RECALL, RecallCall, sum_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SHARED = ("id", "created", "model", "object")
"""The members of a chunk that are the same in all chunks of one answer."""


class ChatFilter:
    """Filters the chunks of one answer."""

    def __init__(self) -> None:
        self.has_other_calls = False
        self._round = 1
        self._first: dict[str, Any] = {}
        self._shown = 0
        self._total: Any = None
        self._has_usage = False
        self._ending: dict[str, Any] | None = None
        self._begin_calls()

    def _begin_calls(self) -> None:
        self._open: dict[Any, tuple[str, list[str]]] = {}
        self._places: dict[Any, int] = {}

    @property
    def calls(self) -> list[RecallCall]:
        """The recall calls of this round."""
        return [RecallCall(name, "".join(pieces)) for name, pieces in self._open.values()]

    def feed(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the chunks that the client gets for a chunk of the upstream."""
        if event.get("error"):
            yield event
            return
        self._first = self._first or {name: event[name] for name in SHARED if name in event}
        chunk = {**event, **self._first}
        if event.get("usage"):
            self._has_usage = True
            self._total = event["usage"] if self._total is None else sum_usage(self._total, event["usage"])
            chunk.pop("usage")
        choices = [self._choice(choice) for choice in event.get("choices") or ()]
        kept = [choice for choice in choices if choice is not None]
        if kept:
            yield {**chunk, "choices": kept}

    def next_round(self) -> None:
        """Begins another round."""
        self._round += 1
        self.has_other_calls = False
        self._begin_calls()

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yields the chunk with the reason, and the usage of all rounds if the upstream reported it."""
        reason = (self._ending or {}).get("finish_reason", "stop")
        if reason == "tool_calls" and not self.has_other_calls:
            reason = "stop"
        last = {**(self._ending or {"index": 0}), "delta": {}, "finish_reason": reason}
        yield {**self._first, "choices": [last]}
        if self._has_usage:
            yield {**self._first, "choices": [], "usage": self._total}

    def _choice(self, choice: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the part of a choice that the client gets; None if it is empty."""
        delta = dict(choice.get("delta") or {})
        if choice.get("finish_reason"):
            self._ending = dict(choice)
        if "tool_calls" in delta:
            kept = [made for call in delta.pop("tool_calls") or () if (made := self._call(call)) is not None]
            if kept:
                delta["tool_calls"] = kept
        if self._round > 1:
            delta.pop("role", None)
        if not any(value is not None and value != "" for value in delta.values()):
            return None
        return {**choice, "delta": delta, "finish_reason": None}

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any] | None:
        index, function = call.get("index", 0), call.get("function") or {}
        if function.get("name") == RECALL:
            self._open[index] = (str(call.get("id")), [])
        if index in self._open:
            self._open[index][1].append(str(function.get("arguments") or ""))
            return None
        if index not in self._places:
            self._places[index] = self._shown
            self._shown += 1
        self.has_other_calls = True
        return {**call, "index": self._places[index]}


def split(answer: dict[str, Any]) -> tuple[dict[str, Any], list[RecallCall], bool]:
    """Returns a whole answer without recall calls, these calls, and True if others are left."""
    calls: list[RecallCall] = []
    others = False
    choices: list[Any] = []
    for choice in answer.get("choices") or ():
        message = dict(choice.get("message") or {})
        kept: list[Any] = []
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            if function.get("name") == RECALL:
                calls.append(RecallCall(str(call.get("id")), str(function.get("arguments") or "")))
            else:
                kept.append(call)
        others = others or bool(kept)
        if message.get("tool_calls"):
            message["tool_calls"] = kept
            if not kept:
                message.pop("tool_calls")
                message["content"] = message.get("content") or ""
        ended = choice.get("finish_reason")
        ended = "stop" if ended == "tool_calls" and not kept else ended
        choices.append({**choice, "message": message, "finish_reason": ended})
    return {**answer, "choices": choices}, calls, others


def make_hidden_turn(calls: Sequence[RecallCall], results: Sequence[str]) -> list[Any]:
    """Returns the hidden messages."""
    called = [
        {"id": call.id, "type": "function", "function": {"name": RECALL, "arguments": call.arguments or "{}"}}
        for call in calls
    ]
    return [
        {"role": "assistant", "content": None, "tool_calls": called},
        *(
            {"role": "tool", "tool_call_id": call.id, "content": result}
            for call, result in zip(calls, results, strict=True)
        ),
    ]
