"""Shows an answer while it arrives, with a status line below it; collects its text and its folded parts."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ullage.broker.events import Finished, Reasoning, Retrying, Text
from ullage.categories import MAIN
from ullage.session.chat import CallsStopped, ToolCalled
from ullage.shell.output import write
from ullage.text import one_line
from ullage.turn import SHORT_ANSWER, AnswerShortened, Settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from ullage.session.chat import Allow, ChatSession
    from ullage.shell.markdown import Streamed
    from ullage.shell.screen import Screen
    from ullage.turn import TurnEvent

AnswerEvent: TypeAlias = "TurnEvent | ToolCalled | CallsStopped"
TICK = 0.25
"""Seconds between two redraws of the status line while no text arrives."""
ENDINGS = {
    "length": "the answer was cut off at {limit}: ask “go on”, or allow more with context.reserved_output",
    "refused": "the provider stopped the answer, as its filter found something: ask in other words",
}
"""Reason for the end of an answer → what the user is told."""
EMPTY = "the model sent an empty answer: :retry asks again, :model chooses another model"


@dataclass(slots=True)
class AnswerProgress:
    """The part of an answer that has arrived so far."""

    pieces: list[str] = field(default_factory=list)
    written: int = 0
    """Estimated number of tokens that the model has written, reasoning included."""
    calls: int = 0
    """Number of tool calls so far."""
    reasoning: list[str] = field(default_factory=list)
    results: list[ToolCalled] = field(default_factory=list)
    ending: str = ""
    """The reason for the end of the last request, as in `broker.events.Finished`; empty before the end."""
    waiting: str = ""
    """The reason why the answer has not begun; empty if nothing failed."""
    is_reported: bool = True
    """True if the provider reported the usage of every request."""
    began: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(self.pieces)

    @property
    def seconds(self) -> int:
        """Seconds since the question was sent."""
        return int(time.monotonic() - self.began)


async def stream_answer(
    chat: ChatSession,
    screen: Screen,
    answer: AnswerProgress,
    *,
    allow: Allow,
    below: Callable[[], str],
    settled: Callable[[Settled], None],
    category: str = MAIN,
    enough: Callable[[], bool] = lambda: False,
) -> None:
    """Asks the model and shows its answer while it arrives, with the text of `below` on the row under it.

    `allow` decides about each tool call, and `settled` receives the usage and cost of each request. If
    `enough` returns True after a tool call, the answer ends there.
    """
    answers = chat.answer(allow, category=category)
    with screen.quiet(), screen.answer(below) as shown:
        async with _ticking(shown), aclosing(answers) as events:  # type: ignore[type-var]
            async for event in events:
                _note(event, chat, answer)
                _show(event, screen, shown)
                if isinstance(event, ToolCalled):
                    if enough():
                        break
                    shown.feed("")  # the model is asked again, or the next tool is called
                elif isinstance(event, Settled):
                    settled(event)
    if answer.pieces and not (screen.is_terminal or answer.pieces[-1].endswith("\n")):
        write(screen.console.file, "\n")
    for line in _remarks(chat, answer):
        screen.notice(line)


def _note(event: AnswerEvent, chat: ChatSession, answer: AnswerProgress) -> None:
    """Adds the content of an event to the answer."""
    if isinstance(event, Text | Reasoning):
        answer.written += chat.context.count_text(event.text).tokens
        answer.waiting = ""
        (answer.pieces if isinstance(event, Text) else answer.reasoning).append(event.text)
    elif isinstance(event, ToolCalled):
        answer.calls += 1
        answer.results.append(event)
        answer.pieces.append("\n")  # the text after a call begins on a new line
    elif isinstance(event, Finished):
        answer.ending = event.reason
    elif isinstance(event, Retrying):
        answer.waiting = f"try {event.attempt + 1} begins in {event.wait:.0f} s: {event.reason}"
    elif isinstance(event, Settled):
        answer.is_reported = answer.is_reported and not event.estimated


def _show(event: AnswerEvent, screen: Screen, shown: Streamed) -> None:
    """Shows an event: text as it is, and other events that concern the user as a notice."""
    if isinstance(event, Text):
        shown.feed(event.text)
    elif isinstance(event, ToolCalled):
        screen.dim(f"{event.name}: {'called' if event.allowed else 'not allowed'}")
    elif isinstance(event, CallsStopped):
        rounds = "1 round" if event.calls == 1 else f"{event.calls} rounds"
        screen.dim(f"stopped after {rounds} of tool calls; ask again to continue")
    elif isinstance(event, AnswerShortened) and event.tokens < SHORT_ANSWER:
        screen.notice(f"the cap leaves room for an answer of at most {event.tokens:,} tokens")
        shown.feed("")
    elif isinstance(event, Retrying):
        shown.refresh()
    elif isinstance(event, Settled):
        shown.end()


def _remarks(chat: ChatSession, answer: AnswerProgress) -> Iterator[str]:
    """Yields notices about an answer that has ended: its folded parts, and an unusual end."""
    folded = describe_folded(
        "".join(answer.reasoning), answer.results, lambda text: chat.context.count_text(text).tokens
    )
    if folded:
        yield folded
    if answer.ending in ENDINGS:
        most = chat.longest_answer
        limit = f"~{answer.written:,} tokens by the model" if most is None else f"{most:,} tokens"
        yield ENDINGS[answer.ending].format(limit=limit)
    elif answer.ending and not answer.text.strip() and not answer.calls:
        yield EMPTY


@asynccontextmanager
async def _ticking(shown: Streamed) -> AsyncIterator[None]:
    """Redraws the row below the answer regularly, also while no text arrives."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK)
            shown.refresh()

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
        await asyncio.wait({ticking})
        if not ticking.cancelled():
            ticking.result()  # the task ended by itself, so it has an error: raise it


def describe_folded(reasoning: str, results: Sequence[ToolCalled], count: Callable[[str], int]) -> str:
    """Returns one line with the sizes of the folded parts; empty if there are none."""
    parts = []
    if reasoning:
        parts.append(f"reasoning ~{count(reasoning):,} tokens")
    if results:
        number = "1 tool result" if len(results) == 1 else f"{len(results):,} tool results"
        parts.append(f"{number} ~{sum(count(each.result) for each in results):,} tokens")
    return f"folded: {', '.join(parts)}; :last shows them" if parts else ""


def unfold(reasoning: str, results: Sequence[ToolCalled]) -> Iterator[tuple[str, str]]:
    """Yields the title and the text of each folded part."""
    if reasoning:
        yield "reasoning", reasoning.strip()
    for each in results:
        yield f"{one_line(each.name)} {one_line(each.arguments)}", each.result
