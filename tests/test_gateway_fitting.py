"""Conversations that outgrow the window go on through the gateway, fitted, learned from and billed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from tests.gateway import CLAUDE, MODEL, chat, priced, serving
from tests.llama import llama_server, needs_local
from tests.player import Request, Script, playing, sent_json
from ullage import count_request
from ullage.gateway.upstream_counts import MOST_TARGETS, UpstreamCounts
from ullage.gateway.upstreams import any_model_at
from ullage.target import Target
from ullage.tokens import Cost
from ullage.tokens.calibration import NEUTRAL, MemoryShelf

pytestmark = pytest.mark.enable_socket

WINDOW = 4_000
BOATS = ("Heron", "Marten", "Alba", "Petrel", "Kestrel", "Sorrel")


def loop_chat(steps: int) -> dict[str, Any]:
    """A tool loop of so many steps."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Use the tool."},
        {"role": "user", "content": "Read all logs of the harbour."},
    ]
    for step in range(steps):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        log = f"log {step}: the {BOATS[step % 6]} carried {step + 3} barrels. " + "wind and rain. " * 100
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": log})
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    return {"model": MODEL, "messages": messages, "tools": [tool]}


def loop_messages(steps: int) -> dict[str, Any]:
    """The same in Anthropic's format."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all logs of the harbour."}]
    for step in range(steps):
        use = {"type": "tool_use", "id": f"t{step}", "name": "read", "input": {}}
        messages.append({"role": "assistant", "content": [use]})
        log = f"log {step}: the {BOATS[step % 6]} carried {step + 3} barrels. " + "wind and rain. " * 100
        result = {"type": "tool_result", "tool_use_id": f"t{step}", "content": log}
        messages.append({"role": "user", "content": [result]})
    tool = {"name": "read", "input_schema": {"type": "object"}}
    return {"model": CLAUDE, "max_tokens": 500, "messages": messages, "tools": [tool]}


def loop_responses(steps: int) -> dict[str, Any]:
    """The same in the format of the responses API."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "Read all logs of the harbour."}]
    for step in range(steps):
        items.append({"type": "function_call", "call_id": f"c{step}", "name": "read", "arguments": "{}"})
        log = f"log {step}: the {BOATS[step % 6]} carried {step + 3} barrels. " + "wind and rain. " * 100
        items.append({"type": "function_call_output", "call_id": f"c{step}", "output": log})
    tool = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    return {"model": MODEL, "input": items, "tools": [tool]}


LOOPS = {
    "/v1/chat/completions": ("openai.chat", loop_chat),
    "/v1/messages": ("anthropic.messages", loop_messages),
    "/v1/responses": ("openai.responses", loop_responses),
}


@pytest.mark.parametrize("path", LOOPS)
def test_a_loop_that_outgrows_the_window_goes_on(path: str) -> None:
    api, loop = LOOPS[path]
    with playing(sent_json({})) as player, serving(player.url, window=WINDOW) as gateway:
        answers = [gateway.ask(path, loop(steps)) for steps in range(1, 21)]
    assert [answer.status for answer in answers] == [200] * 20
    for request in player.requests:
        assert count_request(request.json(), api).ceiling <= WINDOW
    assert int(answers[-1].headers["x-ullage-dropped"]) + int(answers[-1].headers["x-ullage-truncated"]) > 0
    assert int(answers[-1].headers["x-ullage-tokens"]) <= int(answers[-1].headers["x-ullage-limit"])
    assert int(answers[-1].headers["x-ullage-tokens-before"]) > WINDOW
    assert b"log 19: the Marten" in player.requests[-1].body


def test_another_gateway_comes_to_the_same_bytes() -> None:
    with playing(sent_json({})) as player:
        with serving(player.url, window=WINDOW) as gateway:
            for steps in range(1, 16):
                gateway.ask("/v1/chat/completions", loop_chat(steps))
        with serving(player.url, window=WINDOW) as other:
            other.ask("/v1/chat/completions", loop_chat(15))
    assert player.requests[-1].body == player.requests[-2].body


def test_two_conversations_of_one_session_do_not_disturb_each_other() -> None:
    headers = {"x-claude-code-session-id": "s1"}
    with playing(sent_json({})) as player, serving(player.url, window=WINDOW) as gateway:
        for steps in range(1, 12):
            gateway.ask("/v1/chat/completions", loop_chat(steps), headers=headers)
            gateway.ask("/v1/chat/completions", chat("Write a title for this."), headers=headers)
        assert gateway.metric("ullage_conversations") == 2


SESSIONS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "Claude Code": ({"x-claude-code-session-id": "NAME"}, {}),
    "opencode": ({"x-opencode-session": "NAME"}, {}),
    "opencode's older header": ({"x-session-id": "NAME"}, {}),
    "Codex": ({"session-id": "NAME"}, {}),
    "a user": ({}, {"metadata": {"user_id": "NAME"}}),
    "a cache key": ({}, {"prompt_cache_key": "NAME"}),
}


