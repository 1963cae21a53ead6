"""A client of one API is served by an upstream of another; its SDK reads the answers as its own."""

from __future__ import annotations

import re
import socket
import tempfile
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anthropic
import openai
import orjson
import pytest

from tests.gateway import MODEL, priced, serving
from tests.llama import llama_server, needs_local
from tests.player import Script, playing, sent_json
from tests.scripted_answers import (
    ARGUMENTS,
    CACHED,
    COMPLETION,
    LENGTH,
    PROMPT,
    REFUSED,
    STREAMS,
    THOUGHT,
    events,
)
from tests.world import PATIENCE, until
from ullage.config import load
from ullage.gateway.upstream import SHORT_NAMES
from ullage.gateway.upstreams import any_model_at, read_configured_models

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.player import Request
    from ullage.gateway.upstream import Upstream

pytestmark = pytest.mark.enable_socket

CLAUDE = "claude-opus-4-6"
DIRECTIONS = list(permutations(SHORT_NAMES, 2))
"""Pairs of a client's API and an upstream's."""
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
MODELS = {"chat": MODEL, "responses": MODEL, "messages": CLAUDE}


class Said(NamedTuple):
    """An answer as the client's SDK returned it."""

    text: str
    thought: str
    calls: list[tuple[str, str, Any]]
    reason: str
    usage: tuple[int, int, int, int]
    """Prompt, cached, completion and reasoning tokens."""


def at(url: str, api: str, window: int = 100_000) -> dict[str, Upstream]:
    return any_model_at(url, window, {}, SHORT_NAMES[api])


# The three clients


def ask_chat(url: str, *, stream: bool = False, **more: Any) -> Said:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]} | more
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-own", max_retries=0) as client:
        if stream:
            with client.chat.completions.stream(**body, stream_options={"include_usage": True}) as coming:
                made = coming.get_final_completion()
        else:
            made = client.chat.completions.create(**body)
    choice, usage = made.choices[0], made.usage
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens_details is not None
    used = (
        usage.prompt_tokens,
        usage.prompt_tokens_details.cached_tokens,
        usage.completion_tokens,
        usage.completion_tokens_details.reasoning_tokens,
    )
    calls = [
        (each.id, each.function.name, orjson.loads(each.function.arguments))
        for each in choice.message.tool_calls or ()
    ]
    thought = getattr(choice.message, "reasoning_content", "")
    return Said(choice.message.content or "", thought, calls, choice.finish_reason, used)


def ask_responses(url: str, *, stream: bool = False, **more: Any) -> Said:
    body = {"model": MODEL, "input": "Hi"} | more
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-own", max_retries=0) as client:
        if stream:
            with client.responses.stream(**body) as coming:
                came: list[Any] = list(coming)
            assert [each.sequence_number for each in came] == list(range(len(came)))
            made = came[-1].response
        else:
            made = client.responses.create(**body)
    assert len({item.id for item in made.output}) == len(made.output)
    thought = "".join(part.text for item in made.output if item.type == "reasoning" for part in item.summary)
    calls = [
        (item.call_id, item.name, orjson.loads(item.arguments))
        for item in made.output
        if item.type == "function_call"
    ]
    reason = made.status if made.incomplete_details is None else made.incomplete_details.reason
    used = (
        made.usage.input_tokens,
        made.usage.input_tokens_details.cached_tokens,
        made.usage.output_tokens,
        made.usage.output_tokens_details.reasoning_tokens,
    )
    return Said(made.output_text, thought, calls, str(reason), used)


def ask_messages(url: str, *, stream: bool = False, **more: Any) -> Said:
    body = {
        "model": CLAUDE,
        "max_tokens": 2_000,
        "messages": [{"role": "user", "content": "Hi"}],
        "thinking": {"type": "adaptive"},
    } | more
    with anthropic.Anthropic(base_url=url, api_key="sk-own", max_retries=0) as client:
        if stream:
            with client.messages.stream(**body) as coming:
                made = coming.get_final_message()
        else:
            made = client.messages.create(**body)
    text = "".join(block.text for block in made.content if block.type == "text")
    thought = "".join(block.thinking for block in made.content if block.type == "thinking")
    calls = [(block.id, block.name, block.input) for block in made.content if block.type == "tool_use"]
    read = made.usage.cache_read_input_tokens or 0
    used = (made.usage.input_tokens + read, read, made.usage.output_tokens, THOUGHT)
    return Said(text, thought, calls, str(made.stop_reason), used)


