"""Where the margins of margins.toml come from: what requests needed that had no part in choosing them.

    ULLAGE_DATA=… python scripts/derive_margins.py [--write | --check]

The ceiling of a request is its estimate plus a margin: a share and a constant for its texts, for its tools
and for its schema, and a constant for each tool. Rows of families.toml that are alike share one set of
margins, their kind: a family with few records gets what its whole kind needs, not the most that it was seen
to need itself. A kind has a set for each channel: the maker's own API, another API that differs, a host.

A margin that covers the recorded requests to the token fails on the next one. So a margin covers `stretch`
times what they needed, and at least `least` tokens. Both are chosen for each channel by leaving out one
source (a repository) at a time: the margins that follow from all other sources are tried on that one. Of
those whose median excess is within the budget, the ones that are too low least often are taken, and of these
the widest.

`scripts/held_out.py` judges the result on records that had no part in it.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import math
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from derive_families import (
    FILE,
    LARGE,
    Record,
    counted,
    quantile,
    read,
)
from ullage.tokens import families
from ullage.tokens.families import Family, family_of, is_hosted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TABLE = Path(families.__file__).with_name("margins.toml")
GOAL = 0.005
"""The share of groups whose ceiling may be too low."""
PARTS = ("text", "tools", "schema")
FIGURES = {"text": ("share", "once"), "tools": ("share", "once", "each"), "schema": ("share", "once")}
SHARES = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.11, 0.12, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6)
EACHES = (0, 15, 30)
SOURCES, GROUPS = 3, 10
"""A pool with fewer sources or groups of large requests is thin."""
BUDGET = 1.5
BUDGETS: Mapping[tuple[str, str], float] = {
    ("claude", "text"): 0.11,
    ("claude", "tools"): 0.075,
    ("claude", "schema"): 0.3,
    ("closed", "text"): 0.3,
    ("closed", "tools"): 0.25,
    ("gemini", "text"): 0.06,
    ("gemini", "tools"): 0.8,
    ("gemini", "schema"): 0.2,
    ("maker", "tools"): 0.4,
    ("openai", "tools"): 0.05,
    ("openai", "schema"): 0.1,
}
"""The median excess that caution may cost: what is left of it covers what no record shows."""
ALIKE = 0.005
"""Margins whose median excess differs by less are alike: then those that miss fewer are taken."""
SMALLEST = 50
"""Shorter requests say little about a margin: a token more or less is a large share of them."""
EXACT = ("openai", "text")
"""The kind and part whose rule is known: no margin, and none is derived."""
NARROWEST: Mapping[tuple[str, str], float] = {
    ("claude", "text"): 0.11,
    ("claude", "tools"): 0.1,
    ("closed", "text"): 0.08,
    ("closed", "tools"): 0.06,
    ("claude", "schema"): 0.06,
    ("closed", "schema"): 0.06,
    ("gemini", "text"): 0.02,
    ("gemini", "tools"): 0.3,
    ("maker", "tools"): 0.06,
    ("open", "tools"): 0.1,
    ("openai", "tools"): 0.03,
    ("openai", "schema"): 0.04,
}
"""The least share: longer requests than were recorded are off by more than a constant."""
LEAST_EACH: Mapping[str, int] = {"claude": 30}
"""The least for each tool after the second: a request with 15 tools was charged so much more for each."""

Pool = tuple[str, str]
"""A kind of family and a channel."""
Margins = dict[Pool, dict[str, dict[str, float]]]
"""The margins of each pool, by part of a request."""


class Caution(NamedTuple):
    """How much further than the records a margin reaches."""

    stretch: float
    """Times what the records needed."""
    least: int
    """Tokens once a request, whatever they needed."""


CAUTIONS = tuple(Caution(stretch, least) for stretch in (1.0, 1.5, 2.0, 3.0) for least in (8, 16, 24, 32))
MODERATE = 2.0
"""The furthest that a thin pool's margins reach beyond its few records."""
Cautions = dict[tuple[Pool, str], Caution]


