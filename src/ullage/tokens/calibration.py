"""What providers charge teaches what they will: actual ÷ estimate, by endpoint and model.

The last requests to a model are kept as they are, each as our estimate, our ceiling and the count that
came back. What follows from them is a `Factor`, a frozen value: two straight lines, one from our tokens
to calibrated tokens and one from our ceiling to a calibrated ceiling.

The estimate is the line that would have been nearest to the middle one of the recent requests: ours as it
is, with another scale, with a constant, or with both. The ceiling is a line that none of the recent requests
lies above, and of all in memory at most one. It rises at once; it comes down from the family's own ceiling
only slowly, as the memory fills, and never by more than half of the family's margin over the estimate.

Short requests are mostly constants, so they teach a constant and never a scale.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ullage.tokens.counter import Cost, counter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.tokens.counting import Count

MEMORY = 128
"""Requests that are remembered. What is above so many is below the next one in less than 1 %."""
RECENT = 64
"""Those of them that the estimate follows, and that the ceiling is above without exception."""
ENOUGH = 20
"""Requests before which the family's own margin stands."""
FEW = 5
"""Requests before which nothing is said about the middle one."""
LARGE = 200
"""From this many tokens on, a request says something about the scale."""
GAIN = 0.9
"""A line with more figures must leave no more than this share of the error."""
MOST = 10**8
"""No request has more tokens: whoever says so is not counting tokens."""
LOWEST = 0.5
"""A count below this share of our own leaves something out: what was cached, mostly."""
HIGHEST, CONSTANT = 2.0, 500
"""A count is beyond belief above so many times our ceiling and what a provider may put in front of it."""
WITNESSES = 3
"""As many recent counts beyond belief are no accident."""
KEPT = 0.5
"""The share of the family's own margin that stays: one session's requests are alike, the next one's not."""
REFUSED = 1.1, 2.0
"""A refusal raises the ceiling of its request to this many times what it was: where nobody says by how much
it was too long, and at most."""


