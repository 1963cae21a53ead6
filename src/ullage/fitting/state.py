"""`FoldState`: the fold after some messages, as one value.

The functions of `fold` and `revision` make the next state out of a state. A state never changes. It shares
its history, its units and its log with the states before it.
"""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING, NamedTuple

from ullage.fitting.digest import EMPTY
from ullage.fitting.draft import Draft
from ullage.fitting.series import ChangeLog, Handles, Series

if TYPE_CHECKING:
    from ullage.call_pairs import Waiting
    from ullage.fitting.digest import Digest
    from ullage.fitting.options import Options, SystemEnd
    from ullage.fitting.units import Unit
    from ullage.messages import Message


class Mark(NamedTuple):
    """A pin or a priority that was given with a message."""

    place: int
    pin: bool
    priority: int


class Totals(NamedTuple):
    """Sums over messages. Live messages are those that trims have not removed."""

    given: int = 0
    """Tokens of all messages as they were given."""
    ceiling: int = 0
    """The ceiling of the live messages."""
    turns: int = 0
    """Number of live messages, without system messages."""
    turn_tokens: int = 0
    """Tokens of these messages."""
    talk: int = 0
    """Tokens of all messages that are neither calls, nor results, nor system messages."""
    said: int = 0
    """Tokens of all messages except system messages."""


class Position(NamedTuple):
    """The point of the conversation that the fold has reached."""

    exchange: int = 0
    """The number of the last exchange."""
    steps: int = 0
    """The number of the newest step."""
    last: int = -1
    """The place of the first message of the last unit; -1 if there is no unit yet."""
    task: int | None = None
    """The place of the first user message; None if it is not kept, or has moved into the digest."""


class SystemPrompt(NamedTuple):
    """The system messages."""

    tokens: int = 0
    """Tokens without the digest."""
    ceiling: int = 0
    """Ceiling without the digest."""
    digest_tokens: int = 0
    """The tokens that the digest adds."""
    given_end: SystemEnd = False
    """The end of the first system message as it was given."""
    end: SystemEnd = False
    """The end of the first system message as it is sent."""


class Trims(NamedTuple):
    """The trims so far, and their effect."""

    number: int
    digest: Digest
    dropped: int
    """Number of messages that were removed."""
    shortened: int
    """Number of live messages in a shorter form."""
    log: ChangeLog
    handles: Handles


class FoldState(NamedTuple):
    """A conversation as a window has read it so far.

    It is a tuple, as units and drafts are: a frozen dataclass of this size takes five times as long to make,
    and each message makes one.
    """

    options: Options
    history: Series[Message]
    """Every message as it was given."""
    marks: Series[Mark]
    units: Series[Unit]
    """The live units except the newest."""
    newest: Unit | None
    """The newest live unit, which results of a step may still join; None before the first message."""
    waiting: Waiting
    """The calls that have no result yet."""
    totals: Totals
    position: Position
    prompt: SystemPrompt
    trims: Trims
    recall_room: int
    """The room for recalled passages when the last question came, or when the last trim became final."""
    is_trimmed: bool = False
    """True if the trim that the request at this point needs has been made."""

    @property
    def live(self) -> tuple[Unit, ...]:
        """All units of a request at this point."""
        return (*self.units[:], self.newest) if self.newest is not None else ()

    @property
    def ceiling(self) -> int:
        """The ceiling of a request at this point."""
        return self.totals.ceiling + self.once

    @property
    def once(self) -> int:
        """The ceiling of the framing, tools and schemas of a request at this point."""
        options, newest = self.options, self.newest
        ends_in_answer = newest is not None and newest.entries[-1].message["role"] == "assistant"
        return options.framing(self.prompt.end).ceiling + (options.continued if ends_in_answer else 0)

    @property
    def is_question(self) -> bool:
        """True if the last message is the user's."""
        return self.newest is not None and self.newest.role == "user"

    @property
    def is_over(self) -> bool:
        """True if a request at this point needs a trim."""
        options, ceiling = self.options, self.ceiling
        most = options.policy.max_turns
        if ceiling > options.limit or (most is not None and self.totals.turns > most):
            return True
        # Once something was taken out, room is kept free for passages that are recalled.
        if not self.trims.log:
            return False
        return ceiling > options.limit - options.reserve(self.prompt.ceiling, self.talk)

    @property
    def talk(self) -> float:
        """The share of talk: 1 if there are no tool steps, 0 if they are at least half of the tokens."""
        return max(0.0, 2 * self.totals.talk / max(1, self.totals.said) - 1)

    def draft(self) -> Draft:
        """Returns the request at this point, for the passes."""
        totals, position, trims = self.totals, self.position, self.trims
        return Draft(
            options=self.options,
            units=self.live,
            digest=trims.digest,
            prompt_ceiling=self.prompt.ceiling,
            ceiling=totals.ceiling + self.options.once,
            task=position.task,
            turns=totals.turns,
            turn_tokens=totals.turn_tokens,
            summary_tokens=self.prompt.digest_tokens,
            shortened=trims.shortened,
            exchange=position.exchange,
            last=position.last,
            steps=position.steps,
            handles=ChainMap(trims.handles),  # type: ignore[arg-type] # passes write to children of it alone
            talk=self.talk,
        )


def empty_state(options: Options) -> FoldState:
    """Returns the state before the first message."""
    trims = Trims(0, EMPTY, 0, 0, ChangeLog(), Handles())
    return FoldState(
        options,
        Series(),
        Series(),
        Series(),
        None,
        (),
        Totals(),
        Position(),
        SystemPrompt(),
        trims,
        recall_room=0,
    )
