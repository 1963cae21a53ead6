"""An explanation on the screen: a row a message, the bars before and after, the digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ullage.cli.reading import STDIN
from ullage.drawing import bar, clean, console, draw_change, legend, limit_mark, put, short
from ullage.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ullage.cli.explain import Verdict
    from ullage.cli.fitting import FittedRequest
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
NARROW, WIDE = 72, 96
"""Below the one width, how a message begins is left out; from the other on, handles are shown."""


def tell(source: str, done: FittedRequest, told: Sequence[Verdict], digest: str) -> None:
    """Prints the whole explanation."""
    out = console()
    file = "standard input" if source == STDIN else source
    title = Text(clean(file), style="bold", no_wrap=True, overflow="ellipsis")
    name = done.body.get("id")
    parts = [*([] if name is None else [str(name)]), done.model, f"limit {done.limit:,} tokens"]
    title.append("".join(f" · {clean(part)}" for part in parts), style="not bold")
    put(out, title)
    put(out)
    put(out, _table(out, told))
    put(out)
    draw_change(out, done.before.breakdown, done.after.breakdown, done.limit)
    put(out)
    put(out, Text(_conclusion(done, told)))
    if digest:
        put(out)
        put(out, Text("The digest, as it is sent at the end of the system prompt:", style="bold"))
        for line in digest.splitlines():
            shown = Text(printable(line), style="dim" if line.startswith("[") else "")
            put(out, Padding(shown, (0, 0, 0, 2)))


def tell_overflow(error: ContextOverflowError) -> None:
    """Draws what is left when nothing more may be taken out, against the limit."""
    out = console()
    width, scale = out.width - 1, max(1, sum(error.breakdown.values()), error.limit)
    put(out, Text("What must be sent does not fit:", style="bold"))
    put(out, bar(out, error.breakdown, width, scale))
    put(out, limit_mark(round(width * error.limit / scale), error.limit))
    legend(out, error.breakdown, whole=error.limit)


def _table(out: Console, told: Sequence[Verdict]) -> Table:
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
    for each in told:
        cells = _cells(each)
        table.add_row(*(cells[name] for name in columns))
    return table


def _cells(each: Verdict) -> dict[str, Text]:
    gone = "dim" if each.what == "evicted" else ""
    return {
        "#": Text(str(each.index)),
        "role": Text(clean(each.role)),
        "begins": Text(short(clean(each.start), 80), style=gone),
        "tokens": _tokens(each),
        "": Text(each.what, style=STYLES[each.what]),
        "why": Text(each.why),
        "handle": Text(each.handle or ""),
    }


def _tokens(each: Verdict) -> Text:
    if each.tokens_after == each.tokens_before:
        return Text(f"{each.tokens_before:,}")
    return Text(f"{each.tokens_before:,} → {each.tokens_after:,}", style=STYLES[each.what])


def _conclusion(done: FittedRequest, told: Sequence[Verdict]) -> str:
    if not done.fitted.changed:
        return f"It fits as it is: {done.before.ceiling:,} of {done.limit:,} tokens."
    same = sum(1 for each in told if each.handle is None)
    return (
        f"{done.before.tokens:,} → {done.after.tokens:,} tokens: of {len(told):,} messages "
        f"{done.fitted.dropped:,} are evicted, {done.fitted.truncated:,} shortened, {same:,} stay."
    )
