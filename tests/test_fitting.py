"""What fit does to a conversation, pass by pass, and the figures that were first promised for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ullage
from ullage import Budget, ConfigurationError, ContextOverflowError, FitPolicy, InvalidConversation, Window
from ullage.fitting.pieces import handle_of
from ullage.fitting.shorten import cut_middle, error_lines
from ullage.messages import split_digest, text_of
from ullage.testing import FixedTokenizer
from ullage.text import TASK_CLOSE, TASK_OPEN
from ullage.tokens import counter_for

Messages = list[dict[str, Any]]

SYSTEM = {"role": "system", "content": "You are terse."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(name: str, *outputs: str, **arguments: Any) -> Messages:
    """An assistant's calls of one tool, and their results."""
    ids = [f"{name}-{number}" for number in range(len(outputs))]
    calls = [
        {"id": each, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for each in ids
    ]
    results = [
        {"role": "tool", "tool_call_id": each, "content": output}
        for each, output in zip(ids, outputs, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def lines(number: int, text: str = "a line of plain output") -> str:
    return "\n".join(f"{line} {text}" for line in range(number))


def outputs_of(fitted: ullage.Fitted) -> list[str]:
    return [message["content"] for message in fitted.messages if message["role"] == "tool"]


def digest_of(fitted: ullage.Fitted) -> str:
    return split_digest(text_of(fitted.messages[0]["content"]))[1]


# The budget ------------------------------------------------------------------------------------------


def test_max_input_is_the_window_less_the_reserve() -> None:
    assert Budget(1000, 200).max_input == 800
    assert Budget(1000).max_input == 750
    assert Budget(1000, 250, 600).max_input == 600
    assert Budget(1000, 500, 600).max_input == 500


def test_a_reserve_that_reaches_the_window_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="reserved_output is 1000 of a window of 1000"):
        Budget(1000, 1000)
    with pytest.raises(ConfigurationError):
        Budget(0)


def test_the_budget_of_a_model_keeps_its_longest_answer_or_a_quarter() -> None:
    assert Budget.for_model("gpt-4o") == Budget(128_000, 16_384)
    assert Budget.for_model("gpt-4").max_input == 8_192 - 2_048
    assert Budget.for_model("gpt-5").max_input == 272_000
    with pytest.raises(ConfigurationError, match="context window of 'my-model' is not known"):
        Budget.for_model("my-model")


def test_check_budget_reports_the_figures() -> None:
    messages = [SYSTEM, user("hello")]
    tokens = ullage.count(messages, model="gpt-4o").tokens
    report = ullage.check_budget(messages, Budget(100, 50), model="gpt-4o")
    assert report.max_input_tokens == 50
    assert report.current_tokens == tokens
    assert report.available_tokens == 50 - tokens
    assert report.within_budget
    assert report.utilization_percent == round(100 * tokens / 50, 1)
    assert not ullage.check_budget([user("word " * 100)], Budget(100, 50), model="gpt-4o").within_budget
    assert ullage.check_budget([user("word " * 100)], Budget(100, 50), model="gpt-4o").available_tokens == 0


def test_without_a_limit_the_models_window_less_the_reserve_is_the_limit() -> None:
    assert ullage.fit([user("hello")], model="gpt-4o").limit == 128_000 - 16_384
    assert ullage.fit([user("hello")], model="gpt-4o", reserve=1_000).limit == 127_000
    with pytest.raises(ConfigurationError, match="limit is 0"):
        ullage.fit([user("hello")], limit=0, model="gpt-4o")
    with pytest.raises(ConfigurationError, match="give limit="):
        ullage.fit([user("hello")], model="my-model")
    assert ullage.fit([user("hello")], model="my-model", limit=100).messages


def test_enforce_context_limit_is_fit() -> None:
    assert ullage.enforce_context_limit is ullage.fit


# The figures that were first promised ----------------------------------------------------------------


def chat(turns: int) -> Messages:
    return [user(f"q{i}") if i % 2 == 0 else assistant(f"a{i}") for i in range(turns)]


def test_exactly_max_turns_evict_nothing() -> None:
    messages = chat(5)
    assert ullage.fit(messages, policy=FitPolicy(max_turns=5), model="gpt-4o").messages is messages


def test_fourteen_turns_at_a_maximum_of_four_leave_at_most_four() -> None:
    fitted = ullage.fit([SYSTEM, *chat(15)], policy=FitPolicy(max_turns=4, low_water=1.0), model="gpt-4o")
    turns = [message for message in fitted.messages if message["role"] != "system"]
    assert len(turns) <= 4
    assert fitted.dropped == 15 - len(turns)


def test_max_turns_never_causes_an_overflow() -> None:
    messages = [user("go"), *step("shell", *["ok"] * 6)]
    fitted = ullage.fit(messages, policy=FitPolicy(max_turns=2), model="gpt-4o")
    assert len(fitted.messages) == 8


def test_one_exchange_longer_than_max_turns_loses_its_oldest_steps() -> None:
    messages = [user("go")]
    for number in range(10):
        messages += step(f"tool_{number}", "done")
    fitted = ullage.fit(
        messages, policy=FitPolicy(max_turns=9, low_water=1.0, digest_share=0), model="gpt-4o"
    )
    names = [m["tool_calls"][0]["function"]["name"] for m in fitted.messages if m.get("tool_calls")]
    assert names == ["tool_6", "tool_7", "tool_8", "tool_9"]
    assert fitted.messages[0] == user("go")


def test_a_tokenizer_that_says_fifty_a_turn_at_a_budget_of_one_hundred_leaves_at_most_two() -> None:
    ullage.register_tokenizer("fifty-a-turn", FixedTokenizer(50))
    policy = FitPolicy(digest_share=0, keep_first_user=False)
    fitted = ullage.fit(chat(9), model="fifty-a-turn", limit=100, policy=policy)
    assert 1 <= len(fitted.messages) <= 2
    assert fitted.count.tokens <= 100


def test_a_huge_tool_result_is_trimmed_to_its_head_and_tail() -> None:
    output = "start " + "x y z " * 8_000 + " end"
    fitted = ullage.fit(
        [user("go"), *step("shell", output)], limit=Budget(1_000, 200).max_input, model="gpt-4o"
    )
    assert fitted.count.ceiling <= 800
    (text,) = outputs_of(fitted)
    assert text.startswith("start ")
    assert text.endswith(" end")
    assert "tokens cut" in text
    assert fitted.truncated == 1
    assert [change.kind for change in fitted.changes] == ["cut"]


def test_a_huge_system_prompt_overflows_with_its_figures_and_advice() -> None:
    system = {"role": "system", "content": "x y " * 25_000}
    with pytest.raises(ContextOverflowError) as caught:
        ullage.fit([system, user("hello")], limit=Budget(100, 50).max_input, model="gpt-4o")
    error = caught.value
    assert error.limit == 50
    assert error.tokens > 50_000
    assert f"Cannot fit request: {error.tokens} tokens after trimming, 50 allowed" in str(error)
    assert "Narrow the scope or start a new session" in str(error)
    assert f"The biggest block is system ({error.breakdown['system']} tokens)" in str(error)


def test_a_forty_turn_history_costs_one_count_a_turn() -> None:
    tokenizer = FixedTokenizer(50)
    ullage.register_tokenizer("counted-once", tokenizer)
    window = Window(model="counted-once", limit=100_000)
    for message in chat(41):
        window.append(message)
        window.fitted()
    assert len(tokenizer.asked) == 41


# The passes ------------------------------------------------------------------------------------------


def long_session(number: int, output: str) -> Messages:
    messages = [SYSTEM]
    for turn in range(number):
        messages += [
            user(f"question {turn}"),
            *step("shell", f"{turn} {output}"),
            assistant(f"answer {turn}"),
        ]
    return [*messages, user("and now?")]


def test_old_outputs_become_placeholders_oldest_first() -> None:
    messages = long_session(12, lines(40))
    before = ullage.count(messages, model="gpt-4o").ceiling
    fitted = ullage.fit(
        messages, limit=before - 400, policy=FitPolicy(low_water=1.0, digest_share=0), model="gpt-4o"
    )
    texts = outputs_of(fitted)
    replaced = [text.startswith("[content truncated - ") for text in texts]
    assert replaced[0]
    assert replaced == sorted(replaced, reverse=True)
    tokens = counter_for("gpt-4o").text(f"0 {lines(40)}").tokens
    # It was taken out at an earlier point of the conversation, and stays as it was written there.
    assert texts[0] == f"[content truncated - 10 steps ago, {tokens} tokens]"


def test_with_recall_on_a_placeholder_names_its_handle() -> None:
    messages = long_session(12, lines(40))
    before = ullage.count(messages, model="gpt-4o").ceiling
    fitted = ullage.fit(
        messages, limit=before - 400, policy=FitPolicy(low_water=1.0, recall=True), model="gpt-4o"
    )
    first = next(change for change in fitted.changes if change.kind == "age")
    assert first.handle == handle_of(f"0 {lines(40)}", {})[0]
    assert outputs_of(fitted)[0].endswith(f"tokens] recall {first.handle}")


def test_small_outputs_are_left_alone_until_their_exchange_goes() -> None:
    messages = long_session(12, "ok")
    fitted = ullage.fit(
        messages,
        limit=ullage.count(messages, model="gpt-4o").ceiling - 20,
        policy=FitPolicy(low_water=1.0),
        model="gpt-4o",
    )
    assert {change.kind for change in fitted.changes} == {"evict"}


def test_errors_outlive_other_outputs_of_the_same_age() -> None:
    messages = [SYSTEM]
    for turn in range(12):
        output = lines(30, "Error: disk full, cannot write" if turn == 3 else "all is well here")
        messages += [user(f"question {turn}"), *step("shell", output), assistant("noted")]
    messages.append(user("and now?"))
    policy = FitPolicy(low_water=1.0, digest_share=0)
    fitted = ullage.fit(
        messages, limit=ullage.count(messages, model="gpt-4o").ceiling - 800, policy=policy, model="gpt-4o"
    )
    kept = [not text.startswith("[content truncated") for text in outputs_of(fitted)]
    assert not any(kept[:3])
    assert kept[3]
    assert not kept[4]


def test_a_huge_log_with_an_error_is_cut_to_its_error_lines() -> None:
    log = lines(300) + "\nFATAL: out of memory\n" + lines(300)
    messages = [SYSTEM, user("go"), *step("build", log), assistant("hm"), user(lines(300))]
    fitted = ullage.fit(messages, limit=5_000, model="gpt-4o")
    assert outputs_of(fitted) == ["FATAL: out of memory"]
    assert [change.kind for change in fitted.changes] == ["errors"]


def test_a_long_old_output_is_capped_to_head_and_tail() -> None:
    messages = [SYSTEM, user("go"), *step("build", lines(600)), assistant("hm"), user(lines(300))]
    fitted = ullage.fit(
        messages, limit=5_000, policy=FitPolicy(low_water=1.0, digest_share=0), model="gpt-4o"
    )
    (text,) = outputs_of(fitted)
    assert counter_for("gpt-4o").text(text).tokens <= 2_000
    assert text.startswith("0 a line")
    assert text.endswith("599 a line of plain output")
    assert [change.kind for change in fitted.changes] == ["cap"]


def test_the_recent_exchanges_are_touched_last() -> None:
    messages = long_session(8, lines(20))
    fitted = ullage.fit(messages, limit=1_000, model="gpt-4o")
    assert fitted.changed
    assert messages[-5:-1] == list(fitted.messages[-5:-1])


def test_exchanges_of_a_higher_priority_stay_longer() -> None:
    messages = [SYSTEM, *chat(40), user("last")]
    priorities = {index: 1 for index, message in enumerate(messages) if message["content"] in ("q2", "a3")}
    policy = FitPolicy(priorities=priorities, digest_share=0)
    fitted = ullage.fit(messages, limit=150, policy=policy, model="gpt-4o")
    contents = [message["content"] for message in fitted.messages]
    assert "q2" in contents
    assert "q4" not in contents


def test_the_passes_can_be_named_and_an_unknown_name_is_an_error() -> None:
    messages = long_session(8, lines(20))
    policy = FitPolicy(trim_strategy=("evict", "recent"), digest_share=0)
    fitted = ullage.fit(messages, limit=600, policy=policy, model="gpt-4o")
    assert {change.kind for change in fitted.changes} == {"evict"}
    with pytest.raises(ConfigurationError, match="no pass is called 'shrink'"):
        FitPolicy(trim_strategy=("shrink",))
    with pytest.raises(ContextOverflowError):
        ullage.fit(messages, limit=600, policy=FitPolicy(trim_strategy=()), model="gpt-4o")


@pytest.mark.parametrize(
    "knob",
    [{"low_water": 0}, {"low_water": 1.1}, {"max_turns": 0}, {"digest_share": 2}, {"placeholder": "{x}"}],
)
def test_a_knob_out_of_its_range_is_a_configuration_error(knob: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(knob))):
        FitPolicy(**knob)


# The task and the digest -----------------------------------------------------------------------------


def test_the_task_moves_to_the_head_of_the_digest() -> None:
    messages = [SYSTEM, user("Move the parser to src/parser.py"), *long_session(9, lines(30))[1:]]
    fitted = ullage.fit(messages, limit=900, model="gpt-4o")
    assert user("Move the parser to src/parser.py") not in fitted.messages
    assert digest_of(fitted).startswith(f"{TASK_OPEN}\nMove the parser to src/parser.py\n{TASK_CLOSE}\n\n")
    assert fitted.count.breakdown["summary"] > 0


def test_without_a_digest_share_the_block_is_the_task_alone() -> None:
    messages = [SYSTEM, user("Move the parser"), *long_session(9, lines(30))[1:]]
    fitted = ullage.fit(messages, limit=900, policy=FitPolicy(digest_share=0), model="gpt-4o")
    assert digest_of(fitted) == f"{TASK_OPEN}\nMove the parser\n{TASK_CLOSE}"
    nothing = ullage.fit(
        messages, limit=900, policy=FitPolicy(digest_share=0, keep_first_user=False), model="gpt-4o"
    )
    assert nothing.messages[0] == SYSTEM


def test_a_long_task_keeps_its_head_and_tail() -> None:
    task = "First line of the task.\n" + lines(2_000) + "\nLast line of the task."
    messages = [SYSTEM, user(task), assistant("yes"), *long_session(30, lines(30))[1:]]
    fitted = ullage.fit(messages, limit=8_000, model="gpt-4o")
    block = digest_of(fitted)
    assert f"{TASK_OPEN}\nFirst line of the task." in block
    assert "Last line of the task." in block
    assert counter_for("gpt-4o").text(block).tokens < 1_000 + 0.3 * 8_000


def test_the_digest_has_what_was_evicted() -> None:
    messages = [SYSTEM, user("Refund order #W5744371 to gift_card_3481935, please."), assistant("Done.")]
    messages += long_session(9, lines(30))[1:]
    assert "#W5744371" in digest_of(ullage.fit(messages, limit=1_200, model="gpt-4o"))


def test_a_system_message_is_made_where_there_is_none() -> None:
    fitted = ullage.fit(long_session(9, lines(30))[1:], limit=1_200, model="gpt-4o")
    assert fitted.messages[0]["role"] == "system"
    assert fitted.messages[0]["content"].startswith(TASK_OPEN)


def test_a_system_prompt_in_parts_keeps_them_and_gets_the_digest_as_one_more() -> None:
    system = {"role": "system", "content": [{"type": "text", "text": "You are terse."}]}
    messages = [system, *long_session(9, lines(30))[1:]]
    fitted = ullage.fit(messages, limit=1_200, model="gpt-4o")
    own, digest = fitted.messages[0]["content"]
    assert own == {"type": "text", "text": "You are terse."}
    assert digest["text"].startswith(f"{TASK_OPEN}\n")
    again = ullage.fit([*fitted.messages, assistant(lines(200)), user("more")], limit=1_200, model="gpt-4o")
    assert len(again.messages[0]["content"]) == 2


# The window ------------------------------------------------------------------------------------------


def test_refolding_gives_what_a_fresh_window_gives() -> None:
    messages = long_session(9, lines(30))
    window = Window(limit=100_000, model="gpt-4o")
    for message in messages:
        window.append(message)
    window.refold(limit=1_200, model="gpt-4")
    assert window.fitted().messages == ullage.fit(messages, model="gpt-4", limit=1_200).messages
    window.pin(1)
    with pytest.raises(ConfigurationError, match="append"):
        window.pin(len(window))
    pinned = ullage.fit(messages, model="gpt-4", limit=1_200, policy=FitPolicy(pins=frozenset({1})))
    assert window.fitted().messages == pinned.messages
    assert messages[1] in pinned.messages
    assert len(window) == len(messages)


def test_a_refused_message_leaves_the_window_as_it_was() -> None:
    window = Window(limit=1_000, model="gpt-4o")
    window.append(user("go"))
    with pytest.raises(
        InvalidConversation, match="message 1, field 'tool_call_id': this result answers no open"
    ):
        window.append({"role": "tool", "tool_call_id": "x", "content": "?"})
    window.append(assistant("done"))
    assert len(window) == 2
    assert len(window.fitted().messages) == 2


def test_a_tokenizer_that_fails_leaves_the_window_as_it_was() -> None:
    class Broken:
        name = "broken"

        def count(self, text: str) -> int:
            return -1 if "bad" in text else 1

    ullage.register_tokenizer("broken-tokenizer", Broken())
    window = Window(model="broken-tokenizer", limit=50)
    window.append(user("fine"))
    with pytest.raises(ConfigurationError, match="returned -1 as a count"):
        window.append(assistant("bad"))
    assert len(window) == 1
    assert window.fitted().messages == [user("fine")]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("hello", None),
        ({"content": "hello"}, "role"),
        ({"role": "robot", "content": "hello"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": None}, "content"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": [7]}, "content[0]"),
        ({"role": "assistant", "content": None}, "content"),
        ({"role": "assistant", "content": None, "tool_calls": "f"}, "tool_calls"),
        ({"role": "user", "content": "x", "tool_calls": [{}]}, "tool_calls"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, "tool_calls[0]"),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
            "tool_calls[0].id",
        ),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
    ],
)
def test_what_is_no_message_is_refused_by_index_and_field(message: Any, field: str | None) -> None:
    with pytest.raises(InvalidConversation) as caught:
        ullage.fit([user("go"), message], limit=1_000, model="gpt-4o")
    assert caught.value.index == 1
    assert caught.value.field == field


