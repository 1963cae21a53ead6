"""From what a person calls a model to a provider that can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ullage.broker.about import EMBEDDED, runs_here
from ullage.broker.providers import endpoint_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.provider import Provider

LOCAL_OUTPUT = 512
"""The longest answer of a local model, where nothing else is configured."""
MOST_WINDOWS: Mapping[str, int] = {"ollama.chat": 8_192}
"""By API, for servers that make a window as large as they are told."""


class Opened(NamedTuple):
    """A provider, and what is known of it beforehand."""

    provider: Provider
    local: bool
    """Whether a call costs nothing."""
    most_window: int | None = None
    """The largest window that it is asked to run with, unless the user says so: it takes its memory."""

    async def window(self, configured: int | None) -> int | None:
        """The window to reckon with: as configured, else as the server tells; None where nobody does."""
        told = configured or await self.provider.window()
        if told is None or configured or self.most_window is None:
            return told
        return min(told, self.most_window)


def open_provider(name: str, *, environ: Mapping[str, str], window: int | None = None) -> Opened:
    """The embedded model, a GGUF file, `provider/model`, an address, or a model's own name.

    Raises LocalModelError where the embedded model's runtime or file is missing, ConfigurationError for a
    name that leads nowhere and for a key that is not there.
    """
    if runs_here(name):
        from ullage.broker.embedded import EmbeddedProvider, count_exactly  # noqa: PLC0415 - only who runs it

        path = None if name == EMBEDDED else name
        provider = EmbeddedProvider(path, **({} if window is None else {"window": window}))
        if path is None:
            count_exactly()
        return Opened(provider, local=True)
    from ullage.broker.remote import RemoteProvider  # noqa: PLC0415 - the same

    endpoint = endpoint_for(name, environ=environ)
    return Opened(RemoteProvider(endpoint), endpoint.local, MOST_WINDOWS.get(endpoint.api))