ASKS: dict[str, Callable[..., Said]] = {
    "chat": ask_chat,
    "responses": ask_responses,
    "messages": ask_messages,
}
ENDS = {"chat": "stop", "responses": "completed", "messages": "end_turn"}
CALLS = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}
USED = (PROMPT, CACHED, COMPLETION, THOUGHT)


# Answers


@pytest.mark.parametrize(("client", "server"), DIRECTIONS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_sdk_reads_a_translated_answer_as_its_own(client: str, server: str, stream: bool) -> None:
    with (
        playing(Script(body=STREAMS[server](), piece=11)) as player,
        serving(at(player.url, server)) as gateway,
    ):
        said = ASKS[client](gateway.url, stream=stream)
        assert until(lambda: len(gateway.booked()) == 1)
        (entry,) = gateway.booked()
    assert said == Said("Ahoy there", "Hm.", [], ENDS[client], USED)
    assert player.requests[0].path == PATHS[server]
    assert (entry.prompt, entry.cached_read, entry.completion, entry.estimated_calls) == (
        PROMPT,
        CACHED,
        COMPLETION,
        0,
    )


TOOLS: dict[str, Any] = {
    "chat": {"tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]},
    "responses": {"tools": [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}]},
    "messages": {"tools": [{"name": "read", "input_schema": SCHEMA}]},
}


@pytest.mark.parametrize(("client", "server"), DIRECTIONS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_comes_back_under_its_id(client: str, server: str, stream: bool) -> None:
    with (
        playing(Script(body=STREAMS[server](call=True))) as player,
        serving(at(player.url, server)) as gateway,
    ):
        said = ASKS[client](gateway.url, stream=stream, **TOOLS[client])
    assert (said.text, said.reason) == ("Ahoy there", CALLS[client])
    assert said.calls == [("call_1", "read", orjson.loads(ARGUMENTS))]
    (tool,) = player.requests[0].json()["tools"]
    wanted = TOOLS[server]["tools"][0]
    assert tool == wanted or tool["function"] == {**wanted["function"], "strict": False}


@pytest.mark.parametrize(("client", "server"), DIRECTIONS)
@pytest.mark.parametrize("words", [LENGTH, REFUSED])
def test_the_reason_of_the_end_is_said_in_the_clients_word(
    client: str, server: str, words: dict[str, str]
) -> None:
    script = Script(body=STREAMS[server](reason=words[server]))
    with playing(script) as player, serving(at(player.url, server)) as gateway:
        assert ASKS[client](gateway.url).reason == words[client]
        body = {"model": MODELS[client], "stream": True, **MINIMAL[client]}
        assert f'"{words[client]}"'.encode() in gateway.ask(PATHS[client], body).body


MINIMAL: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"input": "Hi"},
    "messages": {"max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]},
}


def test_thinking_is_not_shown_to_a_client_that_did_not_ask_for_it() -> None:
    with playing(Script(body=STREAMS["chat"]())) as player, serving(at(player.url, "chat")) as gateway:
        body = {"model": CLAUDE, **MINIMAL["messages"]}
        answer = gateway.ask("/v1/messages", body).json()
        stream = gateway.ask("/v1/messages", body | {"stream": True}).body
    assert [block["type"] for block in answer["content"]] == ["text"]
    assert b"Hm." not in stream


def test_usage_is_sent_in_a_chat_stream_only_if_it_was_asked_for() -> None:
    with (
        playing(Script(body=STREAMS["messages"]())) as player,
        serving(at(player.url, "messages")) as gateway,
    ):
        body = {"model": MODEL, "stream": True, **MINIMAL["chat"]}
        plain = gateway.ask("/v1/chat/completions", body).body
        asked = gateway.ask("/v1/chat/completions", body | {"stream_options": {"include_usage": True}}).body
    assert b'"usage"' not in plain
    assert b'"prompt_tokens":40' in asked
    assert plain.endswith(b"data: [DONE]\n\n")


def test_an_answer_without_usage_has_our_own_count() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "Ahoy"}, "finish_reason": "stop"}]}
    with (
        playing(Script(body=events(chunk, named=False))) as player,
        serving(at(player.url, "chat")) as gateway,
    ):
        usage = gateway.ask("/v1/messages", {"model": CLAUDE, **MINIMAL["messages"]}).json()["usage"]
        assert until(lambda: len(gateway.booked()) == 1)
        (entry,) = gateway.booked()
    assert usage["input_tokens"] > 3
    assert usage["output_tokens"] > 0
    assert entry.estimated_calls == 1