# Shorter forms ---------------------------------------------------------------------------------------


def test_a_handle_is_eight_letters_of_the_hash_and_longer_where_taken() -> None:
    handle, full = handle_of("some content", {})
    assert len(handle) == 8
    assert handle_of("some content", {handle: full})[0] == handle
    assert handle_of("some content", {handle: b"another"})[0].startswith(handle)
    assert len(handle_of("some content", {handle: b"another"})[0]) == 9


def test_a_cut_is_within_its_room_and_says_how_much_is_gone() -> None:
    def count(text: str) -> int:
        return len(text.split())

    text = " ".join(f"w{i}" for i in range(1_000))
    cut = cut_middle(text, 100, 1_000, count)
    assert count(cut) <= 100
    assert cut.startswith("w0 ")
    assert cut.endswith(" w999")
    assert cut_middle(text, 0, 1_000, count) == "[... 1000 tokens cut ...]"


def test_error_lines_are_the_first_and_last_with_a_mark() -> None:
    text = "\n".join(f"line {i} {'FAILED' if i % 3 == 0 else 'ok'}" for i in range(100))
    found = error_lines(text, ("failed",)).splitlines()
    assert found[0] == "line 0 FAILED"
    assert found[-1] == "line 99 FAILED"
    assert len(found) == 4


