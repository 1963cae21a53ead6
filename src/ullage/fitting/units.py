"""Units and exchanges. Fitting removes only whole units, so the result is always valid.

A step (an assistant message with calls, and all their results) is one unit, every other message is a
unit of its own. An exchange is a user message and all messages up to the next one. With `FitPolicy.cut_user`,
an assistant message and the user message behind it are a step too: an action and its observation.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from ullage.messages import RESULT_ROLES, arguments_text, calls_of, is_plain, read_call_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ullage.messages import Message


SHORTEST = frozenset({"age", "errors", "placeholder"})
"""The forms of a tool result that cannot be shortened further."""


OBSERVATION = ("output", "")
"""The name and the arguments that stand for the call of an observation, which has none."""


class Entry(NamedTuple):
    """One message as it would be sent now, and as it was given."""

    place: int
    """Its place in the history; -1 for a system message that fitting made."""
    message: Message
    tokens: int
    ceiling: int
    given: Message
    size: int = 0
    """The tokens of an output's content as it was given."""
    error: bool = False
    """True for an output that reports an error, unless it is small."""
    form: str = ""
    """The kind of the last change to the message; empty if it is unchanged."""


class Unit(NamedTuple):
    """Messages that are kept or removed together."""

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
    """For a step: the size of its largest result that can still be shortened."""

    @property
    def start(self) -> int:
        """The place of its first message; the messages of a unit are adjacent."""
        return self.entries[0].place

    @property
    def parallel(self) -> bool:
        """True if the step makes several calls; some providers count their results differently."""
        return len(calls_of(self.entries[0].given)) > 1

    @property
    def ceiling(self) -> int:
        """The ceiling of the unit in tokens."""
        return sum([entry.ceiling for entry in self.entries])


def loose(entries: Iterable[Entry]) -> int:
    """Returns the size of the largest result that can still be shortened."""
    return max([entry.size for entry in entries if entry.form not in SHORTEST], default=0)


def first_system(units: Iterable[Unit]) -> Entry | None:
    """Returns the first system message; None if there is none."""
    return next((unit.entries[0] for unit in units if unit.role == "system"), None)


def exchanges(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Yields the units of each exchange, the oldest first, without system messages."""
    conversation = (unit for unit in units if unit.role != "system")
    for _, group in itertools.groupby(conversation, key=lambda unit: unit.exchange):
        yield list(group)


def outputs_of(unit: Unit) -> tuple[Entry, ...]:
    """Returns the outputs of a step: the results of its calls, or the observation behind its action."""
    if not unit.step:
        return ()
    if not calls_of(unit.entries[0].given):
        return unit.entries[1:2]
    return tuple([entry for entry in unit.entries[1:] if entry.given["role"] in RESULT_ROLES])


def is_output(unit: Unit, entry: Entry) -> bool:
    """Returns True if a message of the unit is one of its outputs."""
    if entry.given["role"] in RESULT_ROLES:
        return True
    return entry is not unit.entries[0] and entry in outputs_of(unit)


def cuttable(unit: Unit, *, cut_user: bool) -> tuple[Entry, ...]:
    """Returns the messages whose middle may go if nothing else helps: outputs, and perhaps a question."""
    if unit.role == "user" and cut_user:
        return unit.entries[:1] if is_plain(unit.entries[0].given) else ()
    return tuple([entry for entry in outputs_of(unit) if entry.size])


def call_of(unit: Unit, entry: Entry) -> tuple[str, str]:
    """Returns the name and the arguments of the call that an output of this step answers."""
    if entry.given["role"] not in RESULT_ROLES:
        return OBSERVATION
    wanted = read_call_id(entry.given)
    same = [call for call in calls_of(unit.entries[0].given) if call["id"] == wanted]
    call = same[0]
    if len(same) > 1:  # an id is reused within the step; results stand in the order of their calls
        before = [other for other in unit.entries[1:] if other.place < entry.place]
        earlier = sum(read_call_id(other.given) == wanted for other in before)
        call = same[min(earlier, len(same) - 1)]
    return call["function"]["name"], arguments_text(call)