class Sample(NamedTuple):
    """A recorded request as the margins see it."""

    record: Record
    pool: Pool
    row: str
    part: str
    """The part that it teaches something about: its tools, else its schema, else its texts."""
    bare: float
    """Its ceiling without any margin."""
    times: Mapping[str, Mapping[str, float]]
    """How often each figure of the margins occurs, by part."""


def main() -> int:
    """Derives the margins, judges them, and prints, checks or writes them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write margins.toml")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if margins.toml is not what is derived"
    )
    options = parser.parse_args()
    path = recorded()
    if path is None:
        return 2
    derived, cautions = derive(take(read(path)))
    text = toml_text(derived, cautions)
    if options.check:
        same = tomllib.loads(text) == tomllib.loads(TABLE.read_text("utf-8"))
        print(
            "margins.toml is what is derived" if same else "margins.toml is not what is derived: use --write"
        )
        return 0 if same else 1
    if options.write:
        TABLE.write_text(text, "utf-8")
    print(text)
    return 0


def recorded() -> Path | None:
    """The file of recorded usage; None, and a line on stderr, if it is not there."""
    data = os.environ.get("ULLAGE_DATA")
    path = Path(data or ".") / FILE
    if data is None or not path.is_file():
        print(f"set ULLAGE_DATA to the directory that holds {FILE}", file=sys.stderr)
        return None
    return path


# The samples


def take(records: Iterable[Record]) -> list[Sample]:
    """The recorded requests whose rows share the margins of a kind."""
    samples = []
    for record in records:
        row = family_of(record.model, record.api)
        if row.kind:
            samples.append(_sample(record, row))
    return samples


def _sample(record: Record, row: Family) -> Sample:
    plain = with_margins(row, {})
    bare = counted(plain, record)[1]
    times = {}
    for part, names in FIGURES.items():
        raised = {}
        for name in names:
            by = 0.5 if name == "share" else 100
            raised[name] = (counted(with_margins(row, {part: {name: by}}), record)[1] - bare) / by
        times[part] = raised
    part = next(part for part in ("tools", "schema", "text") if times[part]["once"])
    hosted = is_hosted(record.model, record.api, row.apis)
    return Sample(record, (row.kind, channel_of(row.kind, record.api, hosted)), row.name, part, bare, times)


CHANNELS: Mapping[str, tuple[str, ...]] = {
    "openai": ("own", "openai.responses", "host"),
    "claude": ("own", "host"),
    "gemini": ("own", "host"),
    "maker": ("own", "host"),
    "open": ("own", "host"),
    "closed": ("own",),
}
"""The channels of each kind: as many as have records enough to say something."""


def channel_of(kind: str, api: str, hosted: bool) -> str:
    """The channel whose margins a request gets."""
    return families.channel(CHANNELS[kind], api, host=hosted)


def with_margins(row: Family, margins: Mapping[str, Mapping[str, float]]) -> Family:
    """The row with these margins and no others."""
    names = {"share": "margin", "once": "margin_once", "each": "margin_each"}
    changed = {}
    for part in ("tools", "schema"):
        given = {names[key]: margins.get(part, {}).get(key, 0) for key in FIGURES[part]}
        changed[part] = dataclasses.replace(getattr(row, part), **given)
    text = margins.get("text", {})
    return dataclasses.replace(row, margin=text.get("share", 0.0), margin_once=text.get("once", 0), **changed)


# Choosing margins


def derive(samples: Sequence[Sample]) -> tuple[Margins, Cautions]:
    """The margins of every pool, and how cautious each of them is."""
    margins: Margins = {(kind, channel): {} for kind, names in CHANNELS.items() for channel in names}
    cautions: Cautions = {}
    for part in PARTS:
        own = [each for each in samples if each.part == part and each.record.actual >= SMALLEST]
        points = [_point(each, margins) for each in own]
        chosen = choose_cautions(points, part)
        for pool, figures in fit_part(points, part, chosen).items():
            margins[pool][part] = figures
            cautions[pool, part] = chosen[pool]
    return margins, cautions


class Point(NamedTuple):
    """A sample for the fit of one part."""

    source: str
    pool: Pool
    actual: int
    need: float
    """Tokens that the ceiling still lacks, or has too many (below 0), without this part's margin."""
    share: float
    each: float
    key: tuple[str, str, str, bool]
    """What shares one weight: a provider's group of a class, large requests apart from small ones."""