def text_agent(steps: int, output: str = "a line of the log\n" * 60) -> list[dict[str, Any]]:
    """An agent without tool calls: actions are texts, and outputs are user messages."""
    messages = [
        {"role": "system", "content": "You run commands."},
        {"role": "user", "content": "Mend the parser."},
    ]
    for step in range(steps):
        messages.append({"role": "assistant", "content": f"Step {step}: I read part {step}."})
        messages.append({"role": "user", "content": f"output {step}\n{output}"})
    return messages


def test_with_cut_user_the_newest_observation_is_cut_and_its_action_stays() -> None:
    messages = text_agent(12)
    messages[-1] = {"role": "user", "content": "output 11\n" + "a very long line\n" * 3_000 + "the end"}
    with pytest.raises(ContextOverflowError):
        ullage.fit(messages, limit=1_000, model="gpt-4o")
    fitted = ullage.fit(messages, limit=1_000, model="gpt-4o", policy=FitPolicy(cut_user=True, recall=True))
    assert fitted.count.ceiling <= 1_000
    task, *_, action, observation = fitted.messages[1:]
    assert task["content"].endswith("Mend the parser.")
    assert action is messages[-2]
    assert observation["content"].startswith("output 11\n")
    assert observation["content"].endswith("the end")
    assert f"tokens cut, recall {fitted.changes[-1].handle}" in observation["content"]


