"""Learns from provider usage how far counts are off, separately for each target.

For each target the last requests are kept: our estimate, our ceiling and the count that the provider
returned. A `Factor`, a frozen value, is computed from them. It consists of two straight lines, one from our
tokens to calibrated tokens and one from our ceiling to a calibrated ceiling.

The estimate is the line with the smallest median error over the recent requests. The candidates are our own
estimate unchanged, with another scale, with a constant, or with both. The ceiling is a line that no recent
request is above, and at most one request in memory. The ceiling rises at once. It falls below the family's
own ceiling only slowly, as the memory fills, and never by more than half of the family's margin over the
estimate.

Short requests consist mostly of constants. They change the constant and never the scale.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ullage.errors import ConfigurationError
from ullage.intake import check_member, kind_of
from ullage.target import target_of
from ullage.tokens.counter import Cost, counter_for
from ullage.tokens.request_count import Count, share_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.target import ModelLike, Target

MEMORY = 128
"""Number of requests in memory. If all of them are below a ceiling, so is the next one in 99 % of cases."""
RECENT = 64
"""Number of newest requests that the estimate follows. The ceiling is above all of these."""
ENOUGH = 20
"""Number of large requests up to which the family's own margin is not lowered."""
FEW = 5
"""Number of requests below which the estimate is not changed."""
LARGE = 200
"""Number of tokens from which a request can change the scale."""
GAIN = 0.9
"""A line with more parameters is used only if its error is below this share of the simpler line's error."""
MOST = 10**8
"""Highest token count that is accepted. A higher number is a provider's error."""
LOWEST = 0.5
"""Least count that is accepted, as a share of our own. A lower one leaves out something, mostly cached
tokens."""
HIGHEST, CONSTANT = 2.0, 500
"""A count above `HIGHEST` times our ceiling plus `CONSTANT` tokens is implausible. The constant allows for a
text that a provider puts in front."""
WITNESSES = 3
"""If this many recent counts are implausible, they are used nevertheless."""
KEPT = 0.5
"""Share of the family's own margin that is kept. The requests of one session are similar; the next session's
may not be."""
REFUSED = 1.1, 2.0
"""A refusal multiplies the ceiling of its request: by the first factor if the provider does not say how long
the request was, and by the second at most."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Converts our own count to a calibrated count; the default changes nothing."""

    scale: float = 1.0
    offset: int = 0
    ceiling_scale: float = 1.0
    """Factor for our own ceiling (not for the tokens)."""
    ceiling_offset: int = 0
    """Tokens added to the scaled ceiling, mostly for short requests; never negative."""

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and 0 < self.ceiling_scale < math.inf and self.ceiling_offset >= 0):
            raise ValueError(f"{self}: scales must be above 0 and the ceiling's offset at least 0")

    def tokens(self, tokens: int) -> int:
        """Returns our estimate after calibration.

        A negative constant that was learned from large requests may exceed a small one. So the result is at
        least `LOWEST` times the estimate, or the scale if that is smaller.
        """
        over, under = self.scale.as_integer_ratio()
        least = math.ceil(min(self.scale, LOWEST) * tokens)
        return max(least, (2 * tokens * over + under) // (2 * under) + self.offset)

    def ceiling(self, ceiling: int) -> int:
        """Returns our ceiling after calibration."""
        over, under = self.ceiling_scale.as_integer_ratio()
        return -(-ceiling * over // under) + self.ceiling_offset

    def cost(self, cost: Cost) -> Cost:
        """Returns the calibrated cost of a whole request. Its estimate is never above its ceiling."""
        ceiling = self.ceiling(cost.ceiling)
        return Cost(min(self.tokens(cost.tokens), ceiling), ceiling)

    def count(self, count: Count) -> Count:
        """Returns the calibrated count of a whole request. An exact count stays exact if nothing changes."""
        if self is NEUTRAL and count.tokens <= count.ceiling:
            return count
        tokens, ceiling = self.cost(Cost(count.tokens, count.ceiling))
        if (tokens, ceiling) == (count.tokens, count.ceiling):
            return count
        return Count(tokens, ceiling, exact=False, breakdown=share_out(count.breakdown, tokens))

    def limit(self, limit: int) -> int:
        """Returns our largest ceiling that is within `limit` after calibration, or 0."""
        over, under = self.ceiling_scale.as_integer_ratio()
        return max(0, (limit - self.ceiling_offset) * under // over)


NEUTRAL = Factor()


class Seen(NamedTuple):
    """One request: our own figures and the provider's."""

    tokens: int
    ceiling: int
    actual: int
    refused: bool = False
    """True if the provider refused the request as too long. `actual` is then a lower bound for the ceiling,
    and the estimate ignores it."""


@dataclass(frozen=True, slots=True)
class TargetHistory:
    """The last requests to one target, oldest first."""

    seen: tuple[Seen, ...] = ()

    def with_seen(self, seen: Seen) -> TargetHistory:
        """Returns a copy with one more request. If the memory is full, the oldest request is dropped."""
        return TargetHistory((*self.seen, seen)[-MEMORY:])

    def to_json(self) -> dict[str, Any]:
        """Returns the requests as JSON values."""
        return {"version": 1, "seen": [[*each[:3], int(each.refused)] for each in self.seen]}

    @classmethod
    def from_json(cls, value: object) -> TargetHistory:
        """Reads the value of `to_json`; any other value counts as nothing learned."""
        if not isinstance(value, Mapping) or value.get("version") != 1:
            return cls()
        rows = value.get("seen")
        if not isinstance(rows, list | tuple) or not all(_is_row(row) for row in rows):
            return cls()
        return cls(tuple(Seen(row[0], row[1], row[2], bool(row[3])) for row in rows[-MEMORY:]))


def observed(learned: TargetHistory, estimate: Cost, actual: int) -> TargetHistory:
    """Adds a request that was answered; returns `learned` unchanged if the count is impossible."""
    seen = _make_seen(estimate, actual)
    return learned if seen is None else learned.with_seen(seen)


def refused(learned: TargetHistory, estimate: Cost, actual: int | None, margin: float = 0.0) -> TargetHistory:
    """Adds a request that was refused as too long; its calibrated ceiling then rises."""
    known = _make_seen(estimate, estimate.ceiling)
    if known is None:
        return learned
    before = factor_of(learned, margin).ceiling(estimate.ceiling)
    least, most = (math.ceil(before * times) for times in REFUSED)
    reported = _make_seen(estimate, actual)
    reached = min(reported.actual, most) if reported and reported.actual > before else max(before + 1, least)
    return learned.with_seen(known._replace(actual=min(reached, MOST), refused=True))


def factor_of(learned: TargetHistory, margin: float = 0.0) -> Factor:
    """Returns the factor for the requests in memory.

    `margin` is the least share by which the family's ceilings are above its estimates.
    """
    believed = _drop_implausible(learned.seen)
    scale, offset = _line([each for each in believed if not each.refused][-RECENT:])
    floor = scale * (1.0 + KEPT * margin) / (1.0 + margin)
    ceiling_scale, ceiling_offset = _cover(believed, floor)
    return Factor(scale, offset, ceiling_scale, ceiling_offset)


def _drop_implausible(seen: Sequence[Seen]) -> list[Seen]:
    """Returns the requests without the implausible ones, unless several recent ones are implausible."""
    wild = {each for each in seen if each.actual > HIGHEST * each.ceiling + CONSTANT and not each.refused}
    if sum(each in wild for each in seen[-RECENT:]) >= WITNESSES:
        return list(seen)
    return [each for each in seen if each not in wild]


def _line(seen: Sequence[Seen]) -> tuple[float, int]:
    """Returns (scale, offset) of the simplest line with nearly the smallest median error."""
    if len(seen) < FEW:
        return 1.0, 0
    scale = _scale(seen)
    best, least = (1.0, 0), _miss(seen, 1.0, 0)
    for line in ((scale, 0), (1.0, _offset(seen, 1.0)), (scale, _offset(seen, scale))):
        miss = _miss(seen, *line)
        if miss < GAIN * least:
            best, least = line, miss
    return best


def _scale(seen: Sequence[Seen]) -> float:
    large = [each for each in seen if each.tokens >= LARGE]
    if len(large) < FEW:
        return 1.0
    return max(LOWEST, round(statistics.median(each.actual / each.tokens for each in large), 4))


def _offset(seen: Sequence[Seen], scale: float) -> int:
    return round(statistics.median(each.actual - scale * each.tokens for each in seen))


def _miss(seen: Sequence[Seen], scale: float, offset: int) -> float:
    return statistics.median(abs(scale * each.tokens + offset - each.actual) / each.actual for each in seen)


def _cover(seen: Sequence[Seen], floor: float) -> tuple[float, int]:
    """Returns (scale, offset) of a ceiling that is above the requests; the scale is at least `floor`."""
    large = sorted(each.ceiling for each in seen if each.ceiling >= LARGE)
    # Only the largest requests: if a constant is added to each request, shorter ones would overstate the
    # scale.
    size = large[-ENOUGH:][0] if large else math.inf
    scale = _top([each.actual / each.ceiling if each.ceiling >= size else None for each in seen], 1.0)
    if scale < 1.0:
        known = max(0, len(large) - ENOUGH) / (MEMORY - ENOUGH)
        scale = 1.0 - known * (1.0 - scale)
    scale = math.ceil(max(scale, floor) * 10_000) / 10_000
    line = Factor(ceiling_scale=scale)
    return scale, max(0, int(_top([each.actual - line.ceiling(each.ceiling) for each in seen], 0)))


def _top(values: Sequence[float | None], default: float) -> float:
    """Returns the larger of the largest recent value and the second largest of all values.

    So a single old outlier is ignored.
    """
    recent = [value for value in values[-RECENT:] if value is not None]
    ordered = sorted(value for value in values if value is not None)
    return max([*recent, *ordered[-2:-1]], default=default)


def _make_seen(estimate: Cost, actual: Any) -> Seen | None:
    """Returns the request, or None if the figures cannot be correct."""
    if not isinstance(estimate, Cost):
        raise ConfigurationError(
            f"estimate must be our own count before calibration, Fitted.estimate, not {kind_of(estimate)}"
        )
    tokens, ceiling = estimate
    if not _is_row((tokens, ceiling, actual, 0)) or (tokens >= LARGE and actual < LOWEST * tokens):
        return None
    return Seen(tokens, ceiling, actual)


def _is_row(row: object) -> bool:
    if not isinstance(row, list | tuple) or len(row) != len(Seen._fields):
        return False
    # Checked by type, because a bool is also an int but no count.
    return (
        all(type(figure) is int for figure in row)
        and 1 <= row[0] <= row[1] <= MOST
        and 1 <= row[2] <= MOST
        and row[3] in (0, 1)
    )


class Shelf(Protocol):
    """Stores the learned requests; safe for several threads and, if it is durable, several processes."""

    def learned(self, target: Target) -> Mapping[str, Any] | None:
        """Returns the learned requests as JSON values, or None if there are none."""

    def learn(
        self, target: Target, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Stores `change(stored value)` in one transaction, and returns the new value.

        The stored value is None if nothing is learned. Nothing is stored if `change` raises.
        """


class MemoryShelf:
    """A shelf in memory, which ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Target, Mapping[str, Any]] = {}

    def learned(self, target: Target) -> Mapping[str, Any] | None:
        """Returns the learned requests as JSON values."""
        with self._lock:
            return self._known.get(target)

    def learn(
        self, target: Target, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Stores `change(stored value)`, one caller at a time, and returns the new value."""
        with self._lock:
            new = self._known[target] = change(self._known.get(target))
            return new


_SHELF = ("shelf", "a Shelf, such as the calibration of ullage.store.open(path)", "learned", "learn")


class Calibration:
    """Learns from returned usage and computes the factor of each target. All of its state is in the shelf."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf: Shelf = MemoryShelf() if shelf is None else check_member(shelf, *_SHELF)

    def factor(self, target: ModelLike) -> Factor:
        """Returns the factor of this target; neutral if nothing is learned."""
        target = target_of(target)
        return factor_of(TargetHistory.from_json(self._shelf.learned(target)), _margin(target))

    def observe(self, target: ModelLike, estimate: Cost, actual: int) -> None:
        """Learns the provider's count of a request; `estimate` is our own, without any factor.

        An impossible count (0, negative, absurdly high, not an integer) is ignored.
        """
        if _make_seen(estimate, actual) is not None:
            self._learn(target_of(target), lambda learned: observed(learned, estimate, actual))

    def overflowed(self, target: ModelLike, estimate: Cost, actual: int | None) -> Factor:
        """Learns that a request was refused as too long; the new factor counts it higher than before.

        `actual` is the provider's count of the request, or None if the provider did not report one.
        """
        target = target_of(target)
        margin = _margin(target)
        new = self._learn(target, lambda learned: refused(learned, estimate, actual, margin))
        return factor_of(TargetHistory.from_json(new), margin)

    def _learn(self, target: Target, change: Callable[[TargetHistory], TargetHistory]) -> Mapping[str, Any]:
        return self._shelf.learn(target, lambda known: change(TargetHistory.from_json(known)).to_json())


def _margin(target: Target) -> float:
    """Returns the least share by which the ceiling of any part is above its estimate, for this target."""
    counter = counter_for(target)
    family = counter.family
    margins = (family.margin, family.tools.margin, family.schema.margin)
    return 0.0 if counter.exact else min(margin for margin in margins if margin is not None)
