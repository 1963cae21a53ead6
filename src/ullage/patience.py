"""Limits the time that a store waits for a lock of another process, without blocking an event loop.

Code without a loop blocks while it waits. Code on an event loop calls the store through `patiently`: the
store gives up after a few milliseconds without any change, the loop runs, and the store is called again. So
cancellation ends the wait, and each step is done completely or not at all.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds that a transaction waits for other processes."""
GRACE = 1.0
"""Seconds that a cancelled caller still waits, so that no work is lost without need."""
ATTEMPT = 0.02
"""Seconds of one attempt, which blocks the loop."""
PAUSE = 0.005
"""Seconds for the loop between two attempts."""


class Busy(Exception):  # noqa: N818 - no error: the call is repeated
    """Another process has locked the store. Nothing was done."""


class Limit(NamedTuple):
    """Seconds that a transaction may wait now; `is_retried` is True if the caller tries again."""

    seconds: float
    is_retried: bool = False


_limit: ContextVar[tuple[float, bool] | None] = ContextVar("patience", default=None)
"""End of the wait by the monotonic clock, and True if the caller tries again after it."""


def current_limit() -> Limit:
    """Returns the current limit."""
    found = _limit.get()
    if found is None:
        return Limit(PATIENCE)
    end, is_retried = found
    return Limit(max(0.0, end - time.monotonic()), is_retried)


@contextmanager
def limit_waiting(seconds: float, *, is_retried: bool = False) -> Iterator[None]:
    """Limits the total wait of all transactions inside; with `is_retried`, they raise Busy at the limit."""
    token = _limit.set((time.monotonic() + seconds, is_retried))
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def without_limit() -> Iterator[None]:
    """Removes the limit for work that outlives its caller, because a new task inherits the current limit."""
    token = _limit.set(None)
    try:
        yield
    finally:
        _limit.reset(token)


async def patiently(work: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Calls a function that uses a store; the loop keeps running while the store is locked.

    The function is called again after Busy, so it must continue at the step where it stopped. After
    cancellation the remaining steps are not done.
    """
    import asyncio  # noqa: PLC0415 - a caller that awaits has loaded it

    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            with limit_waiting(min(ATTEMPT, left), is_retried=True):
                return work()
        except Busy:
            await asyncio.sleep(PAUSE)
    with limit_waiting(0):
        return work()


async def to_the_end(work: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Calls a function like `patiently`, but completes it: cancellation only shortens the wait."""
    import asyncio  # noqa: PLC0415 - the same

    try:
        return await patiently(work, seconds)
    except asyncio.CancelledError:
        with limit_waiting(GRACE):
            work()
        raise
