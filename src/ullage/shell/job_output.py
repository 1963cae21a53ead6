"""Shows above the waiting prompt what background jobs print, as every shell does."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from ullage.shell.prompt import Prompt
    from ullage.terminal import Runner

PAUSE = 0.1
"""Seconds between a job's output and its show. A job that prints all the time leaves room for keys."""


@contextmanager
def shown_above(prompt: Prompt, runner: Runner, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Inside the with block, whole lines that jobs print appear above the prompt, or before the next one."""
    is_waiting = False

    def wait() -> None:
        nonlocal is_waiting
        if not is_waiting:
            is_waiting = True
            loop.call_later(PAUSE, prompt.notify, show)

    def show() -> None:
        nonlocal is_waiting
        is_waiting = False
        runner.show_jobs_output()

    def notify_loop() -> None:
        """Runs in the thread that reads from the jobs."""
        with suppress(RuntimeError):  # the loop has been closed: the shell ends
            loop.call_soon_threadsafe(wait)

    runner.on_jobs_output(notify_loop)
    try:
        yield
    finally:
        runner.on_jobs_output(None)