def test_arguments_that_are_no_object_reach_the_client_as_text() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "read", "arguments": "a.txt"}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    with (
        playing(Script(body=events(chunk, named=False))) as player,
        serving(at(player.url, "chat")) as gateway,
    ):
        for stream in (False, True):
            said = ask_messages(gateway.url, stream=stream, **TOOLS["messages"])
            assert said.calls == [("c", "read", {"arguments": "a.txt"})]


# Requests


def sent(client: str, server: str, body: dict[str, Any]) -> Any:
    """The request that an upstream got for a client's."""
    with playing(Script(body=STREAMS[server]())) as player, serving(at(player.url, server)) as gateway:
        answer = gateway.ask(PATHS[client], {"model": MODELS[client], **body})
        assert answer.status == 200, answer.body
        return player.requests[0].json()


def refused(client: str, server: str, body: dict[str, Any]) -> str:
    """The message of a refusal."""
    with playing(Script(body=STREAMS[server]())) as player, serving(at(player.url, server)) as gateway:
        answer = gateway.ask(PATHS[client], {"model": MODELS[client], **body})
        assert answer.status == 400, answer.body
        assert player.requests == []
        assert gateway.booked() == []
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        return str(error["message"])


LOOP: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I read.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "read", "arguments": '{"path":"a"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "harbour"},
        ],
        "max_tokens": 50,
        "temperature": 0.5,
        "tool_choice": "required",
        "reasoning_effort": "low",
        **TOOLS["chat"],
    },
    "responses": {
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
                ],
            },
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "c2VhbGVk"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I read."}]},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"a"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "harbour"},
        ],
        "max_output_tokens": 50,
        "temperature": 0.5,
        "tool_choice": "required",
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        **TOOLS["responses"],
    },
    "messages": {
        "system": "Be brief.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look", "cache_control": {"type": "ephemeral"}},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "text", "text": "I read."},
                    {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "harbour"}],
            },
        ],
        "max_tokens": 50,
        "temperature": 0.5,
        "tool_choice": {"type": "any"},
        "output_config": {"effort": "low"},
        "metadata": {"user_id": "u"},
        **TOOLS["messages"],
    },
}


@pytest.mark.parametrize(("client", "server"), DIRECTIONS)
def test_a_tool_loop_with_an_image_is_said_in_the_other_api(client: str, server: str) -> None:
    body = sent(client, server, LOOP[client])
    text = orjson.dumps(body).decode()
    for words in ("Be brief.", "Look", PIXEL, "I read.", "harbour", "read", '"low"', "0.5", "50"):
        assert words in text, words
    for sealed in ("c2VhbGVk", "c2ln", "hm", "cache_control", "user_id"):
        assert f'"{sealed}"' not in text
    wanted = LOOP[server]
    assert body["tool_choice"] == wanted["tool_choice"]
    assert body["stream"] is True
    assert len(body[HISTORY[server]]) == len(wanted[HISTORY[server]]) + EXTRA.get((client, server), 0)


HISTORY = {"chat": "messages", "responses": "input", "messages": "messages"}
EXTRA = {("messages", "responses"): 0, ("chat", "responses"): 0}
"""Items more than in the hand-written body."""


STORED_IMAGE = {"type": "image", "source": {"type": "file", "file_id": "f"}}
SERVER_TOOL = {"type": "server_tool_use", "id": "s", "name": "x", "input": {}}


