"""A draft: the request at one point of the fold, with the figures that the passes decide by.

A draft is a value. A pass reads it and proposes edits, the most expendable first; `trim` applies them
one by one until the draft is down at the level of the pass.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ullage.fitting.digest import task_block
from ullage.fitting.result import EVICT

if TYPE_CHECKING:
    from collections import ChainMap
    from collections.abc import Mapping, Sequence

    from ullage.fitting.digest import Digest, Taken
    from ullage.fitting.options import Options
    from ullage.fitting.policy import ChangeKind, Level
    from ullage.fitting.series import Done
    from ullage.fitting.units import Unit
    from ullage.tokens import Counter

DIGEST_OF_TALK = 0.7
"""The part of `digest_share` that is left to recall if the conversation is pure talk."""
TASK_TOKENS = 1_000
"""The most tokens of the task that are kept when its exchange is evicted."""


class Edit(NamedTuple):
    """A proposal of a pass: new contents for some messages, by their places, or units to remove.

    It is made as a whole or not at all.
    """

    kind: ChangeKind | str = ""
    """The kind of the change; empty for the name of the pass, as in a caller's own pass."""
    contents: Mapping[int, str] = MappingProxyType({})
    gone: Sequence[Unit] = ()

    @property
    def eviction(self) -> str:
        """The kind with which the removed units are logged."""
        return EVICT if self.kind == EVICT else f"{EVICT}:{self.kind}"


class Draft(NamedTuple):
    """The units that a request at one point of the fold has, with their figures."""

    options: Options
    units: tuple[Unit, ...]
    digest: Digest
    prompt_ceiling: int
    """The ceiling of the system messages, without the digest."""
    ceiling: int
    """The ceiling of the whole request. While passes run, the digest counts as `set_aside`."""
    task: int | None
    """The place of the first user message; None if it is not kept, or has moved into the digest."""
    turns: int
    """The number of messages without the system messages."""
    turn_tokens: int
    """The estimated tokens of these messages."""
    summary_tokens: int
    """The tokens that the digest adds."""
    shortened: int
    """The number of messages in a shorter form."""
    exchange: int
    """The number of the last exchange."""
    last: int
    """The place of the first message of the last unit; -1 if there is no unit yet."""
    steps: int
    """The number of the newest step."""
    handles: ChainMap[str, bytes]
    talk: float = 0.0
    """The share of talk: 1 if there are no tool steps, 0 if they are at least half of the tokens."""
    taken: tuple[Taken, ...] = ()
    log: tuple[Done, ...] = ()
    set_aside: int = 0
    """The part of `ceiling` that is kept for the task and the digest while passes run."""

    @property
    def room(self) -> int:
        """The tokens that the limit leaves for the conversation and its digest."""
        return self.options.room(self.prompt_ceiling)

    @property
    def target(self) -> int:
        """The low-water mark in tokens: a trim stops there."""
        spare = self.room - int((self.room - self.reserve) * self.options.policy.low_water)
        return self.options.limit - spare

    def level(self, level: Level) -> int:
        """Returns the tokens of a level."""
        return self.options.limit if level == "limit" else self.target

    @property
    def reserve(self) -> int:
        """The tokens that are kept free for recalled passages, once something was removed."""
        return self.options.reserve(self.prompt_ceiling, self.talk)

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
        """The most tokens of the task at the head of the digest."""
        return min(TASK_TOKENS, self.room // 3)

    @property
    def digest_room(self) -> int:
        """The most that the digest may cost, the task at its head included."""
        task = self.digest.task
        policy = self.options.policy
        # Of talk a digest has little to say, and recall much.
        less = DIGEST_OF_TALK * self.talk if policy.recall_share else 0.0
        share = int(self.room * policy.digest_share * (1 - less))
        return share if task is None else share + self.measure(task_block(task, facts=share > 0))

    @property
    def steady(self) -> bool:
        """True if successive requests should share their prefix; False if each should fill the window."""
        return self.options.policy.low_water < 1

    @property
    def recent_from(self) -> int:
        """The number of the first recent exchange; recent exchanges are changed last."""
        return self.exchange - self.options.policy.preserve_recent_turns + 1

    def measure(self, text: str) -> int:
        """Returns the ceiling of a text in tokens."""
        return self.options.counter.text(text).ceiling

    def essential(self, unit: Unit) -> bool:
        """Returns True if this unit must not be removed; the results of a step may still be cut."""
        return (
            unit.pinned
            or unit.role == "system"
            or (unit.role == "user" and unit.exchange == self.exchange)
            or unit.start == self.last
        )


def recount_draft(draft: Draft, counter: Counter) -> Draft:
    """Returns the draft with new counts for the messages that passes have changed.

    The counter has learned the texts of these messages since.
    """
    units: list[Unit] = []
    ceiling = turn_tokens = summary_tokens = 0
    for unit in draft.units:
        entries = []
        for entry in unit.entries:
            if not entry.form:
                entries.append(entry)
                continue
            cost = counter.message(entry.message, parallel=unit.parallel)
            ceiling += cost.ceiling - entry.ceiling
            if unit.role == "system":
                summary_tokens += cost.tokens - entry.tokens
            else:
                turn_tokens += cost.tokens - entry.tokens
            entries.append(entry._replace(tokens=cost.tokens, ceiling=cost.ceiling))
        units.append(unit._replace(entries=tuple(entries)))
    return draft._replace(
        units=tuple(units),
        ceiling=draft.ceiling + ceiling,
        turn_tokens=draft.turn_tokens + turn_tokens,
        summary_tokens=draft.summary_tokens + summary_tokens,
    )
