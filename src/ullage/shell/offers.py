"""Offers the commands of one answer in order: each is run, edited in its place, or skipped."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ullage.patience import patiently
from ullage.shell.confirmation import EDIT, FOR_GOOD, RUN, SKIP, SKIPPED
from ullage.shell.editor import edit_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.shell.workplace import Workplace

CHOICES = RUN + EDIT + SKIP + FOR_GOOD
"""Keys of the choices that the user has for a suggested command."""


class OffersOutcome(NamedTuple):
    """The result of the offers of one answer."""

    ran: int
    """The number of commands that ran."""
    stopped: bool
    """True if the user pressed Ctrl-C, at an offer or during a command."""


async def handle_offers(workplace: Workplace, commands: Sequence[str]) -> OffersOutcome:
    """Handles each command in the order of the answer: runs, edits or skips it, by the rules or the user.

    Ctrl-C at an offer skips that command and all that follow. The model is told of each skipped command.
    """
    ran = 0
    for index, command in enumerate(commands):
        accepted, stopped = await _confirm_command(workplace, command)
        if accepted is None:
            skipped = commands[index:] if stopped else [command]
            for each in skipped:
                await patiently(partial(workplace.chat.context.append_exec_output, SKIPPED.format(each)))
            if stopped:
                return OffersOutcome(ran, stopped=True)
            continue
        done = await workplace.execute(accepted)
        ran += 1
        if done.interrupted:
            return OffersOutcome(ran, stopped=True)
        await asyncio.sleep(0)  # a Ctrl-C between two commands takes effect here
    return OffersOutcome(ran, stopped=False)


async def _confirm_command(workplace: Workplace, command: str) -> tuple[str | None, bool]:
    """Returns the command to run, or None if it is skipped; and True if the user pressed Ctrl-C."""
    try:
        chosen = workplace.offer(command, CHOICES, refuse=None)
    except KeyboardInterrupt:  # a key at the offer, not a signal: raised and caught in the same step
        return None, True
    if chosen == EDIT:
        edited = await edit_line(workplace.screen, command)
        return edited or None, False
    return (command if chosen == RUN else None), False