@dataclass(frozen=True, slots=True)
class Factor:
    """From our own count to what a provider's usage has taught; neutral by default."""

    scale: float = 1.0
    offset: int = 0
    ceiling_scale: float = 1.0
    """Of our own ceiling, not of the tokens."""
    ceiling_offset: int = 0
    """Never negative: what a short request has above its scaled ceiling."""

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and 0 < self.ceiling_scale < math.inf and self.ceiling_offset >= 0):
            raise ValueError(f"{self}: scales must be above 0 and the ceiling's offset at least 0")

    def tokens(self, tokens: int) -> int:
        """Our estimate as calibrated."""
        over, under = self.scale.as_integer_ratio()
        return max(0, (2 * tokens * over + under) // (2 * under) + self.offset)

    def ceiling(self, ceiling: int) -> int:
        """Our ceiling as calibrated."""
        over, under = self.ceiling_scale.as_integer_ratio()
        return -(-ceiling * over // under) + self.ceiling_offset

    def cost(self, cost: Cost) -> Cost:
        """A whole request's cost as calibrated; the estimate is never above the ceiling."""
        ceiling = self.ceiling(cost.ceiling)
        return Cost(min(self.tokens(cost.tokens), ceiling), ceiling)

    def count(self, count: Count) -> Count:
        """A whole request's count as calibrated; exact where it was and nothing has changed."""
        tokens, ceiling = self.cost(Cost(count.tokens, count.ceiling))
        if (tokens, ceiling) == (count.tokens, count.ceiling):
            return count
        return replace(
            count, tokens=tokens, ceiling=ceiling, exact=False, breakdown=_shared(count.breakdown, tokens)
        )

    def limit(self, limit: int) -> int:
        """The largest ceiling of our own that is within `limit` as calibrated; 0 where none is."""
        over, under = self.ceiling_scale.as_integer_ratio()
        return max(0, (limit - self.ceiling_offset) * under // over)


NEUTRAL = Factor()


class Seen(NamedTuple):
    """A request: our own figures, and the provider's."""

    tokens: int
    ceiling: int
    actual: int
    refused: bool = False
    """Then `actual` is what the ceiling must reach, and says nothing about the estimate."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known of one model at one endpoint: its last requests, the newest last."""

    seen: tuple[Seen, ...] = ()

    def with_seen(self, seen: Seen) -> Learned:
        """With one request more, and the oldest forgotten where the memory is full."""
        return Learned((*self.seen, seen)[-MEMORY:])

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"version": 1, "seen": [[*each[:3], int(each.refused)] for each in self.seen]}

    @classmethod
    def from_json(cls, value: object) -> Learned:
        """What `to_json` gave; nothing learned where it is anything else."""
        if not isinstance(value, Mapping) or value.get("version") != 1:
            return cls()
        rows = value.get("seen")
        if not isinstance(rows, list | tuple) or not all(_is_row(row) for row in rows):
            return cls()
        return cls(tuple(Seen(row[0], row[1], row[2], bool(row[3])) for row in rows[-MEMORY:]))


def observed(learned: Learned, estimate: Cost, actual: int) -> Learned:
    """With a request that was answered; as before where its figures cannot be a count of it."""
    seen = _seen(estimate, actual)
    return learned if seen is None else learned.with_seen(seen)


def refused(learned: Learned, estimate: Cost, actual: int | None, margin: float = 0.0) -> Learned:
    """With a request that was refused as too long: its ceiling is above what it was."""
    known = _seen(estimate, estimate.ceiling)
    if known is None:
        return learned
    before = factor_of(learned, margin).ceiling(estimate.ceiling)
    least, most = (math.ceil(before * times) for times in REFUSED)
    told = _seen(estimate, actual)
    reached = min(told.actual, most) if told and told.actual > before else max(before + 1, least)
    return learned.with_seen(known._replace(actual=min(reached, MOST), refused=True))


def factor_of(learned: Learned, margin: float = 0.0) -> Factor:
    """What follows from the requests in memory.

    `margin` is the share by which the family's ceilings are above its estimates at the least.
    """
    believed = _believed(learned.seen)
    scale, offset = _line([each for each in believed if not each.refused][-RECENT:])
    floor = scale * (1.0 + KEPT * margin) / (1.0 + margin)
    ceiling_scale, ceiling_offset = _cover(believed, floor)
    return Factor(scale, offset, ceiling_scale, ceiling_offset)


def _believed(seen: Sequence[Seen]) -> list[Seen]:
    """The requests without those whose counts are accidents."""
    wild = {each for each in seen if each.actual > HIGHEST * each.ceiling + CONSTANT and not each.refused}
    if sum(each in wild for each in seen[-RECENT:]) >= WITNESSES:
        return list(seen)
    return [each for each in seen if each not in wild]


def _line(seen: Sequence[Seen]) -> tuple[float, int]:
    """(scale, offset) of the simplest line that is nearest to the middle request."""
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
    """(scale, offset) of a ceiling that is above the requests; the scale is not below `floor`."""
    large = sorted(each.ceiling for each in seen if each.ceiling >= LARGE)
    # The largest ones: where a constant is added to each request, the others would overstate the scale.
    size = large[-ENOUGH:][0] if large else math.inf
    scale = _top([each.actual / each.ceiling if each.ceiling >= size else None for each in seen], 1.0)
    if scale < 1.0:
        known = max(0, len(large) - ENOUGH) / (MEMORY - ENOUGH)
        scale = 1.0 - known * (1.0 - scale)
    scale = math.ceil(max(scale, floor) * 10_000) / 10_000
    line = Factor(ceiling_scale=scale)
    return scale, max(0, int(_top([each.actual - line.ceiling(each.ceiling) for each in seen], 0)))


def _top(values: Sequence[float | None], default: float) -> float:
    """The largest of the recent values, and of all but one: what happened once is forgotten sooner."""
    recent = [value for value in values[-RECENT:] if value is not None]
    ordered = sorted(value for value in values if value is not None)
    return max([*recent, *ordered[-2:-1]], default=default)


def _seen(estimate: Cost, actual: Any) -> Seen | None:
    """The request, if these can be the figures of one."""
    tokens, ceiling = estimate
    if not _is_row((tokens, ceiling, actual, 0)) or (tokens >= LARGE and actual < LOWEST * tokens):
        return None
    return Seen(tokens, ceiling, actual)


def _is_row(row: object) -> bool:
    if not isinstance(row, list | tuple) or len(row) != len(Seen._fields):
        return False
    # By type: a bool is an int, and is no count.
    return (
        all(type(figure) is int for figure in row)
        and 1 <= row[0] <= row[1] <= MOST
        and 1 <= row[2] <= MOST
        and row[3] in (0, 1)
    )


def _shared(breakdown: Mapping[str, int], tokens: int) -> dict[str, int]:
    """The blocks in the proportion that they had, with another sum."""
    total = sum(breakdown.values())
    if not total:
        return {**breakdown, "turns": tokens}
    blocks, before, after = {}, 0, 0
    for name, share in breakdown.items():
        before += share
        blocks[name] = before * tokens // total - after
        after += blocks[name]
    return blocks


class Shelf(Protocol):
    """Where what was learned is kept; safe to use from several threads, or processes where it lasts."""

    def learned(self, endpoint: str, model: str) -> Mapping[str, Any] | None:
        """What is known, as JSON values; None where nothing is."""

    def learn(
        self,
        endpoint: str,
        model: str,
        change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """Replaces what is known by `change(what is known)`, as one transaction; gives the new."""


class MemoryShelf:
    """A shelf that lasts as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}

    def learned(self, endpoint: str, model: str) -> Mapping[str, Any] | None:
        """What is known, as JSON values."""
        with self._lock:
            return self._known.get((endpoint, model))

    def learn(
        self,
        endpoint: str,
        model: str,
        change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """Replaces what is known, one caller at a time."""
        with self._lock:
            new = self._known[endpoint, model] = change(self._known.get((endpoint, model)))
            return new


class Calibration:
    """Learns from returned usage, and says what follows from it; the shelf has all of its state."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = MemoryShelf() if shelf is None else shelf

    def factor(self, endpoint: str, model: str) -> Factor:
        """What is known of this model at this endpoint; neutral where nothing is."""
        return factor_of(Learned.from_json(self._shelf.learned(endpoint, model)), _margin(model))

    def observe(self, endpoint: str, model: str, estimate: Cost, actual: int) -> None:
        """Learns what a request really had; `estimate` is our own, without any factor.

        A count that can't be one (0, negative, absurd, no integer) is ignored.
        """
        if _seen(estimate, actual) is not None:
            self._learn(endpoint, model, lambda learned: observed(learned, estimate, actual))

    def overflowed(self, endpoint: str, model: str, estimate: Cost, actual: int | None) -> Factor:
        """Learns that a request was refused as too long; the factor counts it as more than before.

        `actual` is what the provider said that it had, or None where it did not say.
        """
        margin = _margin(model)
        new = self._learn(endpoint, model, lambda learned: refused(learned, estimate, actual, margin))
        return factor_of(Learned.from_json(new), margin)

    def _learn(self, endpoint: str, model: str, change: Callable[[Learned], Learned]) -> Mapping[str, Any]:
        return self._shelf.learn(endpoint, model, lambda known: change(Learned.from_json(known)).to_json())


def _margin(model: str) -> float:
    """The least share by which the ceiling of a part is above its estimate, for this model."""
    counter = counter_for(model)
    family = counter.family
    margins = (family.margin, family.tools.margin, family.schema.margin)
    return 0.0 if counter.exact else min(margin for margin in margins if margin is not None)
