"""`fit_request` and `RequestWindow`: a body in a provider's own format in, the same format out."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from anthropic.types import ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.strategies import conversations
from ullage import ContextOverflowError, FitPolicy, InvalidConversation, InvalidRequest, RequestWindow, wire
from ullage.call_pairs import check_conversation
from ullage.tokens.calibration import Factor
from ullage.wire.foreign import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.target import ApiName

APIS: tuple[ApiName, ...] = ("openai.chat", "openai.responses", "anthropic.messages")
HISTORY = {api: wire.api_of(api).history for api in APIS}
LIMIT = 3_000


def long_text(number: int) -> str:
    return f"file {number}\ncode_word=heron-{number:02d}\n" + "a line of the file that says little\n" * 60


def anthropic_loop(steps: int) -> dict[str, Any]:
    """A tool loop as Claude Code sends it: thinking, cache marks, reminders, late system messages."""
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "Read the files."}]},
        {"role": "system", "content": "A first reminder."},
    ]
    for step in range(steps):
        turns += [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": f"signed-{step}"},
                    {"type": "tool_use", "id": f"t{step}", "name": "read", "input": {"path": f"f{step}"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": f"t{step}", "content": long_text(step)},
                    {"type": "text", "text": "<reminder>"},
                ],
            },
            {"role": "system", "content": "Another reminder."},
        ]
    turns[-2]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1_000,
        "system": [{"type": "text", "text": "You are terse.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "read", "input_schema": {"type": "object", "properties": {}}}],
        "messages": turns,
        "metadata": {"user_id": "someone"},
        "context_management": {"edits": []},
    }


def responses_loop(steps: int) -> dict[str, Any]:
    """A tool loop as Codex sends it: developer messages, sealed reasoning, ids."""
    items: list[dict[str, Any]] = [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "You are terse."}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Read the files."}]},
    ]
    for step in range(steps):
        items += [
            {"type": "reasoning", "id": f"r{step}", "summary": [], "encrypted_content": f"sealed-{step}"},
            {
                "type": "function_call",
                "id": f"i{step}",
                "call_id": f"c{step}",
                "name": "read",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": f"c{step}", "output": long_text(step)},
        ]
    return {"model": "gpt-5", "store": False, "input": items, "prompt_cache_key": "k"}


def chat_loop(steps: int) -> dict[str, Any]:
    """A tool loop as qwen-code sends it: results as lists of parts."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": [{"type": "text", "text": "Read the files."}]},
    ]
    for step in range(steps):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call],
                "provider_specific_fields": {"a": 1},
            },
            {
                "role": "tool",
                "tool_call_id": f"c{step}",
                "content": [{"type": "text", "text": long_text(step)}],
            },
        ]
    return {"model": "gpt-4o", "messages": messages, "seed": 7}


LOOPS = {"anthropic.messages": anthropic_loop, "openai.responses": responses_loop, "openai.chat": chat_loop}


def bodies(messages: list[Any]) -> Iterator[tuple[ApiName, dict[str, Any]]]:
    for api in APIS:
        yield api, wire.write(wire.Request(messages=tuple(messages), model="gpt-4o"), api)


@given(conversations(), st.integers(150, 1_500))
def test_what_comes_out_is_valid_and_within_the_limit(messages: list[Any], limit: int) -> None:
    for api, body in bodies(messages):
        given_body = copy.deepcopy(body)
        try:
            done = ullage.fit_request(body, api, limit=limit)
        except (ContextOverflowError, InvalidConversation):
            continue
        assert body == given_body, "a caller's body is never changed"
        assert ullage.count_request(done.body, api).ceiling <= done.count.ceiling <= limit
        check_conversation(wire.read(done.body, api).messages)
        assert done.changed or done.body is body


@given(conversations(), st.integers(150, 1_500), st.lists(st.floats(0, 1), min_size=2, max_size=4))
def test_a_window_of_requests_does_what_fit_request_does(
    messages: list[Any], limit: int, shares: list[float]
) -> None:
    for api, body in bodies(messages):
        history = HISTORY[api]
        window = RequestWindow(api, limit=limit)
        for share in shares:
            length = max(1, round(share * len(body[history])))
            part = copy.deepcopy({**body, history: body[history][:length]})
            assert outcome(window.fit, part) == outcome(ullage.fit_request, part, api, limit=limit)


def outcome(fit: Any, *arguments: Any, **options: Any) -> Any:
    try:
        done = fit(*arguments, **options)
    except (ContextOverflowError, InvalidConversation) as error:
        return type(error)
    return done.body, done.count, done.dropped, done.truncated


