"""A spinner on the current row of the terminal that says what the shell waits for."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from ullage.shell.output import write
from ullage.text import mark_unsafe, one_line
from ullage.window_chart import short

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from ullage.shell.screen import Screen

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN_FRAMES = "|/-\\"
"""For terminals that cannot show the others."""
INTERVAL = 0.1
"""Seconds between two drawings."""
DELAY = 0.3
"""Seconds before the spinner appears, so that short waits show nothing."""

T = TypeVar("T")


def frames_for(encoding: str | None) -> str:
    """Returns the frames that this encoding can show."""
    try:
        FRAMES.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_FRAMES
    return FRAMES


@asynccontextmanager
async def waiting_for(screen: Screen, what: str | Callable[[], str]) -> AsyncIterator[None]:
    """Shows a spinner with `what` and the seconds inside the with block; nothing without a terminal.

    A function is called for each drawing, because what is waited for can change.
    """
    if not screen.is_interactive or screen.console.is_dumb_terminal:
        yield
        return
    drawing = asyncio.create_task(_draw(screen, what))
    try:
        yield
    finally:
        drawing.cancel()
        await asyncio.wait({drawing})


async def spin(screen: Screen, what: str | Callable[[], str], work: Coroutine[Any, Any, T]) -> T:
    """Runs the work with a spinner."""
    async with waiting_for(screen, what):
        return await work


async def _draw(screen: Screen, what: str | Callable[[], str]) -> None:
    await asyncio.sleep(DELAY)
    file, began = screen.console.file, time.monotonic() - DELAY
    try:
        for frame in itertools.cycle(frames_for(getattr(file, "encoding", None))):
            said = mark_unsafe(one_line(what() if callable(what) else what))
            line = short(f"{frame} {said} · {int(time.monotonic() - began)} s", max(1, screen.width - 1))
            write(file, f"\r\x1b[K{line}")
            await asyncio.sleep(INTERVAL)
    finally:
        write(file, "\r\x1b[K")
