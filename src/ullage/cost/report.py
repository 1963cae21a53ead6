"""Sums of costs by day, model, project, category, session or key, as a table, bars, JSON or CSV.

An unknown cost is a question mark in a table, null in JSON and empty in CSV, never 0. If only some calls of a
line have a known cost, the table shows the number of the others: `1.2300 + 4 unpriced`.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from dataclasses import dataclass, fields
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError
from ullage.extras import require
from ullage.usage import LedgerEntry, sum_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ullage.cost.book import Account


GROUPS = ("day", "model", "project", "category", "session", "key")
"""Names that a report can group by."""
COUNTS = tuple(field.name for field in fields(LedgerEntry) if field.name != "cost")
HIDDEN_WHERE_ZERO = frozenset({"cached_read", "cache_write", "reasoning", "estimated_calls"})
"""Columns that a table leaves out if they are all zero."""
COLUMNS = ("calls", "estimated_calls", "prompt", "cached_read", "cache_write", "completion", "reasoning")
FINEST = Decimal("0.0001")
"""Precision of costs in a table, in dollars."""


@dataclass(frozen=True, slots=True)
class ReportLine:
    """The sum of the calls of one group."""

    group: tuple[str, ...]
    """Values of the group, in the order of `CostReport.by`."""
    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class CostReport:
    """Lines sorted by group, and their sum."""

    by: tuple[str, ...]
    lines: tuple[ReportLine, ...]
    total: LedgerEntry


def report(
    entries: Iterable[tuple[Account, LedgerEntry]], by: Sequence[str] = ("day", "model")
) -> CostReport:
    """Sums the entries by any of day, model, project, category, session and key."""
    unknown = [each for each in by if each not in GROUPS]
    if unknown:
        raise ConfigurationError(f"cannot group a report by {unknown[0]!r}; use {', '.join(GROUPS)}")
    wanted = tuple(dict.fromkeys(by))
    groups: defaultdict[tuple[str, ...], list[LedgerEntry]] = defaultdict(list)
    for account, entry in entries:
        groups[tuple(getattr(account, each) for each in wanted)].append(entry)
    lines = tuple(ReportLine(group, sum_entries(groups[group])) for group in sorted(groups))
    # Without calls, the cost is known to be 0.
    whole = sum_entries(line.entry for line in lines) if lines else LedgerEntry(cost=Decimal(0))
    return CostReport(wanted, lines if wanted else (), whole)


def as_table(made: CostReport, shown: Callable[[str], str] = str) -> str:
    """Returns the report as aligned columns for people; `shown` makes a name safe to print."""
    columns = [each for each in COLUMNS if each not in HIDDEN_WHERE_ZERO or getattr(made.total, each, 0) > 0]
    heads = [*made.by, *(each.replace("_", " ") for each in columns), "dollars"]
    rows = [
        [*(shown(name) or "-" for name in line.group), *_figures(line.entry, columns)] for line in made.lines
    ]
    last = ["total", *[""] * (len(made.by) - 1)] if made.by else []
    return _align_columns([heads, *rows, [*last, *_figures(made.total, columns)]], len(made.by))


def as_json(made: CostReport) -> bytes:
    """Returns the report as one JSON object; costs are numbers with all digits."""
    import orjson  # noqa: PLC0415 - loaded only for JSON

    lines = [
        {**dict(zip(made.by, map(_writable, line.group), strict=True)), **_values(line.entry)}
        for line in made.lines
    ]
    return orjson.dumps({"by": made.by, "lines": lines, "total": _values(made.total)})


def as_csv(made: CostReport) -> str:
    """Returns the lines as CSV with a header, without the total."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*made.by, *COUNTS, "cost"])
    for line in made.lines:
        counts = (getattr(line.entry, name) for name in COUNTS)
        writer.writerow([*line.group, *counts, "" if line.entry.cost is None else _digits(line.entry.cost)])
    return out.getvalue()


def describe_cost(entry: LedgerEntry) -> str:
    """Returns a cost for people in dollars, with the number of calls whose cost is unknown."""
    if entry.cost is None:
        return "?"
    small = 0 < entry.cost < FINEST
    known = f"<{FINEST}" if small else f"{entry.cost:,.4f}"
    return f"{known} + {entry.unpriced:,} unpriced" if entry.unpriced else known


def _figures(entry: LedgerEntry, columns: Sequence[str]) -> list[str]:
    return [*(f"{getattr(entry, each):,}" for each in columns), describe_cost(entry)]


def _values(entry: LedgerEntry) -> dict[str, Any]:
    import orjson  # noqa: PLC0415 - see above

    cost = None if entry.cost is None else orjson.Fragment(_digits(entry.cost))
    return {**{name: getattr(entry, name) for name in COUNTS}, "cost": cost}


def _writable(name: str) -> str:
    """Returns the name with a question mark for each lone surrogate, which UTF-8 cannot encode."""
    return name.encode("utf-8", "replace").decode()


def _digits(amount: Decimal) -> str:
    """Returns all digits of an amount, without an exponent and trailing zeros."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _align_columns(rows: list[list[str]], names: int) -> str:
    """Returns columns of equal width: names aligned left, figures right."""
    require("shell", "rich")
    from rich.cells import cell_len  # noqa: PLC0415 - only a table needs the width of characters

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - cell_len(cell))
            cells.append(cell + blanks if place < names else blanks + cell)
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


# Bars ---------------------------------------------------------------------------------------------------

BAR = "█"
WIDEST, NARROWEST = 40, 6
"""The most cells of a bar, and the fewest for which bars are drawn."""


def bars_of(costs: Sequence[Decimal | None], room: int) -> list[str]:
    """Returns a bar for each cost, on one scale; at least one cell for a cost above 0, none if it is unknown.

    Without enough room all bars are empty.
    """
    cells, largest = min(WIDEST, room), max(filter(None, costs), default=Decimal(0))
    if cells < NARROWEST or not largest:
        return [""] * len(costs)
    return [BAR * max(1, round(cells * cost / largest)) if cost else "" for cost in costs]


def add_bars(table: str, made: CostReport, width: int) -> str:
    """Returns the table of a report with a bar behind each line; its heads and its total have none."""
    heads, *rows, total = table.splitlines()
    longest = max(map(len, (heads, *rows, total)))
    bars = bars_of([line.entry.cost for line in made.lines], width - longest - 2)
    lines = (f"{row:<{longest}}  {bar}".rstrip() for row, bar in zip(rows, bars, strict=True))
    return "\n".join([heads, *lines, total]) + "\n"


def draw_days(made: CostReport, today: str, days: int, width: int) -> Iterator[str]:
    """Yields a line with a bar for each of the last days, also for a day without calls."""
    entries = {line.group[0]: line.entry for line in made.lines}
    last = date.fromisoformat(today)
    shown = [(last - timedelta(days=before)).isoformat() for before in reversed(range(days))]
    nothing = LedgerEntry(cost=Decimal(0))
    found = [entries.get(day, nothing) for day in shown]
    costs = [describe_cost(entry) for entry in found]
    wide = max(map(len, costs))
    bars = bars_of([entry.cost for entry in found], width - 14 - wide)
    for day, cost, bar in zip(shown, costs, bars, strict=True):
        yield f"{day}  {cost:>{wide}}  {bar}".rstrip()
