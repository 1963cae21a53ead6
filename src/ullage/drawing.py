"""What fills the window, drawn for people: bars, tables, and texts that cannot harm a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ullage.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType


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