@pytest.mark.parametrize(
    ("client", "server", "body", "field"),
    [
        ("chat", "messages", {"n": 2}, "'n'"),
        ("chat", "messages", {"logprobs": True}, "'logprobs'"),
        ("chat", "messages", {"response_format": {"type": "json_object"}}, "'response_format'"),
        ("chat", "responses", {"stop": ["END"]}, "'stop'"),
        ("chat", "responses", {"x_unknown": 1}, "'x_unknown'"),
        ("chat", "messages", {"functions": [{"name": "read"}]}, "'functions'"),
        ("responses", "chat", {"previous_response_id": "resp_1"}, "previous_response_id"),
        ("responses", "chat", {"background": True}, "'background'"),
        ("responses", "chat", {"include": ["file_search_call.results"]}, "'include'"),
        ("responses", "chat", {"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0]"),
        ("responses", "chat", {"input": [{"type": "compaction", "encrypted_content": "x"}]}, "compaction"),
        ("messages", "chat", {"container": "c_1"}, "'container'"),
        ("messages", "chat", {"top_k": 5}, "'top_k'"),
        ("messages", "chat", {"output_config": {"task_budget": {}}}, "output_config.task_budget"),
        ("messages", "chat", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
        ("messages", "chat", {"messages": [{"role": "user", "content": [STORED_IMAGE]}]}, "image"),
        (
            "messages",
            "chat",
            {"messages": [{"role": "assistant", "content": [SERVER_TOOL]}]},
            "server_tool_use",
        ),
    ],
)
def test_a_field_that_cannot_be_said_is_refused_by_its_name(
    client: str, server: str, body: dict[str, Any], field: str
) -> None:
    assert field in refused(client, server, MINIMAL[client] | body)


def test_advice_that_is_left_out_is_told_in_a_header() -> None:
    body = {"model": CLAUDE, **MINIMAL["messages"], "metadata": {"user_id": "u"}, "context_management": {}}
    with playing(Script(body=STREAMS["chat"]())) as player, serving(at(player.url, "chat")) as gateway:
        headers = gateway.ask("/v1/messages", body).headers
    assert headers["x-ullage-left-out"] == "metadata, context_management"
    assert headers["x-ullage-translated"] == "openai.chat"


@pytest.mark.parametrize("server", ["messages", "responses"])
def test_the_name_of_a_speaker_is_left_out_and_told(server: str) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "name": "ann", "content": "Hi"}]}
    with playing(Script(body=STREAMS[server]())) as player, serving(at(player.url, server)) as gateway:
        headers = gateway.ask("/v1/chat/completions", body).headers
        assert b"ann" not in player.requests[0].body
    assert headers["x-ullage-left-out"] == "messages[].name"


