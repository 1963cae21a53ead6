"""Goal mode: how it ends, what bounds it, what is asked, and what a crash leaves of it."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import pty
import re
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.benches import GOAL, Bench, answer, new_bench, press_ctrl_c, script
from tests.world import until
from ullage import store
from ullage.broker.events import Event, Finished, Text, ToolCall
from ullage.errors import ConfigurationError, ProviderError
from ullage.session import continuations
from ullage.session.saved_talks import last_exchange, list_talks
from ullage.shell import goal
from ullage.shell.goal import GoalOutcome, pending
from ullage.shell.screen import Screen
from ullage.target import Target
from ullage.testing import ScriptedProvider
from ullage.text import fence_output
from ullage.usage import Usage

if TYPE_CHECKING:
    from ullage.broker.ask import Ask
    from ullage.store import Store

DONE = "GOAL: complete\nSeven boats."


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    with store.open(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    made = tmp_path / "harbour"
    made.mkdir()
    (made / "boats").write_text("seven\n")
    return made


Make = Callable[..., Bench]


@pytest.fixture
def make(kept: Store, harbour: Path) -> Iterator[Make]:
    made: list[Bench] = []

    def one_more(provider: Any, **options: Any) -> Bench:
        made.append(new_bench(kept, harbour, provider, **options))
        return made[-1]

    yield one_more
    for each in made:
        each.shell.runner.close()


# How it ends.


def test_a_goal_is_pursued_until_the_model_says_that_it_is_complete(make: Make) -> None:
    bench = make(script("1. look\n2. count\nCMD: cat boats", DONE), max_steps=25)
    assert bench.pursue() == GoalOutcome("complete", 2, "Seven boats.")
    assert bench.context.goal == ""
    first, second = bench.said()
    assert first == goal.OPENING.format(goal=GOAL)
    assert second == "[exec output]\n$ cat boats\nseven\n[exit status 0]\n[end of exec output]\n\nGo on."
    assert all(GOAL in ask.messages[0]["content"] for ask in bench.provider.asked)
    shown = bench.out.getvalue()
    assert "step 1 of 25 · 110 of 200,000 tokens · $0.0004 of $1.00 · 0 of 30 min\n" in shown
    assert "step 2 of 25 · 220 of 200,000 tokens · $0.0007 of $1.00 · 0 of 30 min\n" in shown
    assert "goal complete after 2 steps: Seven boats." in shown
    assert list(bench.context.meter.slots) == [("gpt-4o", "goal")]


def test_a_goal_keeps_the_users_words_when_it_is_over(make: Make, kept: Store) -> None:
    bench = make(script("CMD: cat boats", DONE))
    bench.pursue()
    assert [talk.title.startswith(GOAL) for talk in list_talks(kept)] == [True]
    last = last_exchange(kept, bench.context.session)
    assert last is not None
    assert last.question.startswith(f"{GOAL}\n")
    assert last.answer == DONE


def test_a_blocked_goal_ends_with_its_reason(make: Make) -> None:
    bench = make(script("GOAL: blocked: there is no harbour"))
    assert bench.pursue() == GoalOutcome("blocked", 1, "there is no harbour")
    assert "goal blocked after 1 step: there is no harbour" in bench.out.getvalue()
    assert bench.context.goal == ""


def test_commands_beside_an_end_are_shown_and_not_run(make: Make, harbour: Path) -> None:
    bench = make(script("CMD: touch new\nGOAL: complete"), confirm="destructive")
    assert bench.pursue().reason == "complete"
    assert not (harbour / "new").exists()
    assert "not run, because the goal has ended: touch new" in bench.out.getvalue()


def test_an_answer_that_does_nothing_is_reminded_and_the_third_in_a_row_is_blocked(make: Make) -> None:
    bench = make(script("Hm.", "CMD: cat boats", "Hm.", "Hm.", "Hm."))
    outcome = bench.pursue()
    assert (outcome.reason, outcome.steps) == ("blocked", 5)
    told = bench.said()
    assert told[1] == continuations.REMINDER
    assert told[2].endswith(continuations.GO_ON)
    assert not told[2].endswith(continuations.REMINDER)
    assert len(told) == 5


def test_usage_that_nobody_told_is_shown_as_an_estimate(make: Make) -> None:
    bench = make(ScriptedProvider([[Text("GOAL: complete"), Finished("stop")]]))
    bench.pursue()
    assert re.search(r"step 1 of 20 · ~\d+ of 200,000 tokens", bench.out.getvalue())


def test_a_local_model_costs_nothing_and_no_dollars_are_shown(make: Make) -> None:
    bench = make(script(DONE), local=True, max_dollars=Decimal(0))
    assert bench.pursue().reason == "complete"
    assert "$" not in bench.out.getvalue()


def test_a_local_model_has_no_price_missing_in_the_status_line(make: Make) -> None:
    bench = make(script("Seven."), local=True)
    asyncio.run(bench.shell.act("?How many boats?"))
    assert "no price" not in bench.shell.status()
    unknown = make(ScriptedProvider([answer("Seven.")], target=Target(model="nobody-knows")), session="other")
    asyncio.run(unknown.shell.act("?How many boats?"))
    assert "no price" in unknown.shell.status()


def test_unknown_prices_are_told_as_they_cannot_bound(make: Make) -> None:
    bench = make(ScriptedProvider([answer(DONE)], target=Target(model="nobody-knows")))
    assert bench.pursue().reason == "complete"
    assert "does not limit" in bench.out.getvalue()


# Bounds.

ENDLESS = ["CMD: cat boats"] * 30


@pytest.mark.parametrize(
    ("bounds", "steps", "words"),
    [
        ({"max_steps": 3}, 3, "goal.max_steps is 3, 3 used"),
        ({"max_tokens": 700}, 0, "goal.max_tokens is 700"),
        ({"max_dollars": Decimal("0.003")}, 0, "goal.max_dollars is $0.0030"),
        ({"max_minutes": 2}, 0, "goal.max_minutes is 2, 2 used"),
    ],
)
def test_whichever_bound_is_reached_first_ends_it_and_is_named(
    make: Make, bounds: dict[str, Any], steps: int, words: str
) -> None:
    bench = make(script(*ENDLESS), **bounds)
    ticks = itertools.count(0, 4)
    outcome = bench.pursue(clock=lambda: float(next(ticks)))
    (name,) = bounds
    assert outcome.reason == name
    assert 0 < outcome.steps < 20
    assert steps in {0, outcome.steps}
    assert words in outcome.text
    assert words in " ".join(bench.out.getvalue().split())
    assert "; :goal continue resumes it" in " ".join(bench.out.getvalue().split())
    assert bench.context.goal == GOAL
    assert not bench.context.in_goal_mode
    assert bench.context.turns[-1]["role"] == "assistant"


def test_a_request_that_would_go_past_a_bound_is_not_made(make: Make) -> None:
    bench = make(script(DONE), max_tokens=20)
    assert bench.pursue().reason == "max_tokens"
    assert bench.provider.asked == []
    bench = make(script(DONE), max_dollars=Decimal("0.000001"))
    assert bench.pursue().reason == "max_dollars"
    assert bench.provider.asked == []


def test_what_was_used_before_the_goal_is_not_held_against_it(make: Make) -> None:
    bench = make(script(DONE), max_tokens=5_000)
    bench.context.add_usage("gpt-4o", Usage(prompt=10_000), cost=Decimal(5))
    assert bench.pursue().reason == "complete"
    assert "110 of 5,000 tokens · $0.0004 of $1.00" in bench.out.getvalue()


@dataclass
class Slow(ScriptedProvider):
    """A provider that does something, and then says nothing for a long time."""

    script: Any = ()
    then: Callable[[], None] = lambda: None
    more: list[str] = field(default_factory=list)

    async def stream(self, ask: Ask) -> AsyncGenerator[Event, None]:
        self.asked.append(ask)
        if len(self.asked) > 1:
            for event in answer(self.more[len(self.asked) - 2]):
                yield event
            return
        yield Text("Let me think.\nCMD: touch new\n")
        self.then()
        await asyncio.sleep(600)


def one_second_left(over: Callable[[], bool] = lambda: False) -> Callable[[], float]:
    """A clock by which a goal of one minute has a second left whenever it looks, until this is true.

    It stands still, so that a slow machine does not lose that second before the answer or the command begins.
    """
    looks = itertools.count()
    return lambda: 0.0 if next(looks) == 0 else 60.0 if over() else 59.0


def test_time_ends_an_answer_that_does_not_end(make: Make, harbour: Path) -> None:
    bench = make(Slow(), max_minutes=1, confirm="destructive")
    outcome = bench.pursue(clock=one_second_left())
    assert (outcome.reason, outcome.steps) == ("max_minutes", 1)
    assert not (harbour / "new").exists()
    assert bench.context.turns[-1]["content"].startswith("Let me think.")


def test_time_ends_a_command_that_does_not_end(make: Make, harbour: Path) -> None:
    bench = make(script("CMD: touch begun; sleep 600"), max_minutes=1, confirm="destructive")
    began = time.monotonic()
    outcome = bench.pursue(clock=one_second_left((harbour / "begun").exists))
    assert (outcome.reason, outcome.steps) == ("max_minutes", 1)
    assert time.monotonic() - began < 60


# What is asked.


@pytest.mark.parametrize("confirm", ["destructive", "writes", "always"])
def test_a_destructive_command_is_never_run_unasked(make: Make, harbour: Path, confirm: str) -> None:
    bench = make(script("CMD: rm -rf boats", DONE), confirm=confirm)
    bench.shell.chat.kept.preferences.set("always-run", ["rm -rf boats"])
    assert bench.pursue().reason == "complete"
    assert (harbour / "boats").exists()
    told = fence_output("[command skipped by the user] rm -rf boats")
    assert bench.said()[1] == f"{told}\n\nGo on."


@pytest.mark.parametrize(
    ("confirm", "runs"),
    [
        ("destructive", ["read-only", "writes"]),
        ("writes", ["read-only"]),
        ("always", []),
    ],
)
def test_what_runs_unasked_goes_by_the_settings(make: Make, confirm: str, runs: list[str]) -> None:
    commands = {"read-only": "cat boats", "writes": "touch new", "unknown": "no-such-program-at-all"}
    bench = make(script("".join(f"CMD: {line}\n" for line in commands.values()), DONE), confirm=confirm)
    bench.pursue()
    told = bench.said()[1]
    assert [kind for kind, line in commands.items() if f"$ {line}\n" in told] == runs
    assert told.count("skipped by the user") == 3 - len(runs)


def test_a_tool_that_is_not_allowed_counts_as_a_deed_and_what_follows_begins_a_line(make: Make) -> None:
    called = [Text("I ask."), ToolCall("a", "dive", "{}"), Finished("tool_calls")]
    bench = make(ScriptedProvider([called, answer("CMD: cat boats"), answer(DONE)]))
    assert bench.pursue() == GoalOutcome("complete", 2, "Seven boats.")
    assert bench.context.turns[2]["content"] == "[skipped by the user]"
    assert "seven" in bench.said()[1]


# A person at a terminal.


class Person:
    """A keyboard whose keys are pressed when the words before them appear, or when the file is there."""

    def __init__(self, *presses: tuple[str | Path, str]) -> None:
        self._hand, keyboard = pty.openpty()
        self.keyboard = os.fdopen(keyboard, encoding="utf-8")
        self.out = io.StringIO()
        console = Console(file=self.out, force_terminal=True, width=110, color_system=None)
        self.screen = Screen(console, keyboard=self.keyboard)
        self._presses = presses
        self._gone = threading.Event()
        self._seen = 0
        self._thread = threading.Thread(target=self._press, daemon=True)
        self._thread.start()

    def _press(self) -> None:
        for cue, keys in self._presses:
            if not until(lambda: self._gone.is_set() or self._comes(cue, choice=len(keys) == 1)):  # noqa: B023
                return
            if keys == "^C":
                press_ctrl_c()
            else:
                os.write(self._hand, keys.encode())
        while not self._gone.wait(5):
            os.write(self._hand, b"\x1b")  # a question that no test expects is refused, and holds up nothing

    def _comes(self, cue: str | Path, *, choice: bool) -> bool:
        if isinstance(cue, Path):
            if come := cue.exists():
                cue.unlink()
            return come
        # What is typed ahead of a question counts for nothing, so a choice is made when it can be seen.
        wanted = re.escape(cue) + (r"[^\0]*?\[\w\] " if choice else "")
        found = re.compile(wanted).search(self.out.getvalue(), self._seen)
        if found is not None:
            self._seen = found.end()
        return found is not None

    def leave(self) -> None:
        self._gone.set()
        self._thread.join()
        self.keyboard.close()
        os.close(self._hand)


@pytest.fixture
def person() -> Iterator[Callable[..., Person]]:
    people: list[Person] = []

    def come(*presses: tuple[str, str]) -> Person:
        people.append(Person(*presses))
        return people[-1]

    yield come
    for each in people:
        each.leave()


def test_a_person_runs_grants_and_declines(make: Make, harbour: Path, person: Any) -> None:
    at = person(
        ("$ touch one", "k"), ("$ rm -rf boats", "s"), ("$ rm two", "r"), ("type yes to run it", "yes\r")
    )
    answers = script("CMD: touch one\nCMD: touch two\nCMD: rm -rf boats\nCMD: rm two", DONE)
    assert make(answers, screen=at.screen).pursue().reason == "complete"
    assert sorted(each.name for each in harbour.iterdir()) == ["boats", "one"]
    shown = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", at.out.getvalue()).splitlines()]
    assert shown.count("$ touch one") == shown.count("$ touch two") == 1  # whether it was asked about or not


def test_reading_commands_are_offered_once_at_the_start(make: Make, person: Any) -> None:
    answers = script("CMD: ls\nCMD: cat boats/one 2>&1", "CMD: ls -l", DONE)
    at = person(("Commands of this goal that only read:", "r"))
    bench = make(answers, screen=at.screen, confirm="always")
    assert bench.pursue().reason == "complete"
    assert (
        at.out.getvalue().count("run them unasked") == 3
    )  # the choice, what Enter takes, and the word after the key
    assert "skipped" not in "".join(bench.said())
    refusing = person(("Commands of this goal that only read:", "s"), ("$ ls", "s"))
    bench = make(script("CMD: ls", DONE), screen=refusing.screen, confirm="always", session="other")
    assert bench.pursue().reason == "complete"
    assert "[command skipped by the user] ls" in "".join(bench.said())


def test_the_last_line_of_a_goal_has_the_first_line_of_its_summary_without_marks(make: Make) -> None:
    bench = make(script("GOAL: complete\nAll **seven** `boats`.\nAnd more."))
    bench.pursue()
    assert bench.out.getvalue().endswith("goal complete after 1 step: All seven boats.\n")


def test_ctrl_c_at_the_first_question_begins_no_goal(make: Make, person: Any) -> None:
    at = person(("Commands of this goal that only read:", "\x03"))
    bench = make(script(DONE), screen=at.screen, confirm="always")
    assert bench.pursue().reason == "stopped"
    assert not bench.context.goal
    assert not bench.provider.asked


def test_ctrl_c_pauses_and_an_instruction_is_the_next_turn(make: Make, harbour: Path, person: Any) -> None:
    at = person(("paused", "i"), ("instruct> ", "count the masts\n"))
    bench = make(Slow(then=press_ctrl_c, more=[DONE]), screen=at.screen, confirm="destructive")
    assert bench.pursue() == GoalOutcome("complete", 2, "Seven boats.")
    assert bench.said()[1] == "count the masts"
    assert not (harbour / "new").exists()


def test_ctrl_c_pauses_as_often_as_it_is_pressed(make: Make, harbour: Path, person: Any) -> None:
    begun = harbour / "begun"
    at = person(("paused", "c"), (begun, "^C"), ("paused", "c"), (begun, "^C"), ("paused", "s"))
    more = ["CMD: sh -c ': > begun; exec sleep 300'"] * 2
    bench = make(Slow(then=press_ctrl_c, more=more), screen=at.screen, confirm="destructive")
    before = signal.getsignal(signal.SIGINT)
    outcome = bench.pursue()
    assert (outcome.reason, outcome.steps) == ("stopped", 3)
    assert bench.said()[1] == continuations.PAUSED
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_pressed_many_times_in_a_row_is_one_pause(make: Make, person: Any) -> None:
    def press() -> None:
        for _ in range(5):
            press_ctrl_c()

    at = person(("paused", "c"))
    bench = make(Slow(then=press, more=[DONE]), screen=at.screen)
    assert bench.pursue() == GoalOutcome("complete", 2, "Seven boats.")
    assert at.out.getvalue().count("paused") == 1
    assert bench.context.turns[1]["content"].startswith("Let me think.")


def test_ctrl_c_in_an_instruction_takes_it_back_and_the_question_is_there_again(
    make: Make, person: Any
) -> None:
    at = person(("paused", "i"), ("instruct> ", "^C"), ("paused", "s"))
    bench = make(Slow(then=press_ctrl_c), screen=at.screen)
    assert bench.pursue() == GoalOutcome("stopped", 1, "")


def test_without_a_terminal_ctrl_c_stops(make: Make) -> None:
    bench = make(Slow(then=press_ctrl_c))
    assert bench.pursue() == GoalOutcome("stopped", 1, "")
    assert re.search(r"step 1 of 20 · ~\d+ of 200,000 tokens", bench.out.getvalue())
    assert bench.context.goal == ""


def test_an_error_pauses_and_the_goal_goes_on(make: Make, person: Any) -> None:
    at = person(("paused", "c"))
    bench = make(ScriptedProvider([[ProviderError("the line is dead")], answer(DONE)]), screen=at.screen)
    assert bench.pursue().reason == "complete"
    assert "the line is dead" in at.out.getvalue()


def test_without_a_terminal_an_error_ends_the_goal(make: Make) -> None:
    bench = make(ScriptedProvider([[ProviderError("the line is dead")]]))
    with pytest.raises(ProviderError):
        bench.pursue()
    assert bench.context.goal == ""


# Crashes and eviction.


class Crash(BaseException):
    """The end of the program."""


def test_a_crash_leaves_the_goal_and_it_is_taken_up_again(make: Make) -> None:
    bench = make(ScriptedProvider([answer("CMD: cat boats"), [Text("The boats"), Crash()]]))
    with pytest.raises(Crash):
        bench.pursue()
    again = make(script("CMD: cat boats", DONE))
    assert GOAL in pending(again.shell.chat)
    asyncio.run(goal.act(again.shell.workplace, "continue"))
    assert "goal complete after 2 steps" in again.out.getvalue()
    first = again.provider.asked[0].messages
    assert GOAL in first[0]["content"]
    assert "seven" in str(first)
    assert first[-1]["content"] == continuations.RESUMED
    assert pending(make(script()).shell.chat) == ""


def test_after_a_crash_questions_are_ordinary_until_the_goal_is_taken_up(make: Make) -> None:
    bench = make(ScriptedProvider([[Text("The boats"), Crash()]]))
    bench.context.remember("the harbour is small")
    with pytest.raises(Crash):
        bench.pursue()
    again = make(script("Low.", DONE, "High."))
    for line in ("?how is the tide", ":goal continue", "?and now"):
        asyncio.run(again.shell.act(line))
    prompts = [ask.messages[0]["content"] for ask in again.provider.asked]
    assert [GOAL in prompt for prompt in prompts] == [False, True, False]
    assert ["the harbour is small" in prompt for prompt in prompts] == [True, False, True]
    assert list(again.context.meter.slots) == [("gpt-4o", "goal"), ("gpt-4o", "main")]  # the bill is resumed


def test_a_goal_whose_model_cannot_be_opened_is_not_set(make: Make) -> None:
    bench = make(script("Low."), routes={"goal": "openai/gpt-4o"})
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        bench.pursue()
    assert pending(bench.shell.chat) == ""
    asyncio.run(bench.shell.act("?how is the tide"))
    assert GOAL not in str(bench.provider.asked[0].messages)


def test_a_crash_within_a_call_is_taken_up_again(make: Make) -> None:
    called = [ToolCall("a", "dive", "{}"), Finished("tool_calls")]
    bench = make(ScriptedProvider([called]))
    bench.context.goal = GOAL
    bench.context.append_user(goal.OPENING.format(goal=GOAL))
    bench.context.append(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "dive", "arguments": "{}"}}],
        }
    )
    again = make(script(DONE))
    assert again.pursue("").reason == "complete"


def test_a_goal_can_be_shown_and_given_up(make: Make) -> None:
    bench = make(script())
    bench.context.goal = GOAL
    for words in ("", "stop", "stop", "", "continue"):
        asyncio.run(bench.shell.act(f":goal {words}".strip()))
    shown = bench.out.getvalue().splitlines()
    assert shown[0].startswith(f"unfinished goal: {GOAL}")
    assert shown[1:3] == ["goal stopped", "there is no goal to stop"]
    assert shown[3:] == ["there is no goal; :goal TEXT sets one"] * 2
    with pytest.raises(ConfigurationError):
        bench.pursue("")


def test_both_names_pursue(make: Make) -> None:
    for name in ("goal", "norris"):
        bench = make(script(DONE), session=name)
        asyncio.run(bench.shell.act(f":{name} {GOAL}"))
        assert "goal complete after 1 step: Seven boats." in bench.out.getvalue()


def test_the_goal_survives_200_steps_in_a_small_window(make: Make) -> None:
    texts = [f"Step {number} of the plan.\nCMD: echo {number}; cat boats" for number in range(199)]
    bench = make(
        script(*texts, DONE), budget=900, max_steps=200, max_tokens=None, max_dollars=None, max_minutes=None
    )
    assert bench.pursue() == GoalOutcome("complete", 200, "Seven boats.")
    assert len(bench.context) == 400
    asked = bench.provider.asked
    assert all(f"[goal]\n{GOAL}\n" in ask.messages[0]["content"] for ask in asked)
    assert len(asked[-1].messages) < 60
    assert "198\nseven" in asked[-1].messages[-1]["content"]
