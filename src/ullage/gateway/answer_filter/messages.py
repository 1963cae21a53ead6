"""Filters answers of Anthropic's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ullage.gateway.answer_filter.shared import RECALL, RecallCall, sum_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

THOUGHTS = frozenset({"thinking", "redacted_thinking"})
DELTAS = {"thinking_delta": "thinking", "signature_delta": "signature"}
"""Type of a delta → the member of the thinking block that it adds to."""


class MessagesFilter:
    """Filters the events of one answer."""

    def __init__(self) -> None:
        self.calls: list[RecallCall] = []
        self.has_other_calls = False
        self._round = 1
        self._shown = 0
        self._usage: dict[str, Any] = {}
        self._total: Any = None
        self._ending: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
        self._begin_blocks()

    def _begin_blocks(self) -> None:
        self._places: dict[Any, int] = {}
        self._recalls: dict[Any, list[str]] = {}
        self._names: dict[Any, str] = {}
        self._held: list[dict[str, Any]] = []
        self._thoughts: dict[Any, dict[str, Any]] = {}

    def feed(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the events that the client gets for an event of the upstream."""
        kind = event.get("type")
        if kind == "message_start":
            self._usage = dict((event.get("message") or {}).get("usage") or {})
            if self._round == 1:
                yield event
        elif kind == "content_block_start":
            yield from self._start(event)
        elif kind in {"content_block_delta", "content_block_stop"}:
            yield from self._go_on(event)
        elif kind == "message_delta":
            used = {name: each for name, each in (event.get("usage") or {}).items() if each is not None}
            self._usage |= used
            self._ending = event
        elif kind != "message_stop":
            yield event

    def next_round(self) -> None:
        """Begins another round."""
        self._add_usage()
        self._round += 1
        self.calls, self.has_other_calls = [], False
        self._begin_blocks()

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yields the end of the message, with the usage of all rounds."""
        yield from self._flush()
        self._add_usage()
        delta = dict(self._ending.get("delta") or {})
        if delta.get("stop_reason") == "tool_use" and not self.has_other_calls:
            delta["stop_reason"] = "end_turn"
        yield {**self._ending, "delta": delta, "usage": self._total}
        yield {"type": "message_stop"}

    def _add_usage(self) -> None:
        self._total = self._usage if self._total is None else sum_usage(self._total, self._usage)
        self._usage = {}

    def _start(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        block, index = event.get("content_block") or {}, event.get("index")
        kind = block.get("type")
        if kind == "tool_use" and block.get("name") == RECALL:
            self._recalls[index] = []
            self._names[index] = str(block.get("id"))
            self._held = []  # the thinking goes with the call
            return
        if kind in THOUGHTS:
            self._thoughts[index] = dict(block)
            self._held.append(event)
            return
        yield from self._flush()
        self.has_other_calls = self.has_other_calls or kind == "tool_use"
        yield self._number_block(event)

    def _go_on(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        index, delta = event.get("index"), event.get("delta") or {}
        if index in self._recalls:
            if event["type"] == "content_block_delta":
                self._recalls[index].append(str(delta.get("partial_json", "")))
            else:
                self.calls.append(
                    RecallCall(self._names[index], "".join(self._recalls[index]), self._take_thoughts())
                )
        elif index in self._thoughts and index not in self._places:
            self._held.append(event)
            member = DELTAS.get(str(delta.get("type")))
            if member is not None:
                block = self._thoughts[index]
                block[member] = str(block.get(member, "")) + str(delta.get(member, ""))
        else:
            yield self._number_block(event)

    def _take_thoughts(self) -> tuple[Any, ...]:
        """Returns the thinking of this round that no call has taken yet."""
        thoughts, self._thoughts = tuple(self._thoughts.values()), {}
        return thoughts

    def _flush(self) -> Iterator[dict[str, Any]]:
        held, self._held = self._held, []
        for event in held:
            yield self._number_block(event)

    def _number_block(self, event: dict[str, Any]) -> dict[str, Any]:
        """Returns an event with the number that its block has for the client."""
        index = event.get("index")
        if index not in self._places:
            self._places[index] = self._shown
            self._shown += 1
        return {**event, "index": self._places[index]}


def split(answer: dict[str, Any]) -> tuple[dict[str, Any], list[RecallCall], bool]:
    """Returns a whole answer without recall calls, these calls, and True if others are left."""
    calls: list[RecallCall] = []
    kept: list[Any] = []
    thoughts: list[Any] = []
    for block in answer.get("content") or ():
        if block.get("type") == "tool_use" and block.get("name") == RECALL:
            arguments = orjson.dumps(block.get("input") or {}).decode()
            calls.append(RecallCall(str(block.get("id")), arguments, tuple(thoughts)))
            kept, thoughts = [each for each in kept if each not in thoughts], []
            continue
        if block.get("type") in THOUGHTS:
            thoughts.append(block)
        kept.append(block)
    has_others = any(block.get("type") == "tool_use" for block in kept)
    ended = answer.get("stop_reason")
    if ended == "tool_use" and not has_others:
        ended = "end_turn"
    return {**answer, "content": kept, "stop_reason": ended}, calls, has_others


def make_hidden_turn(calls: Sequence[RecallCall], results: Sequence[str]) -> list[Any]:
    """Returns the hidden turns."""
    blocks: list[Any] = []
    for call in calls:
        blocks += call.before
        blocks.append({"type": "tool_use", "id": call.id, "name": RECALL, "input": call.values()})
    answers = [
        {"type": "tool_result", "tool_use_id": call.id, "content": result}
        for call, result in zip(calls, results, strict=True)
    ]
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": answers}]


def tool(function: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the recall tool in the form of this API."""
    described = function["function"]
    return {
        "name": described["name"],
        "description": described["description"],
        "input_schema": described["parameters"],
    }
