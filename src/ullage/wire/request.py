"""A request in Ullage's own format, independent of its API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ullage.intake import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.messages import Message, Tool
    from ullage.target import ApiName


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Request:
    """All parts of a request that cost tokens, and the rest of the body unchanged."""

    model: str | None = None
    messages: tuple[Message, ...] = ()
    """In OpenAI's chat format; a separate system prompt is the first message."""
    tools: tuple[Tool, ...] = ()
    """In OpenAI's chat format."""
    response_format: Mapping[str, Any] | None = None
    """In OpenAI's chat format: `{"type": "json_schema", "json_schema": {"name", "schema", …}}`."""
    tool_choice: Any = None
    """In OpenAI's chat format: "auto", "none", "required", or one function by name."""
    thinking: bool = False
    """True if the request asks the model to think in a way that adds to the prompt."""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the body. They cost no tokens, and are kept for writing."""
    raw: bool = False
    """True if the text of the only message is the whole prompt, sent without framing."""
    api: ApiName | None = None
    """The API that `rest` and all members beyond the chat format belong to; None for a request made by
    hand."""
    original: Mapping[str, Any] | None = field(default=None, compare=False)
    """The body that the request was read from; None for a request made by hand. Writing for the same API
    sends everything that was not changed as this body has it."""

    def __repr__(self) -> str:
        """Describes the request without the conversation, which does not belong in logs."""
        whose = self.model or "no model"
        holds = f"{plural(len(self.messages), 'message')}, {plural(len(self.tools), 'tool')}"
        return f"<Request of {self.api or 'no API'}, {whose}: {holds}>"