@pytest.mark.parametrize("client", SESSIONS)
def test_a_conversation_is_recognised_by_the_session_that_its_client_names(client: str) -> None:
    headers, fields = SESSIONS[client]
    with playing(sent_json({})) as player, serving(player.url, window=WINDOW) as gateway:
        for name, system in (("one", "A"), ("one", "B"), ("two", "A")):
            body = chat("Where is the harbour?") | json.loads(json.dumps(fields).replace("NAME", name))
            body["messages"] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": system}]
            body["tools"] = loop_chat(1)["tools"] if system == "A" else []  # a session may change its tools
            told = {header: value.replace("NAME", name) for header, value in headers.items()}
            gateway.ask("/v1/chat/completions", body, headers=told)
        assert gateway.metric("ullage_conversations") == 2


def test_a_cache_mark_that_moves_on_is_no_other_conversation() -> None:
    headers = {"x-claude-code-session-id": "s1"}
    marked = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
    newest = {"role": "user", "content": marked}
    first = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    later = [first, {"role": "assistant", "content": "Ho"}, newest]
    asked = {"model": CLAUDE, "max_tokens": 50}
    with playing(sent_json({})) as player, serving(player.url, window=WINDOW) as gateway:
        gateway.ask("/v1/messages", asked | {"messages": [newest]}, headers=headers)
        gateway.ask("/v1/messages", asked | {"messages": later}, headers=headers)
        assert gateway.metric("ullage_conversations") == 1


def test_without_a_session_the_beginning_names_the_conversation() -> None:
    with playing(sent_json({})) as player, serving(player.url, window=WINDOW) as gateway:
        for texts in (("One", "Yes", "More"), ("One", "Yes", "More", "Fine", "On"), ("Two",)):
            gateway.ask("/v1/chat/completions", chat(*texts))
        assert gateway.metric("ullage_conversations") == 2


