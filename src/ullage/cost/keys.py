"""Gateway keys: what a key allows, as a value, and the checks of a request against it.

A store keeps the keys (`store.open(…).keys`). The caps of a key are caps of the book, like those of a
session: `Ledger(key=key)` checks them before each call, exactly, also if several gateways share the book.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ullage.cost.book import Cap
from ullage.errors import KeyRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

Number = TypeVar("Number", int, Decimal)

EVERY_MODEL = ("*",)
POLICY_FIELDS = (
    "max_age",
    "max_tokens_per_output",
    "preserve_errors",
    "preserve_small_outputs",
    "small_output_threshold",
    "preserve_recent_turns",
    "keep_first_user",
    "digest_share",
    "recall_share",
    "low_water",
    "max_turns",
)
"""The fields of `FitPolicy` that a request may set with its header. The others name single messages or run
code."""


class Limits(NamedTuple, Generic[Number]):
    """The most that a key may use in a day, in a month and in all; None is no limit. Days are in UTC."""

    day: Number | None = None
    month: Number | None = None
    total: Number | None = None


NO_LIMITS: Limits[Any] = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKey:
    """A gateway key without its secret, and what it allows."""

    id: str
    """Eight letters and digits. They are part of the secret, and name the key in the book."""
    name: str
    created: float
    """Seconds since the epoch."""
    models: tuple[str, ...] = EVERY_MODEL
    """Patterns of model names such as `gpt-4o*`; case does not matter."""
    dollars: Limits[Decimal] = NO_LIMITS
    tokens: Limits[int] = NO_LIMITS
    """Limits of prompt and answer together."""
    requests_a_minute: int | None = None
    largest_limit: int | None = None
    """Most input tokens of each request; None if only the window of its model limits it."""
    policy_fields: tuple[str, ...] = POLICY_FIELDS
    """The fields of the policy that the header `x-ullage-policy` may set."""
    may_recall: bool = False
    """True if the gateway may offer the recall tool to the model."""
    is_admin: bool = False
    """True if the key opens the page of the gateway."""
    expires: float | None = None
    """Seconds since the epoch; None if the key does not expire."""
    revoked: float | None = None
    """Seconds since the epoch; None if the key was not revoked."""

    def allows(self, model: str) -> bool:
        """Returns True if the key may use a model."""
        name = model.lower()
        return any(fnmatchcase(name, pattern.lower()) for pattern in self.models)


def check_model(key: GatewayKey, model: str) -> None:
    """Raises KeyRefused if the key may not use the model."""
    if not key.allows(model):
        raise KeyRefused("model", key=key.name, model=model, allowed=key.models)


def check_limit(key: GatewayKey, asked: int | None) -> int | None:
    """Returns the limit of a request: as asked, or the key's; None if neither sets one.

    Raises KeyRefused if the request asks for more than the key allows.
    """
    if asked is not None and key.largest_limit is not None and asked > key.largest_limit:
        raise KeyRefused("limit", key=key.name, asked=asked, most=key.largest_limit)
    return key.largest_limit if asked is None else asked


def check_policy(key: GatewayKey, fields: Iterable[str]) -> None:
    """Raises KeyRefused if the key may not set one of these fields of the policy."""
    for field in fields:
        if field not in key.policy_fields:
            raise KeyRefused("policy", key=key.name, field=field, allowed=key.policy_fields)


def check_time(key: GatewayKey, now: float | None = None) -> None:
    """Raises KeyRefused if the key was revoked or has expired."""
    moment = time.time() if now is None else now
    if key.revoked is not None:
        raise KeyRefused("revoked", key=key.name)
    if key.expires is not None and key.expires <= moment:
        raise KeyRefused("expired", key=key.name)


def caps_of(key: GatewayKey, now: float | None = None) -> tuple[Cap, ...]:
    """Returns the caps that apply to a call with this key now: its rate first, then the narrowest."""
    moment = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    day = moment.date().isoformat()
    names = {"key-day": f"{key.id} {day}", "key-month": f"{key.id} {day[:7]}", "key": key.id}
    caps = []
    if key.requests_a_minute is not None:
        minute = f"{key.id} {moment:%Y-%m-%dT%H:%M}"
        caps.append(Cap("key-minute", minute, Decimal(key.requests_a_minute), "requests"))
    for (scope, name), dollars, tokens in zip(names.items(), key.dollars, key.tokens, strict=True):
        if dollars is not None:
            caps.append(Cap(scope, name, dollars))
        if tokens is not None:
            caps.append(Cap(scope, name, Decimal(tokens), "tokens"))
    return tuple(caps)
