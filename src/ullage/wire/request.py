"""A request in Ullage's own shape, whatever API it came from or goes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.messages import Message, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything of a request that costs tokens, and the rest of the body as it was."""

    model: str | None = None
    messages: tuple[Message, ...] = ()
    """In OpenAI's chat shape; a separate system prompt is the first message."""
    tools: tuple[Tool, ...] = ()
    """In OpenAI's chat shape."""
    response_format: Mapping[str, Any] | None = None
    """In OpenAI's chat shape: `{"type": "json_schema", "json_schema": {"name", "schema", …}}`."""
    tool_choice: Any = None
    """In OpenAI's chat shape: "auto", "none", "required", or one function by name."""
    thinking: bool = False
    """Whether the model was asked to think in a way that adds to the prompt."""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """What is left of the body: kept for the way back, free of charge."""
    raw: bool = False
    """Whether the only message's text is the whole prompt, sent without any framing."""
    api: str | None = None
    """The API that `rest` and all members beyond the chat shape belong to; None for one made by hand."""
