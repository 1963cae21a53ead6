"""A progress bar on standard error, where that is a terminal and the work takes a while."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.cli.work import Outcome

DELAY, EVERY = 0.3, 0.1
"""Seconds before the bar is first shown, and between two drawings."""
CLEAR = "\r\x1b[2K"
WIDTH = 30
VERBS = {"count": "counting", "fit": "fitting"}


@contextmanager
def progress(command: str, total: int | None) -> Iterator[Bar]:
    """The bar of a batch of `total` bytes, gone when the batch ends, however it ends."""
    capable = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    bar = Bar(VERBS[command], total, on=capable)
    try:
        yield bar
    finally:
        bar.hide()


class Bar:
    """How far a batch has come; results may go to the same terminal, so it can step aside for them."""

    def __init__(self, verb: str, total: int | None, *, on: bool) -> None:
        self._verb = verb
        self._total = total
        self._on = on
        self._shares_screen = sys.stdout.isatty()
        self._size = self._done = self._bad = 0
        self._next = time.monotonic() + DELAY
        self._shown = False

    def step_aside(self, done: Outcome) -> None:
        """Leaves the line to what is about to be written."""
        if done.code or self._shares_screen:
            self.hide()

    def advance(self, done: Outcome) -> None:
        """Notes a result, and draws if it is time or if the bar had stepped aside."""
        self._size += done.size
        self._done += 1
        self._bad += done.code > 0
        now = time.monotonic()
        if self._on and self._done > 1 and now >= self._next:
            if self._shown or not self._shares_screen:
                self._next = now + EVERY
            self._draw()

    def _draw(self) -> None:
        sys.stdout.flush()
        sys.stderr.write(CLEAR + self.text(shutil.get_terminal_size().columns - 1))
        sys.stderr.flush()
        self._shown = True

    def hide(self) -> None:
        """Takes the bar off the screen."""
        if self._shown:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
            self._shown = False

    def text(self, width: int) -> str:
        """The bar and its figures in one line, no longer than `width`."""
        told = f"{self._done:,} requests" + (f", {self._bad:,} bad" if self._bad else "")
        if not self._total:
            return f"{self._verb}: {told}"[:width]
        share = min(1.0, self._size / self._total)
        cells = max(0, min(WIDTH, width - len(self._verb) - len(told) - 9))
        full = round(cells * share)
        return f"{self._verb} {'━' * full}{'╌' * (cells - full)} {share:4.0%}  {told}"[:width]
