"""The parts of an answer, independent of any API, while they are collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from ullage.broker.events import Finished, Reasoning, Text, ToolCall, Used
from ullage.gateway.answer_filter.shared import RECALL, RecallCall
from ullage.gateway.tool_names import CalledTool
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.broker.dialect import Progress
    from ullage.broker.events import Event
    from ullage.gateway.tool_names import ToolNames


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """The facts about an answer that are known before its first word."""

    id: str
    """The id of the request, from which the ids of the answer are made."""
    model: str
    """The client's name of the model."""
    created: int
    """Seconds since 1970."""
    asked: Mapping[str, Any]
    """The client's request."""
    prompt: int
    """Our own count of the request, until the server reports its own."""
    names: ToolNames
    """The client's own names and kinds of tools."""

    def make_id(self, prefix: str, number: int | None = None) -> str:
        """Returns an id of the answer or of one of its parts."""
        return f"{prefix}_{self.id}" if number is None else f"{prefix}_{self.id}{number:04d}"


AnswerPart: TypeAlias = Text | Reasoning | CalledTool


class CollectedAnswer:
    """An answer so far."""

    def __init__(self, names: ToolNames, *, hides_recall: bool = False) -> None:
        """Takes the names of the tools; `hides_recall` keeps calls of the recall tool out of the parts."""
        self.usage: Usage | None = None
        """The usage of this round, as the upstream reported it."""
        self.recalls: list[RecallCall] = []
        """The hidden calls of this round."""
        self.has_other_calls = False
        self._hides = hides_recall
        self._before = Usage()
        self.finished = Finished("other")
        self._names = names
        self._parts: list[AnswerPart] = []
        self._kind: type[Text | Reasoning] = Text
        self._pieces: list[str] = []

    def add(self, event: Event | Progress) -> Iterator[AnswerPart]:
        """Adds an event; yields the part that a stream shows for it."""
        if isinstance(event, Used):
            self.usage = event.usage
        elif isinstance(event, Finished):
            self.finished = event
        elif isinstance(event, ToolCall) and self._hides and event.name == RECALL:
            self.recalls.append(RecallCall(event.id, event.arguments))
        elif isinstance(event, ToolCall):
            self.has_other_calls = True
            called = self._names.restore_call(event)
            self.parts.append(called)
            yield called
        elif isinstance(event, Text | Reasoning):
            if self._pieces and type(event) is not self._kind:
                self._join()
            self._kind = type(event)
            self._pieces.append(event.text)
            yield event

    @property
    def parts(self) -> list[AnswerPart]:
        """The parts so far; pieces of one text are one part."""
        self._join()
        return self._parts

    def _join(self) -> None:
        if self._pieces:
            self._parts.append(self._kind("".join(self._pieces)))
            self._pieces = []

    def text(self) -> str:
        """Returns all that the model wrote, for a count of our own."""
        return "".join(
            part.name + part.arguments if isinstance(part, CalledTool) else part.text for part in self.parts
        )

    @property
    def used(self) -> Usage:
        """The usage of all rounds; zeros as long as none is known."""
        if self.usage is None:
            return self._before
        names = ("prompt", "completion", "cached_read", "cache_write", "reasoning")
        return Usage(**{name: getattr(self._before, name) + getattr(self.usage, name) for name in names})

    @property
    def reason(self) -> str:
        """The reason of the end; calls that are hidden are no reason."""
        hidden = self.finished.reason == "tool_calls" and bool(self.recalls) and not self.has_other_calls
        return "stop" if hidden else self.finished.reason

    def next_round(self) -> None:
        """Begins another round: its parts follow those of the round before."""
        self._before, self.usage = self.used, None
        self.recalls, self.has_other_calls = [], False


def encode_event(data: Mapping[str, Any], *, named: bool = True) -> bytes:
    """Returns an event of a stream; its name is the type of its data."""
    written = orjson.dumps(data)
    if not named:
        return b"data: %b\n\n" % written
    return b"event: %b\ndata: %b\n\n" % (str(data["type"]).encode(), written)
