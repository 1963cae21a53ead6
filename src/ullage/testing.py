"""Fakes for programs that use Ullage, and for its own tests: real interfaces, predictable figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ullage.broker.events import Event
    from ullage.broker.provider import Ask


@dataclass(slots=True)
class FixedTokenizer:
    """A tokenizer for which every text, the empty one aside, counts the same."""

    tokens: int
    name: str = "fixed"
    asked: list[str] = field(default_factory=list)
    """The texts that were counted, in order."""

    def count(self, text: str) -> int:
        """The fixed figure, and a note of what was asked."""
        self.asked.append(text)
        return self.tokens if text else 0


@dataclass(slots=True)
class ScriptedProvider:
    """A provider that answers by a script: for each request its events, an exception among them is raised."""

    script: Sequence[Sequence[Event | BaseException]]
    model: str = "gpt-4o"
    endpoint: str = "scripted:"
    asked: list[Ask] = field(default_factory=list)
    """The requests, in order."""
    closed: bool = False

    async def stream(self, ask: Ask) -> AsyncGenerator[Event, None]:
        """The next answer of the script."""
        self.asked.append(ask)
        for event in self.script[len(self.asked) - 1]:
            if isinstance(event, BaseException):
                raise event
            yield event

    async def window(self) -> int | None:
        """Not told."""
        return None

    async def count(self, ask: Ask) -> int | None:
        """As many as there are messages: easily told from any other count."""
        return len(ask.messages)

    async def close(self) -> None:
        """Notes it."""
        self.closed = True
