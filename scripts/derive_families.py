"""Where the figures of families.toml come from: fits every row to recorded usage, beside what it has now.

    ULLAGE_DATA=… python scripts/derive_families.py [--family PREFIX] [--markdown] [--stale]

Reads `$ULLAGE_DATA/usage.jsonl.gz`: requests that were really sent, each with the count that its
provider returned. It fits on nothing else.

A row is a linear model. What a request costs is the sum of its figures, each times how often it
occurs there: `request` once, `message` a message, `scale` a token of text by the row's vocabulary,
`tools.once` where there are tools, and so on. `FREE` names the figures of each row that are fitted;
all others are known (a public chat template, a provider's documentation, sessions that are not in this file).

The fit takes the least absolute relative error, so that a few odd records (a recording with a part
missing, a cached prefix counted twice) do not move it. A prompt that was sent many times weighs as
much as one that was sent once.

Errors are printed twice: by the table as it is, and `fitted`, which is cross-validated: the groups are
dealt into five hands, and each is counted with the figures that the other four give. Only the free
figures are; rows and margins were chosen with all records in view. A figure that the records say
nothing about stays as it is in the table.

Nothing is written. A `*` marks a figure that has moved so far that the row is stale; a person looks
at why, and changes the table.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import gzip
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import wire
from ullage.errors import UllageError
from ullage.tokens.counter import Counter
from ullage.tokens.families import Family, family, family_of
from ullage.tokens.measures import measures_of
from ullage.tokens.request_count import count_read

if TYPE_CHECKING:
    from ullage.wire import Request

FILE = "usage.jsonl.gz"
NEEDED = frozenset(
    {"id", "api", "class", "clean", "family", "model", "response_model", "request", "input_tokens", "source"}
)
CLASSES = ("text", "tools", "schema", "toolmsgs")
FOLDS = 5
LARGE = 200
"""Requests from this size on are those that the ceiling is judged by."""
SMALL = 100
"""Below this a token more or less weighs the same: a short prompt says little about a scale."""
STALE = 0.02
"""A figure is stale when its change moves the median request that has it by more than this share."""

ENOUGH = 6
"""A row with fewer groups is not fitted: its figures are its template's, or its relatives'."""
RAISE = 1000.0
"""By how much a figure is raised to see how often it occurs: the more, the less rounding matters."""

_CLAUDE = ("scale", "call", "tools.once", "tools.scale", "tools.forced")
FREE: Mapping[str, tuple[str, ...]] = {
    "claude-4-5": ("thinking", *_CLAUDE, "schema.once", "schema.scale"),
    "claude-4": ("thinking", *_CLAUDE),
    "claude-3-5": ("call", "tools.once"),
    "claude-3-5-haiku": ("tools.once", "tools.forced"),
    "claude-3-haiku": ("tools.once", "tools.forced"),
    "claude-3-sonnet": ("tools.once",),
    "claude-3-opus": ("scale", "tools.once"),
    "claude-5": ("scale", "tools.once", "tools.forced"),
    "claude-opus-4-7": ("tools.once",),
    "claude-opus-4-8": ("scale", "tools.once"),
    "gemini": ("tools.each", "tools.property"),
    "gemini-3": ("tools.each", "tools.property"),
    "gemini-2-0": ("tools.property", "schema.scale"),
    "llama-3": ("request", "message", "tools.once"),
    "llama-3-2-ollama": ("request", "tools.once"),
    "llama-4": ("tools.once",),
    "qwen-3": ("request", "tools.once"),
    "mistral": ("request", "message", "tools.each"),
    "mistral-small": ("request", "tools.once"),
    "deepseek-v4": ("request", "tools.once", "call"),
    "deepseek-v3": ("request",),
    "gemma": ("request",),
    "command-a": ("request", "scale", "call", "tools.once"),
    "command-r": ("request", "tools.once"),
    "command-r7b": ("tools.once", "call"),
    "nova": ("call", "tools.once"),
    "nova-2": ("request", "call", "tools.once"),
    "grok-4-3": ("request", "tools.once"),
    "grok-4-fast": ("request", "tools.once", "call"),
    "grok-4-fast-non-reasoning": ("request", "tools.once"),
    "gpt-oss": ("request", "message", "tools.once", "tools.scale"),
    "glm": ("request", "tools.once"),
    "glm-5": ("request", "tools.once"),
    "kimi": ("request", "tools.once"),
}


class Record(NamedTuple):
    """A recorded request, and what its provider counted."""

    group: str
    kind: str
    api: str
    request: Request
    actual: int
    model: str | None = None
    source: str = ""
    """The repository in which it was recorded."""
    label: str = ""
    """The provider's name in the recorded data: the scorer weighs groups within it."""


