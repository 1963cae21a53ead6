"""Texts that meta commands show: the window, the models, the costs and the conversation."""

from __future__ import annotations

import re
import time
from datetime import date, timedelta
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from ullage.broker.embedded_info import EMBEDDED
from ullage.config.prices import prices_by_name
from ullage.cost.ledger import day_of
from ullage.cost.report import draw_days, report
from ullage.messages import RESULT_ROLES, arguments_text, calls_of, text_of
from ullage.shell.cap_usage import cap_lines
from ullage.shell.remedies import error_text
from ullage.shell.status import NO_PRICE, percent
from ullage.text import one_line, split_outputs
from ullage.usage import detail
from ullage.window_chart import BLOCKS, bar, short, with_free

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from ullage.context import Context
    from ullage.cost import Prices
    from ullage.messages import Message
    from ullage.session.chat import ChatSession
    from ullage.shell.screen import Screen
    from ullage.tokens import Count
    from ullage.turn import Client

SOON = 0.5
"""Used share of the limit from which `:context` names the turns that the next trim removes."""


DAYS = 14
"""Number of days that `:cost days` shows."""


def window(chat: ChatSession, screen: Screen) -> RenderableType:
    """Draws the content of the window as a bar with figures, and describes what the next trim removes."""
    context = chat.context
    count, limit = chat.count(), context.limit
    mark = "" if count.exact else "~"
    pending = context.printed_tokens
    used = count.ceiling + pending  # the ceiling decides if a request is refused
    blocks = with_free({**count.ceilings, "pending": pending}, limit)
    lines: list[RenderableType] = [
        Text(f"{mark}{used:,} of {limit:,} tokens ({percent(100 * used / limit)})"),
        bar(screen.console, blocks, screen.width - 1, max(limit, used)),
    ]
    for name, tokens in blocks.items():
        if tokens:
            line = Text("  ")
            line.append("█ " if screen.has_colour else f"{BLOCKS[name].glyph} ", style=BLOCKS[name].colour)
            lines.append(line.append(f"{name:<8}{tokens:>10,}{percent(100 * tokens / limit):>7}"))
    lines.append(Text(chat.describe_limit(), style="dim"))
    lines += _describe_counter(chat)
    if pending:
        lines.append(Text("pending: the output of commands, sent with the next question", style="dim"))
    refusal = chat.overflow()
    if refusal is not None:
        lines.append(Text(error_text(refusal), style="red"))
    if _is_filling(context, count):
        lines += _next_to_go(context)
    statistics = context.requests.statistics()
    if statistics.requests:
        requests = format_count(statistics.requests, "request")
        trimmed = f"{statistics.trimmed:,}" if statistics.trimmed else "none"
        full = f"{percent(100 * statistics.utilization)} full on average"
        lines.append(Text(f"{requests}, {trimmed} trimmed, {full}", style="dim"))
    return Group(*lines)


def format_count(number: int, noun: str) -> str:
    """Returns a number with its noun in the right form: 1 turn, 2,000 turns."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _describe_counter(chat: ChatSession) -> Iterator[Text]:
    """Yields one line if the model's server counts the texts."""
    server = chat.client.counts.tokenizer
    if server is not None and chat.context.bounds.tokenizer is server:
        ended = "" if server.supported else "; the server no longer answers, so new texts are estimated"
        texts = format_count(server.texts, "text")
        yield Text(f"{texts} counted by {server.name}{ended}", style="dim")


def endpoint_counts(client: Client) -> str:
    """Returns a sentence that says if the model's server counts texts."""
    server = client.counts.tokenizer
    if not client.counts.use_endpoint:
        return (
            "Ullage counts texts itself. "
            "Set tokenize.use_endpoint = true to let the model's server count them, if it can."
        )
    if server is None:
        return "The model runs in this process, so Ullage counts texts itself."
    if server.supported is None:
        return f"{server.address} has no known way to count texts, so Ullage counts them itself."
    if server.supported:
        return f"{server.name} is supported."
    return f"{server.name} is not supported, so Ullage counts texts itself. A new session asks again."


def _is_filling(context: Context, count: Count) -> bool:
    """Returns True if the conversation uses at least half of its limit, so that a trim may be near."""
    most = context.max_turns
    return count.ceiling >= SOON * context.limit or (most is not None and len(context) >= SOON * most)


def _next_to_go(context: Context) -> Iterator[Text]:
    """Yields one line about the turns that the next trim removes, if there are any."""
    going = context.forecast()
    if going:
        first = short(one_line(text_of(going[0].get("content")) or "a tool call"), 30)
        yield Text(
            f"the next trim removes {len(going)} of {len(context)} turns, from “{first}” on", style="dim"
        )


