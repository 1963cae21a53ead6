"""Shows an answer while it arrives, with a status line below it, and collects its text."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.broker.events import Reasoning, Text
from ullage.categories import MAIN
from ullage.session.chat import CallsStopped, ToolCalled
from ullage.shell.output import write
from ullage.turn import Settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ullage.session.chat import Allow, ChatSession
    from ullage.shell.markdown import Streamed
    from ullage.shell.screen import Screen

TICK = 0.25
"""Seconds between two redraws of the status line while no text arrives."""


@dataclass(slots=True)
class AnswerProgress:
    """The part of an answer that has arrived so far."""

    pieces: list[str] = field(default_factory=list)
    written: int = 0
    """Estimated number of tokens that the model has written, reasoning included."""
    calls: int = 0
    """Number of tool calls so far."""
    is_reported: bool = True
    """True if the provider reported the usage of every request."""
    began: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(self.pieces)

    @property
    def seconds(self) -> int:
        """Seconds since the question was sent."""
        return int(time.monotonic() - self.began)


async def stream_answer(
    chat: ChatSession,
    screen: Screen,
    answer: AnswerProgress,
    *,
    allow: Allow,
    below: Callable[[], str],
    settled: Callable[[Settled], None],
    category: str = MAIN,
    enough: Callable[[], bool] = lambda: False,
) -> None:
    """Asks the model and shows its answer while it arrives, with the text of `below` on the row under it.

    `allow` decides about each tool call, and `settled` receives the usage and cost of each request. If
    `enough` returns True after a tool call, the answer ends there.
    """
    answers = chat.answer(allow, category=category)
    with screen.quiet(), screen.answer(below) as shown:
        async with _ticking(shown), aclosing(answers) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Text | Reasoning):
                    answer.written += chat.context.count_text(event.text).tokens
                if isinstance(event, Text):
                    answer.pieces.append(event.text)
                    shown.feed(event.text)
                elif isinstance(event, ToolCalled):
                    answer.calls += 1
                    answer.pieces.append("\n")  # the text after a call begins on a new line
                    screen.dim(f"{event.name}: {'called' if event.allowed else 'not allowed'}")
                    if enough():
                        break
                    shown.feed("")  # the model is asked again, or the next tool is called
                elif isinstance(event, CallsStopped):
                    rounds = "1 round" if event.calls == 1 else f"{event.calls} rounds"
                    screen.dim(f"stopped after {rounds} of tool calls; ask again to continue")
                elif isinstance(event, Settled):
                    shown.end()
                    answer.is_reported = answer.is_reported and not event.estimated
                    settled(event)
    if answer.pieces and not (screen.is_terminal or answer.pieces[-1].endswith("\n")):
        write(screen.console.file, "\n")


@asynccontextmanager
async def _ticking(shown: Streamed) -> AsyncIterator[None]:
    """Redraws the row below the answer regularly, also while no text arrives."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK)
            shown.refresh()

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
        await asyncio.wait({ticking})
        if not ticking.cancelled():
            ticking.result()  # the task ended by itself, so it has an error: raise it
