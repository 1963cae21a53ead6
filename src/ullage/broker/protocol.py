"""The protocol of every provider: it streams answers, and may count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ullage.broker.ask import Ask
    from ullage.broker.events import Event
    from ullage.broker.tokenizer import ServerTokenizer
    from ullage.target import Target


class Provider(Protocol):
    """A model that answers requests."""

    target: Target
    """The destination of its requests, which decides the counting rule; `embedded:` if in this process."""

    def stream(self, ask: Ask) -> AsyncIterator[Event]:
        """Streams the answer of the model.

        Raises ContextOverflowError if the provider says that the request is too long, StreamBroken if the
        answer breaks off, and ProviderError for any other failure.
        """

    async def window(self) -> int | None:
        """Returns the context window that the server states; None if it states none. Never raises."""

    async def count(self, ask: Ask) -> int | None:
        """Returns the server's count of the whole request; None if it cannot count. Never raises."""

    def tokenizer(self) -> ServerTokenizer | None:
        """Returns the tokenizer of the server; None if there is no server."""

    async def close(self) -> None:
        """Releases the provider's resources."""
