"""The conversation: what it keeps, what it sends, and what it says of itself."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ullage
from tests.strategies import TEXTS, TOOLS, Messages, conversations, exchanges, own_words, policies
from ullage import ContextOverflowError, FitPolicy, InvalidConversation
from ullage.call_pairs import INTERRUPTED, check_conversation
from ullage.context import DEFAULT_PROMPT, RECALL_TOOL, Context, JournalEvent, MemoryJournal, answer_recall
from ullage.errors import ConfigurationError, Conflict, StoreError
from ullage.fitting.pieces import letters_of, piece_of
from ullage.testing import FixedTokenizer
from ullage.text import DIGEST_CLOSE, DIGEST_OPEN, fence_output
from ullage.usage import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def call(name: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": f"tool_{name}", "arguments": arguments}}


def calls(*names: str, text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": [call(name) for name in names]}


def result(name: str, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": text}


def say(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def talk(context: Context, turns: int, words: int = 30) -> None:
    for number in range(turns // 2):
        context.append_user(f"Question {number} about /srv/file{number}.txt. " + "word " * words)
        context.append(say(f"Answer {number}: value={number * 17}. " + "more " * words))


# D1: the budget ---------------------------------------------------------------------------------------


def test_the_limit_is_the_smaller_of_budget_and_window() -> None:
    assert Context(model="gpt-4o").limit == 4_096
    assert Context(window=4_000, reserved_output=1_000, model="gpt-4o").limit == 3_000
    assert Context(token_budget=None, window=100_000, reserved_output=1_000, model="gpt-4o").limit == 99_000
    assert Context(token_budget=None, model="gpt-4o").limit == ullage.Budget.for_model("gpt-4o").max_input
    assert Context(model="a-model-nobody-knows").limit == 4_096


@pytest.mark.parametrize(
    ("name", "value"), [("model", "gpt-4o"), ("token_budget", 500), ("max_turns", 7), ("limit", 500)]
)
def test_an_assignment_that_would_change_nothing_is_an_error(name: str, value: object) -> None:
    context = Context(model="gpt-4o", token_budget=500, max_turns=7)
    assert getattr(context, name) == value
    with pytest.raises(AttributeError):
        setattr(context, name, value)


def test_the_tools_are_told_and_only_use_tools_changes_them() -> None:
    context = Context(model="gpt-4o", tools=TOOLS)
    assert context.tools is not None
    with pytest.raises(AttributeError):
        context.tools = ()  # type: ignore[misc]
    context.tools[0]["function"]["name"] = "another"
    assert list(context.tools) == list(TOOLS)
    context.use_tools(None)
    assert context.tools is None


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_context_that_is_pickled_or_copied_says_what_to_do(again: Callable[[Context], object]) -> None:
    with pytest.raises(ConfigurationError, match=r"Context\.resume\(session, journal\)"):
        again(Context())


def test_a_budget_that_cannot_work_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="reserved_output"):
        Context(window=1_000, reserved_output=1_000, model="gpt-4o")
    with pytest.raises(ConfigurationError, match="not known"):
        Context(model="a-model-nobody-knows", token_budget=None)


def test_exactly_max_turns_evict_nothing() -> None:
    context = Context(max_turns=40, token_budget=100_000, model="gpt-4o")
    talk(context, 40)
    assert context.enforce_budget() == []
    assert len(context.to_messages()) == 41
    assert context.changes == ()


def test_fourteen_turns_at_a_maximum_of_four_leave_at_most_four() -> None:
    context = Context(max_turns=4, token_budget=100_000, model="gpt-4o")
    talk(context, 13)
    context.append_user("And now?")
    assert len(context.to_messages()) - 1 <= 4
    assert len(context) == len(context.turns) == 13


def test_a_tokenizer_that_says_fifty_a_turn_at_a_budget_of_a_hundred_leaves_at_most_two() -> None:
    context = Context(
        system_prompt="",
        tokenizer=FixedTokenizer(50),
        token_budget=115,
        policy=FitPolicy(digest_share=0),
        model="gpt-4o",
    )
    talk(context, 8)
    context.append_user("And now?")
    assert 1 <= len(context.to_messages()) <= 2


def test_a_history_of_forty_turns_costs_one_count_a_turn() -> None:
    tokenizer = FixedTokenizer(5)
    context = Context(tokenizer=tokenizer, max_turns=100, model="gpt-4o")
    talk(context, 40)
    context.append_user("Last one.")
    for _ in range(3):
        context.to_messages()
    for turn in context.turns:
        assert tokenizer.asked.count(turn["content"]) == 1


def test_an_over_long_system_prompt_with_no_turns_left_is_an_overflow_and_no_spin() -> None:
    context = Context(system_prompt="rule " * 5_000, token_budget=1_000, model="gpt-4o")
    with pytest.raises(ContextOverflowError, match="Cannot fit request") as caught:
        context.to_messages()
    assert caught.value.limit == 1_000
    with pytest.raises(ContextOverflowError, match="shorten the system prompt"):
        context.enforce_budget()


def test_an_overflow_names_the_block_that_is_too_big() -> None:
    context = Context(token_budget=400, model="gpt-4o")
    context.set_project("main.py\n" * 500)
    context.append_user("Hello")
    with pytest.raises(ContextOverflowError, match="leave the project tree out") as caught:
        context.to_messages()
    assert caught.value.breakdown["project"] > 400
    context.set_project("")
    assert context.to_messages()


def test_enforcing_the_budget_tells_the_turns_that_go() -> None:
    context = Context(token_budget=600, model="gpt-4o")
    talk(context, 30)
    context.append_user("And now?")
    gone = context.enforce_budget()
    kept = context.to_messages()[1:]
    assert gone
    assert gone == context.turns[: len(gone)]
    assert kept == list(context.turns[len(gone) :])


def test_estimates_tell_what_stands_here_before_a_trim() -> None:
    context = Context(token_budget=600, model="gpt-4o")
    before = context.estimate_tokens()
    assert before == ullage.count(context.history(), model="gpt-4o").tokens
    context.append_user("word " * 2_000)
    assert context.estimate_tokens() > 2_000


# D2: what may be appended -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"content": "Hello"}, "role"),
        ({"role": "robot", "content": "Hello"}, "role"),
        ({"role": "system", "content": "Hello"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": None}, "content"),
        ({"role": "assistant", "content": None}, "content"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "tool", "content": "ok"}, "tool_call_id"),
        ({"role": "tool", "content": "ok", "tool_call_id": "other"}, "tool_call_id"),
    ],
)
def test_what_is_no_turn_is_refused_and_changes_nothing(message: dict[str, Any], field: str) -> None:
    context = Context(model="gpt-4o")
    context.append_user("Do it.")
    context.append(calls("a"))
    before = (context.turns, context.journal.events(context.session))
    with pytest.raises(InvalidConversation) as caught:
        context.append(message)
    assert caught.value.field == field
    assert (context.turns, context.journal.events(context.session)) == before


def test_empty_content_is_accepted() -> None:
    context = Context(model="gpt-4o")
    context.append_user("")
    context.append(say(""))
    assert [message["content"] for message in context.to_messages()[1:]] == ["", ""]


def test_tool_turns_follow_several_parallel_calls_in_any_order() -> None:
    context = Context(model="gpt-4o")
    context.append_user("Look at both.")
    context.append(calls("a", "b", "c"))
    with pytest.raises(InvalidConversation, match="calls without a result"):
        context.to_messages()
    for name in "cab":
        context.append(result(name))
    with pytest.raises(InvalidConversation, match="answers no open call"):
        context.append(result("b"))
    check_conversation(context.to_messages())


def test_a_turn_before_all_results_are_there_is_refused() -> None:
    context = Context(model="gpt-4o")
    context.append_user("Look at both.")
    context.append(calls("a", "b"))
    context.append(result("a"))
    with pytest.raises(InvalidConversation, match="calls without a result"):
        context.append_user("Well?")
    assert context.waiting == ("b",)


# D3 to D5: the prompt and its blocks ------------------------------------------------------------------


def test_the_system_prompt_is_in_front_and_no_turn() -> None:
    context = Context(model="gpt-4o")
    context.append_user("Hello")
    assert context.to_messages()[0] == {"role": "system", "content": DEFAULT_PROMPT}
    assert len(context.turns) == 1
    assert '"CMD: "' in DEFAULT_PROMPT
    assert "tools" in DEFAULT_PROMPT


def test_without_a_prompt_there_is_no_system_message() -> None:
    context = Context(system_prompt="", model="gpt-4o")
    context.append_user("Hello")
    assert context.to_messages() == [{"role": "user", "content": "Hello"}]


def test_exec_output_is_carried_by_the_next_user_turn() -> None:
    context = Context(system_prompt="", model="gpt-4o")
    context.append_exec_output("")
    context.append_exec_output("file1\nfile2")
    context.append_exec_output("3 lines")
    assert context.to_messages() == []
    context.append_user("Which is newer?")
    content = (
        "[exec output]\nfile1\nfile2\n[end of exec output]\n\n"
        "[exec output]\n3 lines\n[end of exec output]\n\nWhich is newer?"
    )
    assert context.to_messages() == [{"role": "user", "content": content}]
    context.append(say("file2"))
    context.append_user("Thanks")
    assert context.to_messages()[-1]["content"] == "Thanks"


def test_exec_output_that_leaves_no_room_is_cut_and_can_be_recalled() -> None:
    context = Context(token_budget=1_000, model="gpt-4o")
    outputs = ["\n".join(f"{number} {name}" for number in range(3_000)) for name in ("boats", "crews")]
    for output in outputs:
        context.append_exec_output(output)
    context.append_user("What now?")
    fitted = context.fitted()
    content = fitted.messages[-1]["content"]
    assert content.endswith("2999 crews\n[end of exec output]\n\nWhat now?")
    assert content.startswith("[exec output]\n0 boats")
    for output in outputs:
        handle = letters_of(output)[:8]
        assert f"recall {handle}" in content
        piece = context.recall(handle)
        assert piece is not None
        assert piece.text == output


def test_so_many_outputs_that_not_all_fit_leave_the_earliest_out_under_one_handle() -> None:
    context = Context(token_budget=1_000, model="gpt-4o")
    outputs = [f"$ cd harbour/{number}\n[exit status 0]" for number in range(300)]
    for output in outputs:
        context.append_exec_output(output)
    context.append_user("What now?")
    content = context.fitted().messages[-1]["content"]
    first, *shown = content.split("\n\n")[:-1]
    left_out = 300 - len(shown)
    assert 10 < len(shown) < 100
    assert shown[-1] == fence_output(outputs[-1])
    handle = letters_of("\n\n".join(outputs[:left_out]))[:8]
    assert first == fence_output(f"[{left_out} earlier outputs are left out] recall {handle}")
    piece = context.recall(handle)
    assert piece is not None
    assert piece.text == "\n\n".join(outputs[:left_out])


@given(
    st.lists(st.tuples(st.sampled_from(["word ", "0x7f3a ", "é", "\n"]), st.integers(1, 5_000)), max_size=60)
)
def test_a_question_has_room_whatever_commands_printed(printed: list[tuple[str, int]]) -> None:
    context = Context(token_budget=700, model="gpt-4o")
    for text, often in printed:
        context.append_exec_output(text * often)
    context.append_user("What now?")
    assert context.fitted().count.ceiling <= 700
    assert context.turns[-1]["content"].endswith("What now?")


def test_what_commands_printed_is_told_before_it_is_asked_about() -> None:
    context = Context(token_budget=1_000, model="gpt-4o")
    assert context.printed_tokens == 0
    context.append_exec_output("word " * 50)
    assert context.printed_tokens == context.count_text(fence_output("word " * 50)).ceiling
    context.append_exec_output("word " * 5_000)
    expected = context.count().tokens + context.printed_tokens
    context.append_user("Well?")
    assert expected * 0.8 < context.count().tokens < expected * 1.2
    assert context.printed_tokens == 0


def test_undo_gives_back_what_commands_had_printed() -> None:
    context = Context(model="gpt-4o")
    context.append_exec_output("one")
    context.append_user("First?")
    context.append(say("Yes."))
    context.append_exec_output("two")
    context.append_user("Second?")
    context.append_exec_output("three")
    context.undo()
    context.undo()
    context = Context.resume(context.session, context.journal)
    context.append_user("Now?")
    printed = "\n\n".join(fence_output(word) for word in ("one", "two", "three"))
    assert context.turns[-1]["content"] == f"{printed}\n\nNow?"


def test_exec_output_goes_before_a_content_of_parts() -> None:
    context = Context(system_prompt="", model="gpt-4o")
    context.append_exec_output("out")
    context.append_user([{"type": "text", "text": "What is this?"}])
    (message,) = context.to_messages()
    assert [part["text"] for part in message["content"]] == [fence_output("out"), "What is this?"]


def test_the_blocks_stand_in_one_order_and_are_counted() -> None:
    context = Context(system_prompt="Be brief.", model="gpt-4o")
    context.remember("uses pnpm\nnever npm", "preference")
    context.remember("lives in Oslo")
    context.set_project("app/\n  main.py")
    context.append_user("Hello")
    assert context.to_messages()[0]["content"] == (
        "Be brief.\n\n"
        "[background]\npreference: uses pnpm never npm\n?: lives in Oslo\n\n"
        "[project]\napp/\n  main.py"
    )
    count = context.fitted().count
    assert count.breakdown["memory"] > 10
    assert count.breakdown["project"] > 4
    assert (
        sum(count.breakdown.values())
        == count.tokens
        == ullage.count(context.to_messages(), model="gpt-4o").tokens
    )
    assert count == context.count()


def test_goal_mode_has_the_goal_and_leaves_the_other_blocks_out() -> None:
    context = Context(system_prompt="Be brief.", model="gpt-4o")
    context.remember("uses pnpm", "preference")
    context.set_project("main.py")
    context.append_user("Hello")
    context.goal = "Make the tests pass."
    system = context.to_messages()[0]["content"]
    assert system.startswith("Be brief.\n\n[goal]\nMake the tests pass.\n")
    assert "[background]" not in system
    assert "[project]" not in system
    context.goal = ""
    assert "[goal]" not in context.to_messages()[0]["content"]


def test_the_digest_stays_in_goal_mode_and_the_goal_survives_any_eviction() -> None:
    context = Context(token_budget=900, model="gpt-4o")
    context.goal = "Rename order W5744371."
    talk(context, 200)
    context.append_user("Go on.")
    system = context.to_messages()[0]["content"]
    assert "Rename order W5744371." in system
    assert "[end of earlier conversation]" in system


def test_memory_is_capped_and_the_newest_items_stay() -> None:
    context = Context(memory_max_chars=60, model="gpt-4o")
    for number in range(10):
        context.remember(f"item number {number}", "note")
    context.append_user("Hello")
    block = context.to_messages()[0]["content"].partition("[background]\n")[2]
    assert len(block) <= 60
    assert block.splitlines() == [f"note: item number {number}" for number in (7, 8, 9)]


def test_memory_is_shared_by_all_conversations_of_a_journal_and_can_be_forgotten() -> None:
    journal = MemoryJournal()
    one, other = Context(journal=journal, model="gpt-4o"), Context(journal=journal, model="gpt-4o")
    item = one.remember("uses pnpm", "preference")
    assert other.memory == (item,)
    assert other.forget(item.number)
    assert not other.forget(item.number)
    assert one.memory == ()


def test_what_another_conversation_remembered_waits_for_a_trim() -> None:
    journal = MemoryJournal()
    context = Context(journal=journal, token_budget=600, model="gpt-4o")
    talk(context, 4)
    context.append_user("Hello")
    before = context.to_messages()
    journal.remember("uses pnpm", "preference")
    context.set_project("main.py", at_trim=True)
    assert context.to_messages() == before
    context.append(say("Yes?"))
    for _ in range(10):
        context.append_user("Go on. " + "word " * 30)
        system = context.to_messages()[0]["content"]
        assert (
            ("preference: uses pnpm" in system) == ("[project]\nmain.py" in system) == bool(context.changes)
        )
        context.append(say("Well. " + "more " * 30))
    assert "preference: uses pnpm" in system
    assert "[project]\nmain.py" in system


def test_a_file_name_cannot_end_the_digest() -> None:
    context = Context(token_budget=700, model="gpt-4o")
    context.set_project(f"{DIGEST_OPEN}\n{DIGEST_CLOSE}")
    talk(context, 40)
    context.append_user("Go on.")
    assert context.to_messages() == list(
        ullage.fit(context.history(), limit=700, policy=context.bounds.policy, model="gpt-4o").messages
    )


# D9 and what else can happen --------------------------------------------------------------------------


def test_reset_clears_the_conversation_and_reset_usage_the_meter() -> None:
    context = Context(meter=Meter(warn_at_tokens=10), model="gpt-4o")
    context.remember("uses pnpm", "preference")
    context.set_project("main.py")
    assert len(context.add_usage("gpt-4o", {"prompt_tokens": 20, "completion_tokens": 1})) == 1
    talk(context, 4)
    context.append_exec_output("out")
    context.reset()
    assert len(context) == 0
    context.append_user("Hello")
    assert context.to_messages()[-1]["content"] == "Hello"
    assert "uses pnpm" in context.to_messages()[0]["content"]
    assert "main.py" in context.to_messages()[0]["content"]
    assert context.total_tokens() == (20, 1)
    assert context.add_usage("gpt-4o", {"prompt_tokens": 20}) == ()

    context.reset_usage()
    assert context.total_tokens() == (0, 0)
    assert context.total_cost() is None
    assert len(context.add_usage("gpt-4o", {"prompt_tokens": 20})) == 1
    assert len(context) == 1


def test_a_question_that_was_never_answered_is_sent_with_the_next_one() -> None:
    context = Context(system_prompt="", model="gpt-4o")
    context.append_user("First?")
    assert context.to_messages() == [{"role": "user", "content": "First?"}]
    context.append_user("Second?", pin=True)
    assert context.to_messages() == [{"role": "user", "content": "First?\n\nSecond?"}]
    context.append_user([{"type": "text", "text": "Third?"}])
    assert len(context.to_messages()) == 1
    assert len(context.turns) == 3


def test_undo_takes_back_the_last_exchange() -> None:
    context = Context(system_prompt="", model="gpt-4o")
    context.append_user("One")
    context.append(say("1"))
    before = context.to_messages()
    context.append_user("Two, which failed")
    context.append_user("Two")
    context.append(calls("a"))
    context.append(result("a"))
    context.append(say("2"))
    assert len(context.undo()) == 5
    assert context.to_messages() == before
    assert len(context.undo()) == 2
    assert list(context.undo()) == []


def test_a_conversation_is_made_compact_by_command_and_stays_so() -> None:
    context = Context(token_budget=4_000, model="gpt-4o")
    talk(context, 30)
    context.append_user("And now?")
    before = context.count().ceiling
    saved = context.compact()
    assert saved > 500
    after = context.fitted()
    assert after.count.ceiling <= before - saved + 5
    assert after.messages[-1]["content"] == "And now?"
    assert after.dropped
    assert all(context.recall(change.handle) for change in context.changes)
    again = Context.resume(context.session, context.journal, model="gpt-4o", token_budget=4_000)
    assert again.to_messages() == context.to_messages()
    context.append(calls("a"))
    with pytest.raises(InvalidConversation, match="without a result"):
        context.compact()


def test_a_compaction_holds_whatever_else_changes() -> None:
    context = Context(token_budget=4_000, model="gpt-4o")
    talk(context, 30)
    context.compact()
    after = context.count().tokens
    context.remember("the harbour is small")
    context.set_project("harbour/\n  boats.csv")
    context.use_tools(TOOLS[:1])
    assert context.count().tokens < after + 300
    with context.temporary_limits():
        context.use_model("gpt-4", window=8_000)
        assert context.count().tokens < after + 300
    assert context.count(system_prompt_override="Be brief.").tokens < after + 300
    again = Context.resume(
        context.session, context.journal, model="gpt-4o", token_budget=4_000, tools=TOOLS[:1]
    )
    again.set_project("harbour/\n  boats.csv")
    assert again.to_messages() == context.to_messages()


def test_a_question_that_grows_after_a_compaction_is_sent_as_it_is_resumed() -> None:
    context = Context(token_budget=4_000, model="gpt-4o")
    talk(context, 30)
    context.append_user("And")
    context.compact()
    context.to_messages()
    context.append_user("now?")
    again = Context.resume(context.session, context.journal, model="gpt-4o", token_budget=4_000)
    assert again.to_messages() == context.to_messages()
    assert context.to_messages()[-1]["content"] == "And\n\nnow?"


def test_what_leaves_a_window_is_news_once_for_each_model() -> None:
    context = Context(token_budget=4_000, max_turns=None, model="gpt-4o")
    talk(context, 20)
    context.append_user("And now?")
    context.fitted()
    assert context.pop_changes() == {}
    for _ in range(2):
        with context.temporary_limits():
            context.use_model("gpt-4", window=1_000, reserved_output=400)
            dropped = context.fitted().dropped
            assert dropped
            told = context.pop_changes()
            assert told.get("evict", 0) in {dropped, 0}
    assert told == {}
    assert context.fitted().dropped == 0
    assert context.enforce_budget() == []


def test_a_goal_that_waits_to_be_taken_up_leaves_an_ordinary_conversation() -> None:
    context = Context(system_prompt="Be brief.", model="gpt-4o")
    context.remember("uses pnpm")
    context.goal = "Count the boats"
    assert context.in_goal_mode
    assert "Count the boats" in context.to_messages()[0]["content"]
    context.pursuing = False
    assert not context.in_goal_mode
    assert context.goal == "Count the boats"
    system = context.to_messages()[0]["content"]
    assert "uses pnpm" in system
    assert "Count the boats" not in system


def test_a_conversation_is_resumed_as_it_was() -> None:
    context = Context(token_budget=700, model="gpt-4o")
    talk(context, 60)
    context.append_exec_output("out")
    again = Context(token_budget=700, journal=context.journal, session=context.session, model="gpt-4o")
    assert again.turns == context.turns
    context.append_user("Well?")
    with pytest.raises(Conflict, match="was continued elsewhere"):
        again.append_user("Well?")
    last = Context.resume(context.session, context.journal, token_budget=700, model="gpt-4o")
    assert last.to_messages() == context.to_messages()


def left_open() -> Context:
    """A conversation that waits for the result of one of two calls."""
    context = Context(model="gpt-4o")
    context.append_user("Do it.")
    context.append(calls("a", "b"))
    context.append(result("b", "done"))
    return context


def test_calls_that_were_never_answered_are_interrupted_by_the_next_user_turn() -> None:
    context = left_open()
    again = Context.resume(context.session, context.journal)
    assert again.waiting == ("a",)
    again.append_exec_output("$ date")
    again.append_user("And now?")
    assert again.turns[-2] == result("a", INTERRUPTED)
    assert again.to_messages()[-1]["content"].endswith("And now?")
    assert Context.resume(context.session, context.journal).to_messages() == again.to_messages()


def test_resuming_writes_nothing_and_a_result_that_comes_late_is_taken() -> None:
    context = left_open()
    kept = list(context.journal.events(context.session))
    readers = [Context.resume(context.session, context.journal) for _ in range(2)]
    assert list(context.journal.events(context.session)) == kept
    context.append(result("a", "the true result"))  # of the process that has been at work all the time
    assert [reader.waiting for reader in readers] == [("a",)] * 2
    with pytest.raises(Conflict, match="Resume it to continue"):
        readers[0].append_user("And now?")
    assert readers[0].turns == readers[1].turns == context.turns[:-1]  # nothing of it has happened
    last = Context.resume(context.session, context.journal)
    last.append_user("And now?")
    assert last.turns[-2] == result("a", "the true result")


def test_of_two_that_resume_the_first_to_append_wins() -> None:
    context = left_open()
    one, other = (Context.resume(context.session, context.journal) for _ in range(2))
    one.append_user("And now?")
    for late in (other, context):
        with pytest.raises(Conflict, match="was continued elsewhere"):
            late.append(result("a"))
    with pytest.raises(Conflict, match="was continued elsewhere"):
        other.append_user("And now?")
    assert [event.kind for event in one.journal.events(one.session)].count("turn") == 5


def test_only_calls_that_were_open_when_it_was_resumed_are_interrupted() -> None:
    context = left_open()
    again = Context.resume(context.session, context.journal, model="gpt-4o")
    with pytest.raises(InvalidConversation, match="without a result"):
        again.to_messages()
    again.append(result("a"))
    again.append(calls("a"))  # some servers count their calls anew in each answer
    with pytest.raises(InvalidConversation, match="without a result"):
        again.append_user("And now?")
    with pytest.raises(InvalidConversation, match="without a result"):
        again.append(say("Done."))


def test_a_compaction_decides_about_open_calls_as_a_turn_does() -> None:
    context = left_open()
    with pytest.raises(InvalidConversation, match="without a result"):
        context.compact()
    again = Context.resume(context.session, context.journal, model="gpt-4o")
    again.compact()
    assert again.turns[-1] == result("a", INTERRUPTED)


class FullJournal(MemoryJournal):
    """A journal that takes nothing while it is full."""

    full = False

    def append(self, session: str, number: int, *events: JournalEvent) -> None:
        self._check()
        super().append(session, number, *events)

    def keep(self, session: str, texts: Iterable[str], events: Sequence[int | None] = ()) -> None:
        self._check()
        super().keep(session, texts, events)

    def _check(self) -> None:
        if self.full:
            raise StoreError("there is no room left")


def test_an_interruption_that_could_not_be_kept_comes_with_the_next_turn() -> None:
    journal = FullJournal()
    context = Context(journal=journal, model="gpt-4o")
    context.append_user("Do it.")
    context.append(calls("a"))
    journal.full = True
    with pytest.raises(StoreError):
        context.interrupt()
    with pytest.raises(StoreError):
        context.append_user("And now?")
    journal.full = False
    context.append_user("And now?")
    assert [turn["role"] for turn in context.turns] == ["user", "assistant", "tool", "user"]
    assert Context.resume(context.session, journal).turns == context.turns


def test_a_turn_that_the_journal_could_not_take_is_written_with_the_next_one() -> None:
    journal = FullJournal()
    context = Context(journal=journal, model="gpt-4o")
    context.append_user("How many?")
    context.append_later(say("Seven."))
    assert [turn["content"] for turn in context.turns] == ["How many?", "Seven."]
    assert len(journal.events(context.session)) == 1
    journal.full = True
    with pytest.raises(StoreError):
        context.save()
    journal.full = False
    context.append_user("Sure?")
    context.save()
    assert Context.resume(context.session, journal).turns == context.turns
    assert len(context) == 3


def test_pieces_that_could_not_be_kept_are_kept_by_the_next_render() -> None:
    journal = FullJournal()
    context = Context(journal=journal, token_budget=700, model="gpt-4o")
    talk(context, 60)
    context.append_user("Well?")
    journal.full = True
    with pytest.raises(StoreError):
        context.to_messages()
    journal.full = False
    context.to_messages()
    gone = context.enforce_budget()
    assert gone
    for turn in gone:
        piece = context.recall(letters_of(piece_of(turn)))
        assert piece is not None


def test_an_event_of_a_newer_version_is_told() -> None:
    journal = MemoryJournal()
    journal.append("s", 0, JournalEvent("teleport", {}))
    with pytest.raises(InvalidConversation, match="newer version"):
        Context(journal=journal, session="s", model="gpt-4o")


def test_rolling_off_trims_nothing_and_an_over_long_request_is_an_error() -> None:
    context = Context(token_budget=600, max_turns=4, model="gpt-4o")
    context.set_trimming(False)
    talk(context, 10, words=2)
    assert len(context.to_messages()) == 11
    talk(context, 20)
    context.append_user("Go on.")
    with pytest.raises(ContextOverflowError, match=r"Nothing is trimmed: Context.set_trimming\(True\)"):
        context.to_messages()
    assert context.count().ceiling > 600
    context.set_trimming(True)
    assert context.fitted().count.ceiling <= 600


def test_another_model_counts_the_history_anew_and_refits_it() -> None:
    context = Context(token_budget=None, window=1_000, reserved_output=100, model="gpt-4o")
    talk(context, 30)
    context.append_user("Go on.")
    small = len(context.to_messages())
    context.use_model("claude-sonnet-4-5", window=50_000, reserved_output=1_000)
    assert len(context.to_messages()) == 32 > small
    assert not context.count().exact
    with pytest.raises(ConfigurationError):
        context.use_model("gpt-4o", window=100, reserved_output=100)
    assert context.bounds.target.model == "claude-sonnet-4-5"


def test_tools_are_counted() -> None:
    context = Context(model="gpt-4o")
    context.append_user("Hello")
    assert context.count().breakdown["tools"] == 0
    context.use_tools(TOOLS)
    assert context.fitted().count.breakdown["tools"] > 20


def test_the_last_hundred_requests_are_remembered() -> None:
    times = itertools.count(1_000)
    context = Context(token_budget=700, clock=lambda: float(next(times)), model="gpt-4o")
    assert context.requests.statistics() == (0, 0, 0.0)
    for number in range(130):
        context.append_user(f"Question {number}. " + "word " * 20)
        if number != 7:  # a reply without a request is none
            context.to_messages()
        context.append(say("Answer. " + "more " * 20))
    assert len(context.requests) == 100
    sent = list(context.requests)
    assert sent[-1].at == 1_128.0
    assert all(each.tokens_after <= each.maximum == 700 for each in sent)
    assert sent[-1].trimmed
    assert sent[-1].dropped > 0
    assert sent[-1].tokens_before > sent[-1].tokens_after
    told = context.requests.statistics()
    assert told.requests == told.trimmed == 100
    assert 0.4 < told.utilization < 1


# C8: recall -------------------------------------------------------------------------------------------


def test_what_is_taken_out_is_recalled_by_its_handle_and_by_words() -> None:
    context = Context(token_budget=1_200, policy=FitPolicy(recall=True), model="gpt-4o")
    context.append_user("Read the log.")
    context.append(calls("a"))
    log = "\n".join(f"{number:04} harbour entry" for number in range(2_000))
    context.append(result("a", log))
    context.append(say("Read it."))
    talk(context, 20)
    context.append_user("Go on.")
    context.to_messages()
    (change,) = [change for change in context.changes if change.index == 2]
    piece = context.recall(change.handle)
    assert piece is not None
    assert piece.text == log
    assert context.recall("zzzzzzzz") is None
    assert [found.text for found in context.search("0042 harbour")] == [log]
    for each in context.changes:
        piece = context.recall(each.handle)
        assert piece is not None
        assert piece.text == piece_of(context.turns[each.index])


def test_the_model_can_recall_with_a_tool() -> None:
    journal = MemoryJournal()
    journal.keep("s", ["the anchor is 12 tons", "x" * 20_000])
    assert RECALL_TOOL["function"]["name"] == "recall"
    handle = letters_of("the anchor is 12 tons")[:8]
    assert answer_recall(journal, "s", {"handle": handle}) == "the anchor is 12 tons"
    assert "the anchor is 12 tons" in answer_recall(journal, "s", {"words": "anchor tons"})
    long = letters_of("x" * 20_000)[:8]
    first = answer_recall(journal, "s", {"handle": long})
    goes_on = re.search(r"\n\[(\d+) more characters; go on with start=(\d+)\]$", first)
    assert goes_on is not None
    assert first[: goes_on.start()] == "x" * int(goes_on[2])
    assert int(goes_on[1]) + int(goes_on[2]) == 20_000
    assert answer_recall(journal, "s", {"handle": long, "start": 19_000}) == "x" * 1_000
    for invented in ([handle], "anchor", None, 5):
        assert answer_recall(journal, "s", invented).startswith("error: give a handle, or words")  # type: ignore[arg-type]
    for wrong in ({}, {"handle": "nothere"}, {"words": "pineapple"}, {"handle": 7}):
        assert answer_recall(journal, "s", wrong).startswith("error: ")


# Properties -------------------------------------------------------------------------------------------


@st.composite
def talks(draw: st.DrawFn) -> Messages:
    """The turns of a conversation: no system messages."""
    messages = draw(conversations())
    return [message for message in messages if message["role"] != "system" and message["role"] != "developer"]


def fed(messages: Messages, **options: Any) -> Context:
    """A Context that was rendered wherever a request could have been sent."""
    context = Context(**{"model": "gpt-4o", **options})
    for message in messages:
        if message["role"] == "assistant" and context.turns:
            assumed(context)
        context.append(message)
    return context


def assumed(context: Context) -> list[Any]:
    try:
        return context.to_messages()
    except ContextOverflowError:
        return []


@given(talks(), TEXTS, st.floats(0.1, 1.2), policies(), st.booleans())
def test_a_context_and_a_stateless_fit_give_the_same_messages(
    messages: Messages, prompt: str, fraction: float, options: dict[str, Any], remembers: bool
) -> None:
    max_turns = options.pop("max_turns", None)
    limit = max(20, int(ullage.count(messages, model="gpt-4o").ceiling * fraction) + 30)
    context = Context(
        system_prompt=prompt,
        token_budget=limit,
        max_turns=max_turns,
        policy=FitPolicy(**options),
        tools=TOOLS,
        model="gpt-4o",
    )
    given = copy.deepcopy(messages)
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            assumed(context)
        context.append(message)
        if remembers and place == len(messages) // 2:
            context.remember("uses pnpm", "preference")
    history = context.history()
    try:
        wanted = ullage.fit(
            history,
            limit=limit,
            tools=TOOLS,
            policy=FitPolicy(**options, max_turns=max_turns),
            model="gpt-4o",
        )
    except ContextOverflowError:
        with pytest.raises(ContextOverflowError):
            context.to_messages()
        return
    assert context.to_messages() == list(wanted.messages)
    again = Context.resume(
        context.session,
        context.journal,
        system_prompt=prompt,
        token_budget=limit,
        max_turns=max_turns,
        policy=FitPolicy(**options),
        tools=TOOLS,
        model="gpt-4o",
    )
    assert again.to_messages() == context.to_messages()
    assert messages == given
    assert list(context.turns) == given


@given(talks(), st.floats(0.2, 1.0), st.booleans())
def test_what_a_context_sends_is_valid_and_within_its_limit(
    messages: Messages, fraction: float, tool_role: bool
) -> None:
    limit = max(60, int(ullage.count(messages, model="gpt-4o").ceiling * fraction))
    context = fed(messages, token_budget=limit, system_prompt="Be brief.", use_tool_role=tool_role)
    try:
        fitted = context.fitted()
    except ContextOverflowError:
        assume(False)
        raise
    check_conversation(fitted.messages)
    assert fitted.count.ceiling <= limit
    assert ullage.count(fitted.messages, model="gpt-4o").ceiling <= limit
    if not tool_role:
        assert all(message["role"] in {"system", "user", "assistant"} for message in fitted.messages)


@given(st.lists(exchanges(), min_size=4, max_size=10), st.floats(0.3, 0.9))
def test_every_change_is_told_with_its_turn_and_can_be_recalled(
    history: list[Messages], fraction: float
) -> None:
    messages = [message for exchange in history for message in exchange]
    limit = max(60, int(ullage.count(messages, model="gpt-4o").ceiling * fraction))
    context = fed(messages, token_budget=limit, max_turns=None, system_prompt="Be brief.")
    sent = assumed(context)
    assume(sent)
    shortened = {change.index for change in context.changes}
    for place, turn in enumerate(context.turns):
        line = next(line for line in reversed(context.record.state.lines) if line.place <= place)
        if line.place not in shortened:
            assert line.turn.message in [*sent, *map(own_words, sent)], turn
    for change in context.changes:
        assert context.recall(change.handle) is not None
