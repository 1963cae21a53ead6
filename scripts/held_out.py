"""How often a ceiling is too low on records that had no part in choosing it, and how much too high it is.

    ULLAGE_DATA=… python scripts/held_out.py [--splits 5]

Three ways, each without a look at the records that are tried:
- in sample: the margins that follow from all records, for comparison;
- source left out: each source (a repository) by the margins and cautions that all others give;
- 60/40: groups, or whole sources, are dealt at random; the figures of the rows and the margins are derived
  from the 60 % and tried on the 40 %.

Requests of 200 tokens and more, weighed as the scorer weighs them: a prompt counts once for a provider and
class, however often it was recorded. *Too low* is the share whose ceiling was below the provider's count,
*excess* the median of (ceiling − actual) ÷ actual.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from derive_families import CLASSES, LARGE, figure, fit, free_of, occurrences, quantile, read
from derive_margins import PARTS, Margins, Sample, ceiling_of, derive, recorded, take, weigh
from ullage.tokens.families import family

WAYS = ("in sample", "source left out", "60/40 by group", "60/40 by source")
HEAD = f"| class | groups | {' | '.join(f'{way} | excess' for way in WAYS)} |"


def main() -> int:
    """Prints the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--splits", type=int, default=5, help="how often to deal 60 to 40; 0 for not at all")
    options = parser.parse_args()
    path = recorded()
    if path is None:
        return 2
    samples = take(read(path))
    print(judged(samples, derive(samples)[0], options.splits))
    return 0


class Verdict(NamedTuple):
    """How the ceilings of one class did."""

    groups: float
    low: float
    """The weight of the groups whose ceiling was too low."""
    excess: float


Ceilings = Sequence[tuple[Sample, float]]


def verdicts(ceilings: Ceilings) -> dict[tuple[str, str], Verdict]:
    """By provider and class, and for all providers, of the requests of 200 tokens and more."""
    large = [(each, ceiling) for each, ceiling in ceilings if each.record.actual >= LARGE]
    weights = weigh([(s.record.label, s.record.kind, s.record.group) for s, _ in large])
    rows: dict[tuple[str, str], list[tuple[float, float]]] = collections.defaultdict(list)
    for (sample, ceiling), weight in zip(large, weights, strict=True):
        excess = (ceiling - sample.record.actual) / sample.record.actual
        for label in ("all", sample.record.label):
            rows[label, sample.record.kind].append((excess, weight))
    return {
        key: Verdict(
            sum(w for _, w in values),
            sum(w for excess, w in values if excess < 0),
            quantile([excess for excess, _ in values], [w for _, w in values], 0.5),
        )
        for key, values in rows.items()
    }


def without_each_source(samples: Sequence[Sample]) -> list[tuple[Sample, float]]:
    """Every sample's ceiling by margins and cautions that its own source had no part in."""
    results = []
    for source in sorted({each.record.source for each in samples}):
        margins, _ = derive([each for each in samples if each.record.source != source])
        results += [(each, ceiling_of(each, margins)) for each in samples if each.record.source == source]
    return results


def dealt(samples: Sequence[Sample], by: str, seed: int) -> list[tuple[Sample, float]]:
    """The 40 % that a random deal holds back, with ceilings by the figures and margins of the other 60 %."""
    names = sorted({getattr(each.record, by) for each in samples})
    random.Random(seed).shuffle(names)  # noqa: S311 - a deal that can be repeated
    kept = set(names[: round(0.6 * len(names))])
    known = [each for each in samples if getattr(each.record, by) in kept]
    moved = refit(samples, known)
    margins, _ = derive([moved[id(each)] for each in known])
    held = [moved[id(each)] for each in samples if getattr(each.record, by) not in kept]
    return [(each, ceiling_of(each, margins)) for each in held]


_occurrences: dict[tuple[int, str], Sequence[float]] = {}


def refit(samples: Sequence[Sample], known: Sequence[Sample]) -> dict[int, Sample]:
    """Every sample with the figures of its row that the known samples give, by the id of the original."""
    moved = {id(each): each for each in samples}
    rows: dict[str, list[Sample]] = collections.defaultdict(list)
    for each in samples:
        rows[each.row].append(each)
    inside = set(map(id, known))
    for name, own in rows.items():
        records = [each.record for each in own if id(each) in inside]
        free = free_of(name, records)
        row = family(name)
        figures = fit(records, row, free) if free else {}
        if not figures:
            continue
        for each in own:
            key = (id(each.record), name)
            if key not in _occurrences:
                _occurrences[key] = occurrences(each.record, row, free)[1]
            by = sum(
                (value - figure(row, path)) * n
                for (path, value), n in zip(figures.items(), _occurrences[key], strict=True)
            )
            moved[id(each)] = each._replace(bare=each.bare + by)
    return moved


def judged(samples: Sequence[Sample], margins: Margins, splits: int) -> str:
    """The verdicts on the margins: in sample, without each source, and on what random deals hold back."""
    own = verdicts([(each, ceiling_of(each, margins)) for each in samples])
    out = verdicts(without_each_source(samples))
    deals = {by: [verdicts(dealt(samples, by, seed)) for seed in range(splits)] for by in ("group", "source")}
    lines = [
        HEAD,
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in CLASSES:
        key = ("all", kind)
        if key not in own:
            continue
        cells = [_percents([verdict[key]]) for verdict in (own, out)]
        cells += [_percents([each[key] for each in deals[by] if key in each]) for by in deals]
        lines.append(f"| {kind} | {own[key].groups:.0f} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_by_provider(own, out)])


def _percents(found: Sequence[Verdict]) -> str:
    if not found:
        return " | "
    low = sum(each.low for each in found) / sum(each.groups for each in found)
    return f"{low:.1%} | {sum(each.excess for each in found) / len(found):.1%}"


def _by_provider(own: Mapping[tuple[str, str], Verdict], out: Mapping[tuple[str, str], Verdict]) -> list[str]:
    lines = [
        "| provider | class | groups | in sample | excess | source left out | excess |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for label, kind in sorted(own, key=lambda key: -own[key].groups):
        if label != "all" and kind in PARTS and own[label, kind].groups >= 3:
            cells = f"{_percents([own[label, kind]])} | {_percents([out[label, kind]])}"
            lines.append(f"| {label} | {kind} | {own[label, kind].groups:.0f} | {cells} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
