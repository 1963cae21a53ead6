"""Units and exchanges: the only things that fitting takes out, so that nothing invalid can be made.

A step (an assistant message with calls, and all their results) is one unit, every other message is a
unit of its own. An exchange is a user message and all that follows up to the next one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from ullage.messages import arguments_text, calls_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ullage.messages import Message


SHORTEST = frozenset({"age", "errors", "placeholder"})
"""The forms that a tool result cannot be made shorter from."""


class Entry(NamedTuple):
    """One message as it would be sent now, beside what was given."""

    place: int
    """Its place in the history; -1 for a system message that fitting made."""
    message: Message
    tokens: int
    ceiling: int
    given: Message
    size: int = 0
    """The tokens of a tool result's content as it was given."""
    error: bool = False
    """Whether a tool result, other than a small one, tells of something that went wrong."""
    form: str = ""
    """The kind of change that gave the message its present form; empty for as it was given."""


class Unit(NamedTuple):
    """Messages that stay or go together."""

    role: str
    """system, user, assistant, or step."""
    entries: tuple[Entry, ...]
    exchange: int
    """The exchange it belongs to, counted from 1; 0 before the first user message."""
    step: int
    """For a step: its number, counted from 1; else 0."""
    pinned: bool
    priority: int
    loose: int = 0
    """For a step: the size of its largest result that could still be made shorter."""

    @property
    def start(self) -> int:
        """The index of its first message; those of a step follow one another."""
        return self.entries[0].place

    @property
    def parallel(self) -> bool:
        """Whether its results answer more than one call: some providers count those in another way."""
        return len(calls_of(self.entries[0].given)) > 1

    @property
    def ceiling(self) -> int:
        """What the unit may cost at most."""
        return sum([entry.ceiling for entry in self.entries])


def loose(entries: Iterable[Entry]) -> int:
    """The size of the largest result that could still be made shorter."""
    return max([entry.size for entry in entries if entry.form not in SHORTEST], default=0)


def first_system(units: Iterable[Unit]) -> Entry | None:
    """The first system message, where there is one."""
    return next((unit.entries[0] for unit in units if unit.role == "system"), None)


def exchanges(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """The units by exchange, oldest first; system messages are left out."""
    conversation = (unit for unit in units if unit.role != "system")
    for _, group in itertools.groupby(conversation, key=lambda unit: unit.exchange):
        yield list(group)


def call_of(unit: Unit, entry: Entry) -> tuple[str, str]:
    """The name and arguments of the call that a result in this step answers."""
    wanted = entry.given["tool_call_id"]
    same = [call for call in calls_of(unit.entries[0].given) if call["id"] == wanted]
    # Where an id is reused within the step, results stand in the order of their calls.
    earlier = sum(
        1 for other in unit.entries[1:] if other.place < entry.place and other.given["tool_call_id"] == wanted
    )
    call = same[min(earlier, len(same) - 1)]
    return call["function"]["name"], arguments_text(call)


def piece_of(message: Message) -> str:
    """The text by which a message that was taken out is known: its content, and the calls that it makes."""
    text = text_of(message.get("content"))
    calls = calls_of(message)
    if not calls:
        return text
    lines = (f"{call['function']['name']} {arguments_text(call)}" for call in calls)
    return "\n".join(filter(None, (text, *lines)))