@pytest.mark.parametrize("server", ["chat", "responses"])
def test_a_tool_that_a_search_has_found_and_a_document_are_said_in_words(server: str) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Boats lie here."}
    document = {"type": "document", "title": "Harbours", "context": "From 1902.", "source": source}
    found = [{"type": "tool_reference", "tool_name": "WebFetch"}]
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    messages = [
        {"role": "user", "content": [document]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": found}]},
    ]
    body = {"messages": messages, "max_tokens": 50, **TOOLS["messages"]}
    text = orjson.dumps(sent("messages", server, body)).decode()
    assert "Harbours\\n\\nFrom 1902.\\n\\nBoats lie here." in text
    assert "The tool WebFetch can be called now." in text


def test_ids_of_calls_stay_apart_where_some_characters_are_invalid() -> None:
    ids = ("a.b", "a_b", "a:b")
    calls = [
        {"id": each, "type": "function", "function": {"name": "read", "arguments": "{}"}} for each in ids
    ]
    results = [{"role": "tool", "tool_call_id": each, "content": each} for each in ids]
    assistant = {"role": "assistant", "tool_calls": calls}
    messages = [{"role": "user", "content": "Hi"}, assistant, *results]
    _, called, answered_calls = sent("chat", "messages", {"messages": messages, **TOOLS["chat"]})["messages"]
    given = [block["id"] for block in called["content"]]
    assert given[1] == "a_b"
    assert len(set(given)) == 3
    assert all(re.fullmatch("[a-zA-Z0-9_-]+", each) for each in given)
    assert [block["tool_use_id"] for block in answered_calls["content"]] == given


def test_a_tool_cannot_smuggle_a_header_into_the_answer() -> None:
    tools = [{"type": "web_search\r\nx-evil: 1"}, *TOOLS["responses"]["tools"]]
    with playing(Script(body=STREAMS["chat"]())) as player, serving(at(player.url, "chat")) as gateway:
        headers = gateway.ask(
            "/v1/responses", {"model": MODEL, **MINIMAL["responses"], "tools": tools}
        ).headers
    assert "x-evil" not in headers
    assert headers["x-ullage-left-out"] == "tools[0] (web_search  x-evil: 1)"


def test_structured_output_is_said_in_all_apis() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    named = {"name": "n", "schema": schema}
    body = MINIMAL["chat"] | {"response_format": {"type": "json_schema", "json_schema": named}}
    assert sent("chat", "messages", body)["output_config"] == {
        "format": {"type": "json_schema", "schema": schema}
    }
    assert sent("chat", "responses", body)["text"]["format"]["schema"] == schema
    body = MINIMAL["messages"] | {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    assert sent("messages", "chat", body)["response_format"]["json_schema"]["schema"] == schema


def test_what_local_templates_refuse_is_written_in_another_way() -> None:
    body = {
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Billing."}, {"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Go"},
            {"role": "system", "content": "Files changed."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "blurred"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                            },
                        ],
                    },
                    {"type": "text", "text": "And now?"},
                ],
            },
        ],
        **TOOLS["messages"],
    }
    system, user, assistant, tool, last = sent("messages", "chat", body)["messages"]
    assert system == {"role": "system", "content": "Billing.\n\nBe brief."}
    assert user == {"role": "user", "content": "Go\n\n<system>\n\nFiles changed.\n\n</system>"}
    assert assistant["tool_calls"][0]["id"] == "t1"
    assert tool == {"role": "tool", "tool_call_id": "t1", "content": "Error: blurred"}
    assert last["role"] == "user"
    assert [part["type"] for part in last["content"]] == ["image_url", "text"]


CODEX_TOOLS = [
    {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"type": "text"}},
    {
        "type": "namespace",
        "name": "mcp__files",
        "description": "Files",
        "tools": [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}],
    },
    {"type": "web_search"},
    {"type": "function", "name": "shell", "parameters": SCHEMA, "strict": False},
]


def test_the_tools_of_codex_work_on_chat_completions() -> None:
    patch = {"name": "apply_patch", "arguments": '{"input":"*** Begin"}'}
    read = {"name": "mcp__files__read", "arguments": ARGUMENTS}
    delta = {
        "tool_calls": [
            {"index": index, "id": f"c{index}", "type": "function", "function": function}
            for index, function in enumerate((patch, read))
        ]
    }
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}
    with (
        playing(Script(body=events(chunk, named=False))) as player,
        serving(at(player.url, "chat")) as gateway,
    ):
        body = {
            "model": MODEL,
            "input": [{"role": "developer", "content": "Be brief."}],
            "tools": CODEX_TOOLS,
        }
        body["input"].append({"role": "user", "content": "Hi"})
        first = gateway.ask("/v1/responses", body)
        output = first.json()["output"]
        body["input"] += output
        body["input"] += [
            {"type": "custom_tool_call_output", "call_id": "c0", "output": "done"},
            {"type": "function_call_output", "call_id": "c1", "output": "harbour"},
        ]
        assert gateway.ask("/v1/responses", body).status == 200
        before, after = (each.json() for each in player.requests)
    assert first.headers["x-ullage-left-out"] == "tools[2] (web_search)"
    assert [tool["function"]["name"] for tool in before["tools"]] == [
        "apply_patch",
        "mcp__files__read",
        "shell",
    ]
    assert (output[0]["type"], output[0]["input"]) == ("custom_tool_call", "*** Begin")
    assert (output[1]["name"], output[1]["namespace"]) == ("read", "mcp__files")
    assert [each["function"] for each in after["messages"][2]["tool_calls"]] == [patch, read]


# Headers


