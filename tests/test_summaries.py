"""Summaries: when they are written, what they are given, and what happens when they fail."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.test_context import FullJournal, calls, result, say
from tests.world import PATIENCE
from ullage.context import Context
from ullage.context.summary import ATTEMPTS, cut_to_length
from ullage.errors import StoreError
from ullage.messages import Message, text_of

Turns = Sequence[Message] | None


class Recorder:
    """A summarizer that notes what it is asked."""

    def __init__(self, answer: Callable[[str | None, Turns], Any] | None = None) -> None:
        self.asked: list[tuple[str | None, Turns]] = []
        self.answer = answer or (lambda *_: f"Summary {len(self.asked)}.")

    def __call__(self, prior: str | None, turns: Turns) -> str | None:
        self.asked.append((prior, turns))
        return self.answer(prior, turns)


def text(turn: Message) -> str:
    return text_of(turn["content"])


def converse(context: Context, exchanges: int, words: int = 30) -> None:
    """Exchanges as they happen: asked, rendered, answered."""
    for number in range(exchanges):
        context.append_user(f"Question {number}: what is in /srv/file{number}.txt? " + "word " * words)
        assert context.fitted().count.ceiling <= context.limit
        context.append(say(f"Answer {number}: value={number * 17}. " + "more " * words))


def test_getting_ready_refuses_nothing_that_can_be_sent() -> None:
    async def go() -> None:
        context = Context(token_budget=1_500, max_turns=None, summarize=lambda *_: "N " * 900, model="gpt-4o")
        converse(context, 30, words=20)
        context.use_model("gpt-4o", window=1_000, reserved_output=100)
        context.append_user("Last? " + "how many? " * 150)
        await context.prepare()
        assert context.fitted().count.ceiling <= context.limit

    asyncio.run(go())


def test_what_leaves_the_window_of_another_model_needs_no_summary() -> None:
    recorder = Recorder()
    context = Context(token_budget=4_000, max_turns=None, summarize=recorder, model="gpt-4o")
    converse(context, 8)
    context.append_user("And now?")

    async def go() -> None:
        with context.temporary_limits():
            context.use_model("gpt-4", window=1_000, reserved_output=400)
            await context.prepare()
            assert context.fitted().dropped
            context.append(say("Seven."))
        context.append_user("And then?")
        await context.prepare()

    asyncio.run(go())
    context.fitted()
    assert recorder.asked == []


def test_the_first_summary_has_no_prior_and_the_next_extend_it() -> None:
    recorder = Recorder()
    context = Context(token_budget=800, summarize=recorder, model="gpt-4o")
    converse(context, 40)
    assert recorder.asked[0][0] is None
    assert [prior for prior, _ in recorder.asked[1:]] == [
        f"Summary {number}." for number in range(1, len(recorder.asked))
    ]
    system = context.to_messages()[0]["content"]  # this may write the next summary
    assert f"[earlier conversation summary]\n{context.summary}" in system
    assert context.summary_failure is None
    assert context.fitted().count.breakdown["summary"] > 0


def test_every_turn_that_was_evicted_is_summarized_once_in_order() -> None:
    recorder = Recorder()
    context = Context(token_budget=800, summarize=recorder, model="gpt-4o")
    converse(context, 60)
    under_way = context.summaries.future if context.summaries else None
    assert under_way is None or under_way.result()
    told = [turn for _, turns in recorder.asked for turn in turns or () if turn["role"] != "system"]
    assert sorted(map(text, told)) == sorted(map(text, context.turns[: len(told)]))
    evicted = {change.index for change in context.changes if change.kind == "evict"}
    assert len(evicted - set(range(len(told)))) <= 6  # what the last trim took beyond the forecast


def test_a_summary_is_written_before_it_is_needed_and_nobody_waits() -> None:
    started, go = threading.Event(), threading.Event()

    def slow(*_: object) -> str:
        started.set()
        go.wait(PATIENCE)
        return "Slow summary."

    context = Context(token_budget=800, max_turns=None, summarize=slow, model="gpt-4o")
    while context.count().ceiling < 0.8 * 800:
        assert not started.is_set()
        context.append_user("Question. " + "word " * 10)
        context.to_messages()
        context.append(say("Answer. " + "more " * 10))
    assert started.wait(PATIENCE)
    assert context.changes == ()  # nothing is evicted yet
    assert context.summary == ""
    go.set()
    converse(context, 4)
    assert context.summary == "Slow summary."


def test_the_prompt_changes_at_a_trim_and_not_between() -> None:
    context = Context(token_budget=800, summarize=Recorder(), model="gpt-4o")
    before: list[Message] = []
    changed = 0
    for number in range(60):
        context.append_user(f"Question {number}. " + "word " * 20)
        sent = context.to_messages()
        if sent[: len(before)] != before:
            changed += 1
            assert sent[0] != before[0]
        before = sent
        context.append(say("Answer. " + "more " * 20))
        before = [*before, context.turns[-1]]
    assert 1 < changed < 20


def test_a_summary_that_becomes_too_long_is_compressed() -> None:
    def answer(_: str | None, turns: Turns) -> str:
        return "short" if turns is None else "long " * 30

    recorder = Recorder(answer)
    context = Context(token_budget=800, summarize=recorder, max_summary_chars=100, model="gpt-4o")
    converse(context, 12)
    assert context.summary == "short"
    assert recorder.asked[1] == (("long " * 30).strip(), None)


@pytest.mark.parametrize(
    "compress", [lambda: None, lambda: "", lambda: "longer " * 60, lambda: 1 / 0, lambda: "x" * 140]
)
def test_after_a_failed_or_longer_compression_the_summary_is_still_bounded(
    compress: Callable[[], Any],
) -> None:
    recorder = Recorder(lambda _, turns: compress() if turns is None else "fact " * 40)
    context = Context(token_budget=800, summarize=recorder, max_summary_chars=100, model="gpt-4o")
    converse(context, 20)
    assert 0 < len(context.summary) <= 100
    assert len([1 for _, turns in recorder.asked if turns is None]) <= len(recorder.asked) / 2


@pytest.mark.parametrize(
    "answer",
    [
        lambda: None,
        lambda: "",
        lambda: "   ",
        lambda: 7,
        lambda: 1 / 0,
        lambda: "longer than it was given " * 500,
    ],
)
def test_without_a_usable_answer_turns_leave_with_the_digest_alone(answer: Callable[[], Any]) -> None:
    recorder = Recorder(lambda *_: answer())
    context, plain = (Context(token_budget=800, summarize=each, model="gpt-4o") for each in (recorder, None))
    converse(context, 40)
    converse(plain, 40)
    assert context.to_messages() == plain.to_messages()
    assert context.summary == ""
    assert context.summary_failure is not None
    trims = len(context.requests)
    assert 0 < len(recorder.asked) <= trims


def test_turns_that_fail_again_and_again_are_given_up() -> None:
    recorder = Recorder(lambda *_: None)
    context = Context(token_budget=800, summarize=recorder, model="gpt-4o")
    converse(context, 60)
    tries: dict[str, int] = {}
    for _, turns in recorder.asked:
        for turn in turns or ():
            tries[turn["content"]] = tries.get(turn["content"], 0) + 1
    assert max(tries.values()) <= ATTEMPTS


def test_a_summarizer_that_recovers_is_heard() -> None:
    recorder = Recorder()
    recorder.answer = lambda *_: None if len(recorder.asked) < 3 else "Better now."
    context = Context(token_budget=800, summarize=recorder, model="gpt-4o")
    converse(context, 60)
    assert context.summary == "Better now."
    assert context.summary_failure is None


def test_what_is_summarized_fits_the_summarizers_own_model() -> None:
    sizes: list[int] = []

    def measure(prior: str | None, turns: Turns) -> str:
        sizes.append(
            ullage.count(turns or [], model="gpt-4o").ceiling
            + ullage.count([say(prior or "")], model="gpt-4o").ceiling
        )
        return "Summary."

    ullage.register_model(ullage.ModelInfo(name="tiny-summarizer", window=1_200, max_output=200))
    context = Context(
        token_budget=20_000,
        max_turns=None,
        summarize=measure,
        summarizer_model="tiny-summarizer",
        model="gpt-4o",
    )
    for number in range(8):
        context.append_user(f"Read {number}")
        context.append(calls("a"))
        context.append(result("a", "entry " * 2_000))
        context.to_messages()
        context.append(say("Read. " + "more " * 800))
        context.append_user("And?")
        context.to_messages()
        context.append(say("Well. " + "more " * 800))
    assert context.summary == "Summary."
    assert sizes
    assert 300 < max(sizes) <= 1_000


def test_long_arguments_are_cut_to_valid_ones_for_the_summarizer() -> None:
    seen: list[Message] = []

    def look(_: str | None, turns: Turns) -> str:
        seen.extend(turns or ())
        return "Summary."

    ullage.register_model(ullage.ModelInfo(name="tiny-summarizer", window=1_200, max_output=200))
    context = Context(token_budget=6_000, summarize=look, summarizer_model="tiny-summarizer", model="gpt-4o")
    for number in range(6):
        context.append_user(f"Write {number}")
        step = calls("a")
        step["tool_calls"][0]["function"]["arguments"] = json.dumps({"text": "line " * 1_500})
        context.to_messages()
        context.append(step)
        context.append(result("a"))
        context.to_messages()
        context.append(say("Written."))
    steps = [turn for turn in seen if turn.get("tool_calls")]
    assert steps
    assert all(json.loads(turn["tool_calls"][0]["function"]["arguments"])["arguments"] for turn in steps)
    assert context.summary_failure is None


def test_no_summary_is_written_in_goal_mode() -> None:
    recorder = Recorder()
    context = Context(token_budget=800, summarize=recorder, model="gpt-4o")
    context.goal = "Reach the end."
    converse(context, 30)
    assert recorder.asked == []
    assert context.changes


def test_a_summary_that_would_not_fit_is_left_out() -> None:
    context = Context(
        token_budget=260,
        summarize=Recorder(lambda *_: "fact " * 120),
        system_prompt="Be brief.",
        model="gpt-4o",
    )
    shown: list[bool] = []
    for number in range(12):
        context.append_user(f"Question {number}. " + "word " * (20 if number < 8 else 120))
        assert context.fitted().count.ceiling <= 260
        shown.append("[earlier conversation summary]" in context.to_messages()[0]["content"])
        context.append(say("Answer. " + "more " * 40))
    assert shown[4:] == [True] * 4 + [False] * 4
    assert context.summary


def test_reset_clears_the_summary_and_what_is_under_way() -> None:
    context = Context(token_budget=800, summarize=Recorder(), model="gpt-4o")
    converse(context, 20)
    assert context.summary
    context.reset()
    assert context.summary == ""
    context.append_user("Hello")
    assert "summary" not in context.to_messages()[0]["content"]


def test_a_resumed_conversation_has_its_summary_where_it_was() -> None:
    context = Context(token_budget=840, summarize=Recorder(), model="gpt-4o")
    converse(context, 40)
    context.append_user("Go on.")
    sent = context.to_messages()
    again = Context.resume(
        context.session, context.journal, token_budget=840, summarize=Recorder(), model="gpt-4o"
    )
    assert again.summary == context.summary
    assert again.to_messages() == sent


def test_an_empty_prompt_can_have_a_summary() -> None:
    context = Context(token_budget=800, summarize=Recorder(), system_prompt="", model="gpt-4o")
    converse(context, 40)
    assert text_of(context.to_messages()[0]["content"]).startswith("[earlier conversation summary]")


# On an event loop -------------------------------------------------------------------------------------


def asynchronous(answers: list[tuple[str | None, Turns]]) -> Callable[[str | None, Turns], Awaitable[str]]:
    async def summarize(prior: str | None, turns: Turns) -> str:
        answers.append((prior, turns))
        await asyncio.sleep(0.001)
        return f"Summary {len(answers)}."

    return summarize


def test_an_async_summarizer_writes_on_the_running_loop() -> None:
    answers: list[tuple[str | None, Turns]] = []

    async def main() -> Context:
        context = Context(token_budget=800, summarize=asynchronous(answers), model="gpt-4o")
        for number in range(40):
            context.append_user(f"Question {number}. " + "word " * 30)
            await context.prepare()
            context.to_messages()
            context.append(say("Answer. " + "more " * 30))
        return context

    context = asyncio.run(main())
    assert context.summary == f"Summary {len(answers) - 1}." or context.summary == f"Summary {len(answers)}."
    assert len(answers) > 3


def test_without_waiting_an_async_summary_comes_at_the_next_trim() -> None:
    answers: list[tuple[str | None, Turns]] = []

    async def main() -> Context:
        context = Context(token_budget=800, summarize=asynchronous(answers), model="gpt-4o")
        for number in range(40):
            context.append_user(f"Question {number}. " + "word " * 30)
            context.to_messages()
            await asyncio.sleep(0.002)
            context.append(say("Answer. " + "more " * 30))
        return context

    assert asyncio.run(main()).summary.startswith("Summary ")


def test_an_async_summarizer_works_without_a_loop() -> None:
    answers: list[tuple[str | None, Turns]] = []
    context = Context(token_budget=800, summarize=asynchronous(answers), model="gpt-4o")
    converse(context, 40)
    assert context.summary.startswith("Summary ")


def test_a_loop_that_ends_in_the_middle_of_a_summary_leaves_a_failure() -> None:
    async def never(*_: object) -> str:
        await asyncio.sleep(60)
        return "Never."

    async def main(context: Context) -> None:
        converse(context, 12)

    context = Context(token_budget=800, summarize=never, model="gpt-4o")
    asyncio.run(main(context))
    context.append_user("Go on. " + "word " * 200)
    context.to_messages()
    assert "stopped" in str(context.summary_failure)


@given(st.text(max_size=60), st.integers(1, 60))
def test_a_bounded_text_is_within_its_bound_and_has_both_ends(text: str, most: int) -> None:
    cut = cut_to_length(text, most)
    assert len(cut) <= most
    assert cut == text if len(text) <= most else text.startswith(cut[: most // 3])


@pytest.mark.parametrize("forget", [Context.reset, Context.undo])
@pytest.mark.parametrize("on_loop", [True, False])
def test_a_summary_of_turns_that_are_gone_is_broken_off(
    forget: Callable[[Context], Any], on_loop: bool
) -> None:
    begun, broken_off = threading.Event(), threading.Event()

    async def never(*_: object) -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            broken_off.set()
        return "Never."

    context = Context(token_budget=800, summarize=never, model="gpt-4o")

    async def main() -> None:
        converse(context, 7)
        await asyncio.sleep(0.01)
        forget(context)
        await asyncio.sleep(0.01)
        assert broken_off.is_set()

    if on_loop:
        asyncio.run(main())
    else:
        converse(context, 7)
        assert begun.wait(PATIENCE)
        forget(context)
    assert broken_off.wait(PATIENCE)


def test_a_summary_that_could_not_be_kept_is_not_written_twice() -> None:
    journal, recorder = FullJournal(), Recorder()
    context = Context(
        journal=journal,
        token_budget=700,
        max_turns=None,
        summarize=recorder,
        summarize_at=1.0,
        model="gpt-4o",
    )
    for number in range(40):
        context.append_user(f"Question {number}? " + "word " * 30)
        journal.full = True
        try:
            context.fitted()
        except StoreError:
            break
        finally:
            journal.full = False
        context.append(say("Answer. " + "more " * 30))
    assert len(recorder.asked) == 1
    context.fitted()
    assert len(recorder.asked) == 1
    assert context.summary == "Summary 1."
