"""Everything that Ullage raises, as one tree.

UllageError
├── InvalidConversation (ValueError)     the messages cannot be sent to any strict API
├── InvalidRequest (ValueError)          a request body that its own API would not understand
├── ConfigurationError (ValueError)      an option, model or budget that cannot work
└── ContextOverflowError                 what must be sent does not fit

Each carries its figures as attributes, and its text says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class UllageError(Exception):
    """The base of every error that Ullage raises on purpose."""


class InvalidConversation(UllageError, ValueError):  # noqa: N818 - a public word
    """A conversation that no strict API accepts; `index` and `field` name the place."""

    def __init__(self, reason: str, *, index: int | None = None, field: str | None = None) -> None:
        self.reason = reason
        self.index = index
        self.field = field
        place = "" if index is None else f"message {index}"
        if field is not None:
            place = f"{place}, field {field!r}" if place else f"field {field!r}"
        super().__init__(f"{place}: {reason}" if place else reason)


class InvalidRequest(UllageError, ValueError):  # noqa: N818 - the same form
    """A request body that the named API would not understand; `field` names the place."""

    def __init__(self, reason: str, *, api: str, field: str | None = None) -> None:
        self.reason = reason
        self.api = api
        self.field = field
        place = api if field is None else f"{api}, field {field!r}"
        super().__init__(f"{place}: {reason}")


class ConfigurationError(UllageError, ValueError):
    """An option, a model name or a budget that cannot work as given."""


# The command that shrinks each block of the breakdown.
REMEDIES: Mapping[str, str] = {
    "system": "shorten the system prompt",
    "tools": "send fewer tools, or disconnect a server with :mcp disconnect",
    "summary": ":reset clears the summary",
    "memory": ":memory clear",
    "project": ":tree off",
    "turns": "shorten the last message, or split it",
}


class ContextOverflowError(UllageError):
    """The part of the request that must be sent is larger than the limit, after all trimming."""

    def __init__(self, tokens: int, limit: int, breakdown: Mapping[str, int] | None = None) -> None:
        self.tokens = tokens
        self.limit = limit
        self.breakdown: Mapping[str, int] = dict(breakdown or {})
        text = (
            f"Cannot fit request: {tokens} tokens after trimming, {limit} allowed. "
            "Narrow the scope or start a new session."
        )
        biggest = max(self.breakdown, key=self.breakdown.__getitem__, default=None)
        if biggest is not None:
            text += (
                f" The biggest block is {biggest} ({self.breakdown[biggest]} tokens): {REMEDIES[biggest]}."
            )
        super().__init__(text)
