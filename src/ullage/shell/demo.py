"""`ullage demo`: an agent's session, replayed with the real window, store and bill, and without a model.

The session is a script (`demo.toml`); everything that is shown of tokens, trims, dollars and recall is what
Context, Ledger and the store say of it.
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
from ullage.context import RECALL_TOOL, Context, answer_recall
from ullage.cost import Ledger
from ullage.drawing import bar, clean, put, short, with_free
from ullage.fitting import FitPolicy
from ullage.tokens import count, get_tokenizer
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from decimal import Decimal

    from rich.console import Console

    from ullage.fitting import Fitted
    from ullage.messages import Message, Tool

MODEL, BUDGET, LONGEST_ANSWER = "gpt-4o", 2_400, 512
CACHED_FROM, CACHED_BY = 1_024, 128
"""The provider's cache holds a prompt's beginning from so many tokens on, in steps of so many."""
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
class Step:
    """One exchange: what the user says, what the agent does about it, and what it answers."""

    user: str
    answer: str
    command: str = ""
    output: str = ""
    words: str = ""
    """What the agent looks for among the texts that were taken out; then there is no command."""


class Script(NamedTuple):
    """A whole session, as it is written down."""

    system: str
    steps: Sequence[Step]


def script() -> Script:
    """The session that is replayed."""
    data = tomllib.loads(Path(__file__).with_name("demo.toml").read_text("utf-8"))
    return Script(data["system"].strip(), [Step(**step) for step in data["steps"]])


# What happens --------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """The user says something."""

    text: str


class Called(NamedTuple):
    """The agent runs a command or calls a tool."""

    text: str


class Printed(NamedTuple):
    """What a call gave back."""

    text: str


class Trimmed(NamedTuple):
    """The window was full: something left it."""

    evicted: int
    """Turns that are no longer sent."""
    shortened: int
    """Outputs of which a shorter form is sent."""
    before: int
    after: int


class Recalled(NamedTuple):
    """A piece came back from the store."""

    handle: str
    text: str
    same: bool
    """Whether it is, to the letter, an output that the session had."""


class Answered(NamedTuple):
    """The agent answers."""

    text: str


class Gauge(NamedTuple):
    """Where the session stands after an exchange."""

    tokens: int
    """Of the newest request."""
    limit: int
    breakdown: Mapping[str, int]
    dollars: Decimal
    kept: int
    """Turns that are still sent, whole or shortened."""
    evicted: int


class Total(NamedTuple):
    """What all requests came to."""

    requests: int
    over: int
    """Those above the budget."""
    tokens: int
    dollars: Decimal


class Ended(NamedTuple):
    """The session as it was, and as it would have been with all of the history in every request."""

    limit: int
    fitted: Total
    whole: Total


Happening = Said | Called | Printed | Trimmed | Recalled | Answered | Gauge | Ended


# The replay ----------------------------------------------------------------------------------------------


class Bill:
    """Sums requests at the table's prices, with a cache that knows the beginning of the one before."""

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
        held = self._ledger.reserve(MODEL, size.ceiling, LONGEST_ANSWER)
        self._ledger.settle(held, Usage(prompt=size.tokens, completion=output, cached_read=cached))
        self._last = messages
        self._requests += 1
        self._over += size.tokens > BUDGET
        self._tokens += size.tokens

    def total(self) -> Total:
        """The sums until now."""
        return Total(self._requests, self._over, self._tokens, self._ledger.used()[0])


class Replay:
    """The agent's side of the session: a Context in a store, and the bill with and without it."""

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

    def play(self) -> Iterator[Happening]:
        """Everything that happens, in order."""
        for step in self._steps:
            yield Said(step.user)
            self.context.append_user(step.user)
            yield from self._recall(step.words) if step.words else self._run(step)
            sent = yield from self._send({"role": "assistant", "content": step.answer}, step.answer)
            yield Answered(step.answer)
            yield self._gauge(sent)
        yield Ended(self.context.limit, self._fitted.total(), self._whole.total())

    def _run(self, step: Step) -> Iterator[Happening]:
        output = step.output.strip("\n")
        yield from self._call("run", {"command": step.command}, f"$ {step.command}")
        self._give(output)
        yield Printed(output)

    def _recall(self, words: str) -> Iterator[Happening]:
        """What left is not in the window, so it is looked for by words; the answer has its handle."""
        yield from self._call("recall", {"words": words}, f"recall {words!r}")
        found = answer_recall(self.context.journal, self.context.session, {"words": words})
        self._give(found)
        yield Printed(found)
        handle = found.partition(":")[0]
        yield from self._call("recall", {"handle": handle}, f"recall {handle}")
        text = answer_recall(self.context.journal, self.context.session, {"handle": handle})
        same = any(turn["role"] == "tool" and turn["content"] == text for turn in self.context.turns)
        self._give(text)
        yield Recalled(handle, text, same)

    def _call(self, name: str, arguments: Mapping[str, str], shown: str) -> Iterator[Happening]:
        self._calls += 1
        written = json.dumps(arguments)
        function = {"name": name, "arguments": written}
        call = {"id": f"call_{self._calls:02}", "type": "function", "function": function}
        reply: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
        yield from self._send(reply, written)
        yield Called(shown)

    def _give(self, output: str) -> None:
        self.context.append({"role": "tool", "tool_call_id": f"call_{self._calls:02}", "content": output})

    def _send(self, reply: Message, text: str) -> Generator[Happening, None, Fitted]:
        """Sends the conversation, which may take a trim, and takes the reply; gives what was sent."""
        before = self.context.estimate_tokens()
        sent = self.context.fitted()
        left = len(self.context.enforce_budget())
        shorter = {change.index for change in self.context.changes if change.kind != "evict"}
        if left or shorter - self._shortened:
            yield Trimmed(left, len(shorter - self._shortened), before, sent.tokens_after)
        self._evicted += left
        self._shortened |= shorter
        self._fitted.add(sent.messages, text)
        self._whole.add(self.context.history(), text)
        self.context.append(reply)
        return sent

    def _gauge(self, sent: Fitted) -> Gauge:
        return Gauge(
            sent.tokens_after,
            sent.limit,
            sent.count.breakdown,
            self._fitted.total().dollars,
            len(self.context) - self._evicted,
            self._evicted,
        )


