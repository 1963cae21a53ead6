"""Ctrl-C has one owner while a shell lives: it stops what is in hand, where that waits, and nothing else.

By default it would raise KeyboardInterrupt wherever the program happens to be, in the middle of an entry in
the book too. Here a press cancels a task, which ends where it waits and cleans up behind itself; all that is
done without waiting, such as an append, a settlement or a redraw, is done to its end.
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
"""Seconds after the first press in which it is to end; a press after that is let use force."""
LAST = 1.0
"""Seconds that it has after such a press."""
SLOW = "it has not stopped yet; Ctrl-C again stops it by force, or leaves where that is not possible"

T = TypeVar("T")


class BrokenOff(Exception):  # noqa: N818 - no error: somebody wanted it
    """Raised in the middle of what went on and on without ever waiting, as a calculation does."""


class NotEnding(Exception):  # noqa: N818 - the same form as the other
    """It was stopped, but does not come to its end; it is still there."""


@contextmanager
def on_press(press: Callable[[], None]) -> Iterator[None]:
    """A press of Ctrl-C calls this meanwhile, and is not heard by whoever heard it before.

    It is called between any two steps of the program, so it had better do little. Only the main thread can
    take signals: within any other nothing changes.
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
    """What a press does where there is nothing to stop."""


def leave() -> None:
    """What it does where the program itself is what would be stopped."""
    raise KeyboardInterrupt


async def stoppable(
    work: Coroutine[Any, Any, T],
    *,
    tell: Callable[[str], None],
    pressed: Callable[[], None] = nothing,
    patience: float = PATIENCE,
) -> T:
    """Does the work; each press cancels it once more, and is told to `pressed`.

    Where it was stopped, CancelledError is raised as soon as it has cleaned up. Who waits for longer than
    their patience can press again: what computes is broken off then (BrokenOff), and what waits for something
    that never comes is left behind (NotEnding). That this is so is told beforehand.
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
            except asyncio.CancelledError:  # whoever else stops it, as a time limit does: it cleans up first
                task.cancel()
        stopping.end()
    if not task.done():
        raise NotEnding
    return task.result()


@dataclass(slots=True)
class _Stopping:
    """What has been done so far to stop a task."""

    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any]
    given_up: asyncio.Future[None]
    tell: Callable[[str], None]
    patience: float
    since: float | None = None
    """When it was first pressed."""
    taken: bool = False
    """Whether the loop has come round to it since."""
    timer: asyncio.TimerHandle | None = None

    def press(self) -> None:
        """Called by the signal, wherever the program is."""
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        late = now - self.since > self.patience
        if late and not self.taken:
            raise BrokenOff
        self.loop.call_soon_threadsafe(self._cancel, late)

    def _cancel(self, late: bool) -> None:
        """Called by the loop, between two steps of a task."""
        self.task.cancel()
        if not self.taken:
            self.timer = self.loop.call_later(self.patience, self._told_slow)
        elif late and not self.given_up.done():
            self.timer = self.loop.call_later(LAST, self._give_up)
        self.taken = True

    def _told_slow(self) -> None:
        if not self.task.done():
            self.tell(SLOW)

    def _give_up(self) -> None:
        if not self.given_up.done():
            self.given_up.set_result(None)

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
