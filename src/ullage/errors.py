"""All errors that Ullage raises, as one tree.

UllageError
├── InvalidConversation (ValueError)     messages that no strict API accepts
├── InvalidRequest (ValueError)          a request body that its own API does not accept
├── ConfigurationError (ValueError)      an invalid option, model or budget
│   ├── MissingExtra                     an optional package that is not installed
│   └── MissingHost (ImportError)        a program that an integration is for is not installed
├── ContextOverflowError                 the required messages do not fit
├── BudgetExceeded                       a call could cost more than a cap leaves
├── RateLimited                          a key has made its requests of this minute
├── KeyRefused                           a gateway key that is unknown, revoked, expired or not allowed
├── Conflict                             another process continued the session
├── StoreError                           a store that cannot be used
│   ├── StoreLost                        the connection to a store's server was lost
│   ├── NotBooked                        the cost of a call is not written yet
│   └── NotSaved                         a finished turn is not fully written yet
├── LocalModelError                      the embedded model cannot run
└── ProviderError                        a provider refused or failed
    └── StreamBroken                     an answer that is incomplete

Each error has its figures as attributes. Its message says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal
    from typing import Any


class UllageError(Exception):
    """Base class of every error that Ullage raises on purpose.

    Every error can be pickled and copied, so that it reaches the caller of a process pool with its figures.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle calls the class with the message alone, which most of these classes do not accept.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[UllageError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> UllageError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class InvalidConversation(UllageError, ValueError):  # noqa: N818 - a public word
    """The messages are not valid for a strict API; `index` and `field` name the place."""

    def __init__(self, reason: str, *, index: int | None = None, field: str | None = None) -> None:
        self.reason = reason
        self.index = index
        self.field = field
        place = "" if index is None else f"message {index}"
        if field is not None:
            place = f"{place}, field {field!r}" if place else f"field {field!r}"
        super().__init__(f"{place}: {reason}" if place else reason)


class InvalidRequest(UllageError, ValueError):  # noqa: N818 - the same form
    """A request body is invalid for the named API; `field` names the place."""

    def __init__(self, reason: str, *, api: str, field: str | None = None) -> None:
        self.reason = reason
        self.api = api
        self.field = field
        place = api if field is None else f"{api}, field {field!r}"
        super().__init__(f"{place}: {reason}")


class ConfigurationError(UllageError, ValueError):
    """An option, a model name or a budget is invalid."""


class MissingExtra(ConfigurationError):  # noqa: N818 - the same form
    """Packages of an extra are not installed."""

    def __init__(self, purpose: str, extra: str, modules: Sequence[str]) -> None:
        self.extra = extra
        self.modules = tuple(modules)
        """The modules that are missing."""
        self.command = f"pip install 'ullage[{extra}]'"
        """The command that installs them."""
        what = "the package" if len(self.modules) == 1 else "the packages"
        super().__init__(f"{purpose} {what} {', '.join(self.modules)}. Install with: {self.command}")


class MissingHost(ConfigurationError, ImportError):  # noqa: N818 - the same form
    """The program that an integration is for is not installed, or is too old."""

    def __init__(self, host: str, package: str, reason: str) -> None:
        self.host = host
        self.command = f"pip install '{package}'"
        """The command that installs it."""
        super().__init__(
            f"The integration for {host} cannot import it ({reason}). Install with: {self.command}"
        )


REMEDIES: Mapping[str, str] = {
    "system": "shorten the system prompt",
    "tools": "send fewer tools, or shorter descriptions of them",
    "summary": "clear the summary (Context.reset)",
    "memory": "forget some background notes (Context.forget)",
    "project": 'leave the project tree out (Context.set_project(""))',
    "recalled": "recall less (FitPolicy(recall_share=0) recalls nothing)",
    "turns": "shorten the last message, or split it",
    "rolling": "Context.set_trimming(True) trims older turns",
}
"""Block of the breakdown → advice to a program on how to shrink it. `rolling` is for a context that does not
trim.

The shell and the command line have their own tables with their own commands."""


class ContextOverflowError(UllageError):
    """The messages that must be sent are above the limit, even after all possible trimming."""

    def __init__(
        self,
        tokens: int,
        limit: int,
        breakdown: Mapping[str, int] | None = None,
        *,
        reported: int | None = None,
        trimmed: bool = True,
    ) -> None:
        self.tokens = tokens
        """Ceiling of our count, or the provider's count if the provider refused the request."""
        self.limit = limit
        self.reported = reported
        """The provider's count, if the provider refused the request and reported it."""
        self.breakdown: Mapping[str, int] = dict(breakdown or {})
        """`tokens` by block; empty if unknown."""
        self.trimmed = trimmed
        """True if trimming was tried."""
        super().__init__(self.advise(REMEDIES))

    def advise(self, remedies: Mapping[str, str]) -> str:
        """Returns the message with these remedies instead of the library's own."""
        if not self.limit:  # the provider reported no figures, and the caller has written the text
            return str(self.args[0]) if self.args and isinstance(self.args[0], str) else "Cannot fit request."
        after = " after trimming" if self.trimmed else ""
        off = "" if self.trimmed else f" Nothing is trimmed: {remedies['rolling']}."
        text = (
            f"Cannot fit request: {self.tokens} tokens{after}, {self.limit} allowed.{off} "
            "Narrow the scope or start a new session."
        )
        biggest = max(self.breakdown, key=self.breakdown.__getitem__, default=None)
        if biggest is not None:
            text += (
                f" The biggest block is {biggest} ({self.breakdown[biggest]} tokens): {remedies[biggest]}."
            )
        return text


_SPANS = {"key-day": "on", "key-month": "in"}
"""The word between a key and a span of time, by the scope of a cap."""
_RAISE_CAP = {"own": "Raise cost.cap_at_dollars", "key": "Ask for a key with a higher cap"}


class BudgetExceeded(UllageError):  # noqa: N818 - a public word
    """The worst-case cost, or the most tokens, of a call are above a cap; nothing was sent."""

    def __init__(  # noqa: PLR0917 - the figures in the order of the message
        self,
        scope: str,
        name: str,
        cap: Decimal,
        spent: Decimal,
        reserved: Decimal,
        worst: Decimal,
        unit: str = "dollars",
        shortest: int | None = None,
    ) -> None:
        self.scope = scope
        self.name = name
        self.cap = cap
        self.spent = spent
        self.reserved = reserved
        self.worst = worst
        self.unit = unit
        """dollars or tokens: the unit of all these figures."""
        self.shortest = shortest
        """Tokens of the shortest answer that was tried, whose worst case is `worst`; None if it was not
        shortened."""
        shown = "{:,f} tokens" if unit == "tokens" else "${:f}"
        limit, used, held, most = map(shown.format, (cap, spent, reserved, worst))
        running = f", reserved for running calls {held}" if reserved else ""
        super().__init__(
            f"The cap for {_describe_scope(scope, name)} is {limit}, spent {used}{running}: "
            f"this call could {'take' if unit == 'tokens' else 'cost'} {most}"
            f"{'' if shortest is None else f', even with an answer of {shortest:,} tokens'}. "
            f"{_RAISE_CAP['key' if scope.startswith('key') else 'own']}, "
            f"{'ask for a shorter answer' if shortest is None else 'shorten the conversation'}, "
            f"or {'send a shorter prompt' if unit == 'tokens' else 'use a cheaper model'}."
        )


def _describe_scope(scope: str, name: str) -> str:
    """Returns a cap's scope in words, such as `key 'abcd2345' on 2026-11-18`."""
    if scope not in _SPANS:
        return f"{scope} {name!r}"
    key, _, span = name.partition(" ")
    return f"key {key!r} {_SPANS[scope]} {span}"


class RateLimited(UllageError):  # noqa: N818 - the same form
    """A gateway key has made all requests that it may make in this minute; nothing was sent."""

    def __init__(self, key: str, limit: int, retry_after: float) -> None:
        self.key = key
        """Name of the key."""
        self.limit = limit
        """Requests a minute."""
        self.retry_after = retry_after
        """Seconds until the next minute begins."""
        super().__init__(
            f"Key {key!r} may make {limit:,} request{'' if limit == 1 else 's'} a minute, and has made them. "
            f"Try again in {retry_after:.0f} s."
        )


KEY_REFUSALS: Mapping[str, str] = {
    "unknown": "This key is unknown. Use a key that `ullage keys create` has printed",
    "revoked": "Key {key!r} was revoked. Ask for a new key",
    "expired": "Key {key!r} has expired. Ask for a new key",
    "model": "Key {key!r} may not use the model {model!r}. It may use {allowed}",
    "limit": "Key {key!r} allows a limit of at most {most:,} tokens, and x-ullage-limit asks for {asked:,}. "
    "Lower the header, or leave it out",
    "policy": "Key {key!r} may not set {field!r} in x-ullage-policy. It may set {allowed}",
    "admin": "Key {key!r} does not open this page. Use a key made with `ullage keys create --admin`",
}
"""Reason → message."""


class KeyRefused(UllageError):  # noqa: N818 - the same form
    """A gateway key is unknown, revoked or expired, or does not allow what was asked for."""

    def __init__(
        self,
        reason: str,
        *,
        key: str | None = None,
        model: str | None = None,
        field: str | None = None,
        asked: int = 0,
        most: int = 0,
        allowed: Sequence[str] = (),
    ) -> None:
        self.reason = reason
        """A key of KEY_REFUSALS."""
        self.key = key
        """Name of the key; None if it is unknown."""
        self.model = model
        self.allowed = tuple(allowed)
        """Patterns of the models that the key may use, or the fields of the policy that it may set."""
        self.field = field
        """The field of the policy that the key may not set."""
        self.asked = asked
        """The limit in tokens that the request asks for, if it is the reason."""
        self.most = most
        """The largest limit that the key allows."""
        listed = ", ".join(allowed) or "none"
        sentence = KEY_REFUSALS[reason].format(
            key=key, model=model, field=field, asked=asked, most=most, allowed=listed
        )
        super().__init__(f"{sentence}.")


class Conflict(UllageError):  # noqa: N818 - the same form
    """Another Context continued the session; this Context is out of date."""

    def __init__(self, session: str, number: int, length: int) -> None:
        self.session = session
        self.number = number
        self.length = length
        super().__init__(
            f"Session {session!r} was continued elsewhere: it has {length} events, and this one would be "
            f"number {number}. Resume it to continue from its latest state, or start a new session."
        )


class StoreError(UllageError):
    """A store is damaged, too new, or cannot be reached. Its content was not changed."""


class StoreLost(StoreError):  # noqa: N818 - the same form
    """The connection to the server of a store was lost in a transaction."""

    def __init__(self, store: str, reason: str, *, is_unknown: bool) -> None:
        self.is_unknown = is_unknown
        """True if the transaction was being committed, so that its change may be stored or not."""
        outcome = (
            "It is unknown if the last change was stored: look before you repeat it."
            if is_unknown
            else "Nothing was changed: try again when the server is up."
        )
        super().__init__(f"the connection to the store {store} was lost: {reason}. {outcome}")


class NotBooked(StoreError):  # noqa: N818 - the same form
    """The cost of a call could not be written; it is kept in memory until it can."""

    def __init__(self, reason: str, cost: Decimal | None, *, is_last: bool = False) -> None:
        self.reason = reason
        self.cost = cost
        """In dollars; None if unknown."""
        self.entry: Any = None
        """The LedgerEntry that will be booked; None if this does not come from a ledger."""
        price = "" if cost is None else f" of ${cost:f}"
        kept = (
            "It is lost, because the store was closed."
            if is_last
            else "It is kept in memory until the store can be written."
        )
        super().__init__(f"The cost{price} of a call could not be booked: {reason}. {kept}")


class NotSaved(StoreError):  # noqa: N818 - the same form
    """A turn has ended, but the store could not save all of it. The rest is kept in memory."""

    def __init__(self, reason: str, *, is_answer_kept: bool, is_booked: bool, cost: Decimal | None) -> None:
        self.reason = reason
        self.is_answer_kept = is_answer_kept
        """True if the answer is in the store."""
        self.is_booked = is_booked
        """True if the cost is in the store."""
        self.cost = cost
        """In dollars; None if unknown."""
        price = "" if cost is None else f" of ${cost:f}"
        parts = [(is_answer_kept, "the answer"), (is_booked, f"the cost{price} of this call")]
        missing = " and ".join(part for is_saved, part in parts if not is_saved)
        later = (
            " The unsaved part is kept in memory while the program runs, and written with the next turn."
            if missing
            else ""
        )
        what = missing or "the token counts of this call, which improve later estimates"
        super().__init__(f"Could not save {what}: {reason}.{later}")


class LocalModelError(UllageError):
    """The embedded model cannot run: the runtime or the file is missing, or does not load."""


class ProviderError(UllageError):
    """A provider refused a request or failed; `may_retry` is True if another attempt may succeed."""

    def __init__(
        self,
        reason: str,
        *,
        status: int | None = None,
        code: str | None = None,
        may_retry: bool = False,
        retry_after: float | None = None,
        sent: bool = False,
    ) -> None:
        self.reason = reason
        self.status = status
        self.code = code
        """The provider's own name of the error."""
        self.may_retry = may_retry
        self.retry_after = retry_after
        """Seconds to wait, as the provider asks; None if it does not."""
        self.sent = sent
        """True if the request was sent and abandoned without an answer, so that it may be charged."""
        super().__init__(reason)


class StreamBroken(ProviderError):  # noqa: N818 - the same form
    """An answer ended too early; the part that arrived has been passed on."""
