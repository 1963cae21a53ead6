"""Signed, sealed and held parts pass through the gateway untouched, or go whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.gateway import CLAUDE, MODEL, serving
from tests.player import Script, playing
from tests.scripted_answers import STREAMS
from tests.test_body import anthropic_loop, long_text, responses_loop
from ullage.gateway.upstream import is_anthropic
from ullage.gateway.upstreams import any_model_at

pytestmark = pytest.mark.enable_socket

MARK = {"type": "ephemeral"}
BETA = "thinking-binding-controls-2026-08-01"
WINDOW = 4_000


def claude_loop(steps: int, **more: Any) -> dict[str, Any]:
    """A loop with all that Anthropic's clients send beside words, calls and results."""
    body = anthropic_loop(steps) | {"model": CLAUDE, "thinking": {"type": "adaptive"}, **more}
    body["messages"][1] = {"role": "system", "content": "A reminder.", "output_config": {"effort": "low"}}
    search = [
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "herons"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srv",
            "content": [{"type": "web_search_result", "encrypted_content": "c2VhbGVk", "title": "Herons"}],
        },
        {"type": "text", "text": "Herons wade."},
    ]
    document = {
        "type": "document",
        "title": "Tides",
        "source": {"type": "text", "media_type": "text/plain", "data": "High at noon."},
        "citations": {"enabled": True},
    }
    body["messages"][2:2] = [
        {"role": "assistant", "content": search},
        {"role": "user", "content": [document, {"type": "text", "text": "Go on."}]},
    ]
    return body | {"container": "container_1", "context_management": {"edits": []}}


def marks(value: Any) -> int:
    if isinstance(value, dict):
        return sum(marks(each) for each in value.values()) + ("cache_control" in value)
    return sum(map(marks, value)) if isinstance(value, list) else 0


def sent(path: str, bodies: list[dict[str, Any]], server: str, *, is_bound: bool = False) -> list[Any]:
    """The requests that the upstream got for those of a conversation."""
    with playing(Script(body=STREAMS[server]())) as player:
        table = {
            name: replace(upstream, binds_thinking=is_bound)
            for name, upstream in any_model_at(player.url, WINDOW, {}).items()
        }
        with serving(table) as gateway:
            for body in bodies:
                answer = gateway.ask(path, body, headers={"anthropic-beta": "own-beta"})
                assert answer.status == 200, answer.body
        return [*player.requests]


def test_a_cut_loop_of_claude_keeps_whole_blocks_and_all_marks() -> None:
    given = claude_loop(12)
    (request,) = sent("/v1/messages", [given], "messages")
    body = request.json()
    assert len(request.body) < len(orjson.dumps(given))
    for name in ("container", "context_management", "metadata", "thinking", "tools", "model"):
        assert body[name] == given[name]
    assert body["system"][0] == given["system"][0]
    assert marks(body) == marks(given)
    known = [block for turn in given["messages"] for block in turn["content"] if isinstance(block, dict)]
    for turn in body["messages"]:
        assert "output_config" not in turn or turn == given["messages"][1]
        for block in turn["content"] if isinstance(turn["content"], list) else ():
            assert block["type"] in {"text", "tool_result"} or block in known
    kinds = [
        block["type"] for turn in body["messages"] for block in turn["content"] if isinstance(block, dict)
    ]
    assert kinds.count("server_tool_use") == kinds.count("web_search_tool_result")


def test_the_loop_under_way_keeps_its_thinking_after_a_cut() -> None:
    (request,) = sent("/v1/messages", [claude_loop(12)], "messages")
    last = [turn for turn in request.json()["messages"] if turn["role"] == "assistant"][-1]
    assert last["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "signed-11"}


def test_anthropic_is_asked_to_leave_out_thinking_that_a_cut_has_unbound_from_then_on() -> None:
    requests = sent("/v1/messages", [claude_loop(steps) for steps in (1, 12, 13)], "messages", is_bound=True)
    asked = [each.json()["thinking"].get("block_binding") for each in requests]
    assert asked == [None, *[{"prefix_mismatch_behavior": "drop_block"}] * 2]
    assert [each.headers["anthropic-beta"] for each in requests] == [
        "own-beta",
        *[f"own-beta,{BETA}"] * 2,
    ]


def test_the_clients_own_choice_about_unbound_thinking_stays() -> None:
    chosen = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
    (request,) = sent("/v1/messages", [claude_loop(12, thinking=chosen)], "messages", is_bound=True)
    assert request.json()["thinking"] == chosen
    assert request.headers["anthropic-beta"] == "own-beta"


def test_only_anthropics_own_server_binds_thinking() -> None:
    assert is_anthropic("https://api.anthropic.com/v1")
    assert not is_anthropic("https://api.anthropic.com.example.org/v1")
    assert not is_anthropic("http://127.0.0.1:8080")


@pytest.mark.parametrize("held", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
@pytest.mark.parametrize("place", [1, 2, 5, 8])
def test_what_the_server_holds_is_never_cut(held: dict[str, Any], place: int) -> None:
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk" * 20}
    tools = [{"type": "namespace", "name": "n", "tools": []}, {"type": "web_search"}]
    body = responses_loop(60) | {"model": MODEL, "tools": tools, **held}
    body["input"].insert(place, compaction)
    (request,) = sent("/v1/responses", [body], "responses")
    cut = request.json()
    assert len(request.body) < len(orjson.dumps(body))
    assert compaction in cut["input"]
    assert cut["tools"] == tools
    assert {name: cut[name] for name in held} == held
    calls = {item["call_id"] for item in cut["input"] if item["type"] == "function_call"}
    assert calls == {item["call_id"] for item in cut["input"] if item["type"] == "function_call_output"}
    kept = [item["id"] for item in cut["input"] if item["type"] == "reasoning"]
    assert kept == [f"r{call[1:]}" for call in sorted(calls, key=lambda each: int(each[1:]))]


def test_a_giant_newest_result_is_cut_in_the_middle() -> None:
    giant = "FIRST LINE\n" + long_text(1) * 40 + "LAST LINE"
    body = anthropic_loop(3) | {"model": CLAUDE}
    body["messages"][-2]["content"][0]["content"] = giant
    (request,) = sent("/v1/messages", [body], "messages")
    results = [
        block
        for turn in request.json()["messages"]
        for block in turn["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]
    text = orjson.dumps(results[-1]["content"]).decode()
    assert "FIRST LINE" in text
    assert "LAST LINE" in text
    assert len(text) < len(giant) // 2
