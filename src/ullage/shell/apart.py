"""Work in a thread that may be left behind.

Those of a loop's own pool may not: closing the loop waits for them, and a folder whose server is gone, or a
vocabulary that is still being read, would hold up whoever leaves.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

T = TypeVar("T")
NAME = "ullage-apart"
"""What these threads are called."""


async def apart(work: Callable[[], T]) -> T:
    """What a function gives, in a thread of its own; whoever stops waiting for it leaves it behind."""
    import asyncio  # noqa: PLC0415 - a terminal needs it anyway, a pipe does not
    import threading  # noqa: PLC0415 - the same

    loop = asyncio.get_running_loop()
    given: asyncio.Future[T] = loop.create_future()

    def settle(give: Callable[[Any], None], what: T | Exception) -> None:
        if not given.done():  # else nobody waits any more
            give(what)

    def run() -> None:
        ending: tuple[Callable[[Any], None], T | Exception]
        try:
            ending = given.set_result, work()
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            ending = given.set_exception, error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, *ending)

    threading.Thread(target=run, name=NAME, daemon=True).start()
    return await given


def is_at_work() -> bool:
    """Whether such a thread is still at work."""
    import threading  # noqa: PLC0415 - see apart

    return any(each.name == NAME for each in threading.enumerate())
