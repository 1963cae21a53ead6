"""Runs work in threads that do not delay the end of the program.

Closing an event loop waits for the threads of its own pool. A network folder that does not answer, or a
vocabulary that is still loading, would then delay a user who leaves.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

T = TypeVar("T")
NAME = "ullage-detached"
"""Name of all detached threads."""


async def run_detached(work: Callable[[], T]) -> T:
    """Runs a function in its own thread and returns the result; a cancelled caller does not wait for it."""
    import asyncio  # noqa: PLC0415 - loaded late, because piped input does not need it
    import threading  # noqa: PLC0415 - loaded late for the same reason

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: T | Exception) -> None:
        if not future.done():  # it is done if the caller was cancelled
            set_outcome(outcome)

    def run() -> None:
        ending: tuple[Callable[[Any], None], T | Exception]
        try:
            ending = future.set_result, work()
        except Exception as error:  # noqa: BLE001 - raised in the caller, which awaits the future
            ending = future.set_exception, error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, *ending)

    threading.Thread(target=run, name=NAME, daemon=True).start()
    return await future


def is_running() -> bool:
    """Returns True if a detached thread is still running."""
    import threading  # noqa: PLC0415 - see run_detached

    return any(each.name == NAME for each in threading.enumerate())