class Score(NamedTuple):
    """How well the records of one class are counted."""

    kind: str
    groups: int
    median: float
    p95: float
    large: int
    under: float
    excess: float | None


def main() -> int:
    """Prints every row's fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", default="", help="only rows whose name begins so")
    parser.add_argument("--markdown", action="store_true", help="only the table of docs/library/counting.md")
    parser.add_argument("--stale", action="store_true", help="exit with 1 where a figure is stale")
    options = parser.parse_args()
    data = os.environ.get("ULLAGE_DATA")
    path = Path(data or ".") / FILE
    if data is None or not path.is_file():
        print(f"derive_families: set ULLAGE_DATA to the directory that holds {FILE}", file=sys.stderr)
        return 2
    try:
        rows = by_row(read(path))
    except ValueError as error:
        print(f"derive_families: {path.name}: {error}", file=sys.stderr)
        return 2
    if options.markdown:
        print(markdown(rows))
        return 0
    stale = 0
    for name, records in sorted(rows.items()):
        if name.startswith(options.family):
            stale += report(name, records)
    return 1 if stale and options.stale else 0


# The records


def read(path: Path) -> Iterator[Record]:
    """Every clean record; ValueError for a file of another shape."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            entry = json.loads(line)
            if not isinstance(entry, dict) or entry.keys() < NEEDED:
                raise ValueError(f"line {number} is no record of recorded usage")
            if not entry["clean"] or entry["class"] not in CLASSES or entry["input_tokens"] < 1:
                continue
            try:
                request = wire.read(entry["request"], entry["api"])
            except UllageError as error:
                print(f"derive_families: {entry['id']} left out: {error}", file=sys.stderr)
                continue
            group = entry["id"].partition("-")[0]
            model = entry["response_model"] or entry["model"]
            yield Record(
                group,
                entry["class"],
                entry["api"],
                request,
                entry["input_tokens"],
                model,
                entry["source"],
                entry["family"],
            )


