"""Finds and opens the provider for a model's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ullage.broker.embedded_info import EMBEDDED, runs_here
from ullage.broker.registry import endpoint_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.protocol import Provider
    from ullage.target import ApiName

LOCAL_OUTPUT = 512
"""Most tokens of a local model's answer, if no limit is configured."""
MOST_WINDOWS: Mapping[ApiName, int] = {"ollama.chat": 8_192}
"""The largest default window by API, for servers that allocate any window that a request asks for."""


class Opened(NamedTuple):
    """An open provider, and its known properties."""

    provider: Provider
    local: bool
    """True if a call costs nothing."""
    most_window: int | None = None
    """Largest window to ask for if the user sets none, because a window takes memory; None for no limit."""

    async def window(self, configured: int | None) -> int | None:
        """Returns the configured window, or the one that the server states; None if both are missing."""
        stated = configured or await self.provider.window()
        if stated is None or configured or self.most_window is None:
            return stated
        return min(stated, self.most_window)


def open_provider(name: str, *, environ: Mapping[str, str], window: int | None = None) -> Opened:
    """Opens the embedded model, a GGUF file, `provider/model`, an address, or a model's own name.

    Raises LocalModelError if the embedded model's runtime or file is missing, and ConfigurationError if the
    name is unknown or a key is missing.
    """
    if runs_here(name):
        from ullage.broker.embedded import EmbeddedProvider, count_exactly  # noqa: PLC0415 - only for local models

        path = None if name == EMBEDDED else name
        provider = EmbeddedProvider(path, **({} if window is None else {"window": window}))
        if path is None:
            count_exactly()
        return Opened(provider, local=True)
    from ullage.broker.remote import RemoteProvider  # noqa: PLC0415 - the same

    endpoint = endpoint_for(name, environ=environ)
    return Opened(RemoteProvider(endpoint), endpoint.local, MOST_WINDOWS.get(endpoint.api))
