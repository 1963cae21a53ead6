"""What fills the window, what it cost, and what was said: drawn for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from ullage.broker.about import EMBEDDED
from ullage.config.using import prices_by_name, runs_here
from ullage.drawing import BLOCKS, bar, clean, short, with_free
from ullage.messages import arguments_text, calls_of, text_of
from ullage.usage import detail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from ullage.context import Context
    from ullage.cost import Prices
    from ullage.messages import Message
    from ullage.shell.desk import Desk
    from ullage.shell.screen import Screen


def window(desk: Desk, screen: Screen) -> RenderableType:
    """What fills the window, as a bar and in figures; and what the next trim would take."""
    context = desk.context
    count, limit = desk.count(), context.limit
    mark = "" if count.exact else "~"
    blocks = with_free(count.breakdown, limit)
    lines: list[RenderableType] = [
        Text(f"{mark}{count.tokens:,} of {limit:,} tokens ({count.tokens / limit:.0%})"),
        bar(screen.console, blocks, screen.width - 1, max(limit, count.tokens)),
    ]
    for name, tokens in blocks.items():
        if tokens:
            line = Text("  ")
            line.append("█ " if screen.has_colour else f"{BLOCKS[name].glyph} ", style=BLOCKS[name].colour)
            lines.append(line.append(f"{name:<8}{tokens:>10,}{tokens / limit:>7.0%}"))
    if context.printed_tokens:
        waiting = f"~{context.printed_tokens:,} tokens of what commands printed go with the next question"
        lines.append(Text(waiting, style="dim"))
    lines += _next_to_go(context)
    told = context.requests.statistics()
    if told.requests:
        lines.append(
            Text(
                f"of {told.requests} request{'' if told.requests == 1 else 's'} {told.trimmed} trimmed, "
                f"{told.utilization:.0%} full on average",
                style="dim",
            )
        )
    return Group(*lines)


def _next_to_go(context: Context) -> Iterator[Text]:
    going = context.forecast()
    if going:
        first = text_of(going[0].get("content")) or "a tool call"
        yield Text(
            f"next to go: {len(going)} of {len(context)} turns, from “{short(clean(first), 40)}” on",
            style="dim",
        )


def models(desk: Desk) -> RenderableType:
    """A line for each model: its name, where it is, its window, its prices, and the classes it answers."""
    settings, prices = desk.settings, prices_by_name(desk.settings)
    names = dict.fromkeys([EMBEDDED, *settings.models, desk.model.name])
    wide = max(map(len, names))
    lines = []
    for name in names:
        model = settings.model(name)
        priced = prices.get(name)
        classes = [f"@{kind}" for kind, used in settings.routing.models.items() if used == name]
        told = (
            "in this process" if runs_here(model) else model.endpoint or "",
            model.model or "",
            f"{model.window:,} tokens" if model.window else "",
            "" if priced is None else _prices(priced),
            " ".join(classes),
        )
        mark = "*" if name == desk.model.name else " "
        lines.append(Text(f"{mark} {clean(name):<{wide}}  {clean(' · '.join(filter(None, told)))}".rstrip()))
    return Group(*lines)


def _prices(prices: Prices) -> str:
    told = {"in": prices.input, "out": prices.output}
    known = [f"${price * 1_000_000:.2f} {way}" for way, price in told.items() if price is not None]
    return f"{', '.join(known)} a million" if known else ""


def cost(desk: Desk, *, detailed: bool) -> RenderableType:
    """What the session has cost, in a line or by model and category."""
    meter = desk.context.meter
    prompt, completion = meter.total_tokens()
    total = meter.total_cost()
    dollars = "?" if total is None else f"${total:.4f}"
    lines = [Text(f"{dollars} for {prompt:,} prompt and {completion:,} completion tokens")]
    if detailed:
        lines += [Text(row.text) for row in detail(meter)]
        lines.append(Text(f"[estimated session ctx: {desk.context.estimate_tokens()} tokens]"))
    return Group(*lines)


def history(desk: Desk, width: int) -> RenderableType:
    """Every turn in a line; what the model does not see whole is marked with what became of it."""
    context = desk.context
    desk.render()
    became = {change.index: change for change in context.changes}
    lines = []
    for place, turn in enumerate(context.turns):
        change = became.get(place)
        mark = "  " if change is None else "✗ " if change.kind == "evict" else "~ "
        handle = "" if change is None else f"  {change.handle}"
        room = max(10, width - 18 - len(handle))
        line = f"{place:>4} {mark}{turn['role']:<10}{short(clean(said(turn)), room)}{handle}"
        lines.append(Text(line, style="" if change is None else "dim"))
    return Group(*lines) if lines else Text("nothing has been said yet", style="dim")


def said(turn: Message) -> str:
    """A turn in words: its text, and the calls that it makes."""
    calls = ", ".join(f"{call['function']['name']}(…)" for call in calls_of(turn))
    return " ".join(filter(None, (text_of(turn.get("content")), calls)))


def as_markdown(turns: Sequence[Message]) -> str:
    """The whole conversation as a document: what was said, what was called with what, and what that gave."""
    return "\n\n".join(f"## {turn['role']}\n\n{_in_markdown(turn)}".rstrip() for turn in turns) + "\n"


def _in_markdown(turn: Message) -> str:
    text = text_of(turn.get("content"))
    calls = (f"{call['function']['name']}\n\n{_fenced(arguments_text(call))}" for call in calls_of(turn))
    return "\n\n".join(filter(None, (_fenced(text) if turn["role"] == "tool" else text, *calls)))


def _fenced(text: str) -> str:
    """A text in a fence that nothing in it can end."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"
