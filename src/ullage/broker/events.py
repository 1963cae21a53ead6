"""What a model says, as it says it: the same events from every provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ullage.usage import Usage


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call, when all of its arguments are there."""

    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the request used, as the provider tells it; a later one replaces an earlier one."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of the answer."""

    reason: str
    """One of `REASONS`."""
    detail: str = ""
    """The provider's own word, where it says more."""


REASONS = ("stop", "length", "tool_calls", "refused", "other")
"""Ended by itself; at the output limit; with calls to answer; by a filter or a refusal; in some other way."""

Event: TypeAlias = Text | Reasoning | ToolCall | Used | Finished
"""A stream has any number of texts, reasonings and calls, mostly one Used, and ends with one Finished."""
