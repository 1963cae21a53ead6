"""What was spent, by day, model, project, category or session: as a table, as JSON, as CSV.

An unknown cost is a question mark in a table, null in JSON and empty in CSV, never 0. Where only some calls
of a line have a known cost, the table says how many have not: `1.2300 + 4 unpriced`.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ullage.cost.book import Account, Entry
from ullage.cost.sums import total
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

GROUPS = ("day", "model", "project", "category", "session")
"""What lines can be made by."""
COUNTS = tuple(field.name for field in fields(Entry) if field.name != "cost")
HIDDEN_WHERE_ZERO = frozenset({"cached_read", "cache_write", "reasoning"})
"""Columns of a table that many books have nothing in."""
COLUMNS = ("calls", "prompt", "cached_read", "cache_write", "completion", "reasoning")
FINEST = Decimal("0.0001")
"""What a table shows of a cost."""


@dataclass(frozen=True, slots=True)
class Line:
    """The sum of the calls that share a group."""

    group: tuple[str, ...]
    """The values, in the order in which they were asked for."""
    entry: Entry


@dataclass(frozen=True, slots=True)
class Report:
    """Lines in the order of their groups, and their sum."""

    by: tuple[str, ...]
    lines: tuple[Line, ...]
    total: Entry


def report(entries: Iterable[tuple[Account, Entry]], by: Sequence[str] = ("day", "model")) -> Report:
    """The entries summed by any of day, model, project, category and session."""
    unknown = [each for each in by if each not in GROUPS]
    if unknown:
        raise ConfigurationError(f"a report is made by {', '.join(GROUPS)}; {unknown[0]!r} is none of these")
    wanted = tuple(dict.fromkeys(by))
    groups: defaultdict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for account, entry in entries:
        groups[tuple(getattr(account, each) for each in wanted)].append(entry)
    lines = tuple(Line(group, total(groups[group])) for group in sorted(groups))
    # Where there were no calls it is known what they cost.
    whole = total(line.entry for line in lines) if lines else Entry(cost=Decimal(0))
    return Report(wanted, lines if wanted else (), whole)


def as_table(made: Report, shown: Callable[[str], str] = str) -> str:
    """The report for people, in columns; `shown` makes a name fit to be printed."""
    columns = [each for each in COLUMNS if each not in HIDDEN_WHERE_ZERO or getattr(made.total, each, 0) > 0]
    heads = [*made.by, *(each.replace("_", " ") for each in columns), "dollars"]
    rows = [
        [*(shown(name) or "-" for name in line.group), *_figures(line.entry, columns)] for line in made.lines
    ]
    last = ["total", *[""] * (len(made.by) - 1)] if made.by else []
    return _aligned([heads, *rows, [*last, *_figures(made.total, columns)]], len(made.by))


def as_json(made: Report) -> bytes:
    """The report as one JSON object; costs are numbers with all their digits."""
    import orjson  # noqa: PLC0415 - only who asks for JSON pays for it

    lines = [
        {**dict(zip(made.by, map(_writable, line.group), strict=True)), **_values(line.entry)}
        for line in made.lines
    ]
    return orjson.dumps({"by": made.by, "lines": lines, "total": _values(made.total)})


def as_csv(made: Report) -> str:
    """The lines as CSV with a head; the total is left to whoever sums the columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*made.by, *COUNTS, "cost"])
    for line in made.lines:
        counts = (getattr(line.entry, name) for name in COUNTS)
        writer.writerow([*line.group, *counts, "" if line.entry.cost is None else _digits(line.entry.cost)])
    return out.getvalue()


def shown_cost(entry: Entry) -> str:
    """A cost for people, in dollars: what is known of it, and for how many calls it is not."""
    if entry.cost is None:
        return "?"
    small = 0 < entry.cost < FINEST
    known = f"<{FINEST}" if small else f"{entry.cost:,.4f}"
    return f"{known} + {entry.unpriced:,} unpriced" if entry.unpriced else known


def _figures(entry: Entry, columns: Sequence[str]) -> list[str]:
    return [*(f"{getattr(entry, each):,}" for each in columns), shown_cost(entry)]


def _values(entry: Entry) -> dict[str, Any]:
    import orjson  # noqa: PLC0415 - see above

    cost = None if entry.cost is None else orjson.Fragment(_digits(entry.cost))
    return {**{name: getattr(entry, name) for name in COUNTS}, "cost": cost}


def _writable(name: str) -> str:
    """The name with a question mark for each half of a character, which UTF-8 cannot write."""
    return name.encode("utf-8", "replace").decode()


def _digits(amount: Decimal) -> str:
    """All digits of an amount, without an exponent and without zeros at the end."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _aligned(rows: list[list[str]], names: int) -> str:
    """Columns of equal width: the names to the left, the figures to the right."""
    from rich.cells import cell_len  # noqa: PLC0415 - only a table needs to know how wide a letter is

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - cell_len(cell))
            cells.append(cell + blanks if place < names else blanks + cell)
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)
