"""Everything that Ullage raises, as one tree.

UllageError
├── InvalidConversation (ValueError)     the messages cannot be sent to any strict API
├── InvalidRequest (ValueError)          a request body that its own API would not understand
├── ConfigurationError (ValueError)      an option, model or budget that cannot work
├── ContextOverflowError                 what must be sent does not fit
├── BudgetExceeded                       a call that could cost more than a cap leaves
├── Conflict                             a conversation that went on somewhere else
├── StoreError                           a store that cannot be used as it is
├── LocalModelError                      the embedded model cannot run as things are
└── ProviderError                        a provider refused or failed
    └── StreamBroken                     an answer that ended before its end

Each carries its figures as attributes, and its text says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal


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
    """The part of the request that must be sent is larger than the limit, after all trimming there may be."""

    def __init__(
        self,
        tokens: int,
        limit: int,
        breakdown: Mapping[str, int] | None = None,
        *,
        told: int | None = None,
        trimmed: bool = True,
    ) -> None:
        self.tokens = tokens
        self.limit = limit
        self.told = told
        """The provider's own count, where it was the provider who refused and said so."""
        self.breakdown: Mapping[str, int] = dict(breakdown or {})
        after = " after trimming" if trimmed else ""
        off = "" if trimmed else " Nothing is trimmed: :rolling-context on changes that."
        text = (
            f"Cannot fit request: {tokens} tokens{after}, {limit} allowed.{off} "
            "Narrow the scope or start a new session."
        )
        biggest = max(self.breakdown, key=self.breakdown.__getitem__, default=None)
        if biggest is not None:
            text += (
                f" The biggest block is {biggest} ({self.breakdown[biggest]} tokens): {REMEDIES[biggest]}."
            )
        super().__init__(text)


class BudgetExceeded(UllageError):  # noqa: N818 - a public word
    """A call whose worst case would cross a cap; nothing was sent."""

    def __init__(  # noqa: PLR0917 - the figures in the order in which they are told
        self, scope: str, name: str, cap: Decimal, spent: Decimal, reserved: Decimal, worst: Decimal
    ) -> None:
        self.scope = scope
        self.name = name
        self.cap = cap
        self.spent = spent
        self.reserved = reserved
        self.worst = worst
        held = f" and ${reserved:f} is held for calls under way" if reserved else ""
        super().__init__(
            f"This call could cost ${worst:f}, but of the ${cap:f} for {scope} {name!r} "
            f"${spent:f} is spent{held}. "
            "Raise cost.cap_at_dollars, ask for a shorter answer, or use a cheaper model."
        )


class Conflict(UllageError):  # noqa: N818 - the same form
    """A session that another Context has gone on with; this one is no longer its latest state."""

    def __init__(self, session: str, number: int, length: int) -> None:
        self.session = session
        self.number = number
        self.length = length
        super().__init__(
            f"session {session!r} has {length} events, and this one would be number {number}: it has gone on "
            "elsewhere. Resume it to go on from there, or start a new one."
        )


class StoreError(UllageError):
    """A store that is damaged, too new, or out of reach; it was left as it is."""


class LocalModelError(UllageError):
    """The embedded model cannot run: the runtime or the file is missing, or does not load."""


class ProviderError(UllageError):
    """A provider refused a request or failed at it; `may_retry` says whether trying again could help."""

    def __init__(
        self,
        reason: str,
        *,
        status: int | None = None,
        code: str | None = None,
        may_retry: bool = False,
        retry_after: float | None = None,
    ) -> None:
        self.reason = reason
        self.status = status
        self.code = code
        """The provider's own name for what is wrong."""
        self.may_retry = may_retry
        self.retry_after = retry_after
        """The seconds that the provider asks to wait."""
        super().__init__(reason)


class StreamBroken(ProviderError):  # noqa: N818 - the same form
    """An answer that ended before its end; what had come until then has been handed on."""
