"""`:demo`: shows the main features in a minute with a scripted model, marked as such.

Nothing of it enters the conversation, and no model is asked. The suggested command is real: it is offered and
runs like any other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rich.text import Text

from ullage.shell.confirmation import RUN, SKIP

if TYPE_CHECKING:
    from ullage.shell.workplace import Workplace

MARKED = "This is scripted: no model is asked, and your conversation does not change. Ctrl-C stops it."
QUESTION = "which files here are the largest?"
COMMAND = "ls -lS | head -n 5"
ANSWER = f"Sort them by size, and look at the first ones:\n\nCMD: {COMMAND}\n"
GOES_ON = "A real model then sees the output."
REPLAYED = "Now the session of an agent whose window is small: what no longer fits leaves, and can come back."
ENDED = "That was scripted. To ask a real model, type :model NAME; `ullage model list` lists the models."
WORD = 0.04
"""Seconds between two words of the answer."""


async def run_demo(workplace: Workplace) -> None:
    """Plays a suggested command and a fitted session, with pauses if the screen is a terminal."""
    from ullage.demo.replay import frames  # noqa: PLC0415 - only the demonstration needs it

    screen = workplace.screen
    screen.dim(MARKED)
    await _suggest(workplace)
    screen.dim(REPLAYED)
    for lines, seconds in frames(screen.console):
        for line in lines:
            screen.say(line)
        await _pause(workplace, seconds)
    screen.dim(ENDED)


async def _suggest(workplace: Workplace) -> None:
    """Shows a question and an answer that suggests a command, and offers the command."""
    screen = workplace.screen
    screen.say(Text(f"> {QUESTION}", style="bold"))
    with screen.quiet(), screen.answer() as shown:
        for word in ANSWER.split(" "):
            shown.feed(f"{word} " if not word.endswith("\n") else word)
            await _pause(workplace, WORD)
    if workplace.offer(COMMAND, RUN + SKIP) == RUN:
        with screen.loud():
            workplace.runner.run(COMMAND)
    screen.dim(GOES_ON)


async def _pause(workplace: Workplace, seconds: float) -> None:
    await asyncio.sleep(seconds if workplace.screen.is_terminal else 0)