def _point(sample: Sample, margins: Margins) -> Point:
    record, times = sample.record, sample.times[sample.part]
    need = record.actual - ceiling_of(sample, margins)
    key = (record.label, record.kind, record.group, record.actual >= LARGE)
    return Point(record.source, sample.pool, record.actual, need, times["share"], times.get("each", 0.0), key)


def ceiling_of(sample: Sample, margins: Margins) -> float:
    """The ceiling of a sample by these margins, as the counter makes it but for rounding."""
    given = margins.get(sample.pool, {})
    return sample.bare + sum(
        value * sample.times[part][name] for part, figures in given.items() for name, value in figures.items()
    )


def choose_cautions(points: Sequence[Point], part: str) -> dict[Pool, Caution]:
    """For each pool, the caution that left-out sources ask for and its budget of excess allows.

    A pool with few sources or groups takes that of all pools together.
    """
    pools = {(kind, channel) for kind, names in CHANNELS.items() for channel in names}
    found = {}
    tries = {caution: left_out(points, part, caution) for caution in CAUTIONS}
    for pool in pools:
        large = [each for each in points if each.pool == pool and each.actual >= LARGE]
        rich = len({each.source for each in large}) >= SOURCES and len({each.key for each in large}) >= GROUPS
        budget = BUDGETS.get((pool[0], part), BUDGET)
        ranks = []
        for caution, results in tries.items():
            own = [each for each in results if not rich or each[0].pool == pool]
            low, _ = _rates([each for each in own if (each[0].pool[0], part) != EXACT])
            excess = _rates([each for each in results if each[0].pool == pool])[1]
            over = max(0.0, round(excess - budget, 4)), not rich and caution.stretch > MODERATE
            ranks.append((*over, round(low, 4), -caution.stretch, -caution.least, caution))
        found[pool] = min(ranks)[-1]
    return found


def left_out(points: Sequence[Point], part: str, caution: Caution) -> list[tuple[Point, float]]:
    """Each large point and what its ceiling has too much, by margins from all sources but its own."""
    large = [each for each in points if each.actual >= LARGE]
    results = []
    for source in sorted({each.source for each in large}):
        tried = [each for each in large if each.source == source]
        kinds = {each.pool[0] for each in tried}
        others = [each for each in points if each.source != source and each.pool[0] in kinds]
        figures = fit_part(others, part, collections.defaultdict(lambda: caution), kinds)
        results += [(each, slack(each, figures[each.pool]) - each.need) for each in tried]
    return results


def _rates(results: Sequence[tuple[Point, float]]) -> tuple[float, float]:
    """(share too low, median excess)."""
    if not results:
        return 0.0, 0.0
    weights = weigh([point.key for point, _ in results])
    low = sum(weight for weight, (_, over) in zip(weights, results, strict=True) if over < 0)
    return low / sum(weights), quantile([over / point.actual for point, over in results], weights, 0.5)


def slack(point: Point, figures: Mapping[str, float]) -> float:
    """The tokens that margins give a point."""
    return figures["share"] * point.share + figures["once"] + figures.get("each", 0) * point.each


def fit_part(
    points: Iterable[Point],
    part: str,
    cautions: Mapping[Pool, Caution],
    kinds: Iterable[str] = tuple(CHANNELS),
) -> dict[Pool, dict[str, float]]:
    """The margins of one part for every pool; one without records gets the widest of its kind, or of all."""
    pools: dict[Pool, list[Point]] = collections.defaultdict(list)
    for each in points:
        pools[each.pool].append(each)
    found = {pool: fit_pool(pool, own, part, cautions[pool]) for pool, own in pools.items()}
    for kind in kinds:
        relatives = [figures for pool, figures in found.items() if pool[0] == kind] or list(found.values())
        for channel in CHANNELS[kind]:
            widest = {name: max((each[name] for each in relatives), default=0) for name in FIGURES[part]}
            found.setdefault((kind, channel), widest)
    return found


