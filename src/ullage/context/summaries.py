"""Writes summaries ahead of time, so that a request rarely waits for one.

The conversation goes on even if the summarizer fails: then only the digest stands for evicted turns, and
`failure` has the reason.
"""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ullage.context.summary import SummaryRefused
from ullage.patience import without_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from ullage.context.state import State
    from ullage.context.summary import Start, Stop, Summarizer
    from ullage.context.window_cache import CachedWindow

ATTEMPTS = 2
"""Most failures in a row; after them these turns are given up, and only newer ones are summarized."""


@dataclass(frozen=True, slots=True)
class Written:
    """A summary, and the indexes of the turns that it adds to those before."""

    text: str
    covered: frozenset[int]


class Summaries:
    """The one summary that is being written, or is ready for the next trim."""

    def __init__(self, summarizer: Summarizer, at: float) -> None:
        self.failure: BaseException | None = None
        """The reason why the last attempt failed; None if it succeeded."""
        self._summarizer = summarizer
        self._at = at
        self._owed: set[int] = set()
        self._future: Future[str] | None = None
        self._stop: Stop = _nothing
        self._prior = ""
        self._places: frozenset[int] = frozenset()
        self._on_this_loop = False
        self._failures = 0

    @property
    def future(self) -> Future[str] | None:
        """The summary that is being written or is ready, or None."""
        return self._future

    def owe(self, line: int) -> None:
        """Notes an evicted line; the next summary includes it if no summary has it yet."""
        self._owed.add(line)

    def drop(self) -> None:
        """Forgets everything and cancels the writing, because the turns were removed."""
        if self._future is not None:
            self._stop()
        self._future = None
        self._owed.clear()

    def look_ahead(self, cached: CachedWindow, state: State) -> None:
        """Starts the next summary if so much of the window is used that a trim is near."""
        if self._future is None and cached.window.utilization >= self._at:
            self.begin(state, [cached.line_of(place) for place in cached.window.forecast()])

    def begin(self, state: State, lines: Iterable[int]) -> None:
        """Starts a summary that includes these lines, unless one is being written."""
        if self._future is not None:
            return
        gone = [state.lines[line] for line in sorted(self._owed.union(lines))]
        turns = {place: turn.message for turn, place in gone if place not in state.covered}
        if not turns:
            return
        self._prior, self._places = state.summary, frozenset(turns)
        write = partial(self._summarizer.write, state.summary or None, list(turns.values()))
        start, self._on_this_loop = self._start()
        self._future = Future()
        with without_limit():
            self._stop = start(_resolve(self._future, write))

    def _start(self) -> tuple[Start, bool]:
        """Returns the function that starts the writing, and True if it uses the running event loop."""
        summarizer = self._summarizer
        if summarizer.start is not None:
            return summarizer.start, False
        loop = _running_loop() if _is_async(summarizer.summarize) else None
        return (_in_thread, False) if loop is None else (partial(_on_loop, loop), True)

    def take(self, state: State) -> Written | None:
        """Returns the summary, or None; waits for a thread, but not for this event loop, which would block.

        Turns that failed too often are given up: the earlier summary is returned as covering them.
        """
        future = self._future
        if future is None or (self._on_this_loop and not future.done()):
            return None
        self._future = None
        self.failure = future.exception()
        if self.failure is None:
            self._failures = 0
            text = future.result()
        else:
            self._failures = (self._failures + 1) % ATTEMPTS
            if self._failures:
                return None
            text = self._prior
        self._owed = {line for line in self._owed if state.lines[line].place not in self._places}
        return Written(text, self._places)

    def put_back(self, written: Written) -> None:
        """Takes back a summary that could not be kept; the next call of `take` returns it."""
        self._future = Future()
        self._future.set_result(written.text)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async `__call__` counts too
    )


def _running_loop() -> Any:
    import asyncio  # noqa: PLC0415 - conversations without a summarizer do not need it

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _nothing() -> None:
    """Does nothing, because no summary was started."""


def _on_loop(loop: Any, writing: Coroutine[Any, Any, None]) -> Stop:
    task = loop.create_task(writing)
    stop: Stop = task.cancel  # it also holds the task, to which the loop keeps no reference
    return stop


def _in_thread(writing: Coroutine[Any, Any, None]) -> Stop:
    import asyncio  # noqa: PLC0415 - the same

    loop = asyncio.new_event_loop()
    task = loop.create_task(writing)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(asyncio.wait([task]))

    def stop() -> None:
        with suppress(RuntimeError):  # the writing has ended and its loop is closed
            loop.call_soon_threadsafe(task.cancel)

    threading.Thread(target=run, name="ullage-summary", daemon=True).start()
    return stop


async def _resolve(future: Future[str], write: Callable[[], Coroutine[Any, Any, str]]) -> None:
    """Puts the result of the writing, or its error, into the future."""
    try:
        text = await write()
    except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
        future.set_exception(error)
    except BaseException as error:
        future.set_exception(SummaryRefused(f"the summarizer was stopped: {error!r}"))
        raise
    else:
        future.set_result(text)