def test_the_limit_of_a_header_can_only_lower_the_limit() -> None:
    with playing(sent_json({})) as player, serving(player.url, window=WINDOW) as gateway:
        for given, expected in (("500", "500"), ("999999", str(WINDOW - WINDOW // 8))):
            answer = gateway.ask("/v1/chat/completions", chat("Hi"), headers={"x-ullage-limit": given})
            assert answer.headers["x-ullage-limit"] == expected
        assert gateway.ask("/v1/chat/completions", chat("Hi"), headers={"x-ullage-limit": "-1"}).status == 400


def test_requests_of_one_conversation_at_once_are_all_answered() -> None:
    with playing(sent_json({})) as player, serving(player.url, window=WINDOW) as gateway:
        with ThreadPoolExecutor(8) as pool:
            asked = [
                pool.submit(gateway.ask, "/v1/chat/completions", loop_chat(n % 12 + 1)) for n in range(40)
            ]
        assert {each.result().status for each in asked} == {200}
    assert len(player.requests) == 40


# Money


def test_a_cap_holds_for_requests_at_once() -> None:
    value = {"usage": {"prompt_tokens": 10, "completion_tokens": 100}, "choices": []}
    config = "[cost]\ncap_at_dollars_a_day = 0.01\n"
    body = chat("Hi there, sailor.", max_tokens=100)
    with (
        playing(sent_json(value, delay=0.05)) as player,
        serving(priced(player.url), config=config) as gateway,
        ThreadPoolExecutor(16) as pool,
    ):
        asked = [pool.submit(gateway.ask, "/v1/chat/completions", body) for _ in range(60)]
        statuses = [each.result().status for each in asked]
        spent = sum(entry.cost for entry in gateway.booked())
        calls = sum(entry.calls for entry in gateway.booked())
    assert spent <= 0.01
    assert statuses.count(200) == calls == len(player.requests) > 0
    assert statuses.count(429) == 60 - calls > 0


def test_a_stream_without_usage_is_billed_by_our_own_count() -> None:
    text = "The Heron carried barrels of salt to the island and back."
    deltas = [{"choices": [{"index": 0, "delta": {"content": word + " "}}]} for word in text.split()]
    events = [*deltas, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    body = b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events) + b"data: [DONE]\n\n"
    with playing(Script(body=body)) as player, serving(player.url) as gateway:
        gateway.ask("/v1/chat/completions", chat("Tell me of the Heron.", stream=True))
        (entry,) = gateway.booked()
    assert entry.estimated_calls == 1
    assert entry.prompt == entry.estimate > 5
    assert 10 <= entry.completion <= 16


def test_an_upstream_that_lies_about_its_usage_is_billed_by_our_own_count() -> None:
    value = {
        "choices": [{"message": {"content": "salt and barrels " * 200}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 0},
    }
    with playing(sent_json(value)) as player, serving(player.url) as gateway:
        gateway.ask("/v1/chat/completions", chat("Hi"))
        (entry,) = gateway.booked()
    assert entry.completion > 400
    assert entry.estimated_calls == 1


# UpstreamCounts


def test_the_ceiling_follows_the_counts_that_come_back() -> None:
    target, counts = Target(model="unknown-boat", api="openai.chat"), UpstreamCounts(MemoryShelf())
    assert counts.factor(target) == NEUTRAL
    for tokens in range(1_000, 9_000, 1_000):
        counts.observe(target, Cost(tokens, tokens * 5 // 4), 2_000 + tokens * 7 // 10)
    factor = counts.factor(target)
    for tokens in range(1_000, 9_000, 1_000):
        assert 2_000 + tokens * 7 // 10 <= factor.ceiling(tokens * 5 // 4) <= 2_400 + tokens * 8 // 10


def test_a_request_after_a_count_that_proved_too_low_is_fitted_with_what_was_learned() -> None:
    def real(body: Any) -> int:
        return count_request(body, "openai.chat").tokens * 3 // 2

    def answer(request: Request) -> Script:
        usage = {"prompt_tokens": real(request.json()), "completion_tokens": 1}
        return sent_json({"choices": [], "usage": usage})

    with playing(answer) as player, serving(player.url, window=WINDOW) as gateway:
        gateway.ask("/v1/chat/completions", loop_chat(3))
        told = gateway.ask("/v1/chat/completions", loop_chat(6))
        limit = int(told.headers["x-ullage-limit"])
        assert count_request(loop_chat(6), "openai.chat").ceiling <= limit < real(loop_chat(6))
        assert [real(each.json()) <= limit for each in player.requests] == [True, True]


def test_a_refusal_raises_the_ceiling_at_once() -> None:
    shelf = MemoryShelf()
    target, counts = Target(model="unknown-boat", api="openai.chat"), UpstreamCounts(shelf)
    counts.refuse(target, Cost(1_000, 1_200), 1_500)
    assert counts.factor(target).ceiling(1_200) >= 1_500
    counts.save_all()
    assert UpstreamCounts(shelf).factor(target) == counts.factor(target)


def test_names_of_models_that_a_client_makes_up_need_no_more_and_more_memory() -> None:
    shelf = MemoryShelf()
    counts = UpstreamCounts(shelf)
    kept = Target(model="boat", api="openai.chat")
    counts.refuse(kept, Cost(1_000, 1_200), 1_500)
    counts.save(kept)
    for number in range(2 * MOST_TARGETS):
        counts.observe(Target(model=f"boat-{number}", api="openai.chat"), Cost(1_000, 1_200), 1_100)
    assert len(counts._known) == len(counts._unsaved) == MOST_TARGETS
    assert counts.factor(kept).ceiling(1_200) >= 1_500  # read again


def test_observations_are_due_to_be_saved_after_a_time_and_not_at_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = MemoryShelf()
    target, counts = Target(model="unknown-boat", api="openai.chat"), UpstreamCounts(shelf)
    assert not any(counts.observe(target, Cost(1_000, 1_200), 1_100) for _ in range(200))
    monkeypatch.setattr("ullage.gateway.upstream_counts.UNSAVED", 0.0)
    assert counts.observe(target, Cost(1_000, 1_200), 1_100)
    counts.save(target)
    assert UpstreamCounts(shelf).factor(target) == counts.factor(target)


def test_a_request_that_its_upstream_finds_too_long_is_fitted_again() -> None:
    """The upstream counts three times as many tokens as we do."""

    def play(request: Request) -> Script:
        tokens = 3 * count_request(request.json(), "openai.chat").tokens
        if tokens <= WINDOW:
            return sent_json({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 1}})
        text = (
            f"maximum context length is {WINDOW} tokens. However, your messages resulted in {tokens} tokens."
        )
        error = {"message": f"This model's {text}", "code": "context_length_exceeded"}
        return sent_json({"error": error}, 400)

    with playing(play) as player, serving(player.url, window=WINDOW) as gateway:
        answers = [gateway.ask("/v1/chat/completions", loop_chat(steps)) for steps in range(1, 16)]
    assert [answer.status for answer in answers] == [200] * 15
    assert len(player.requests) < 25


# A real server


@needs_local
def test_a_real_server_answers_all_three_apis_and_never_finds_a_request_too_long() -> None:
    with llama_server(256) as llama:
        table = any_model_at(llama.url, None, {})
        with serving(table) as gateway:
            messages: list[dict[str, Any]] = []
            for turn in range(7):
                messages.append(
                    {"role": "user", "content": f"What did the {BOATS[turn % 6]} carry? " + "Salt. " * 20}
                )
                body = {"model": "any", "messages": messages, "max_tokens": 4, "temperature": 0}
                answer = gateway.ask("/v1/chat/completions", body)
                assert answer.status == 200, answer.body
                messages.append(answer.json()["choices"][0]["message"])
            assert int(answer.headers["x-ullage-limit"]) < 256
            assert int(answer.headers["x-ullage-dropped"]) > 0
            said = {"model": "any", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}
            assert gateway.ask("/v1/messages", said).json()["role"] == "assistant"
            asked = {"model": "any", "max_output_tokens": 2, "input": "Hi"}
            assert gateway.ask("/v1/responses", asked).json()["object"] == "response"
            counted = gateway.ask("/v1/messages/count_tokens", said).json()["input_tokens"]
            assert 3 < counted < 100
            assert all(entry.estimated_calls == 0 for entry in gateway.booked())
