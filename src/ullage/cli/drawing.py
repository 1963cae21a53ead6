"""What fills the window, drawn for people: bars, tables, and texts that cannot harm a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ullage.cli.reading import STDIN, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from ullage.cli.work import Job, Outcome


class Block(NamedTuple):
    """How a block of the breakdown is drawn."""

    colour: str
    glyph: str
    """Its cells where there is no colour."""


BLOCKS = {
    "system": Block("blue", "█"),
    "tools": Block("magenta", "▓"),
    "summary": Block("yellow", "▒"),
    "memory": Block("green", "▚"),
    "project": Block("cyan", "▞"),
    "turns": Block("bright_blue", "░"),
    "free": Block("bright_black", "·"),
}
PLAIN_WIDTH = 100
WIDEST = 120
"""Lines longer than this are hard to read on any screen."""


def console() -> Console:
    """Standard output: in colour on a terminal unless NO_COLOR says otherwise, plain text elsewhere."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal that lacks a character shows a question mark
    made = Console(
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=False,
    )
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PLAIN_WIDTH
    made.width = min(made.width, WIDEST)
    return made


def put(out: Console, *shown: RenderableType) -> None:
    """Prints; in plain text without the blanks that fill a line up."""
    if out.is_terminal:
        out.print(*shown)
        return
    with out.capture() as captured:
        out.print(*shown)
    out.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def clean(text: str) -> str:
    """Text as words with single blanks between them, and nothing that a terminal would obey."""
    return " ".join(printable(text).split())


def short(text: str, width: int) -> str:
    """Text in at most `width` cells, with an ellipsis where something is missing."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def bar(out: Console, blocks: Mapping[str, int], width: int, scale: int) -> Text:
    """The blocks as cells of a line, `scale` tokens to the whole; a block that is there is seen."""
    cells = _cells([tokens for tokens in blocks.values() if tokens > 0], width, scale)
    drawn = Text(no_wrap=True, overflow="crop")
    for name, count in zip((name for name, tokens in blocks.items() if tokens > 0), cells, strict=True):
        drawn.append(_glyph(out, name) * count, style=BLOCKS[name].colour)
    return drawn


def _cells(tokens: list[int], width: int, scale: int) -> list[int]:
    """Cells for each of these figures, at least one each, rounded so that their sum is right."""
    cells, total, used = [], 0, 0
    for each in tokens:
        total += each
        upto = round(width * total / max(1, scale))
        cells.append(max(1, upto - used))
        used += cells[-1]
    while sum(cells) > max(width, len(cells)):
        cells[cells.index(max(cells))] -= 1
    return cells


def _glyph(out: Console, name: str) -> str:
    coloured = out.is_terminal and out.color_system is not None
    return "█" if coloured and name != "free" else BLOCKS[name].glyph


def limit_mark(cells: int, limit: int) -> Text:
    """A tick under the cell of a bar where the limit is, named where there is room before it."""
    name = f"limit {limit:,} "
    return Text(f"{name if len(name) < cells else '':>{max(0, cells - 1)}}╵", style="dim", no_wrap=True)


def with_free(blocks: Mapping[str, int], window: int | None) -> dict[str, int]:
    """The blocks, and what is left of the window after them."""
    filled = {name: blocks.get(name, 0) for name in BLOCKS if name != "free"}
    free = 0 if window is None else max(0, window - sum(filled.values()))
    return {**filled, "free": free}


def legend(out: Console, *columns: Mapping[str, int], whole: int) -> None:
    """The blocks in figures: one column of tokens for each mapping, the last one with its share."""
    for name, block in BLOCKS.items():
        figures = [column.get(name, 0) for column in columns]
        if not any(figures):
            continue
        line = Text("  ")
        line.append(_glyph(out, name), style=block.colour)
        line.append(f" {name:<8}")
        for figure in figures:
            line.append(f"{figure:>11,}")
        line.append(f"{figures[-1] / max(1, whole):>7.0%}", style="dim")
        put(out, line)


def amount(tokens: int, ceiling: int, *, exact: bool) -> str:
    """A count in words that say how sure it is."""
    return f"{tokens:,} tokens" if exact else f"about {tokens:,} tokens, at most {ceiling:,}"


# Results ---------------------------------------------------------------------------------------------


class Table:
    """Results as they come: one is drawn in full, many have a row each and a total."""

    def __init__(self, job: Job) -> None:
        self._out = console()
        self._kind = _KINDS[job.command]
        self._first: Outcome | None = None
        self._rows = 0
        self._total: dict[str, int] = {}
        self._blocks: dict[str, int] = {}

    def show(self, done: Outcome) -> None:
        """Takes the next result; the first waits to see whether it is the only one."""
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
        if done.code:
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
            if not self._first.code:
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
    """A row whose columns stand under those of every other row; `room` is for the figures."""
    wide = out.width >= 80
    left = max(8, (out.width - room - 4) // 2 if wide else out.width - room - 2)
    columns = [_column(place, left), *([_column(model, left)] if wide else []), printable(figures)]
    return Text(short("  ".join(columns), out.width), no_wrap=True)


def _column(text: str, width: int) -> str:
    return set_cell_size(short(clean(text), width), width)


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
            Text(f"  the window of {clean(done.model)} is not known; --limit N draws against it", style="dim")
        )
    elif found["ceiling"] > window:
        out.print(
            Text(f"  over the {window:,} tokens of the window: ullage fit makes it fit", style="bold red")
        )


def _draw_fit(out: Console, done: Outcome) -> None:
    found = done.result
    _title(out, done, f"limit {found['limit']:,}")
    draw_change(out, found["before"], found["after"], found["limit"])
    put(out, Text("  " + _summary(found)))
    if found["changed"]:
        put(out, Text("  ullage explain tells why, --json prints the request", style="dim"))


def _title(out: Console, done: Outcome, more: str) -> None:
    parts = ["standard input" if done.source == STDIN else done.source, done.name, done.model, more]
    title = Text(" · ".join(clean(part) for part in parts if part), no_wrap=True, overflow="ellipsis")
    title.stylize("bold", 0, len(clean(parts[0])))
    put(out, title)


def draw_change(out: Console, before: Mapping[str, int], after: Mapping[str, int], limit: int) -> None:
    """Two bars of one scale, before and after, and the figures of both."""
    used_before, used_after = sum(before.values()), sum(after.values())
    scale = max(used_before, limit)
    width = max(8, out.width - 20)
    fitted = with_free(after, limit)
    for title, blocks, used in (("before", before, used_before), ("after", fitted, used_after)):
        line = Text(f"{title:>6} ")
        drawn = bar(out, blocks, width, scale)
        line.append_text(drawn)
        line.append(f" {used:,}", style="bold")
        line.no_wrap = True
        put(out, line)
    if used_before > limit:
        put(out, limit_mark(7 + round(width * limit / scale), limit))
    put(out, Text(f"  {'':<10}{'before':>11}{'after':>11}", style="dim"))
    legend(out, with_free(before, None), fitted, whole=limit)


def _summary(found: Mapping[str, Any]) -> str:
    if not found["changed"]:
        return "fits as it is"
    return f"{found['dropped']:,} messages taken out, {found['truncated']:,} shortened"


class _Kind(NamedTuple):
    """How the results of one command are told."""

    heading: str
    figures: Any
    """From a result to its columns."""
    summed: tuple[str, ...]
    blocks: str
    """The breakdown that is drawn under the total."""
    draw: Any
    """A result, drawn in full."""


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
