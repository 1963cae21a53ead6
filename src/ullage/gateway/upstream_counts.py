"""Learns from the usage that comes back how far each upstream's counts are from ours.

The same conversation comes back with every request, so the first answers show how an upstream counts it. So
the ceiling follows at once. The part of the family's margin that stays is as large as those counts are apart,
and at most half of it. If an upstream refuses a request nevertheless, that is learned too, and the request is
fitted again.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from dataclasses import replace
from statistics import linear_regression
from typing import TYPE_CHECKING

from ullage.errors import StoreError
from ullage.tokens import Cost, counter_for
from ullage.tokens.calibration import (
    FEW,
    KEPT,
    LARGE,
    LOWEST,
    RECENT,
    Factor,
    TargetHistory,
    factor_of,
    observed,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.target import Target
    from ullage.tokens.calibration import Seen, Shelf

LEAST = 0.02
"""Smallest margin of the ceiling above the counts that were seen, as a share of them."""
VARIED = 1.5
"""The largest request must be so many times as long as the smallest, so that a slope can be found."""
STEPS = 50
"""Number of scales that are tried."""
MOST_TARGETS = 1_000
"""Most targets that are remembered, because a client may choose any name. The store has the others."""
RARE_WORD = "qzxvkjwq"
"""A vocabulary makes its last tables at the first word that it does not have."""
UNSAVED = 30.0
"""Seconds after which what was learned is written to the store. A killed process loses no more than that."""


class UpstreamCounts:
    """The history of each target, in memory, and at intervals in the store."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._known: dict[Target, TargetHistory] = {}
        self._factors: dict[Target, Factor] = {}
        self._unsaved: dict[Target, float] = {}
        """The time of the first observation that the store does not have, on the monotonic clock. The thread
        that saves removes it."""

    async def load(self, target: Target) -> None:
        """Loads what a target's counts need, once, in a thread, so that other requests go on."""
        if target in self._known:
            return
        found = await asyncio.to_thread(self._load_history, target)
        if target not in self._known:  # another request may have loaded it, and learned more
            self._remember(target, found)

    def factor(self, target: Target) -> Factor:
        """Returns the factor for the counts of a target; neutral if nothing is learned."""
        found = self._factors.get(target)
        if found is None:
            found = self._factors[target] = _factor(target, self._history(target))
        return found

    def is_learned(self, target: Target) -> bool:
        """Returns True if enough counts of a target are known that another one changes little."""
        return sum(each.ceiling >= LARGE for each in self._history(target).seen) >= FEW

    def observe(self, target: Target, estimate: Cost, actual: int) -> bool:
        """Learns the upstream's count of a request; returns True if `save` should be called."""
        before = self._history(target)
        self._remember(target, observed(before, estimate, actual))
        now = time.monotonic()
        return now - self._unsaved.setdefault(target, now) >= UNSAVED

    def refuse(self, target: Target, estimate: Cost, actual: int | None) -> None:
        """Learns that a request was refused as too long; `actual` is the upstream's count, if it is known."""
        self._remember(target, refused(self._history(target), estimate, actual, _margin(target)))
        self._unsaved.setdefault(target, time.monotonic())

    def save(self, target: Target) -> None:
        """Writes what was learned about a target to the store; blocks while it is written."""
        if self._unsaved.pop(target, None) is not None:
            history = self._history(target).to_json()
            self._shelf.learn(target, lambda _: history)

    def save_all(self) -> None:
        """Writes all that was learned; a store that cannot be used costs only that, so the end goes on."""
        try:
            for target in [*self._unsaved]:
                self.save(target)
        except StoreError as error:
            sys.stderr.write(f"ullage: what was learned about the counts of servers is lost: {error}\n")

    def _history(self, target: Target) -> TargetHistory:
        return self._known.get(target) or TargetHistory.from_json(self._shelf.learned(target))

    def _load_history(self, target: Target) -> TargetHistory:
        """Returns the history of a target in the store, after its vocabularies were loaded."""
        counter_for(target).text(RARE_WORD)
        return TargetHistory.from_json(self._shelf.learned(target))

    def _remember(self, target: Target, history: TargetHistory) -> None:
        """Remembers a history as the newest, and forgets the oldest if there are too many."""
        self._known.pop(target, None)
        self._known[target] = history
        self._factors.pop(target, None)
        while len(self._known) > MOST_TARGETS:
            oldest = next(iter(self._known))
            for kept in (self._known, self._factors, self._unsaved):
                kept.pop(oldest, None)


def _margin(target: Target) -> float:
    family = counter_for(target).family
    margins = (family.margin, family.tools.margin, family.schema.margin)
    return min(margin for margin in margins if margin is not None)


def _factor(target: Target, history: TargetHistory) -> Factor:
    """Returns the calibrated factor, with the lowest ceiling that is above all recent requests."""
    margin = KEPT * _margin(target)
    slow = factor_of(history, _margin(target))
    recent = [each for each in history.seen[-RECENT:] if each.ceiling >= LARGE]
    if not recent or any(each.refused for each in recent):
        return slow
    highest = max(each.actual / each.ceiling for each in recent)
    if len(recent) < FEW:
        return replace(slow, ceiling_scale=highest * (1.0 + max(margin, LEAST)), ceiling_offset=0)
    # A constant, such as a prompt of the server's own, would overstate the scale: both are found together.
    slope, apart = _line(recent)
    lowest = slope * (1.0 + min(margin, apart)) / min(each.ceiling / each.tokens for each in recent)
    size = max(each.ceiling for each in recent)
    lines = [
        (scale, max(0.0, *(each.actual - scale * each.ceiling for each in recent)))
        for scale in (lowest + step * max(0.0, highest - lowest) / STEPS for step in range(STEPS + 1))
    ]
    scale, offset = min(lines, key=lambda line: line[0] * size + line[1])
    return replace(slow, ceiling_scale=scale, ceiling_offset=math.ceil(offset + LEAST * size))


def _line(seen: Sequence[Seen]) -> tuple[float, float]:
    """Returns the slope of the upstream's counts over ours, and the largest distance from that line."""
    ours, theirs = [each.tokens for each in seen], [each.actual for each in seen]
    if max(ours) < VARIED * min(ours):
        ratios = [actual / tokens for tokens, actual in zip(ours, theirs, strict=True)]
        return max(ratios), max(ratios) / min(ratios) - 1.0
    slope, start = linear_regression(ours, theirs)
    misses = [abs(actual - start - slope * tokens) for tokens, actual in zip(ours, theirs, strict=True)]
    return max(LOWEST, slope), max(misses) / max(theirs)