def models(chat: ChatSession) -> RenderableType:
    """Draws a line for each model: its name, address, window, prices, and categories of questions."""
    settings, prices = chat.settings, prices_by_name(chat.settings)
    names = dict.fromkeys([EMBEDDED, *settings.models, chat.model.name])
    wide = max(map(len, names))
    lines = []
    for name in names:
        model = settings.model(name)
        priced = prices.get(name)
        categories = [f"@{category}" for category, used in settings.routing.models.items() if used == name]
        facts = (
            "in this process" if model.runs_here else model.endpoint or "",
            model.model or "",
            f"{model.window:,} tokens" if model.window else "",
            "" if priced is None else _prices(priced),
            " ".join(categories),
        )
        mark = "*" if name == chat.model.name else " "
        lines.append(
            Text(f"{mark} {one_line(name):<{wide}}  {one_line(' · '.join(filter(None, facts)))}".rstrip())
        )
    return Group(*lines)


def _prices(prices: Prices) -> str:
    by_direction = {"in": prices.input, "out": prices.output}
    known = [f"${price * 1_000_000:.2f} {way}" for way, price in by_direction.items() if price is not None]
    return f"{', '.join(known)} per million tokens" if known else ""


def cost(chat: ChatSession, *, detailed: bool) -> RenderableType:
    """Draws the cost of the session: one line, or with `detailed` also a row for each model and category."""
    meter = chat.context.meter
    prompt, completion = meter.total_tokens()
    total = meter.total_cost()
    dollars = NO_PRICE if total is None else f"${total:.4f}"
    guessed = sum(slot.estimated_calls for slot in meter.slots.values())
    mark = "~" if guessed else ""
    if not meter.slots:
        lines = [Text("$0: no question was asked yet in this conversation")]
    else:
        tokens = f"{mark}{prompt:,} prompt and {mark}{completion:,} completion tokens"
        lines = [Text(f"{mark}{dollars} for {tokens}")]
    if guessed:
        calls = "1 call is" if guessed == 1 else f"{guessed:,} calls are"
        lines.append(Text(f"{calls} estimated, because the provider reported no plausible usage"))
    if not chat.client.local:
        lines += map(Text, cap_lines(chat.client.ledger))
    if detailed:
        lines += [Text(row.text) for row in detail(meter)]
        lines += _describe_counter(chat)
        lines.append(Text(f"[estimated session ctx: {chat.context.estimate_tokens()} tokens]"))
    return Group(*lines)


def days(chat: ChatSession, width: int) -> RenderableType:
    """Draws the cost of each of the last days, of all conversations, as bars, and the caps."""
    today = day_of(time.time())
    since = (date.fromisoformat(today) - timedelta(days=DAYS - 1)).isoformat()
    made = report(chat.kept.book.entries(since=since), ("day",))
    lines = [Text(line, no_wrap=True) for line in draw_days(made, today, DAYS, width)]
    caps = [] if chat.client.local else [Text(line, no_wrap=True) for line in cap_lines(chat.client.ledger)]
    return Group(Text("dollars a day (UTC), all conversations", style="dim"), *lines, *caps)


def history(chat: ChatSession, width: int) -> RenderableType:
    """Draws a line for each turn. ✗ marks a turn that is no longer sent, ~ one that is sent shortened."""
    context = chat.context
    chat.render()
    changes = {change.index: change for change in context.changes}
    lines = []
    for number, turn in enumerate(context.turns):
        change = changes.get(number)
        mark = "  " if change is None else "✗ " if change.evicted else "~ "
        handle = "" if change is None else f"  {change.handle}"
        room = max(10, width - 18 - len(handle))
        line = f"{number:>4} {mark}{turn['role']:<10}{short(one_line(describe_turn(turn)), room)}{handle}"
        lines.append(Text(line, style="" if change is None else "dim"))
    return Group(*lines) if lines else Text("nothing has been said yet", style="dim")


def describe_turn(turn: Message) -> str:
    """Returns the text of a turn, without the outputs before a question, and the names of called tools."""
    text = text_of(turn.get("content"))
    if turn["role"] == "user":
        outputs, words = split_outputs(text)
        text = f"{words} [with output]" if outputs and words else text
    calls = ", ".join(f"{call['function']['name']}(…)" for call in calls_of(turn))
    return " ".join(filter(None, (text, calls)))


def as_markdown(turns: Sequence[Message]) -> str:
    """Returns the whole conversation in Markdown: texts, tool calls with their arguments, and results."""
    return "\n\n".join(f"## {turn['role']}\n\n{_in_markdown(turn)}".rstrip() for turn in turns) + "\n"


def _in_markdown(turn: Message) -> str:
    text = text_of(turn.get("content"))
    calls = (f"{call['function']['name']}\n\n{_fence_text(arguments_text(call))}" for call in calls_of(turn))
    return "\n\n".join(filter(None, (_fence_text(text) if turn["role"] in RESULT_ROLES else text, *calls)))


def _fence_text(text: str) -> str:
    """Returns a text in a code fence that is longer than any run of backticks in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"