@pytest.mark.parametrize("api", APIS)
def test_a_body_that_fits_is_returned_as_the_same_object(api: ApiName) -> None:
    body = LOOPS[api](1)
    done = ullage.fit_request(body, api, limit=100_000)
    assert done.body is body
    assert not done.changed


@pytest.mark.parametrize("api", APIS)
def test_untouched_items_are_the_very_objects_that_were_given(api: ApiName) -> None:
    body = LOOPS[api](20)
    done = ullage.fit_request(body, api, limit=LIMIT)
    given_items, items = body[HISTORY[api]], done.body[HISTORY[api]]
    assert done.changed
    same = [item for item in items if any(item is each for each in given_items)]
    assert len(same) >= len(items) / 3
    others = {name for name in body if name not in (HISTORY[api], "system")}
    assert all(done.body[name] is body[name] for name in others)
    written = json.dumps(done.body)
    assert "heron-19" in written, "the newest result is there"
    assert sum(f"heron-{step:02d}" in written for step in range(20)) >= 16, "the digest knows the others"


@pytest.mark.parametrize("api", ["gemini", "bedrock.converse", "ollama.chat", "cohere.chat.v2"])
def test_members_that_did_not_change_are_the_very_objects_in_a_body_that_is_written_as_a_whole(
    api: ApiName,
) -> None:
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    body = wire.write(wire.read({**chat_loop(20), "tools": [tool]}, "openai.chat"), api)
    done = ullage.fit_request(body, api, limit=LIMIT)
    assert done.changed
    others = body.keys() - {"messages", "contents", "system", "systemInstruction"}
    assert others
    assert all(done.body[name] is body[name] for name in others)


@pytest.mark.parametrize("api", APIS)
def test_requests_that_grow_keep_their_prefix_between_trims(api: ApiName) -> None:
    window, trims, changes, before = RequestWindow(api, limit=LIMIT), 0, 0, ""
    for steps in range(1, 30):
        done = window.fit(LOOPS[api](steps))
        items = json.dumps(_unmarked(done.body[HISTORY[api]]))
        changes += not items.startswith(before[:-1])
        trims, before = window.trims, items
    assert 0 < changes <= trims + 1


def _unmarked(items: Any) -> Any:
    text = json.dumps(items).replace(', "cache_control": {"type": "ephemeral"}', "")
    return json.loads(text)


def test_a_thinking_block_goes_with_its_call_or_stays_whole() -> None:
    body = anthropic_loop(20)
    done = ullage.fit_request(body, "anthropic.messages", limit=LIMIT)
    for turn in done.body["messages"]:
        if turn["role"] == "assistant":
            kinds = [block["type"] for block in turn["content"]]
            assert kinds == ["thinking", "tool_use"]
            number = turn["content"][1]["id"][1:]
            assert turn["content"][0]["signature"] == f"signed-{number}"


def test_a_system_message_between_turns_goes_with_the_turn_before_it() -> None:
    done = ullage.fit_request(
        anthropic_loop(40),
        "anthropic.messages",
        limit=LIMIT,
        policy=FitPolicy(trim_strategy=("evict", "recent")),
    )
    turns = done.body["messages"]
    assert done.dropped
    assert turns[0]["role"] == "user"
    for before, turn in itertools.pairwise(turns):
        if turn["role"] == "system":
            assert before["role"] == "user"
    assert sum(turn["role"] == "system" for turn in turns) < 40


def test_the_thinking_of_finished_turns_goes_after_a_cut() -> None:
    body = anthropic_loop(20)
    body["messages"].append({"role": "assistant", "content": [{"type": "text", "text": "Done."}]})
    body["messages"].append({"role": "user", "content": "Which word was in file 3?"})
    done = ullage.fit_request(body, "anthropic.messages", limit=LIMIT)
    assert done.changed
    kinds = {block["type"] for turn in done.body["messages"] for block in turn["content"] if "type" in block}
    assert "thinking" not in kinds


def test_the_digest_follows_the_system_blocks_of_the_client() -> None:
    body = anthropic_loop(20)
    done = ullage.fit_request(body, "anthropic.messages", limit=LIMIT)
    first, *others = done.body["system"]
    assert first == body["system"][0]
    assert [block["type"] for block in others] == ["text"]
    bare = {name: value for name, value in body.items() if name != "system"}
    made = ullage.fit_request(bare, "anthropic.messages", limit=LIMIT)
    assert isinstance(made.body["system"], str)


