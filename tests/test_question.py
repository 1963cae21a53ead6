"""Questions: their files and piped input, the follow-ups after commands, and questions without an answer."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.benches import Bench, answer, new_bench, script
from ullage import store
from ullage.broker.events import Finished, Reasoning, Text, ToolCall
from ullage.errors import BudgetExceeded, ConfigurationError, ContextOverflowError, ProviderError
from ullage.session.continuations import FOLLOW_UP
from ullage.session.saved_talks import last_exchange
from ullage.shell.question import find_unanswered
from ullage.testing import SCRIPTED, ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ullage.store import Store

KEY = "AKIA" + "QWERTYUIOPASDFGH"
RUN_DRY = ProviderError("the provider is overloaded", status=400)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    with store.open(tmp_path / "kept.db") as opened:
        yield opened


@pytest.fixture
def make(kept: Store, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def one_more(provider: Any, follow_up: int = 8, **options: Any) -> Bench:
        bench = new_bench(kept, tmp_path, provider, **options)
        settings = bench.shell.chat.settings
        bench.shell.chat.settings = replace(settings, shell=replace(settings.shell, follow_up=follow_up))
        made.append(bench)
        return bench

    yield one_more
    for each in made:
        each.shell.runner.close()


def act(bench: Bench, line: str, piped: str = "") -> str:
    """Runs a line and returns what it showed."""
    before = len(bench.out.getvalue())
    asyncio.run(bench.shell.act(line, lambda: piped))
    return bench.out.getvalue()[before:]


def asked(bench: Bench, number: int = -1) -> str:
    """The last user message of a request."""
    text = bench.provider.asked[number].messages[-1]["content"]
    assert isinstance(text, str)
    return text


# Follow-ups -------------------------------------------------------------------------------------------------


def test_the_model_goes_on_with_the_results_until_it_suggests_nothing(make: Callable[..., Bench]) -> None:
    bench = make(script("Look:\nCMD: echo one\nCMD: echo two", "And:\nCMD: echo three", "All is well."))
    shown = act(bench, "?How is it?")
    assert shown.endswith("All is well.\n")
    assert asked(bench, 1).index("$ echo one\none\n") < asked(bench, 1).index("$ echo two\ntwo\n")
    assert asked(bench, 1).endswith(FOLLOW_UP)
    assert "$ echo three\nthree\n" in asked(bench, 2)
    assert len(bench.provider.asked) == 3


def test_the_last_exchange_begins_with_the_users_own_words(make: Callable[..., Bench], kept: Store) -> None:
    bench = make(script("Look:\n\nCMD: ls\n", "No file is there."))
    act(bench, "?What is here?")
    assert asked(bench).endswith(FOLLOW_UP)
    assert last_exchange(kept, bench.context.session) == ("What is here?", "No file is there.")


def test_a_conversation_without_a_turn_is_listed_only_while_it_goes_on(make: Callable[..., Bench]) -> None:
    bench = make(script("Seven."))
    act(bench, "echo hello")
    assert len(act(bench, ":sessions").splitlines()) == 1
    act(bench, ":new")
    act(bench, "?How many boats?")
    assert "How many boats?" in act(bench, ":sessions")
    assert len(act(bench, ":sessions").splitlines()) == 1


def test_an_answer_that_the_model_itself_cut_off_is_told_with_its_length(make: Callable[..., Bench]) -> None:
    target = replace(SCRIPTED, model="of-no-table")
    bench = make(ScriptedProvider([[Text("Seven boats"), Finished("length")]], target), reserved=None)
    shown = act(bench, "?How many boats?")
    assert re.search(r"cut off at ~\d tokens by the model", shown)
    assert "as the model allows" in act(bench, ":answer")


def test_follow_ups_end_at_their_bound_and_zero_turns_them_off(make: Callable[..., Bench]) -> None:
    bench = make(script(*["Again:\nCMD: echo one"] * 4), follow_up=2)
    assert "stopped after 2 follow-ups (shell.follow_up)" in act(bench, "?How is it?")
    assert len(bench.provider.asked) == 3
    off = make(script("Look:\nCMD: echo one"), follow_up=0, session="off")
    act(off, "?How is it?")
    assert len(off.provider.asked) == 1


def test_a_skipped_command_alone_causes_no_follow_up(make: Callable[..., Bench]) -> None:
    bench = make(script("Make it:\nCMD: touch new", "Seven."))
    act(bench, "?How is it?")  # it writes, and without a terminal nobody can confirm it
    assert len(bench.provider.asked) == 1
    act(bench, "?And now?")
    assert "[command skipped by the user] touch new" in asked(bench)


# Questions without an answer --------------------------------------------------------------------------------


def test_the_same_question_again_is_sent_once(make: Callable[..., Bench]) -> None:
    bench = make(ScriptedProvider([[RUN_DRY], answer("Seven.")]))
    with pytest.raises(ProviderError):
        act(bench, "?How many boats?")
    act(bench, "echo tide")
    assert "it is sent once" in act(bench, "?How many boats?")
    assert asked(bench).count("How many boats?") == 1
    assert "$ echo tide" in asked(bench)
    assert not find_unanswered(bench.context)


def test_another_question_says_what_it_is_joined_with(make: Callable[..., Bench]) -> None:
    bench = make(ScriptedProvider([[RUN_DRY], answer("Seven.")]))
    with pytest.raises(ProviderError):
        act(bench, "?How many boats?")
    shown = act(bench, "?And how many crews?")
    assert "sent together with 1 unanswered question: “How many boats?”" in shown
    assert asked(bench).endswith("How many boats?\n\nAnd how many crews?")


def test_only_the_newest_unanswered_questions_are_quoted(make: Callable[..., Bench]) -> None:
    bench = make(ScriptedProvider([[RUN_DRY]] * 3 + [answer("Seven.")]))
    for number in range(3):
        with pytest.raises(ProviderError):
            act(bench, f"?question {number}")
    shown = act(bench, "?And now?")
    assert "sent together with 3 unanswered questions: …, “question 1”, “question 2”;" in shown


def test_the_history_shows_a_question_before_the_output_that_went_with_it(make: Callable[..., Bench]) -> None:
    bench = make(script("Low."))
    act(bench, "echo tide")
    act(bench, "?How is it?")
    assert "user      How is it? [with output]" in act(bench, ":history")


def test_retry_asks_again_after_a_failure_and_replaces_an_answer(make: Callable[..., Bench]) -> None:
    bench = make(ScriptedProvider([[RUN_DRY], answer("Seven."), answer("Eight.")]))
    assert "there is no question to ask again" in act(bench, ":retry")
    act(bench, "echo tide")
    with pytest.raises(ProviderError):
        act(bench, "?How many boats?")
    assert act(bench, ":retry").endswith("Seven.\n")
    assert act(bench, ":retry").endswith("Eight.\n")
    assert len({asked(bench, number) for number in range(3)}) == 1
    assert [turn["content"] for turn in bench.context.turns if turn["role"] == "assistant"] == ["Eight."]


# Ends of answers --------------------------------------------------------------------------------------------


def test_an_answer_that_was_cut_off_or_is_empty_is_told(make: Callable[..., Bench]) -> None:
    bench = make(ScriptedProvider([[Text("Sev"), Finished("length")], [Finished("stop")]]))
    assert "the answer was cut off at 100 tokens" in act(bench, "?How many boats?")
    assert "the model sent an empty answer: :retry asks again" in act(bench, "?How many boats?")


def test_reasoning_and_tool_results_are_folded_and_can_be_looked_at(make: Callable[..., Bench]) -> None:
    called = [Reasoning("It must be deep."), ToolCall("a", "dive", "{}"), Finished("tool_calls")]
    bench = make(ScriptedProvider([called, answer("Seven fathoms.")]))
    shown = act(bench, "?How deep is it?")
    assert "It must be deep." not in shown
    assert "folded: reasoning ~" in shown
    unfolded = act(bench, ":last")
    assert "reasoning\nIt must be deep.\n" in unfolded
    assert "dive {}\n[skipped by the user]\n" in unfolded


def test_a_short_answer_for_a_cap_is_told_and_what_cannot_fit_is_refused(make: Callable[..., Bench]) -> None:
    bench = make(script("Seven."), reserved=4_000, cost={"cap_at_dollars": "0.004"})
    assert "the cap leaves room for an answer of at most " in act(bench, "?How many boats?")
    assert 128 <= (bench.provider.asked[0].max_output or 0) < 1_000
    refused = make(script("Seven."), cost={"cap_at_dollars": "0.0001"}, session="refused")
    with pytest.raises(BudgetExceeded):
        act(refused, "?How many boats?")


def test_the_length_of_answers_has_a_control(make: Callable[..., Bench]) -> None:
    bench = make(script("Seven.", "Eight."))
    assert act(bench, ":answer 40") == "an answer may have 40 tokens\n"
    act(bench, "?How many boats?")
    assert act(bench, ":answer auto") == "an answer may have 100 tokens\n"
    act(bench, "?How many boats?")
    assert [each.max_output for each in bench.provider.asked] == [40, 100]
    with pytest.raises(ConfigurationError, match="Use :answer"):
        act(bench, ":answer long")


# Files and piped input --------------------------------------------------------------------------------------


def test_files_and_folders_go_with_a_question(make: Callable[..., Bench], tmp_path: Path) -> None:
    (tmp_path / "boats.csv").write_text("heron,420\n")
    (tmp_path / "log of may.txt").write_text("calm\n")
    (tmp_path / "quay").mkdir()
    (tmp_path / "quay" / "one.txt").write_text("first berth\n")
    (tmp_path / "quay" / "two.bin").write_bytes(b"\0\1")
    bench = make(script("Seven."))
    shown = act(bench, '?sum up @boats.csv, @"log of may.txt" and @quay/ but not @property')
    sent = asked(bench)
    assert "file boats.csv:\nheron,420\n" in sent
    assert "file log of may.txt:\ncalm\n" in sent
    assert "file quay/one.txt:\nfirst berth\n" in sent
    assert sent.endswith("but not @property")
    assert "sent with the question: boats.csv ~" in shown
    assert "(1 not sent: no text, or too large)" in shown


def test_what_cannot_be_sent_is_an_error_and_nothing_is_kept(
    make: Callable[..., Bench], tmp_path: Path
) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "a.py").write_text("pass\n")
    bench = make(script("Seven."))
    with pytest.raises(ConfigurationError, match=r"@missing\.py: there is no such file"):
        act(bench, "?explain @a.py and @missing.py")
    with pytest.raises(ConfigurationError, match="is not a text file"):
        act(bench, "?explain @photo.png")
    assert not bench.context.turns
    assert not bench.context.printed_tokens
    act(bench, r"?what is \@types/node")
    assert asked(bench).endswith("what is @types/node")


def test_a_category_at_the_start_wins_over_a_file(make: Callable[..., Bench], tmp_path: Path) -> None:
    (tmp_path / "quick").write_text("a file\n")
    bench = make(script("Seven.", "Eight."), prompts={"quick": "Be brief."})
    act(bench, "@quick how many boats")
    assert asked(bench) == "how many boats"
    act(bench, "see @quick")
    assert "file quick:\na file" in asked(bench)


def test_a_large_file_is_cut_and_can_be_recalled(make: Callable[..., Bench], tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text("".join(f"line {number} of the log\n" for number in range(4_000)))
    bench = make(script("Seven."), budget=2_000)
    assert "; cut to ~" in act(bench, "?what is in @big.log")
    assert "line 0 of" in asked(bench)
    assert "line 2000 of" not in asked(bench)
    assert "line 2000 of the log" in act(bench, ":recall line 2000 of the log")


def test_piped_input_goes_with_the_question(make: Callable[..., Bench]) -> None:
    bench = make(script("A diff."))
    assert "piped input ~" in act(bench, "what is this", piped="-old\n+new\n")
    assert "piped input:\n-old\n+new" in asked(bench)


# Kept out and masked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["!!echo low tide", " echo low tide"])
def test_a_command_can_be_kept_out(make: Callable[..., Bench], line: str) -> None:
    bench = make(script("Seven."))
    assert "kept out of the conversation" in act(bench, line)
    act(bench, "?How many boats?")
    assert asked(bench) == "How many boats?"


def test_what_was_kept_out_stays_out_when_it_runs_again(make: Callable[..., Bench]) -> None:
    bench = make(script("Seven."))
    act(bench, "!!echo low tide")
    assert act(bench, "!!") == "$ echo low tide\nkept out of the conversation\n"
    act(bench, "echo high tide")
    act(bench, "!!")
    act(bench, "?How many boats?")
    assert "low tide" not in asked(bench)
    assert asked(bench).count("$ echo high tide") == 2


def test_a_secret_is_masked_for_the_model_and_only_the_user_recalls_it(
    make: Callable[..., Bench], tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(f"KEY={KEY}\n")
    bench = make(script("Seven."))
    shown = act(bench, f"echo {KEY}")
    assert "1 secret is masked for the model (AWS key id)" in shown or "2 secrets are masked" in shown
    handle = shown.partition(":recall ")[2].split()[0]
    assert f"echo {KEY}\n" in act(bench, f":recall {handle}")
    act(bench, "?see @.env", piped=f"id {KEY}")
    sent = "".join(str(message["content"]) for message in bench.provider.asked[0].messages)
    assert KEY not in sent
    assert sent.count("<masked: AWS key id>") == 4
    assert KEY not in bench.context.answer_recall({"handle": handle})
    assert KEY not in bench.context.answer_recall({"query": f"echo {KEY}"})
    assert KEY.encode() not in b"".join(each.read_bytes() for each in tmp_path.glob("kept.db*"))


def test_compacting_says_how_much_it_has_saved(make: Callable[..., Bench]) -> None:
    bench = make(script(*["Seven. " * 200] * 4), budget=3_000)
    for number in range(4):
        act(bench, f"?question {number}")
    before = bench.context.estimate_tokens()
    shown = act(bench, ":compact")
    saved = before - bench.context.estimate_tokens()
    assert saved > 0
    assert shown.startswith(f"{saved:,} tokens saved; :history marks")


# Figures before a question is sent --------------------------------------------------------------------------


def test_pending_output_has_its_own_block_and_the_figures_are_those_of_a_refusal(
    make: Callable[..., Bench],
) -> None:
    bench = make(script("Seven."), budget=700)
    act(bench, "seq 40")
    pending = bench.context.printed_tokens
    shown = act(bench, ":context")
    used = bench.shell.chat.count().ceiling + pending
    assert shown.splitlines()[0].startswith(f"~{used:,} of 700 tokens")
    assert re.search(rf"▨ pending +{pending} ", shown)
    assert "pending: the output of commands, sent with the next question" in shown
    bench.shell.chat.settings = replace(
        bench.shell.chat.settings,
        shell=replace(bench.shell.chat.settings.shell, status="{ctx_used} {ctx_pending}"),
    )
    assert bench.shell.status() == f"~{used} ~{pending}"
    with pytest.raises(ContextOverflowError) as refused:
        act(bench, "?" + "quay " * 800)
    assert f"Cannot fit request: {refused.value.tokens} tokens" in " ".join(act(bench, ":context").split())


def test_pending_output_adds_what_was_told(make: Callable[..., Bench]) -> None:
    bench = make(script("Seven."))
    act(bench, "seq 300")
    told = bench.context.printed_tokens
    before = bench.context.count().ceiling
    act(bench, "?x")
    sent = bench.context.rendered
    assert sent is not None
    assert 0 <= before + told - sent.count.ceiling + 20 <= 40
