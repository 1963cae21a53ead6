"""What a provider is to the rest of Ullage: something that streams, and perhaps counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ullage.broker.events import Event
    from ullage.messages import Message, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request to a model, in no provider's shape."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_output: int | None = None
    """The most output tokens; None for the provider's own default."""
    window: int | None = None
    """The context window that the request was fitted to; a server that has to be told is told."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else is sent, in the provider's own words: temperature and the like."""


class Provider(Protocol):
    """A model that can be asked."""

    model: str
    endpoint: str
    """Where it is, as calibration and counting know it; `embedded:` for one in this process."""

    def stream(self, ask: Ask) -> AsyncIterator[Event]:
        """What the model answers, as it comes.

        Raises ContextOverflowError where the provider says that the request is too long, and ProviderError
        for what else goes wrong; StreamBroken after a part of the answer has come.
        """

    async def window(self) -> int | None:
        """The context window as the server tells it; None where it does not. Never raises."""

    async def count(self, ask: Ask) -> int | None:
        """What the server counts for the whole request; None where it cannot tell. Never raises."""

    async def close(self) -> None:
        """Lets go of what it holds."""