def test_a_body_of_claude_on_bedrock_is_fitted_as_on_anthropic_s_own_api() -> None:
    body = {name: value for name, value in anthropic_loop(20).items() if name != "model"}
    wrapped = {"anthropic_version": "bedrock-2023-05-31", **body}
    fit = partial(ullage.fit_request, model="claude-sonnet-4-5", limit=LIMIT)
    own, done = fit(body, "anthropic.messages"), fit(wrapped, "bedrock.invoke")
    assert done.changed
    assert done.body == {"anthropic_version": "bedrock-2023-05-31", **own.body}
    others = wrapped.keys() - {"messages", "system"}
    assert all(done.body[name] is wrapped[name] for name in others)
    kept = [turn for turn in done.body["messages"] if any(turn is each for each in body["messages"])]
    assert len(kept) >= len(done.body["messages"]) / 3
    window = RequestWindow("bedrock.invoke", model="claude-sonnet-4-5", limit=LIMIT)
    window.fit({**wrapped, "messages": body["messages"][:-3]})
    assert window.fit(wrapped).body == done.body


def test_a_question_behind_results_costs_the_same_in_the_body_as_in_its_messages() -> None:
    body = anthropic_loop(1)
    results = {"role": "user", "content": body["messages"][-2]["content"][:1]}
    for words in range(1, 20):
        asked = {"role": "user", "content": "which bird " * words}
        whole = {**body, "messages": [*body["messages"][:-2], results, asked]}
        counted = ullage.count_request(whole, "anthropic.messages")
        done = ullage.fit_request(whole, "anthropic.messages", limit=counted.ceiling)
        assert (done.count.tokens, done.count.ceiling) == (counted.tokens, counted.ceiling)


def test_reasoning_goes_with_its_call() -> None:
    done = ullage.fit_request(
        responses_loop(20),
        "openai.responses",
        limit=LIMIT,
        policy=FitPolicy(trim_strategy=("evict", "recent")),
    )
    assert done.dropped
    items = done.body["input"]
    for index, item in enumerate(items):
        if item["type"] == "reasoning":
            assert items[index + 1]["id"] == item["id"].replace("r", "i")
        if item["type"] == "function_call":
            assert items[index - 1]["type"] == "reasoning"


def test_a_digest_that_becomes_an_item_of_its_own_is_counted_as_one() -> None:
    tools = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "read"}]}
    loop = responses_loop(6)
    body = {**loop, "input": [tools, *loop["input"][1:]]}
    whole = ullage.count_request(body, "openai.responses").ceiling
    trimmed = 0
    for limit in range(whole // 2, whole // 2 + 60):
        done = ullage.fit_request(body, "openai.responses", limit=limit)
        trimmed += done.dropped > 0
        assert ullage.count_request(done.body, "openai.responses").ceiling <= done.count.ceiling <= limit
        assert done.body["input"][0] is tools
    assert trimmed


def test_cache_marks_stand_where_the_client_put_them_last() -> None:
    window = RequestWindow("anthropic.messages", limit=LIMIT)
    for steps in range(1, 12):
        before = window.fit(anthropic_loop(steps))
    assert before.changed
    marked = [
        block for turn in before.body["messages"] for block in turn["content"] if "cache_control" in block
    ]
    assert len(marked) == 1


def test_another_factor_reads_the_history_again() -> None:
    window = RequestWindow("openai.chat", limit=LIMIT)
    body = chat_loop(4)
    bare = window.fit(body).count.tokens
    window.factor = Factor(scale=2.0, ceiling_scale=2.0)
    assert window.fit(body).count.tokens > bare


def pickled(given: Any) -> Any:
    """A copy by way of a pickle, as another process gets it."""
    return pickle.loads(pickle.dumps(given))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("again", [copy.deepcopy, pickled])
def test_a_copy_of_a_window_of_requests_fits_as_the_window_does(again: Any) -> None:
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"day {n} " * 40} for n in range(41)]
    window = ullage.RequestWindow("openai.chat", limit=1_000, factor=Factor(scale=1.1, ceiling_scale=1.2))
    window.fit({"model": "gpt-4o", "messages": messages[:21]})
    other = again(window)
    body = {"model": "gpt-4o", "messages": messages}
    assert other.factor == window.factor
    assert other.fit(body).body == window.fit(body).body


def test_an_overflow_names_the_figures() -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "word " * 2_000}]}
    with pytest.raises(ContextOverflowError, match="Cannot fit request") as caught:
        ullage.fit_request(body, "openai.chat", limit=500)
    assert caught.value.limit == 500


