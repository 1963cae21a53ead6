"""Prints results of `count` and `fit` for people: a single one in full, several as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import set_cell_size
from rich.text import Text

from ullage.batch.source import STDIN
from ullage.cli.plain_view import describe_changes
from ullage.text import one_line, printable
from ullage.window_chart import amount, bar, console, draw_change, legend, put, short, with_free

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from ullage.batch.job import Job
    from ullage.batch.outcome import Outcome


class ResultTable:
    """Prints results: a single one in full, several as one row each and a total."""

    def __init__(self, job: Job) -> None:
        self._out = console()
        self._kind = _KINDS[job.command]
        self._first: Outcome | None = None
        self._rows = 0
        self._total: dict[str, int] = {}
        self._blocks: dict[str, int] = {}

    def show(self, done: Outcome) -> None:
        """Shows the next result; the first one is held back until it is known whether there are more."""
        if self._rows == 0:
            self._first = done
        elif self._first is not None:
            self._put("", "", self._kind.heading, "bold")
            self._row(self._first)
            self._first = None
        self._rows += 1
        if self._first is None:
            self._row(done)

    def _row(self, done: Outcome) -> None:
        if done.problem:
            self._put(_place(done), "", done.result["type"], "red")
            return
        _add(self._total, {name: done.result[name] for name in self._kind.summed})
        _add(self._blocks, done.result[self._kind.blocks])
        self._put(_place(done), done.model, self._kind.figures(done.result))

    def _put(self, place: str, model: str, figures: str, style: str = "") -> None:
        row = _row(self._out, place, model, figures, len(self._kind.heading))
        row.stylize(style)
        put(self._out, row)

    def end(self) -> None:
        """Draws the only result in full, or the total under the rows."""
        if self._first is not None:
            if not self._first.problem:
                self._kind.draw(self._out, self._first)
        elif self._rows:
            self._put(f"{self._rows:,} requests", "", self._kind.figures(self._total), "bold")
            whole = sum(self._blocks.values())
            put(self._out, bar(self._out, with_free(self._blocks, None), self._out.width - 1, whole))
            legend(self._out, self._blocks, whole=whole)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, figure in more.items():
        total[name] = total.get(name, 0) + figure


def _place(done: Outcome) -> str:
    file = "stdin" if done.source == STDIN else Path(done.source).name
    return f"{file}:{done.number}" + (f" {done.name}" if done.name else "")


def _row(out: Console, place: str, model: str, figures: str, room: int) -> Text:
    """Returns a row with aligned columns; `room` is the width of the figures."""
    wide = out.width >= 80
    left = max(8, (out.width - room - 4) // 2 if wide else out.width - room - 2)
    columns = [_column(place, left), *([_column(model, left)] if wide else []), printable(figures)]
    return Text(short("  ".join(columns), out.width), no_wrap=True)


def _column(text: str, width: int) -> str:
    return set_cell_size(short(one_line(text), width), width)


def _draw_count(out: Console, done: Outcome) -> None:
    found = done.result
    window = found["window"]
    blocks = with_free(found["breakdown"], window)
    whole = max(window or 0, found["tokens"])
    _title(out, done, amount(found["tokens"], found["ceiling"], exact=found["exact"]))
    put(out, bar(out, blocks, out.width - 1, whole))
    legend(out, blocks, whole=whole)
    if window is None:
        out.print(
            Text(f"  the window of {one_line(done.model)} is unknown; set it with --limit N", style="dim")
        )
    elif found["ceiling"] > window:
        out.print(Text(f"  exceeds the window of {window:,} tokens: use ullage fit", style="bold red"))


def _draw_fit(out: Console, done: Outcome) -> None:
    found = done.result
    _title(out, done, f"limit {found['limit']:,}")
    draw_change(out, found["before"], found["after"], found["limit"])
    put(out, Text("  " + describe_changes(found)))
    if found["changed"]:
        put(out, Text("  ullage explain shows the reasons, --json prints the fitted request", style="dim"))


def _title(out: Console, done: Outcome, more: str) -> None:
    parts = ["standard input" if done.source == STDIN else done.source, done.name, done.model, more]
    title = Text(" · ".join(one_line(part) for part in parts if part), no_wrap=True, overflow="ellipsis")
    title.stylize("bold", 0, len(one_line(parts[0])))
    put(out, title)


class _Kind(NamedTuple):
    """The display of one command's results."""

    heading: str
    figures: Any
    """Returns the columns for a result."""
    summed: tuple[str, ...]
    """Names of the figures that are summed in the total."""
    blocks: str
    """Name of the breakdown that is drawn under the total."""
    draw: Any
    """Draws a single result in full."""


def _count_figures(found: Mapping[str, Any]) -> str:
    return f"{found.get('tokens', 0):>13,}{found.get('ceiling', 0):>13,}"


def _fit_figures(found: Mapping[str, Any]) -> str:
    names = ("tokens_before", "tokens_after", "dropped", "truncated")
    before, after, dropped, truncated = (found.get(name, 0) for name in names)
    return f"{before:>12,}{after:>12,}{dropped:>9,}{truncated:>10,}"


_KINDS = {
    "count": _Kind(
        f"{'tokens':>13}{'at most':>13}", _count_figures, ("tokens", "ceiling"), "breakdown", _draw_count
    ),
    "fit": _Kind(
        f"{'before':>12}{'after':>12}{'dropped':>9}{'shortened':>10}",
        _fit_figures,
        ("tokens_before", "tokens_after", "dropped", "truncated"),
        "after",
        _draw_fit,
    ),
}
