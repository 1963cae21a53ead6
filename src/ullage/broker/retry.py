"""Decides if and when a failed request is tried again; it only computes, and does not wait."""

from __future__ import annotations

import math
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError, ProviderError, StreamBroken

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

RETRIED = frozenset({408, 409, 425, 429})
"""The statuses below 500 that are tried again. From 500 on, all statuses are, except 501 and 505."""
NEVER = frozenset({501, 505})
SPENT = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_error", "credit_balance_too_low"}
)
"""Codes of an empty account, for which waiting does not help."""
PASSING = frozenset({
    "overloaded_error", "overloaded", "rate_limit_error", "rate_limit_exceeded", "server_error", "api_error",
    "internal_server_error", "timeout_error", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL",
})  # fmt: skip
"""Codes of temporary errors that come without a status, inside a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The number of tries of a request, and the waits between them."""

    attempts: int = 4
    """Tries in all; 1 for no retry."""
    base: float = 0.5
    """The longest first wait in seconds; it doubles with each try."""
    most: float = 30.0
    """The longest wait in seconds. If a provider asks for a longer wait, the request is not tried again."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.base <= self.most:
            raise ConfigurationError("retries need attempts >= 1 and 0 <= base <= most")


DEFAULT = Retries()


def may_retry(status: int | None, code: str | None, headers: Mapping[str, str] | None = None) -> bool:
    """Returns True if another try may help, by the status, the provider's code and its headers."""
    if code in SPENT:
        return False
    word = (headers or {}).get("x-should-retry")
    if word in {"true", "false"}:
        return word == "true"
    if status is None or status < 400:
        return code in PASSING
    return status in RETRIED or (status >= 500 and status not in NEVER)


def read_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Returns the seconds that the headers ask to wait; `now` is the time since the epoch, for a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, OverflowError):
        return None


def delay(error: Exception, attempt: int, rng: random.Random, retries: Retries = DEFAULT) -> float | None:
    """Returns the seconds to wait after a failed try (the first is 1); None if there is no other try."""
    if not isinstance(error, ProviderError) or isinstance(error, StreamBroken) or not error.may_retry:
        return None
    if attempt >= retries.attempts:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= retries.most else None
    # The whole wait is random, not a part of it, so that clients that failed together try again at different
    # times.
    return rng.uniform(0, min(retries.most, retries.base * 2.0 ** min(attempt - 1, 60)))