def test_a_schema_counts() -> None:
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(80)}}
    body = {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Hello"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    }
    assert ullage.fit_request(body, "openai.chat", limit=5_000).count.tokens > 400


@pytest.mark.parametrize("ends", ["user", "assistant"])
def test_a_body_with_a_schema_is_left_alone_if_its_own_count_fits(ends: str) -> None:
    body = {
        "model": "gpt-4o",
        "messages": [{"role": role, "content": "Hello"} for role in ("user", "assistant", "user", ends)],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {}}},
    }
    counted = ullage.count_request(body, "openai.chat")
    done = ullage.fit_request(body, "openai.chat", limit=counted.ceiling)
    assert done.body is body
    assert done.count == counted
    with pytest.raises(ContextOverflowError) as caught:
        ullage.fit_request({**body, "messages": body["messages"][-1:]}, "openai.chat", limit=30)
    alone = ullage.count_request({**body, "messages": body["messages"][-1:]}, "openai.chat")
    assert caught.value.tokens == alone.ceiling


def test_repair_answers_open_calls_in_every_api() -> None:
    for api in APIS:
        body = LOOPS[api](2)
        history = HISTORY[api]
        body[history] = body[history][: -2 if api == "anthropic.messages" else -1]
        with pytest.raises(InvalidConversation):
            ullage.fit_request(body, api, limit=LIMIT)
        done = ullage.fit_request(body, api, limit=LIMIT, repair=True)
        assert done.changed
        assert "[interrupted]" in json.dumps(done.body)


def test_objects_of_an_sdk_stay_the_very_objects_also_if_others_change() -> None:
    call = {"id": "t", "name": "f", "input": {}, "type": "tool_use"}
    answer = {"role": "assistant", "content": [ToolUseBlock(**call)]}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "metadata": {},
        "messages": [{"role": "user", "content": "Go."}, answer, {"role": "user", "content": [result]}],
    }
    assert ullage.fit_request(body, limit=1_000).body is body
    older = [{"role": ("user", "assistant")[n % 2], "content": "day " * 50} for n in range(40)]
    done = ullage.fit_request({**body, "messages": [*older, *body["messages"]]}, limit=1_000)
    assert done.changed
    assert done.body["messages"][-2] is answer
    assert done.body["metadata"] is body["metadata"]


ITEMS: dict[str, dict[str, Any]] = {
    "anthropic.messages": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
    "openai.chat": {"role": "tool", "tool_call_id": "c", "content": "r"},
    "openai.responses": {"type": "function_call_output", "call_id": "c", "output": "r"},
    "gemini": {"role": "user", "parts": [{"text": "x"}]},
    "bedrock.converse": {"role": "user", "content": [{"text": "x"}]},
}
"""API → an item that no body of another API has."""
TEXTS: dict[str, dict[str, Any]] = {
    api: {"parts": [{"text": "Hello"}]} if "gemini" in api else {"content": "Hello"} for api in SHAPES
}
"""API → the words of a message."""
CALLS: list[Any] = [partial(ullage.fit_request, limit=500), ullage.count_request]


@pytest.mark.parametrize("run", CALLS)
@pytest.mark.parametrize("own", ITEMS)
@pytest.mark.parametrize("api", SHAPES)
def test_an_item_of_another_api_is_refused_with_its_name(api: str, own: str, run: Any) -> None:
    shape = SHAPES[api]
    body = {"model": "m", "modelId": "m", shape.history: [{"role": "user"} | TEXTS[api], ITEMS[own]]}
    if own not in shape.formats:
        with pytest.raises(InvalidRequest, match=rf"\[1\]'.*(pass api=\"{own}\"|parts, not content)"):
            run(body, api)


@pytest.mark.parametrize("run", CALLS)
@pytest.mark.parametrize("name", ["messages", "input", "contents", "message"])
def test_a_body_without_its_history_is_told_the_apis_that_have_such_bodies(name: str, run: Any) -> None:
    for api, shape in SHAPES.items():
        if shape.history != name:
            with pytest.raises(InvalidRequest, match=rf"'{shape.history}': is missing; '{name}' is a member"):
                run({"model": "m", name: [{"role": "user", "content": "x"}]}, api)