def test_with_cut_user_old_observations_become_placeholders_and_their_actions_stay() -> None:
    messages = text_agent(12)
    fitted = ullage.fit(messages, limit=2_000, model="gpt-4o", policy=FitPolicy(cut_user=True))
    without = ullage.fit(messages, limit=2_000, model="gpt-4o")
    assert len(fitted.messages) == len(messages) > len(without.messages)
    assert {change.kind for change in fitted.changes} == {"placeholder"}


def test_with_cut_user_an_observation_is_not_quoted_as_the_users_words() -> None:
    messages = text_agent(12, output="secret_key=QX-4417-ZULU\n" + "noise " * 300)
    policy = FitPolicy(cut_user=True, digest_share=0.3)
    digest = ullage.fit(messages, limit=800, model="gpt-4o", policy=policy).messages[0]["content"]
    assert "> output(): " in digest
    assert "> user: " not in digest


def test_with_cut_user_an_observation_can_be_taken_back() -> None:
    messages, policy = text_agent(4), FitPolicy(cut_user=True)
    window, shorter = (Window(model="gpt-4o", limit=900, policy=policy) for _ in range(2))
    for message in messages:
        window.append(message)
    window.retract()
    for message in messages[:-1]:
        shorter.append(message)
    assert window.state.totals == shorter.state.totals
    for each in (window, shorter):
        each.append({"role": "user", "content": "Stop."})
    assert window.fitted().messages == shorter.fitted().messages


def test_with_cut_user_an_observation_with_an_image_is_not_cut() -> None:
    messages, image = text_agent(3), {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    messages[-1] = {"role": "user", "content": [image, {"type": "text", "text": "a long line\n" * 2_000}]}
    with pytest.raises(ContextOverflowError):
        ullage.fit(messages, limit=3_000, model="gpt-4o", policy=FitPolicy(cut_user=True))
