"""An answer is heard: shown as it streams, with what it has used so far below it, and kept."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.broker.events import Reasoning, Text
from ullage.classes import MAIN
from ullage.shell.desk import Called, Stopped
from ullage.shell.screen import write
from ullage.turn import Settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ullage.shell.loop import Shell
    from ullage.shell.markdown import Streamed

TICK = 0.25
"""Seconds between two looks at the clock while nothing comes."""


@dataclass(slots=True)
class Heard:
    """What has come of an answer so far."""

    pieces: list[str] = field(default_factory=list)
    written: int = 0
    """An estimate of the tokens that the model has written, thoughts among them."""
    calls: int = 0
    told: bool = True
    """Whether the provider told what every request used."""
    began: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        """The answer."""
        return "".join(self.pieces)

    @property
    def seconds(self) -> int:
        """How long it has taken."""
        return int(time.monotonic() - self.began)


async def hear(
    shell: Shell, heard: Heard, *, category: str = MAIN, enough: Callable[[], bool] = lambda: False
) -> None:
    """Asks the model and shows what it says; after a call, stops where it is `enough`."""
    screen, answers = shell.screen, shell.desk.answer(shell.allow, category=category)
    measure = shell.desk.context.bounds.counter().text
    with screen.quiet(), screen.answer(lambda: shell.gauge(heard)) as shown:
        async with _ticking(shown), aclosing(answers) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Text | Reasoning):
                    heard.written += measure(event.text).tokens
                if isinstance(event, Text):
                    heard.pieces.append(event.text)
                    shown.feed(event.text)
                elif isinstance(event, Called):
                    heard.calls += 1
                    heard.pieces.append("\n")  # what comes after a call begins a line
                    screen.dim(f"{event.name}: {'called' if event.allowed else 'not allowed'}")
                    if enough():
                        break
                    shown.feed("")  # the model is asked again, or the next tool is called
                elif isinstance(event, Stopped):
                    screen.dim(f"stopped after {event.calls} rounds of calls; ask to go on")
                elif isinstance(event, Settled):
                    shown.end()
                    heard.told = heard.told and event.told
                    shell.tell(event)
    if heard.pieces and not (screen.is_terminal or heard.pieces[-1].endswith("\n")):
        write(screen.console.file, "\n")


@asynccontextmanager
async def _ticking(shown: Streamed) -> AsyncIterator[None]:
    """What stands below the answer goes on moving while nothing comes."""

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
            ticking.result()  # it ended by itself, which only an error makes it do
