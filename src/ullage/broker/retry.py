"""Whether a failed request is tried again, and when: decided from values alone."""

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
"""The statuses below 500 that a later try may mend; of those from 500 on, all but 501 and 505."""
NEVER = frozenset({501, 505})
SPENT = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_error", "credit_balance_too_low"}
)
"""Codes of a purse that is empty: waiting does not fill it."""
PASSING = frozenset({
    "overloaded_error", "overloaded", "rate_limit_error", "rate_limit_exceeded", "server_error", "api_error",
    "internal_server_error", "timeout_error", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL",
})  # fmt: skip
"""Codes of what passes, where an error comes without a status, inside a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how patiently a request is tried again."""

    attempts: int = 4
    """Tries in all; 1 for no retry."""
    base: float = 0.5
    """The longest first wait in seconds; it doubles with each try."""
    most: float = 30.0
    """The longest wait. A provider that asks for a longer one is not waited for."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.base <= self.most:
            raise ConfigurationError("retries need attempts >= 1 and 0 <= base <= most")


DEFAULT = Retries()


def may_retry(status: int | None, code: str | None, headers: Mapping[str, str] | None = None) -> bool:
    """Whether trying again could help, by the status, the provider's code and its own word on it."""
    if code in SPENT:
        return False
    word = (headers or {}).get("x-should-retry")
    if word in {"true", "false"}:
        return word == "true"
    if status is None or status < 400:
        return code in PASSING
    return status in RETRIED or (status >= 500 and status not in NEVER)


def told_wait(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that the headers ask to wait; `now` is the time since the epoch, for a date."""
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
    """The seconds to wait after the failure of a try (the first is 1); None where no other try is due."""
    if not isinstance(error, ProviderError) or isinstance(error, StreamBroken) or not error.may_retry:
        return None
    if attempt >= retries.attempts:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= retries.most else None
    # The whole wait is drawn, not a part of it, so that many clients that failed together come back apart.
    return rng.uniform(0, min(retries.most, retries.base * 2.0 ** min(attempt - 1, 60)))
