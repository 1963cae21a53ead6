"""Shows a progress bar on standard error, if that is a terminal and the work takes some time."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.batch.outcome import FinishedChunk, Outcome

DELAY, EVERY = 0.3, 0.1
"""Seconds before the bar is first shown, and between two updates."""
CLEAR = "\r\x1b[2K"
WIDTH = 30
VERBS = {"count": "counting", "fit": "fitting"}


@contextmanager
def progress(command: str, total: int | None, before: int = 0) -> Iterator[Bar]:
    """Yields the bar of a batch of `total` bytes, `before` of them done by an earlier run."""
    capable = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    bar = Bar(VERBS[command], total, before, on=capable)
    try:
        yield bar
    finally:
        bar.hide()


class Bar:
    """The progress of a batch; the bar hides while results are printed to the same terminal."""

    def __init__(self, verb: str, total: int | None, before: int = 0, *, on: bool) -> None:
        self._verb = verb
        self._total = total
        self._before = before
        self._on = on
        self._shares_screen = sys.stdout.isatty()
        self._size = self._done = self._bad = 0
        self._start = time.monotonic()
        self._next = self._start + DELAY
        self._shown = False

    def step_aside(self, outcome: Outcome) -> None:
        """Hides the bar if this result prints to the terminal."""
        if outcome.problem or self._shares_screen:
            self.hide()

    def advance(self, done: FinishedChunk) -> None:
        """Counts the results of a chunk, and draws the bar if an update is due or if it was hidden."""
        self._size += done.size
        self._done += len(done.outcomes)
        self._bad += sum(1 for outcome in done.outcomes if outcome.problem)
        now = time.monotonic()
        if self._on and self._done > 1 and now >= self._next:
            if self._shown or not self._shares_screen:
                self._next = now + EVERY
            self._draw(now - self._start)

    def _draw(self, seconds: float) -> None:
        sys.stdout.flush()
        sys.stderr.write(CLEAR + self.text(shutil.get_terminal_size().columns - 1, seconds))
        sys.stderr.flush()
        self._shown = True

    def hide(self) -> None:
        """Removes the bar from the screen."""
        if self._shown:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
            self._shown = False

    def text(self, width: int, seconds: float) -> str:
        """Returns the bar, its numbers, the rate and the time left, in at most `width` columns."""
        numbers = f"{self._done:,} request{'' if self._done == 1 else 's'}"
        numbers += f", {self._bad:,} bad" if self._bad else ""
        numbers += f", {self._done / max(seconds, 0.001):,.0f}/s"
        if not self._total:
            return f"{self._verb}: {numbers}"[:width]
        share = min(1.0, (self._before + self._size) / self._total)
        left = max(0, self._total - self._before - self._size)
        if self._size:
            numbers += f", {clock(seconds * left / self._size)} left"
        cells = max(0, min(WIDTH, width - len(self._verb) - len(numbers) - 9))
        full = round(cells * share)
        return f"{self._verb} {'━' * full}{'╌' * (cells - full)} {share:4.0%}  {numbers}"[:width]


def clock(seconds: float) -> str:
    """Returns a duration as minutes and seconds, with hours if there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
