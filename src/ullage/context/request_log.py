"""The last requests, with the size of each and of its window."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.fitting.result import Fitted

LENGTH = 100
"""The number of requests that are remembered."""


class Sent(NamedTuple):
    """One request."""

    at: float
    """When, in seconds since the epoch."""
    tokens_before: int
    tokens_after: int
    maximum: int
    trimmed: bool
    dropped: int
    """Messages that were no longer there."""


class Statistics(NamedTuple):
    """Figures over the remembered requests."""

    requests: int
    trimmed: int
    utilization: float
    """The share of their limits that they filled on average, from 0 to 1; 0 if there was no request."""


class RequestLog:
    """The newest requests, the oldest first."""

    def __init__(self, length: int = LENGTH) -> None:
        self._sent: deque[Sent] = deque(maxlen=length)

    def note(self, fitted: Fitted[Any], at: float) -> None:
        """Remembers a request."""
        self._sent.append(
            Sent(at, fitted.tokens_before, fitted.tokens_after, fitted.limit, fitted.changed, fitted.dropped)
        )

    def __len__(self) -> int:
        return len(self._sent)

    def __iter__(self) -> Iterator[Sent]:
        return iter(tuple(self._sent))

    def statistics(self) -> Statistics:
        """The number of requests, the number of trimmed ones, and how full they were on average."""
        sent = tuple(self._sent)
        filled = sum(each.tokens_after / each.maximum for each in sent)
        trimmed = sum(each.trimmed for each in sent)
        return Statistics(len(sent), trimmed, filled / len(sent) if sent else 0.0)