def fit_pool(pool: Pool, points: Sequence[Point], part: str, caution: Caution) -> dict[str, float]:
    """The margins that cover the points of a pool, all but the goal of their weight, at the least excess."""
    if (pool[0], part) == EXACT:
        return {"share": 0.0, "once": 0}
    merged: dict[Row, float] = collections.defaultdict(float)
    for each, weight in zip(points, weigh([each.key for each in points]), strict=True):
        merged[each.need, each.share, each.each, each.actual] += weight
    share = NARROWEST.get((pool[0], part), 0.0)
    tool = LEAST_EACH.get(pool[0], 0)
    return dict(_narrowest(tuple(sorted(merged.items())), share, tool, part, caution))


Row = tuple[float, float, float, int]
"""What a point needs, how often the share and the figure for each tool occur in it, and its actual count."""


@functools.lru_cache(200_000)
def _narrowest(
    rows: tuple[tuple[Row, float], ...], least: float, least_tool: int, part: str, caution: Caution
) -> tuple[tuple[str, float], ...]:
    judged = [(row, weight) for row, weight in rows if row[3] >= LARGE] or rows
    weights = [weight for _, weight in judged]
    allowed = GOAL * sum(weight for _, weight in rows)
    best: tuple[float, float, float, float, int] | None = None
    for tool in (each for each in EACHES if each >= least_tool) if part == "tools" else (0,):
        for share in (share for share in SHARES if share >= least):
            once = _constant(rows, share, tool, allowed, caution)
            values = [(share * x + tool * n + once - need) / actual for (need, x, n, actual), _ in judged]
            excess = round(quantile(values, weights, 0.5) / ALIKE)
            missed = sum(weight for value, weight in zip(values, weights, strict=True) if value < 0)
            rank = (excess, round(missed, 4), share, tool, once)
            best = rank if best is None or rank < best else best
            if once == caution.least and not missed:
                break  # a larger share would only be dearer
    if best is None:
        raise ValueError(f"no share of {part} is {least} or more")
    _, _, share, tool, once = best
    return (("share", share), ("once", once), *((("each", tool),) if part == "tools" else ()))


def _constant(
    rows: Sequence[tuple[Row, float]], share: float, tool: float, allowed: float, caution: Caution
) -> int:
    """The tokens once a request with which no more than the allowed weight is too low."""
    short = [
        ((caution.stretch * need if need > 0 else need) - share * x - tool * n, weight)
        for (need, x, n, _), weight in rows
    ]
    seen = 0.0
    for value, weight in sorted((each for each in short if each[0] > caution.least), reverse=True):
        seen += weight
        if seen > allowed + 1e-9:
            return math.ceil(value)
    return caution.least


def weigh(keys: Sequence[tuple[object, ...]]) -> list[float]:
    """One for each group of a provider and class, however often it was recorded."""
    times = collections.Counter(keys)
    return [1 / times[key] for key in keys]


# The table


def toml_text(margins: Margins, cautions: Cautions) -> str:
    """The margins as margins.toml has them."""
    lines = [
        "# The margins of the ceiling, one set for each kind of family and channel. Written by",
        "# scripts/derive_margins.py, which says how they are chosen: do not change them by hand.",
        "# Beside each: how many times the recorded need it covers, and the least tokens once a request.",
    ]
    for kind, channel in sorted(margins):
        lines += ["", f'[{kind}."{channel}"]']
        for part, figures in margins[kind, channel].items():
            values = ", ".join(f"{name} = {value:g}" for name, value in figures.items())
            caution = cautions[(kind, channel), part]
            about = "" if (kind, part) == EXACT else f"  # {caution.stretch:g} times, {caution.least}"
            lines.append(f"{part} = {{ {values} }}{about}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
