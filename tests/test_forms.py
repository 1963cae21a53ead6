"""Requests for small models, and for templates that refuse the role of a tool."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.strategies import Messages, conversations
from tests.test_context import calls, result, say, talk
from ullage.call_pairs import check_conversation
from ullage.context import Compress, Context
from ullage.context.forms import newest, tail_of, without_tool_role
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.messages import text_of


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def compressed(messages: Messages, compress: Compress) -> Messages:
    return [tail_of(messages[place], compress.max_turn_chars) for place in newest(messages, compress)]


# Short requests ---------------------------------------------------------------------------------------


def test_a_compressed_request_has_the_last_turns_cut_to_their_tails() -> None:
    context = Context(system_prompt="Be brief.", model="gpt-4o")
    context.append_user("a" * 900 + "the end")
    context.append(say("Answer"))
    context.append_user("Last?")
    before = list(context.turns)
    sent = context.to_messages(compress=Compress(keep_turns=3, max_turn_chars=100))
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[1]["content"] == "a" * 93 + "the end"
    assert list(context.turns) == before
    (cut,) = context.changes
    assert (cut.kind, cut.index) == ("cut", 0)
    piece = context.recall(cut.handle)
    assert piece is not None
    assert piece.text == before[0]["content"]


def test_what_a_short_form_goes_without_is_reported_and_can_be_recalled() -> None:
    context = Context(system_prompt="Be brief.", model="gpt-4o")
    talk(context, 6)
    context.append_user("Last?")
    short = Compress(keep_turns=2)
    sent = context.to_messages(compress=short)
    assert [change.kind for change in context.changes] == ["evict"] * 5
    for change in context.changes:
        piece = context.recall(change.handle)
        assert piece is not None
        assert piece.text == context.turns[change.index]["content"]
    assert context.count(compress=short).tokens == ullage.count(sent, model="gpt-4o").tokens
    assert context.count(compress=short).tokens < context.count().tokens
    assert context.pop_changes() == {}


def test_compressing_composes_with_a_prompt_for_one_render_and_the_blocks_stay() -> None:
    context = Context(system_prompt="Be brief.", model="gpt-4o")
    context.remember("uses pnpm", "preference")
    talk(context, 6)
    context.append_user("Last?")
    sent = context.to_messages(system_prompt_override="Be a poet.", compress=Compress())
    assert len(sent) == 3
    assert sent[0]["content"] == "Be a poet.\n\n[background]\npreference: uses pnpm"
    assert context.to_messages()[0]["content"].startswith("Be brief.")
    assert context.to_messages(system_prompt_override="")[0]["content"].startswith("[background]")


def test_goal_mode_is_never_compressed() -> None:
    context = Context(model="gpt-4o")
    talk(context, 6)
    context.append_user("Last?")
    context.goal = "Reach the end."
    assert context.to_messages(compress=Compress(keep_turns=1)) == context.to_messages()


def test_three_turns_keep_a_tool_turn_with_its_call() -> None:
    turns = [user("Old"), say("Yes"), user("Do it"), calls("a"), result("a")]
    assert compressed(turns, Compress(keep_turns=3)) == turns[2:]


def test_a_request_that_would_start_on_a_tool_turn_does_not() -> None:
    turns = [user("Do it"), calls("a", "b"), result("b"), result("a"), say("Done"), user("Thanks"), say("…")]
    assert compressed(turns, Compress(keep_turns=4)) == [say("Done"), user("Thanks"), say("…")]
    assert compressed(turns, Compress(keep_turns=5)) == [say("Done"), user("Thanks"), say("…")]
    assert compressed(turns, Compress(keep_turns=6)) == turns[1:]


def test_the_newest_step_and_the_question_are_kept_whole_however_few_turns_are() -> None:
    turns = [
        user("Old"),
        say("Yes"),
        user("Do it"),
        calls("a"),
        result("a"),
        calls("b", "c"),
        result("c"),
        result("b"),
    ]
    assert compressed(turns, Compress(keep_turns=1)) == [turns[2], *turns[5:]]
    turns.append(say("Done"))
    assert compressed(turns, Compress(keep_turns=1)) == [turns[2], *turns[5:]]


def test_parts_are_cut_to_the_tail_of_their_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    content = [{"type": "text", "text": "abc"}, image, {"type": "text", "text": "defg"}]
    (message,) = compressed([{"role": "user", "content": content}], Compress(max_turn_chars=5))
    assert message["content"] == [{"type": "text", "text": "c"}, image, {"type": "text", "text": "defg"}]


@pytest.mark.parametrize("options", [{"keep_turns": 0}, {"max_turn_chars": 0}])
def test_compressing_to_nothing_is_a_configuration_error(options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        Compress(**options)


@given(conversations(), st.integers(1, 8), st.integers(1, 200))
def test_a_compressed_conversation_is_valid_and_has_the_question(
    messages: Messages, keep: int, chars: int
) -> None:
    turns = [message for message in messages if message["role"] not in {"system", "developer"}]
    kept = compressed(turns, Compress(keep, chars))
    check_conversation(kept)
    assert kept
    assert kept[0]["role"] != "tool"
    assert sum(message["role"] == "user" for message in kept[:-keep]) <= 1
    assert any(message["role"] == "user" for message in kept)
    assert all(len(text_of(message["content"]).replace("\n", "")) <= chars for message in kept)


# Without the role of a tool ---------------------------------------------------------------------------


def test_calls_and_results_become_a_text_of_the_assistant() -> None:
    plain = without_tool_role([user("Do it"), calls("a"), result("a", "42"), user("Thanks")])
    assert plain == [user("Do it"), say("[tool: tool_a]\n{}\n[result]\n42"), user("Thanks")]


def test_parallel_calls_and_the_texts_around_them_are_one_assistant_text() -> None:
    plain = without_tool_role(
        [
            user("Do it"),
            calls("a", "b", text="Let me see."),
            result("b", "2"),
            result("a", "1"),
            say("Both are odd."),
        ]
    )
    assert plain == [
        user("Do it"),
        say(
            "Let me see.\n\n[tool: tool_a]\n{}\n[result]\n1\n\n"
            "[tool: tool_b]\n{}\n[result]\n2\n\nBoth are odd."
        ),
    ]


def test_a_call_without_a_result_has_an_empty_one_and_an_orphan_is_left_out() -> None:
    plain = without_tool_role([user("Do it"), result("z", "lost"), calls("a", "b"), result("b", "2")])
    assert plain == [user("Do it"), say("[tool: tool_a]\n{}\n[result]\n\n\n[tool: tool_b]\n{}\n[result]\n2")]


def test_results_of_a_reused_id_stand_in_the_order_of_their_calls() -> None:
    plain = without_tool_role([user("Do it"), calls("a", "a"), result("a", "1"), result("a", "2")])
    assert plain[1]["content"].index("1") < plain[1]["content"].index("2")


def test_a_context_without_tool_role_sends_none_and_stays_within_its_limit() -> None:
    context = Context(use_tool_role=False, token_budget=500, system_prompt="Be brief.", model="gpt-4o")
    for number in range(30):
        context.append_user(f"Look at {number}")
        context.append(calls("a", "b"))
        context.append(result("b", "two " * 20))
        context.append(result("a", "one " * 20))
        fitted = context.fitted()
        assert {message["role"] for message in fitted.messages} == {"system", "user", "assistant"}
        assert ullage.count(fitted.messages, model="gpt-4o").ceiling == fitted.count.ceiling <= 500
        context.append(say("Seen."))
    roles = [message["role"] for message in context.to_messages()[1:]]
    assert all(one != other for one, other in itertools.pairwise(roles))


def test_a_form_that_cannot_fit_is_an_overflow() -> None:
    context = Context(use_tool_role=False, token_budget=120, system_prompt="Be brief.", model="gpt-4o")
    context.append_user("Look at it")
    context.append(calls(*"abcdefghijkl"))
    for name in "abcdefghijkl":
        context.append(result(name))
    with pytest.raises(ContextOverflowError, match="Cannot fit request"):
        context.to_messages()