def test_the_clients_key_is_sent_in_the_form_of_the_other_api() -> None:
    headers = {
        "x-api-key": "sk-mine",
        "anthropic-beta": "x",
        "x-stainless-lang": "python",
        "traceparent": "t",
    }
    with playing(Script(body=STREAMS["chat"]())) as player, serving(at(player.url, "chat")) as gateway:
        gateway.ask("/v1/messages?beta=true", {"model": CLAUDE, **MINIMAL["messages"]}, headers=headers)
    (request,) = player.requests
    assert request.headers["authorization"] == "Bearer sk-mine"
    assert request.path == "/v1/chat/completions"
    assert "traceparent" in request.headers
    assert not {"x-api-key", "anthropic-beta", "x-stainless-lang"} & request.headers.keys()


# Errors


@pytest.mark.parametrize(("client", "server"), DIRECTIONS)
@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (404, "NotFoundError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
    ],
)
def test_an_error_of_the_upstream_is_the_clients_own_exception(
    client: str, server: str, status: int, name: str
) -> None:
    error = {"type": "some_error", "message": "No boats today", "code": None}
    body = {"type": "error", "error": error} if server == "messages" else {"error": error}
    with playing(sent_json(body, status)) as player, serving(at(player.url, server)) as gateway:
        library = anthropic if client == "messages" else openai
        with pytest.raises(getattr(library, name)) as caught:
            ASKS[client](gateway.url, stream=True)
        assert gateway.booked() == []
    assert "No boats today" in str(caught.value)


@pytest.mark.parametrize(("client", "server"), DIRECTIONS)
def test_an_overflow_of_the_upstream_is_learned_and_the_request_sent_again(client: str, server: str) -> None:
    sentence = "prompt is too long: 20000 tokens > 16384 maximum"
    error = {"type": "invalid_request_error", "message": sentence}
    refusal = sent_json({"type": "error", "error": error}, 400)
    with (
        playing(refusal, Script(body=STREAMS[server]())) as player,
        serving(at(player.url, server)) as gateway,
    ):
        assert ASKS[client](gateway.url).text == "Ahoy there"
        assert len(player.requests) == 2


