"""The session of `ullage demo` and `:demo`: a script, replayed with the real window, store and ledger.

The script is `session.toml`. All numbers of tokens, trims, dollars and recall come from Context, Ledger
and the store.
"""

from __future__ import annotations

import json
import textwrap
import tomllib
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from ullage import store
from ullage.context import RECALL_TOOL, Context
from ullage.cost import Ledger
from ullage.fitting import FitPolicy
from ullage.text import one_line
from ullage.tokens import count, get_tokenizer
from ullage.usage import Usage
from ullage.window_chart import bar, put, short, with_free

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from decimal import Decimal

    from rich.console import Console

    from ullage.fitting import Fitted
    from ullage.messages import Message, Tool

MODEL, BUDGET, LONGEST_ANSWER = "gpt-4o", 2_400, 512
CACHED_FROM, CACHED_BY = 1_024, 128
"""Smallest prompt beginning that the provider's cache keeps, and the steps it grows by, in tokens."""
RUN_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": "run",
        "description": "Runs a command in the repository and gives back what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
TOOLS = (RUN_TOOL, RECALL_TOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """One exchange: the user's words, the agent's command or search, and its answer."""

    user: str
    answer: str
    command: str = ""
    output: str = ""
    words: str = ""
    """Search words for recall; a step with search words has no command."""


class Script(NamedTuple):
    """The script of a whole session."""

    system: str
    steps: Sequence[ScriptStep]


def script() -> Script:
    """Reads the script of the session."""
    data = tomllib.loads(Path(__file__).with_name("session.toml").read_text("utf-8"))
    return Script(data["system"].strip(), [ScriptStep(**step) for step in data["steps"]])


# Events --------------------------------------------------------------------------------------------------


class UserSpoke(NamedTuple):
    """The user says something."""

    text: str


class CommandCalled(NamedTuple):
    """The agent runs a command or calls a tool."""

    text: str


class Printed(NamedTuple):
    """The output of a command, or the result of a search."""

    text: str


class WindowTrimmed(NamedTuple):
    """A trim made the request smaller, because the window was full."""

    evicted: int
    """Number of turns that are no longer sent."""
    shortened: int
    """Number of outputs that are sent in a shorter form."""
    before: int
    after: int


class Recalled(NamedTuple):
    """A piece came back from the store."""

    handle: str
    text: str
    same: bool
    """True if it is exactly an output of the session."""


class Answered(NamedTuple):
    """The agent answers."""

    text: str


class Gauge(NamedTuple):
    """The state of the session after an exchange."""

    tokens: int
    """Tokens of the newest request."""
    limit: int
    breakdown: Mapping[str, int]
    dollars: Decimal
    kept: int
    """Number of turns that are still sent, whole or shortened."""
    evicted: int


class Total(NamedTuple):
    """The sums over all requests."""

    requests: int
    over: int
    """Number of requests over the budget."""
    tokens: int
    dollars: Decimal


class Ended(NamedTuple):
    """The session's sums with Ullage, and without it, if every request had the whole history."""

    limit: int
    fitted: Total
    whole: Total


DemoEvent = UserSpoke | CommandCalled | Printed | WindowTrimmed | Recalled | Answered | Gauge | Ended


# The replay ----------------------------------------------------------------------------------------------


class Bill:
    """Sums requests at the table's prices; the beginning that a request shares with the last is cached."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last: Sequence[Message] = ()
        self._requests = self._over = self._tokens = 0

    def add(self, messages: Sequence[Message], answer: str) -> None:
        """Books a request and its answer."""
        size = count(messages, MODEL, TOOLS)
        same = sum(1 for _ in takewhile(bool, map(eq, messages, self._last)))
        known = count(messages[:same], MODEL, TOOLS).tokens if same else 0
        cached = known - known % CACHED_BY if known >= CACHED_FROM else 0
        output = get_tokenizer(MODEL).count(answer)
        reservation = self._ledger.reserve(MODEL, size.ceiling, LONGEST_ANSWER)
        self._ledger.settle(reservation, Usage(prompt=size.tokens, completion=output, cached_read=cached))
        self._last = messages
        self._requests += 1
        self._over += size.tokens > BUDGET
        self._tokens += size.tokens

    def total(self) -> Total:
        """Returns the sums so far."""
        return Total(self._requests, self._over, self._tokens, self._ledger.used()[0])


class Replay:
    """Replays the agent's side of the session, and sums the requests with and without fitting."""

    def __init__(self, played: Script, kept: store.Store) -> None:
        self.context = Context(
            model=MODEL,
            system_prompt=played.system,
            tools=TOOLS,
            max_turns=None,
            token_budget=BUDGET,
            policy=FitPolicy(recall=True),
            journal=kept.journal,
        )
        self._steps = played.steps
        self._fitted = Bill(Ledger(book=kept.book, session=self.context.session))
        self._whole = Bill(Ledger())
        self._evicted = self._calls = 0
        self._shortened: set[int] = set()

    def play(self) -> Iterator[DemoEvent]:
        """Yields all events, in order."""
        for step in self._steps:
            yield UserSpoke(step.user)
            self.context.append_user(step.user)
            yield from self._recall(step.words) if step.words else self._run(step)
            sent = yield from self._send({"role": "assistant", "content": step.answer}, step.answer)
            yield Answered(step.answer)
            yield self._gauge(sent)
        yield Ended(self.context.limit, self._fitted.total(), self._whole.total())

    def _run(self, step: ScriptStep) -> Iterator[DemoEvent]:
        output = step.output.strip("\n")
        yield from self._call("run", {"command": step.command}, f"$ {step.command}")
        self._give(output)
        yield Printed(output)

    def _recall(self, words: str) -> Iterator[DemoEvent]:
        """Searches for an evicted text by words, and then recalls it by the handle of the best result."""
        yield from self._call("recall", {"words": words}, f"recall {words!r}")
        found = self.context.answer_recall({"words": words})
        self._give(found)
        yield Printed(found)
        best = found.splitlines()[1]  # the line after the one that opens the quotation
        handle = best.partition(":")[0]
        yield from self._call("recall", {"handle": handle}, f"recall {handle}")
        text = self.context.answer_recall({"handle": handle})
        same = any(turn["role"] == "tool" and turn["content"] == text for turn in self.context.turns)
        self._give(text)
        yield Recalled(handle, text, same)

    def _call(self, name: str, arguments: Mapping[str, str], shown: str) -> Iterator[DemoEvent]:
        self._calls += 1
        written = json.dumps(arguments)
        function = {"name": name, "arguments": written}
        call = {"id": f"call_{self._calls:02}", "type": "function", "function": function}
        reply: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
        yield from self._send(reply, written)
        yield CommandCalled(shown)

    def _give(self, output: str) -> None:
        self.context.append({"role": "tool", "tool_call_id": f"call_{self._calls:02}", "content": output})

    def _send(self, reply: Message, text: str) -> Generator[DemoEvent, None, Fitted[Any]]:
        """Sends the conversation, trimmed if necessary, and appends the reply; returns the fitted request."""
        before = self.context.estimate_tokens()
        sent = self.context.fitted()
        left = len(self.context.enforce_budget())
        shorter = {change.index for change in self.context.changes if not change.evicted}
        if left or shorter - self._shortened:
            yield WindowTrimmed(left, len(shorter - self._shortened), before, sent.tokens_after)
        self._evicted += left
        self._shortened |= shorter
        self._fitted.add(sent.messages, text)
        self._whole.add(self.context.history(), text)
        self.context.append(reply)
        return sent

    def _gauge(self, sent: Fitted[Any]) -> Gauge:
        return Gauge(
            sent.tokens_after,
            sent.limit,
            sent.count.breakdown,
            self._fitted.total().dollars,
            len(self.context) - self._evicted,
            self._evicted,
        )


# The screen ----------------------------------------------------------------------------------------------

WIDE = 80
"""Width of the terminal, in columns, from which numbers have their units beside them."""
WIDEST_BAR, NARROWEST_BAR = 36, 6
PRICED = (
    "Prices come from the table of models; both lines use the provider's cache. Requests over the budget "
    "are priced as if the provider had accepted them."
)


def run(out: Console, pause: Callable[[float], None]) -> None:
    """Replays the session on `out`; `pause` waits the given number of seconds after each event."""
    for lines, seconds in frames(out):
        for line in lines:
            put(out, line)
        pause(seconds)


def frames(out: Console) -> Iterator[tuple[Sequence[Text], float]]:
    """Yields the lines of each event, drawn for the width of `out`, and the pause after them in seconds."""
    with store.open("sqlite://:memory:") as kept:
        for happening in Replay(script(), kept).play():
            row = SHOWN[type(happening)]
            yield list(row.lines(out, happening)), row.seconds


def _show_question(out: Console, said: UserSpoke) -> Iterator[Text]:
    yield Text()
    yield from _wrap_text(out, f"> {said.text}", "bold")


def _show_call(out: Console, called: CommandCalled) -> Iterator[Text]:
    yield _line(out, f"  {called.text}", "cyan")


def _show_output(out: Console, printed: Printed) -> Iterator[Text]:
    """Yields the last line of the output, which often has the result, with the number of lines."""
    lines = printed.text.splitlines()
    more = f" ({len(lines)} lines)" if len(lines) > 1 else ""
    yield _line(out, f"  {short(one_line(lines[-1]), out.width - 2 - len(more))}{more}", "dim")


def _show_trim(out: Console, trim: WindowTrimmed) -> Iterator[Text]:
    text = f"{trim.before:,} → {trim.after:,}: {trim.evicted} turn{'' if trim.evicted == 1 else 's'}"
    if out.width >= WIDE:
        text += " replaced by a digest" + (f", {trim.shortened} shortened" if trim.shortened else "")
    else:
        text += " evicted"
    yield _line(out, f"  ~ {text}; same prefix", "dim")


def _show_recall(out: Console, piece: Recalled) -> Iterator[Text]:
    for line in piece.text.splitlines():
        yield _line(out, f"  │ {line}", "green")
    same = "identical to the original" if piece.same else "different from the original"
    yield _line(out, f"  {len(piece.text.splitlines())} lines, {len(piece.text):,} characters, {same}", "dim")


def _show_answer(out: Console, answered: Answered) -> Iterator[Text]:
    yield from _wrap_text(out, f"  {answered.text}", "")


def _show_gauge(out: Console, gauge: Gauge) -> Iterator[Text]:
    wide = out.width >= WIDE
    tokens = f"{gauge.tokens:>5,} / {gauge.limit:,} tokens" if wide else f"{gauge.tokens:,}/{gauge.limit:,}"
    turns = f"{gauge.kept} turns kept" if wide else f"{gauge.kept} kept"
    text = f"{tokens} · ${gauge.dollars:.4f} · {turns}, {gauge.evicted} evicted"
    # The numbers get longer during the session; bars of the same length can be compared.
    width = max(NARROWEST_BAR, min(WIDEST_BAR, out.width - (64 if wide else 46)))
    line = Text("  ", no_wrap=True, overflow="crop")
    line.append_text(bar(out, with_free(gauge.breakdown, gauge.limit), width, gauge.limit))
    line.append(f" {short(text, max(1, out.width - width - 3))}")
    yield line


def _show_end(out: Console, ended: Ended) -> Iterator[Text]:
    yield Text()
    yield _line(
        out, f"{ended.fitted.requests} requests to {MODEL}, each at most {ended.limit:,} tokens", "bold"
    )
    for name, total in (("without Ullage", ended.whole), ("with Ullage", ended.fitted)):
        figures = f"{total.tokens:>7,} tokens  ${total.dollars:.4f}  {total.over:>2} over budget"
        yield _line(out, f"  {name:<14} {figures}", "")
    saved = ended.whole.tokens - ended.fitted.tokens
    share = f"{saved / ended.whole.tokens:.0%}"
    yield from _wrap_text(out, f"  Saved {saved:,} tokens ({share}). Evicted turns can be recalled.", "")
    yield from _wrap_text(out, f"  {PRICED}", "dim")


def _line(out: Console, text: str, style: str) -> Text:
    """Returns a line, cut to the width of the terminal."""
    return Text(short(text, out.width), style=style, no_wrap=True, overflow="crop")


def _wrap_text(out: Console, text: str, style: str) -> Iterator[Text]:
    width = max(20, out.width)
    for line in textwrap.wrap(text, width, subsequent_indent="  "):
        yield Text(line, style=style, no_wrap=True)


class DemoRow(NamedTuple):
    """The lines for an event, and the pause after it in seconds."""

    lines: Callable[[Console, Any], Iterator[Text]]
    seconds: float


SHOWN: dict[type, DemoRow] = {
    UserSpoke: DemoRow(_show_question, 0.8),
    CommandCalled: DemoRow(_show_call, 0.6),
    Printed: DemoRow(_show_output, 0.7),
    WindowTrimmed: DemoRow(_show_trim, 1.2),
    Recalled: DemoRow(_show_recall, 2.5),
    Answered: DemoRow(_show_answer, 0.5),
    Gauge: DemoRow(_show_gauge, 0.8),
    Ended: DemoRow(_show_end, 0.0),
}
