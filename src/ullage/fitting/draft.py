"""A draft: the request at one point of the fold, with the figures that the passes decide by.

A draft is a value. A pass reads it and proposes edits, the most expendable first; `trim` applies them
one by one while the draft stands above its mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ullage.fitting.digest import task_block

if TYPE_CHECKING:
    from collections import ChainMap
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ullage.fitting.digest import Digest, Taken
    from ullage.fitting.policy import FitPolicy
    from ullage.fitting.units import Unit
    from ullage.tokens import Counter

TASK_TOKENS = 1_000
"""The most that is kept of the task when its exchange is evicted."""


Done: TypeAlias = tuple[str, int, int, int, str]
"""One thing that a pass did: its kind, the message's place, tokens before and after, and its handle where
the model was shown it, else "". A bare tuple of bare values: a long history has one for each message, and
the garbage collector passes over these."""


class Edit(NamedTuple):
    """A proposal, to be taken whole: new contents for some messages, by index, or units that go."""

    kind: str
    contents: Mapping[int, str] = MappingProxyType({})
    gone: Sequence[Unit] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """What a fold is told once: how to count, the limit and the policy."""

    counter: Counter
    policy: FitPolicy
    limit: int
    once: int
    """The most that a request's framing, tools and schemas can cost."""


class Draft(NamedTuple):
    """The live units at one point of the fold."""

    options: Options
    units: tuple[Unit, ...]
    digest: Digest
    prompt_ceiling: int
    """The system messages without the digest."""
    ceiling: int
    """The whole request; while passes run, with the digest at what is set aside for it."""
    task: int | None
    """The index of the first user message, while it stands in its place and is to be kept."""
    turns: int
    """The messages beside the system prompt."""
    turn_tokens: int
    """What they cost by the best estimate."""
    summary_tokens: int
    """What the digest adds to that."""
    shortened: int
    """How many of them are in a shorter form."""
    exchange: int
    """The last exchange."""
    last: int
    """Where the last unit of the conversation starts; -1 before there is one."""
    steps: int
    """How many steps there were: the number of the newest."""
    handles: ChainMap[str, bytes]
    taken: tuple[Taken, ...] = ()
    log: tuple[Done, ...] = ()
    set_aside: int = 0
    """What of `ceiling` is set aside for the digest and the task at its head, while passes run."""

    @property
    def room(self) -> int:
        """What the limit leaves for the conversation and its digest."""
        return max(0, self.options.limit - self.options.once - self.prompt_ceiling)

    @property
    def target(self) -> int:
        """The low-water mark: how far down a trim goes."""
        spare = self.room - int(self.room * self.options.policy.low_water)
        return self.options.limit - spare

    @property
    def turns_target(self) -> int:
        """The most messages that a trim leaves."""
        policy = self.options.policy
        if policy.max_turns is None:
            return self.turns
        return (
            max(1, int(policy.max_turns * policy.low_water)) if self.turns > policy.max_turns else self.turns
        )

    @property
    def task_room(self) -> int:
        """What the task may use at the head of the digest."""
        return min(TASK_TOKENS, self.room // 3)

    @property
    def digest_room(self) -> int:
        """The most that the digest may cost, the task at its head included."""
        task = self.digest.task
        share = int(self.room * self.options.policy.digest_share)
        return share if task is None else share + self.measure(task_block(task))

    @property
    def steady(self) -> bool:
        """Whether requests are to share their prefix, rather than to fill the window every time."""
        return self.options.policy.low_water < 1

    @property
    def recent_from(self) -> int:
        """The first of the exchanges that are touched last."""
        return self.exchange - self.options.policy.preserve_recent_turns + 1

    def measure(self, text: str) -> int:
        """The most that a text can cost."""
        return self.options.counter.text(text).ceiling

    def essential(self, unit: Unit) -> bool:
        """Whether the request cannot go without this unit; the results of a step may still be cut."""
        return (
            unit.pinned
            or unit.role == "system"
            or (unit.role == "user" and unit.exchange == self.exchange)
            or unit.start == self.last
        )


class Pass(NamedTuple):
    """A way to make a draft smaller."""

    propose: Callable[[Draft], Iterator[Edit]]
    """Edits, the most expendable first."""
    above: Callable[[Draft], int]
    """The pass runs when the draft costs more than this."""
    until: Callable[[Draft], int]
    """The pass stops when the draft costs no more than this."""
    turns: bool = False
    """Whether the pass lowers the number of messages, and so runs for `max_turns` too."""
