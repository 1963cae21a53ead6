"""A request to a model, before it is written in a provider's format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.messages import Message, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request to a model, independent of any provider's format."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_output: int | None = None
    """The most output tokens; None for the provider's own default."""
    window: int | None = None
    """The context window that the request was fitted to; it is sent to servers that need it."""
    tell_retries: bool = False
    """True if the stream should have a `Retrying` before each further try."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """More options of the request, in the provider's own names, such as temperature."""
