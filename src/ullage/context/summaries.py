"""Summaries ahead of time: begun before they are needed, never waited for where that can be helped.

Whatever the summarizer does, the conversation goes on: without a usable answer turns leave with nothing but
the digest, and `failure` says why.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from ullage.context.folds import Fold
    from ullage.context.state import State
    from ullage.context.summary import Start, Stop, Summarizer

ATTEMPTS = 2
"""After so many failures in a row the turns at hand are given up, and only newer ones are tried."""


@dataclass(frozen=True, slots=True)
class Written:
    """What came of an attempt: a summary, and the places of the turns that it adds to those before."""

    text: str
    covered: frozenset[int]


class Summaries:
    """The one summary that is being written, or waits for the trim that needs it."""

    def __init__(self, summarizer: Summarizer, at: float) -> None:
        self.failure: BaseException | None = None
        """Why the last attempt gave nothing; None after one that did."""
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
        """The summary under way or ready; None where there is neither."""
        return self._future

    def owe(self, line: int) -> None:
        """This line was evicted: if no summary has it yet, the next one will."""
        self._owed.add(line)

    def drop(self) -> None:
        """Forgets everything, and breaks off what is being written: its turns are no longer there."""
        if self._future is not None:
            self._stop()
        self._future = None
        self._owed.clear()

    def look_ahead(self, fold: Fold, state: State) -> None:
        """Begins the next summary when so much of the window is used that a trim is near."""
        if self._future is None and fold.window.utilization >= self._at:
            self.begin(state, [fold.line_of(place) for place in fold.window.forecast()])

    def begin(self, state: State, lines: Iterable[int]) -> None:
        """Has a summary written that stands for these lines too, unless one is under way."""
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
        self._stop = start(_resolve(self._future, write))

    def _start(self) -> tuple[Start, bool]:
        """What has a summary written, and whether that is on the loop that runs here."""
        summarizer = self._summarizer
        if summarizer.start is not None:
            return summarizer.start, False
        loop = _running_loop() if _is_async(summarizer.summarize) else None
        return (_in_thread, False) if loop is None else (partial(_on_loop, loop), True)

    def take(self, state: State) -> Written | None:
        """What came of it; waits for a thread, but not for this very event loop, which would stand still.

        Turns that failed too often are covered by what there was before: they are given up.
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


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async is meant here
    )


def _running_loop() -> Any:
    import asyncio  # noqa: PLC0415 - conversations without a summarizer do not need it

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _nothing() -> None:
    """Stops what was never started."""


def _on_loop(loop: Any, writing: Coroutine[Any, Any, None]) -> Stop:
    task = loop.create_task(writing)
    stop: Stop = task.cancel  # and with it the task itself, of which the loop keeps no reference of its own
    return stop


def _in_thread(writing: Coroutine[Any, Any, None]) -> Stop:
    import asyncio  # noqa: PLC0415 - the same

    loop = asyncio.new_event_loop()
    task = loop.create_task(writing)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(asyncio.wait([task]))

    def stop() -> None:
        with suppress(RuntimeError):  # it is at its end, and its loop closed
            loop.call_soon_threadsafe(task.cancel)

    threading.Thread(target=run, name="ullage-summary", daemon=True).start()
    return stop


async def _resolve(future: Future[str], write: Callable[[], Coroutine[Any, Any, str]]) -> None:
    """Hands on what comes of the writing, whatever it is, to the one who takes it."""
    try:
        text = await write()
    except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
        future.set_exception(error)
    except BaseException as error:
        future.set_exception(SummaryRefused(f"the summarizer was stopped: {error!r}"))
        raise
    else:
        future.set_result(text)
