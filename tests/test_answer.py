"""An answer as it is heard: what is shown beside it, what it is billed as, and what stopping it leaves."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.benches import Bench, answer, new_bench, press_ctrl_c, script
from ullage import store
from ullage.broker.events import Finished, Text, ToolCall
from ullage.context.record import INTERRUPTED
from ullage.session import chat
from ullage.shell import answer as answers
from ullage.shell.answer import AnswerProgress
from ullage.shell.interrupts import nothing, on_press, stoppable
from ullage.shell.screen import Screen
from ullage.testing import ScriptedProvider
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

    from ullage.broker.ask import Ask
    from ullage.broker.events import Event
    from ullage.store import Store

CALL = [Text("I dive."), ToolCall("a", "dive", "{}"), Finished("tool_calls")]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    with store.open(tmp_path / "kept.db") as opened:
        yield opened


@pytest.fixture
def make(kept: Store, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def one_more(provider: Any, **options: Any) -> Bench:
        made.append(new_bench(kept, tmp_path, provider, **options))
        return made[-1]

    yield one_more
    for each in made:
        each.shell.runner.close()


def test_a_question_is_billed_as_what_it_is_of(make: Callable[..., Bench]) -> None:
    bench = make(script("Seven.", "Eight."), prompts={"quick": "Be brief."})
    for question in ("?How many boats?", "?@quick And now?"):
        asyncio.run(bench.shell.act(question))
    assert [category for _, category in bench.context.meter.slots] == ["main", "quick"]


def test_a_warning_is_shown_once_whoever_reached_it(make: Callable[..., Bench]) -> None:
    bench = make(script("Seven.", "Eight."), cost={"warn_at_tokens": 1_000})
    bench.context.add_usage("gpt-4o", Usage(prompt=2_000), "summarize")  # as one behind the prompt does
    for _ in range(2):
        asyncio.run(bench.shell.act("?How many boats?"))
    assert bench.out.getvalue().count("the warning is set at 1,000") == 1


def test_who_is_not_asked_again_after_too_many_calls_is_told_of(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "MOST_STEPS", 3)
    bench = make(ScriptedProvider([CALL] * 5))
    asyncio.run(bench.shell.act("?How deep is it?"))
    assert bench.out.getvalue().endswith(
        "stopped after 3 rounds of tool calls; ask again to continue\n"
        "folded: 3 tool results ~21 tokens; :last shows them\n"
    )
    assert len(bench.provider.asked) == 3


def test_a_call_that_is_stopped_is_answered_as_interrupted(make: Callable[..., Bench], kept: Store) -> None:
    bench = make(ScriptedProvider([CALL, answer("Later.")]))

    async def dive(*_: str) -> str:
        for _ in range(3):
            press_ctrl_c()
        await asyncio.sleep(1_000)
        return "deep"

    async def allow(*_: str) -> bool:
        return True

    bench.shell.chat.use_tools((), dive)
    bench.shell.workplace.tools.allow = allow  # type: ignore[method-assign]
    with on_press(nothing), pytest.raises(asyncio.CancelledError):
        asyncio.run(stoppable(bench.shell.act("?How deep is it?"), tell=print))
    assert [turn["role"] for turn in bench.context.turns] == ["user", "assistant", "tool"]
    assert bench.context.turns[-1]["content"] == INTERRUPTED
    assert kept.path is not None
    with closing(sqlite3.connect(kept.path)) as book:
        assert book.execute("SELECT sum(held) FROM totals").fetchone() == (0,)
    asyncio.run(bench.shell.act("?And now?"))
    assert bench.context.turns[-1]["content"] == "Later."


@dataclass
class Pausing(ScriptedProvider):
    """Waits before it answers until the clock was looked at."""

    pausing: bool = False
    ticked: asyncio.Event = field(default_factory=asyncio.Event)

    async def stream(self, ask: Ask) -> AsyncGenerator[Event, None]:
        self.pausing = True
        await self.ticked.wait()
        self.pausing = False
        async for event in super().stream(ask):
            yield event


def test_an_error_in_what_stands_below_the_answer_is_not_lost(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "TICK", 0.001)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=110, color_system=None)
    provider = Pausing([answer("Seven.")])
    bench = make(provider, screen=Screen(console, keyboard=io.StringIO()))
    bench.context.append_user("How many boats?")

    def gauge(_: AnswerProgress) -> str:
        if provider.pausing:
            provider.ticked.set()
            raise ZeroDivisionError
        return "so far"

    bench.shell.workplace.report.gauge = gauge  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(bench.shell.workplace.stream(AnswerProgress()))
    assert "Seven." in out.getvalue()