@pytest.mark.parametrize(("client", "server"), DIRECTIONS)
def test_a_broken_stream_raises_in_the_sdk_and_is_billed(client: str, server: str) -> None:
    whole = STREAMS[server]()
    script = Script(body=whole, cut_at=len(whole) * 2 // 3)
    library = anthropic if client == "messages" else openai
    with playing(script) as player, serving(at(player.url, server)) as gateway:
        for stream in (False, True):
            with pytest.raises((library.APIError, RuntimeError)):
                ASKS[client](gateway.url, stream=stream)
        assert until(lambda: sum(entry.calls for entry in gateway.booked()) == 2)
        assert all(entry.completion > 0 for entry in gateway.booked())


def test_an_error_inside_a_stream_is_an_error_event() -> None:
    error = events({"error": {"message": "No boats today", "code": 500}}, named=False)
    with playing(Script(body=error)) as player, serving(at(player.url, "chat")) as gateway:
        with pytest.raises(anthropic.APIError, match="No boats today"):
            ask_messages(gateway.url, stream=True)
        answer = gateway.ask("/v1/messages", {"model": CLAUDE, **MINIMAL["messages"]})
    assert answer.status == 502


def test_a_translated_answer_in_one_piece_is_refused() -> None:
    with playing(sent_json({"choices": []})) as player, serving(at(player.url, "chat")) as gateway:
        answer = gateway.ask("/v1/messages", {"model": CLAUDE, **MINIMAL["messages"]})
    assert answer.status == 502
    assert "one piece" in answer.json()["error"]["message"]


def test_a_client_that_goes_away_stops_a_translated_upstream_and_is_billed() -> None:
    script = Script(body=STREAMS["chat"](), stall_at=300)
    body = orjson.dumps({"model": CLAUDE, "stream": True, **MINIMAL["messages"]})
    with (
        playing(script) as player,
        serving(at(player.url, "chat")) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection,
    ):
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert connection.recv(1000)
        connection.close()
        assert player.wait_left()
        assert until(lambda: len(gateway.booked()) == 1)
        (entry,) = gateway.booked()
    assert (entry.calls, entry.estimated_calls) == (1, 1)


def test_a_whole_answer_has_its_cost() -> None:
    with playing(Script(body=STREAMS["messages"]())) as player:
        (upstream,) = priced(player.url).values()
        (named,) = at(player.url, "messages").values()
        with serving({CLAUDE: named.__class__(endpoint=upstream.endpoint, api=named.api)}) as gateway:
            answer = gateway.ask("/v1/chat/completions", {"model": CLAUDE, **MINIMAL["chat"]})
    assert float(answer.headers["x-ullage-cost"]) > 0
    assert answer.json()["model"] == CLAUDE


def test_counts_and_compactions_of_another_api_are_not_sent() -> None:
    with playing(Script(body=STREAMS["chat"]())) as player, serving(at(player.url, "chat")) as gateway:
        counted = gateway.ask("/v1/messages/count_tokens", {"model": CLAUDE, **MINIMAL["messages"]})
        compacted = gateway.ask("/v1/responses/compact", {"model": MODEL, "input": "Hi"})
        assert player.requests == []
    assert counted.json()["input_tokens"] > 0
    assert (compacted.status, compacted.json()["error"]["code"]) == (404, "unknown_url")


@pytest.mark.parametrize("server", ["messages", "chat"])
def test_a_mapped_name_reaches_the_server_as_its_own_and_the_client_as_its_own(server: str) -> None:
    config = """
[models."claude-opus-4-6"]
model = "qwen3-coder"
window = 100000
endpoint = "ADDRESS"
api = "API"
"""
    with playing(Script(body=STREAMS[server]())) as player, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.toml")
        file.write_text(config.replace("ADDRESS", player.url).replace("API", SHORT_NAMES[server]))
        settings = load(file, environ={}, cwd=Path(folder))
        table, notices = read_configured_models(settings.models.values(), {})
        with serving(table) as gateway:
            answer = gateway.ask("/v1/messages", {"model": CLAUDE, "stream": True, **MINIMAL["messages"]})
            assert gateway.ask("/v1/messages", {"model": "other", **MINIMAL["messages"]}).status == 404
    assert notices == []
    assert player.requests[0].json()["model"] == "qwen3-coder"
    assert player.requests[0].path == PATHS[server]
    assert answer.status == 200


# Fitting


def test_a_translated_loop_that_outgrows_the_window_goes_on() -> None:
    def play(request: Request) -> Script:
        assert len(request.body) < 4 * 8_000
        return Script(body=STREAMS["chat"]())

    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all files."}]
    with playing(play) as player, serving(at(player.url, "chat", 6_000)) as gateway:
        for step in range(12):
            messages += [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": f"t{step}", "name": "read", "input": {"path": "a"}}
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": f"t{step}",
                            "content": f"file {step}: " + f"harbour {step} " * 400,
                        }
                    ],
                },
            ]
            body = {"model": CLAUDE, "max_tokens": 500, "messages": messages, **TOOLS["messages"]}
            answer = gateway.ask("/v1/messages", body)
            assert answer.status == 200, answer.body
    assert int(answer.headers["x-ullage-truncated"]) + int(answer.headers["x-ullage-dropped"]) > 0
    last = player.requests[-1].json()["messages"]
    assert last[0]["role"] in {"system", "user"}
    assert "file 11" in last[-1]["content"]


# A real server


@needs_local
def test_anthropic_and_responses_clients_run_on_the_chat_api_of_a_real_server() -> None:
    with llama_server(1024) as llama, serving(any_model_at(llama.url, None, {}, "openai.chat")) as gateway:
        for stream in (False, True):
            said = ask_messages(gateway.url, stream=stream, max_tokens=8, thinking={"type": "disabled"})
            assert said.text
            assert said.reason in {"max_tokens", "end_turn"}
            assert said.usage[0] > 3
            told = ask_responses(gateway.url, stream=stream, max_output_tokens=8)
            assert told.text
            assert told.usage[2] > 0
        assert until(lambda: sum(entry.calls for entry in gateway.booked()) == 4)
        assert all(entry.estimated_calls == 0 for entry in gateway.booked())
