"""Fakes for programs that use Ullage, and for its own tests: real interfaces with predictable figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ullage.broker.ask import Ask
    from ullage.broker.events import Event


SCRIPTED = Target(model="gpt-4o", endpoint="scripted:")


@dataclass(slots=True)
class FixedTokenizer:
    """A tokenizer that returns the same count for every text except the empty one."""

    tokens: int
    name: str = "fixed"
    asked: list[str] = field(default_factory=list)
    """The texts that were counted, in order."""

    def count(self, text: str) -> int:
        """Returns the fixed count, and records the text."""
        self.asked.append(text)
        return self.tokens if text else 0


@dataclass(slots=True)
class ScriptedProvider:
    """A provider that answers each request with scripted events; an exception in the script is raised."""

    script: Sequence[Sequence[Event | BaseException]]
    target: Target = SCRIPTED
    asked: list[Ask] = field(default_factory=list)
    """The requests, in order."""
    closed: bool = False

    async def stream(self, ask: Ask) -> AsyncGenerator[Event, None]:
        """Yields the events of the next scripted answer."""
        self.asked.append(ask)
        for event in self.script[len(self.asked) - 1]:
            if isinstance(event, BaseException):
                raise event
            yield event

    async def window(self) -> int | None:
        """Returns None: the window is unknown."""
        return None

    async def count(self, ask: Ask) -> int | None:
        """Returns the number of messages, which differs clearly from a real count."""
        return len(ask.messages)

    def tokenizer(self) -> None:
        """Returns None, because there is no server."""

    async def close(self) -> None:
        """Records that the provider was closed."""
        self.closed = True
