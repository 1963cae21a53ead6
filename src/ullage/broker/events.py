"""The events of an answer, the same for every provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from ullage.usage import Usage

Reason: TypeAlias = Literal["stop", "length", "tool_calls", "refused", "other"]
"""A normal end; the output limit; open tool calls; a filter or a refusal; any other reason."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the model's reasoning before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call, once its arguments are complete."""

    id: str
    name: str
    arguments: str
    """The arguments as JSON, as the model wrote them."""


@dataclass(frozen=True, slots=True)
class Used:
    """The usage of the request, as the provider reports it; a later event replaces an earlier one."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of the answer."""

    reason: Reason
    detail: str = ""
    """The provider's own word for the reason, if it says more."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A try failed before the answer began, and the request is sent again after a wait."""

    attempt: int
    """The number of the failed try; the first is 1."""
    wait: float
    """Seconds until the next try."""
    reason: str


Event: TypeAlias = Text | Reasoning | ToolCall | Used | Finished | Retrying
"""An event of a stream: texts, reasoning and calls, usually one Used, and one Finished at the end.

A Retrying comes only if the request asks for it, and before all other events."""