def by_row(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records by the row that counts their model."""
    rows: dict[str, list[Record]] = collections.defaultdict(list)
    for record in records:
        rows[family_of(record.model, record.api).name].append(record)
    return rows


def free_of(name: str, records: Sequence[Record]) -> tuple[str, ...]:
    """The figures of a row that are fitted: none where too few groups were recorded."""
    return FREE.get(name, ()) if len({record.group for record in records}) >= ENOUGH else ()


def weights(records: Sequence[Record]) -> list[float]:
    """One for each group and class, however often it was recorded."""
    times = collections.Counter((record.group, record.kind) for record in records)
    return [1 / times[record.group, record.kind] for record in records]


# The linear model


def occurrences(record: Record, row: Family, free: Sequence[str]) -> tuple[float, list[float]]:
    """(what the other figures make, how often each free one occurs), found by raising each by itself."""
    tokens = counted(row, record)[0]
    times = []
    for path in free:
        raised = with_figures(row, {path: figure(row, path) + RAISE})
        times.append((counted(raised, record)[0] - tokens) / RAISE)
    return tokens - sum(figure(row, path) * n for path, n in zip(free, times, strict=True)), times


def figure(row: Family, path: str) -> float:
    """A figure of the row: `scale`, `roles.tool`, `tools.once`."""
    head, _, tail = path.partition(".")
    value: Any = getattr(row, head)
    if tail:
        value = value[tail] if isinstance(value, Mapping) else getattr(value, tail)
    return float(row.scale if value is None else value)


def with_figures(row: Family, figures: Mapping[str, float]) -> Family:
    """The row with these figures in place of its own, rounded as the table has them."""
    for path, value in figures.items():
        head, _, tail = path.partition(".")
        rounded: Any = round(value, 3) if path.endswith("scale") else round(value)
        if tail:
            rounded = dataclasses.replace(getattr(row, head), **{tail: rounded})
        changed: dict[str, Any] = {head: rounded}
        row = dataclasses.replace(row, **changed)
    return row


def fit(records: Sequence[Record], row: Family, free: Sequence[str]) -> dict[str, float]:
    """The free figures with the least absolute relative error, all others as the row has them."""
    if len({record.group for record in records}) < ENOUGH:
        return {}
    seen = [occurrences(record, row, free) for record in records]
    targets = [record.actual - rest for record, (rest, _) in zip(records, seen, strict=True)]
    shares = [
        weight / max(record.actual, SMALL) for weight, record in zip(weights(records), records, strict=True)
    ]
    start = [figure(row, path) for path in free]
    return dict(zip(free, least_absolute([n for _, n in seen], targets, shares, start), strict=True))


def least_absolute(
    columns: Sequence[Sequence[float]],
    targets: Sequence[float],
    shares: Sequence[float],
    start: Sequence[float],
    rounds: int = 60,
) -> list[float]:
    """The values with the least sum of |columns · values − target| · share, by reweighted least squares."""
    values = list(start)
    for _ in range(rounds):
        size = range(len(values))
        matrix = [[0.0] * len(values) for _ in size]
        right = [0.0] * len(values)
        for row, target, share in zip(columns, targets, shares, strict=True):
            miss = abs(sum(x * value for x, value in zip(row, values, strict=True)) - target)
            pull = share / max(miss, 0.5)
            for i in size:
                if row[i]:
                    right[i] += pull * row[i] * target
                    for j in size:
                        matrix[i][j] += pull * row[i] * row[j]
        for i in size:
            # A figure that nothing pulls at stays where it was.
            hold = 1e-9 + 1e-6 * matrix[i][i]
            matrix[i][i] += hold
            right[i] += hold * start[i]
        values = solve(matrix, right)
    return values


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a small system of linear equations."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(size):
            if r != i and rows[r][i]:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    return [line[-1] / line[i] for i, line in enumerate(rows)]


# How good it is


def counted(row: Family, record: Record) -> tuple[int, int]:
    """(tokens, ceiling) of a request by this row."""
    count = count_read(Counter(row, measures_of(row, None)), record.request)
    return count.tokens, count.ceiling


def cross_validated(name: str, records: Sequence[Record], free: Sequence[str]) -> list[tuple[int, int]]:
    """(tokens, ceiling) of each record, by figures that its own group had no part in."""
    hand = [int(record.group, 16) % FOLDS for record in records]
    figures: list[dict[str, float]] = []
    for fold in range(FOLDS):
        others = [record for record, own in zip(records, hand, strict=True) if own != fold]
        figures.append(fit(others, family(name), free))
    return [
        counted(_with_free_figures(row_of(record), figures[own]), record)
        for record, own in zip(records, hand, strict=True)
    ]


def row_of(record: Record) -> Family:
    """The row that counts the record, through its API and at its host."""
    return family_of(record.model, record.api)


def _with_free_figures(row: Family, figures: Mapping[str, float]) -> Family:
    """The row with these figures, but for those that it gives separately for its API or host."""
    plain = family(row.name)
    return with_figures(
        row, {path: value for path, value in figures.items() if figure(plain, path) == figure(row, path)}
    )


def scores(records: Sequence[Record], results: Sequence[tuple[int, int]]) -> Iterator[Score]:
    """A score for each class."""
    for kind in CLASSES:
        chosen = [(r, c) for r, c in zip(records, results, strict=True) if r.kind == kind]
        if not chosen:
            continue
        shares = weights([record for record, _ in chosen])
        errors = [abs(cost[0] - record.actual) / record.actual for record, cost in chosen]
        large = [(r, c) for r, c in chosen if r.actual >= LARGE]
        heavy = weights([record for record, _ in large])
        under = sum(w for (r, c), w in zip(large, heavy, strict=True) if c[1] < r.actual)
        excess = [(c[1] - r.actual) / r.actual for r, c in large]
        yield Score(
            kind,
            round(sum(shares)),
            quantile(errors, shares, 0.5),
            quantile(errors, shares, 0.95),
            round(sum(heavy)),
            under,
            quantile(excess, heavy, 0.5) if excess else None,
        )


def quantile(values: Sequence[float], shares: Sequence[float], at: float) -> float:
    """The weighted quantile."""
    total, seen = sum(shares), 0.0
    for value, share in sorted(zip(values, shares, strict=True)):
        seen += share
        if seen >= at * total - 1e-9:
            return value
    return max(values)


# What is printed


def report(name: str, records: Sequence[Record]) -> int:
    """Prints one row; the number of figures that are stale."""
    groups = len({record.group for record in records})
    free = free_of(name, records)
    now = list(scores(records, [counted(row_of(record), record) for record in records]))
    anew = list(scores(records, cross_validated(name, records, free))) if free else now
    print(f"\n{name}: {len(records)} requests of {groups} groups, by {family(name).vocabulary}")
    print(
        f"  {'':10}{'groups':>7}  {'table: median':>13}{'p95':>7}  {'fitted: median':>14}{'p95':>7}", end=""
    )
    print(f"  {'large':>6}{'too low':>9}{'excess':>8}")
    for table, fitted in zip(now, anew, strict=True):
        print(f"  {table.kind:10}{table.groups:>7}  {table.median:>13.1%}{table.p95:>7.1%}", end="")
        print(f"  {fitted.median:>14.1%}{fitted.p95:>7.1%}  {table.large:>6}{table.under:>9.2f}", end="")
        print(f"{'' if table.excess is None else f'{table.excess:>8.1%}'}")
    return figures_report(family(name), [r for r in records if _is_plain(r)], free)


def _is_plain(record: Record) -> bool:
    """Whether the record is charged by the row's own figures, whatever its API and host."""
    row = row_of(record)
    plain = family(row.name)
    return all(figure(plain, path) == figure(row, path) for path in FREE.get(row.name, ()))


def figures_report(row: Family, records: Sequence[Record], free: Sequence[str]) -> int:
    """Prints the fitted figures beside the table's; the number that are stale."""
    stale = 0
    figures = fit(records, row, free)
    seen = [occurrences(record, row, free)[1] for record in records] if figures else []
    for i, (path, value) in enumerate(figures.items()):
        has = figure(row, path)
        moved = [abs(value - has) * n[i] / r.actual for r, n in zip(records, seen, strict=True) if n[i]]
        old = bool(moved) and quantile(moved, [1.0] * len(moved), 0.5) > STALE
        stale += old
        print(f"  {path:16}{has:>8g}   fit {value:>8.4g}   in {len(moved)} requests{'  *' if old else ''}")
    return stale


# The table of the documentation

MAKERS: Mapping[str, tuple[str, ...]] = {
    "OpenAI": ("gpt-4", "gpt-5", "gpt-0301", "o-series", "o1", "o3"),
    "Claude": ("claude",),
    "Gemini": ("gemini",),
    "Llama": ("llama",),
    "gpt-oss": ("gpt-oss",),
    "Mistral": ("mistral",),
    "DeepSeek": ("deepseek",),
    "Qwen": ("qwen",),
    "Gemma": ("gemma",),
    "Cohere": ("command",),
    "Amazon Nova": ("nova",),
    "Grok": ("grok",),
    "GLM, Kimi, others": ("glm", "kimi", "phi", "smollm", "unknown"),
}


def markdown(rows: Mapping[str, Sequence[Record]]) -> str:
    """How exact the counts are, by maker and class, cross-validated where figures are fitted."""
    lines = [
        "| family | class | groups | median error | 95 % within | large groups | too low | excess |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for maker, prefixes in MAKERS.items():
        names = [name for name in rows if name.startswith(prefixes)]
        chosen = [record for name in names for record in rows[name]]
        results = [
            result
            for name in names
            for result in cross_validated(name, rows[name], free_of(name, rows[name]))
        ]
        for score in scores(chosen, results):
            if score.groups < ENOUGH:
                continue
            low = f"{score.under:.1f}" if score.under else "0"
            excess = "" if score.excess is None else f"{score.excess:.0%}"
            lines.append(
                f"| {maker} | {score.kind} | {score.groups} | {score.median:.1%} | {score.p95:.0%}"
                f" | {score.large} | {low} | {excess} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
