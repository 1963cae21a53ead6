"""Handling of Ctrl-C: it cancels the current task and nothing else.

By default, Python raises KeyboardInterrupt at any point of the program, even in the middle of a write to the
book. Here a press cancels a task: the task ends at its next await and cleans up. Work without an await, such
as an append, a settlement or a redraw, is always finished.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

PATIENCE = 5.0
"""Seconds that a task has to end after the first press; a later press uses force."""
LAST = 1.0
"""Seconds that a task has to end after a press that uses force."""
SLOW = "not stopped yet; press Ctrl-C again to stop by force, which may end the shell"

T = TypeVar("T")


class BrokenOff(Exception):  # noqa: N818 - not an error: the user asked for it
    """Raised in the middle of a task that computes without an await and so could not be cancelled."""


class NotEnding(Exception):  # noqa: N818 - the same form as BrokenOff
    """A task was cancelled but does not end; it is still running."""


@contextmanager
def on_press(press: Callable[[], None]) -> Iterator[None]:
    """Lets Ctrl-C call `press`, in place of the previous handler, inside the with block.

    `press` can be called between any two instructions of the program, so it should do little. Only the main
    thread can handle signals; in any other thread this has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: press())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def nothing() -> None:
    """Ignores a press of Ctrl-C; for times when there is nothing to stop."""


def leave() -> None:
    """Lets a press of Ctrl-C end the program."""
    raise KeyboardInterrupt


async def stoppable(
    work: Coroutine[Any, Any, T],
    *,
    tell: Callable[[str], None],
    pressed: Callable[[], None] = nothing,
    patience: float = PATIENCE,
) -> T:
    """Runs the work as a task. Each press of Ctrl-C cancels the task again and calls `pressed`.

    Raises CancelledError when the cancelled task has cleaned up. If it has not ended after `patience`
    seconds, `tell` is called with a notice, and the next press uses force: it raises BrokenOff inside a task
    that computes, or leaves a task behind that waits without end and raises NotEnding.
    """
    loop = asyncio.get_running_loop()
    task, given_up = loop.create_task(work), loop.create_future()
    stopping = _Stopping(loop, task, given_up, tell, patience)

    def press() -> None:
        pressed()
        stopping.press()

    with on_press(press):
        while not (task.done() or given_up.done()):
            try:
                await asyncio.wait({task, given_up}, return_when=asyncio.FIRST_COMPLETED)
            except (
                asyncio.CancelledError
            ):  # cancelled by other code, such as a timeout: the task cleans up first
                task.cancel()
        stopping.end()
    if not task.done():
        raise NotEnding
    return task.result()


@dataclass(slots=True)
class _Stopping:
    """The progress of stopping a task."""

    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any]
    given_up: asyncio.Future[None]
    tell: Callable[[str], None]
    patience: float
    since: float | None = None
    """Time of the first press; None before it."""
    taken: bool = False
    """True once the event loop has handled a press."""
    timer: asyncio.TimerHandle | None = None

    def press(self) -> None:
        """Handles the signal; it is called at any point of the program."""
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        late = now - self.since > self.patience
        if late and not self.taken:
            raise BrokenOff
        self.loop.call_soon_threadsafe(self._cancel, late)

    def _cancel(self, late: bool) -> None:
        """Cancels the task; the event loop calls this between two steps of the task."""
        self.task.cancel()
        if not self.taken:
            self.timer = self.loop.call_later(self.patience, self._tell_slow)
        elif late and not self.given_up.done():
            self.timer = self.loop.call_later(LAST, self._give_up)
        self.taken = True

    def _tell_slow(self) -> None:
        if not self.task.done():
            self.tell(SLOW)

    def _give_up(self) -> None:
        if not self.given_up.done():
            self.given_up.set_result(None)

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