# What is shown -------------------------------------------------------------------------------------------

WIDE = 80
"""From this width on figures have their words beside them."""
WIDEST_BAR, NARROWEST_BAR = 36, 6
PRICED = (
    "Prices are the model table's, with the provider's cache on both sides; what is over the budget is "
    "priced as if it had been taken."
)


def run(out: Console, pause: Callable[[float], None]) -> None:
    """Replays the session on `out`; `pause` waits between what happens, so many seconds."""
    with store.open("sqlite://:memory:") as kept:
        for happening in Replay(script(), kept).play():
            row = SHOWN[type(happening)]
            for line in row.lines(out, happening):
                put(out, line)
            pause(row.seconds)


def _said(out: Console, said: Said) -> Iterator[Text]:
    yield Text()
    yield from _wrapped(out, f"> {said.text}", "bold")


def _called(out: Console, called: Called) -> Iterator[Text]:
    yield _line(out, f"  {called.text}", "cyan")


def _printed(out: Console, printed: Printed) -> Iterator[Text]:
    """The last line, where commands say how it went, and how many there were."""
    lines = printed.text.splitlines()
    more = f" ({len(lines)} lines)" if len(lines) > 1 else ""
    yield _line(out, f"  {short(clean(lines[-1]), out.width - 2 - len(more))}{more}", "dim")


def _trimmed(out: Console, trim: Trimmed) -> Iterator[Text]:
    told = f"{trim.before:,} → {trim.after:,}: {trim.evicted} turns left"
    if out.width >= WIDE:
        told += " for a digest" + (f", {trim.shortened} shortened" if trim.shortened else "")
    yield _line(out, f"  ~ {told}; the prefix stays", "dim")


def _recalled(out: Console, piece: Recalled) -> Iterator[Text]:
    for line in piece.text.splitlines():
        yield _line(out, f"  │ {line}", "green")
    sure = "exactly as it was" if piece.same else "not as it was"
    yield _line(out, f"  {len(piece.text.splitlines())} lines, {len(piece.text):,} characters, {sure}", "dim")


def _answered(out: Console, answered: Answered) -> Iterator[Text]:
    yield from _wrapped(out, f"  {answered.text}", "")


def _gauge(out: Console, gauge: Gauge) -> Iterator[Text]:
    wide = out.width >= WIDE
    tokens = f"{gauge.tokens:>5,} / {gauge.limit:,} tokens" if wide else f"{gauge.tokens:,}/{gauge.limit:,}"
    turns = f"{gauge.kept} turns kept" if wide else f"{gauge.kept} kept"
    told = f"{tokens} · ${gauge.dollars:.4f} · {turns}, {gauge.evicted} evicted"
    # The figures grow as the session goes on; a bar of one length can be compared with the one before.
    width = max(NARROWEST_BAR, min(WIDEST_BAR, out.width - (64 if wide else 46)))
    line = Text("  ", no_wrap=True, overflow="crop")
    line.append_text(bar(out, with_free(gauge.breakdown, gauge.limit), width, gauge.limit))
    line.append(f" {short(told, max(1, out.width - width - 3))}")
    yield line


def _ended(out: Console, ended: Ended) -> Iterator[Text]:
    yield Text()
    yield _line(
        out, f"{ended.fitted.requests} requests to {MODEL}, {ended.limit:,} tokens each at most", "bold"
    )
    for name, total in (("without Ullage", ended.whole), ("with Ullage", ended.fitted)):
        figures = f"{total.tokens:>7,} tokens  ${total.dollars:.4f}  {total.over:>2} over budget"
        yield _line(out, f"  {name:<14} {figures}", "")
    saved = ended.whole.tokens - ended.fitted.tokens
    share = f"{saved / ended.whole.tokens:.0%}"
    yield from _wrapped(out, f"  {saved:,} tokens ({share}) were not sent; what left can be recalled.", "")
    yield from _wrapped(out, f"  {PRICED}", "dim")


def _line(out: Console, text: str, style: str) -> Text:
    """A line that is cut where the terminal ends."""
    return Text(short(text, out.width), style=style, no_wrap=True, overflow="crop")


def _wrapped(out: Console, text: str, style: str) -> Iterator[Text]:
    width = max(20, out.width)
    for line in textwrap.wrap(text, width, subsequent_indent="  "):
        yield Text(line, style=style, no_wrap=True)


class Row(NamedTuple):
    """How something that happens is shown, and for how long it stands before the next."""

    lines: Callable[[Console, Any], Iterator[Text]]
    seconds: float


SHOWN: dict[type, Row] = {
    Said: Row(_said, 0.8),
    Called: Row(_called, 0.6),
    Printed: Row(_printed, 0.7),
    Trimmed: Row(_trimmed, 1.2),
    Recalled: Row(_recalled, 2.5),
    Answered: Row(_answered, 0.5),
    Gauge: Row(_gauge, 0.8),
    Ended: Row(_ended, 0.0),
}
