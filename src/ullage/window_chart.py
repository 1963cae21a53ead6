"""Charts of the window and of search hits: bars, tables, and text without control characters."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ullage.text import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from rich.console import RenderableType

    from ullage.context.search import Hit, Said


class Block(NamedTuple):
    """The colour and the character that draw a block of the breakdown."""

    colour: str
    glyph: str
    """The character for output without colour."""


BLOCKS = {
    "system": Block("blue", "█"),
    "tools": Block("magenta", "▓"),
    "summary": Block("yellow", "▒"),
    "memory": Block("green", "▚"),
    "project": Block("cyan", "▞"),
    "recalled": Block("bright_cyan", "▤"),
    "turns": Block("bright_blue", "░"),
    "pending": Block("bright_yellow", "▨"),
    "free": Block("bright_black", "·"),
}
"""Block of the breakdown → how it is drawn, in the order of the bar."""
PLAIN_WIDTH = 100
"""Columns of output that does not go to a terminal."""
WIDEST = 120
"""The most columns of a line; longer lines are hard to read."""


def console() -> Console:
    """Returns a console on standard output, in colour on a terminal unless NO_COLOR is set."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a character that the encoding lacks becomes a question mark
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
    """Prints to the console; plain text has no trailing blanks."""
    if out.is_terminal:
        out.print(*shown)
        return
    with out.capture() as captured:
        out.print(*shown)
    out.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def short(text: str, width: int) -> str:
    """Shortens a text to at most `width` cells, with an ellipsis at its end."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def bar(out: Console, blocks: Mapping[str, int], width: int, scale: int) -> Text:
    """Draws the blocks as a bar of `width` cells for `scale` tokens; every block has at least one cell."""
    cells = _cells([tokens for tokens in blocks.values() if tokens > 0], width, scale)
    drawn = Text(no_wrap=True, overflow="crop")
    for name, count in zip((name for name, tokens in blocks.items() if tokens > 0), cells, strict=True):
        drawn.append(_glyph(out, name) * count, style=BLOCKS[name].colour)
    return drawn


def _cells(tokens: list[int], width: int, scale: int) -> list[int]:
    """Returns the number of cells of each figure, at least one, rounded so that their sum is right."""
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
    """Draws a tick under the cell of a bar at which the limit is, with the limit's value if there is room."""
    name = f"limit {limit:,} "
    return Text(f"{name if len(name) < cells else '':>{max(0, cells - 1)}}╵", style="dim", no_wrap=True)


def with_free(blocks: Mapping[str, int], window: int | None) -> dict[str, int]:
    """Returns the blocks in drawing order, and the free rest of the window as the block `free`."""
    filled = {name: blocks.get(name, 0) for name in BLOCKS if name != "free"}
    free = 0 if window is None else max(0, window - sum(filled.values()))
    return {**filled, "free": free}


def legend(out: Console, *columns: Mapping[str, int], whole: int) -> None:
    """Prints a row for each block: its tokens in each mapping, and the last figure as a share of `whole`."""
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
    """Describes a count: its tokens, and its ceiling if it is not exact."""
    return f"{tokens:,} tokens" if exact else f"about {tokens:,} tokens, at most {ceiling:,}"


def draw_change(out: Console, before: Mapping[str, int], after: Mapping[str, int], limit: int) -> None:
    """Prints two bars of the same scale, before and after a trim, and the figures of both."""
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


# Hits of a search ---------------------------------------------------------------------------------------

HIT_CHARS = 800
"""The most characters of a hit that are shown; a search for its handle shows the whole text."""


def draw_hit(
    hit: Hit, sought: Collection[str], width: int, *, handle: int, session: bool = False
) -> Iterator[RenderableType]:
    """Draws a hit: handle, role and date, the text with matching words in bold, and the turns beside it."""
    from ullage.context.search import find_words, take_excerpt  # noqa: PLC0415 - only a search needs it

    origin = "".join(
        f"  {one_line(each)}" for each in (hit.role, hit.date, hit.session if session else "") if each
    )
    head = Text(hit.handle[:handle], style="bold cyan", no_wrap=True)
    yield head.append(short(origin, max(8, width - handle)), style="not bold dim")
    yield from _draw_beside("before", hit.before, width)
    lines = map(one_line, take_excerpt(hit.text, sought, HIT_CHARS, len).splitlines())
    shown = Text("\n".join(filter(None, lines)))
    for begin, end in find_words(shown.plain, sought):
        shown.stylize("bold", begin, end)
    yield Padding(shown, (0, 0, 0, 2), expand=False)
    yield from _draw_beside("after", hit.after, width)


def _draw_beside(where: str, said: Said | None, width: int) -> Iterator[Text]:
    if said is not None and (text := one_line(said.text)):
        yield Text(short(f"  {where}, {one_line(said.role)}: {text}", width), style="dim", no_wrap=True)


def tell_apart(handles: Collection[str], least: int) -> int:
    """Returns the number of letters that make all handles different; at least `least`."""
    length = least
    while len({handle[:length] for handle in handles}) < len(set(handles)):
        length += 1
    return length
