"""Prints an explanation for people: one row for each message, the bars before and after, the digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ullage.batch.source import STDIN
from ullage.text import one_line, printable
from ullage.window_chart import bar, console, draw_change, legend, limit_mark, put, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ullage.batch.fitted_request import LineFit
    from ullage.cli.verdicts import MessageVerdict
    from ullage.errors import ContextOverflowError

STYLES = {
    "kept": "",
    "essential": "green",
    "capped": "yellow",
    "cut": "yellow",
    "errors kept": "magenta",
    "placeholder": "cyan",
    "evicted": "red",
}
OTHER_STYLE = "yellow"
"""The style of a change that a caller's own pass made."""
NARROW, WIDE = 72, 96
"""Widths in columns: below `NARROW` the beginnings of messages are hidden, from `WIDE` handles are shown."""


def print_explanation(
    source: str, line: LineFit, reasons: Sequence[MessageVerdict], digest: str, conclusion: str
) -> None:
    """Prints the whole explanation."""
    out = console()
    file = "standard input" if source == STDIN else source
    title = Text(one_line(file), style="bold", no_wrap=True, overflow="ellipsis")
    name = line.name
    parts = [*([] if name is None else [str(name)]), line.model, f"limit {line.done.limit:,} tokens"]
    title.append("".join(f" · {one_line(part)}" for part in parts), style="not bold")
    put(out, title)
    put(out)
    put(out, _table(out, reasons))
    put(out)
    draw_change(out, line.before.breakdown, line.done.count.breakdown, line.done.limit)
    put(out)
    put(out, Text(conclusion))
    if digest:
        put(out)
        put(out, Text("The digest, which is sent at the end of the system prompt:", style="bold"))
        for quoted in digest.splitlines():
            shown = Text(printable(quoted), style="dim" if quoted.startswith("[") else "")
            put(out, Padding(shown, (0, 0, 0, 2)))


def print_overflow(error: ContextOverflowError) -> None:
    """Draws the blocks that must be sent, compared with the limit."""
    out = console()
    width, scale = out.width - 1, max(1, sum(error.breakdown.values()), error.limit)
    put(out, Text("The part that must be sent does not fit:", style="bold"))
    put(out, bar(out, error.breakdown, width, scale))
    put(out, limit_mark(round(width * error.limit / scale), error.limit))
    legend(out, error.breakdown, whole=error.limit)


def _table(out: Console, reasons: Sequence[MessageVerdict]) -> Table:
    columns: dict[str, dict[str, Any]] = {
        "#": {"justify": "right"},
        "role": {},
        "begins": {"overflow": "ellipsis", "ratio": 4},
        "tokens": {"justify": "right"},
        "": {},
        "why": {"no_wrap": False, "ratio": 6},
        "handle": {"style": "dim"},
    }
    if out.width < NARROW:
        del columns["begins"]
    if out.width < WIDE:
        del columns["handle"]
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    for name, more in columns.items():
        table.add_column(name, **{"no_wrap": True, **more})
    for each in reasons:
        cells = _cells(each)
        table.add_row(*(cells[name] for name in columns))
    return table


def _cells(each: MessageVerdict) -> dict[str, Text]:
    gone = "dim" if each.what == "evicted" else ""
    return {
        "#": Text(str(each.index)),
        "role": Text(one_line(each.role)),
        "begins": Text(short(one_line(each.start), 80), style=gone),
        "tokens": _tokens(each),
        "": Text(each.what, style=STYLES.get(each.what, OTHER_STYLE)),
        "why": Text(each.why),
        "handle": Text(each.handle or ""),
    }


def _tokens(each: MessageVerdict) -> Text:
    if each.tokens_after == each.tokens_before:
        return Text(f"{each.tokens_before:,}")
    return Text(f"{each.tokens_before:,} → {each.tokens_after:,}", style=STYLES.get(each.what, OTHER_STYLE))