@pytest.mark.parametrize("body", [None, [], "text", {"messages": 5}, {"messages": [5]}, {}])
def test_an_invalid_body_is_refused_by_name(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        ullage.fit_request(body, "openai.chat", limit=500)


@pytest.mark.parametrize("member", ["messages", "metadata", "tools"])
def test_a_body_that_is_nested_too_deeply_is_refused_and_the_next_one_is_taken(member: str) -> None:
    deep: Any = json.loads("[" * 900 + "]" * 900)
    plain = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Hello"}]}
    window = RequestWindow("anthropic.messages", limit=LIMIT)
    value = [{"role": "user", "content": deep}] if member == "messages" else deep
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        window.fit({**plain, member: value})
    assert window.fit(plain).body is plain


# Every API that is counted -----------------------------------------------------------------------------


def any_loop(api: ApiName, steps: int) -> dict[str, Any]:
    """A tool loop, written for any API."""
    body = chat_loop(steps)
    model = "us.anthropic.claude-sonnet-4-5" if api.startswith("bedrock") else "command-r"
    request = wire.read({"model": model, "messages": body["messages"]}, "openai.chat")
    written: dict[str, Any] = json.loads(json.dumps(wire.write(request, api)))
    return written


def members(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all members of a body; all elements of a list have one path."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield f"{path}.{name}"
            yield from members(each, f"{path}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from members(each, f"{path}[]")


@pytest.mark.parametrize("api", wire.APIS)
def test_every_api_that_is_counted_can_be_fitted(api: ApiName) -> None:
    body = any_loop(api, 20)
    before = copy.deepcopy(body)
    done = ullage.fit_request(body, api, model="gpt-4o", limit=LIMIT)
    assert body == before
    assert done.changed
    assert done.count == ullage.count_request(done.body, api, "gpt-4o")
    assert done.count.ceiling <= LIMIT
    assert set(members(done.body)) <= set(members(body)), "nothing is there that was not there"
    check_conversation(wire.read(done.body, api).messages)
    assert ullage.fit_request(body, api, model="gpt-4o", limit=100_000).body is body


@pytest.mark.parametrize("api", wire.APIS)
def test_a_body_that_costs_more_than_its_messages_is_still_within_the_limit(api: ApiName) -> None:
    body, least = any_loop(api, 6), 0
    for limit in range(40, 900, 20):
        try:
            done = ullage.fit_request(body, api, model="gpt-4o", limit=limit)
        except ContextOverflowError:
            continue
        least = least or limit
        assert done.limit == limit
        assert ullage.count_request(done.body, api, "gpt-4o").ceiling <= limit
    with pytest.raises(ContextOverflowError) as caught:
        ullage.fit_request(body, api, model="gpt-4o", limit=least - 20)
    assert caught.value.limit == least - 20


SEALED: dict[str, Any] = {
    "thought": {"type": "redacted_thinking", "data": "sealed"},
    "search": {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "gulls"}},
    "found": {
        "type": "web_search_tool_result",
        "tool_use_id": "srv1",
        "content": [{"type": "web_search_result", "title": "Gulls", "url": "https://example.org"}],
    },
    "cited": {
        "type": "text",
        "text": "Gulls nest on cliffs.",
        "citations": [{"type": "web_search_result_location", "url": "https://example.org", "title": "Gulls"}],
    },
}


def test_blocks_that_only_anthropic_understands_stay_the_very_objects() -> None:
    body = anthropic_loop(20)
    answer = {"role": "assistant", "content": list(SEALED.values())}
    question = {"role": "user", "content": "And where do terns nest?"}
    body["messages"] += [answer, question, {"role": "assistant", "content": [SEALED["cited"]]}]
    body["messages"].append({"role": "user", "content": [{"type": "text", "text": "Go on."}]})
    done = ullage.fit_request(body, "anthropic.messages", limit=LIMIT)
    assert done.changed
    sent = [block for turn in done.body["messages"] for block in turn["content"] if isinstance(block, dict)]
    for name in ("search", "found", "cited"):
        assert any(block is SEALED[name] for block in sent), name
    assert all(block is SEALED["thought"] for block in sent if block["type"] == "redacted_thinking")


def test_items_of_responses_stay_the_very_objects() -> None:
    body = responses_loop(20)
    own = [
        {"type": "web_search_call", "id": "ws1", "status": "completed", "action": {"type": "search"}},
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Gulls nest on cliffs.", "annotations": []}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ]
    body["input"] += own
    done = ullage.fit_request(body, "openai.responses", limit=LIMIT)
    assert done.changed
    for item in own[:2]:
        assert any(each is item for each in done.body["input"])
    assert "instructions" not in done.body
