from __future__ import annotations

import base64
import contextlib
import copy
import dataclasses
import gzip
import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage import wire
from ullage.broker.dialects import DIALECTS
from ullage.call_pairs import check_conversation
from ullage.errors import InvalidRequest
from ullage.messages import part_text, text_of
from ullage.wire.api import MODULES

PIXEL = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "The weather in a city", "parameters": SCHEMA}
SIGNED = {"type": "thinking", "thinking": "Both cities, at once.", "signature": "c2lnbmVk"}
CACHED = {"cache_control": {"type": "ephemeral"}}

# One body for each API that uses what its reader knows.
BODIES: dict[str, dict[str, Any]] = {
    "openai.chat": {
        "model": "gpt-4o",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "text", "text": "Where is this, and what is the weather there?"},
                    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                    {"type": "image_url", "image_url": "https://example.org/a.png"},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                    {
                        "type": "file",
                        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Paris"}'},
                    },
                    {
                        "id": "b",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
                    },
                    {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
                ],
            },
            {"role": "tool", "tool_call_id": "b", "content": "sun"},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "rain"}]},
            {"role": "tool", "tool_call_id": "c", "content": ""},
            {"role": "assistant", "content": "Rain and sun.", "refusal": None},
        ],
        "tools": [{"type": "function", "function": FUNCTION, **CACHED}, {"type": "openrouter:web_search"}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
        "temperature": 0,
        "unheard_of": {"kept": True},
    },
    "openai.responses": {
        "model": "gpt-5",
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Compare."},
                    {"type": "input_image", "image_url": PIXEL},
                ],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Asking.", "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "a",
                "name": "weather",
                "arguments": '{"city":"Paris"}',
            },
            {"type": "function_call", "call_id": "b", "name": "weather", "arguments": '{"city":"Rome"}'},
            {"type": "function_call_output", "call_id": "a", "output": "rain"},
            {
                "type": "function_call_output",
                "call_id": "b",
                "output": [{"type": "input_text", "text": "sun"}],
            },
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "custom_tool_call", "call_id": "d", "name": "shell", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "d", "output": "a.txt"},
            {
                "type": "apply_patch_call",
                "call_id": "e",
                "status": "completed",
                "operation": {"type": "create_file"},
            },
            {"type": "apply_patch_call_output", "call_id": "e", "status": "completed", "output": "done"},
            {"type": "computer_call", "call_id": "f", "id": "cu_1", "action": {"type": "screenshot"}},
            {
                "type": "computer_call_output",
                "call_id": "f",
                "output": {"type": "computer_screenshot", "image_url": PIXEL},
            },
            {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", **FUNCTION}]},
            {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
            {"role": "assistant", "content": "Rain and sun."},
            {"role": "user", "content": "Thanks."},
        ],
        "tools": [
            {"type": "function", **FUNCTION, "strict": True},
            {"type": "web_search"},
            {
                "type": "custom",
                "name": "shell",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"},
            },
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "weather"}],
        },
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}, "verbosity": "low"},
        "store": False,
    },
    "anthropic.messages": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1024,
        "system": [{"type": "text", "text": "Be brief.", **CACHED}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Compare the weather."},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                    },
                    {
                        "type": "image",
                        "source": {"type": "url", "url": "https://example.org/a.png"},
                        **CACHED,
                    },
                    {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
                    {
                        "type": "document",
                        "title": "Notes",
                        "source": {"type": "text", "media_type": "text/plain", "data": "Mild."},
                    },
                    {
                        "type": "document",
                        "title": "a.pdf",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
                    },
                    {
                        "type": "document",
                        "source": {"type": "content", "content": [{"type": "text", "text": "One."}]},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    SIGNED,
                    {"type": "text", "text": "Asking."},
                    {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}, **CACHED},
                    {"type": "redacted_thinking", "data": "b3BhcXVl"},
                    {"type": "tool_use", "id": "b", "name": "weather", "input": {"city": "Rome"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": "rain",
                        "is_error": False,
                        **CACHED,
                    },
                    {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "sun"}]},
                    {"type": "text", "text": "And now?"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
                    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                    {"type": "text", "text": "Rain and sun."},
                ],
            },
            {"role": "user", "content": "Thanks."},
        ],
        "tools": [
            {"name": "weather", "description": "The weather in a city", "input_schema": SCHEMA, **CACHED},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "metadata": {"user_id": "u"},
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "Compare the weather."},
                    {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                    {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf"}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Both.", "thought": True},
                    {
                        "functionCall": {"name": "weather", "args": {"city": "Paris"}},
                        "thoughtSignature": "c2ln",
                    },
                    {"functionCall": {"name": "weather", "args": {"city": "Rome"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "weather", "response": {"is": "rain"}}},
                    {"functionResponse": {"name": "weather", "response": {"is": "sun"}}},
                ],
            },
        ],
        "tools": [{"functionDeclarations": [FUNCTION], "googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
        "generationConfig": {"responseMimeType": "application/json", "responseSchema": SCHEMA},
    },
    "bedrock.converse": {
        "modelId": "us.amazon.nova-lite-v1:0",
        "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"text": "Compare the weather."},
                    {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
                    {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBE"}}},
                    {"guardContent": {"text": {"text": "careful"}}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Both.", "signature": "c2ln"}}},
                    {"toolUse": {"toolUseId": "a", "name": "weather", "input": {"city": "Paris"}}},
                    {"toolUse": {"toolUseId": "b", "name": "weather", "input": {"city": "Rome"}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "a", "content": [{"json": {"is": "rain"}}]}},
                    {"toolResult": {"toolUseId": "b", "content": [{"text": "sun"}], "status": "error"}},
                ],
            },
        ],
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "weather", "description": "d", "inputSchema": {"json": SCHEMA}}}],
            "toolChoice": {"tool": {"name": "weather"}},
        },
        "outputConfig": {
            "textFormat": {
                "type": "json_schema",
                "structure": {"jsonSchema": {"name": "answer", "schema": json.dumps(SCHEMA)}},
            }
        },
        "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    },
    "bedrock.invoke": {"prompt": "Human: hello", "max_gen_len": 10},
    "ollama.chat": {
        "model": "llama3.2",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is this?", "images": ["iVBORw0KGgo="]},
            {
                "role": "assistant",
                "content": "",
                "thinking": "Hm.",
                "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Paris"}}}],
            },
            {"role": "tool", "tool_name": "weather", "content": "rain"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "format": SCHEMA,
        "think": True,
    },
    "cohere.chat.v1": {
        "model": "command-r",
        "preamble": "Be brief.",
        "chat_history": [
            {"role": "USER", "message": "Hello"},
            {
                "role": "CHATBOT",
                "message": "",
                "tool_calls": [{"name": "weather", "parameters": {"city": "Paris"}}],
            },
            {"role": "TOOL", "tool_results": [{"call": {"name": "weather"}, "outputs": [{"is": "rain"}]}]},
        ],
        "message": "And Rome?",
        "documents": [{"title": "Notes", "snippet": "Mild."}],
        "tools": [
            {
                "name": "weather",
                "description": "d",
                "parameter_definitions": {"city": {"type": "str", "required": True}},
            }
        ],
    },
    "cohere.chat.v2": {
        "model": "command-a-03-2025",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Compare."},
            {
                "role": "assistant",
                "tool_plan": "Ask.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "a",
                "content": [{"type": "document", "document": {"data": {"is": "rain"}}}],
            },
        ],
        "documents": [{"id": "1", "data": {"title": "Notes", "text": "Mild."}}],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "REQUIRED",
        "response_format": {"type": "json_object", "json_schema": SCHEMA},
    },
}
BODIES["openai.responses.input_tokens"] = BODIES["openai.responses"]
BODIES["anthropic.count_tokens"] = BODIES["anthropic.messages"]
BODIES["gemini.count_tokens"] = {
    "generateContentRequest": {"model": "models/gemini-2.5-pro", **BODIES["gemini"]}
}


def roles(request: wire.Request) -> list[str]:
    return [message["role"] for message in request.messages]


# Every API


@pytest.mark.parametrize("name", wire.APIS)
def test_every_api_has_one_object_in_the_module_of_the_table(name: str) -> None:
    api = wire.api_of(name)
    assert api.name == name
    module = importlib.import_module(f"ullage.wire.{MODULES[name]}")
    assert [each.name for each in module.APIS] == [
        each for each in wire.APIS if MODULES[each] == MODULES[name]
    ]


def test_every_api_that_can_be_asked_can_be_written() -> None:
    assert set(DIALECTS) <= set(wire.APIS)


@pytest.mark.parametrize("source", wire.APIS)
@pytest.mark.parametrize("target", wire.APIS)
def test_sealed_parts_go_to_their_own_provider_alone(source: str, target: str) -> None:
    for kind in wire.api_of(source).sealed:
        sealed = {"type": kind, "thinking": "hush", "signature": "c2lnbmVk", "encrypted_content": "gAAA"}
        said = {"role": "assistant", "content": [sealed, {"type": "text", "text": "Seven."}]}
        asked = {"role": "user", "content": "How many?"}
        model = "anthropic.claude-opus" if target == "bedrock.invoke" else "m"
        request = wire.Request(model=model, messages=(asked, said, asked), api=source)
        if MODULES[source] == MODULES[target]:
            continue
        written = json.dumps(wire.write(request, target))
        assert "Seven." in written
        assert not any(secret in written for secret in ("hush", "c2lnbmVk", "gAAA", "left_out"))


@pytest.mark.parametrize("api", wire.APIS)
def test_every_api_has_a_reader_that_understands_its_body(api: str) -> None:
    request = wire.read(BODIES[api], api)
    assert request.api in (api, None)
    assert request.messages


@pytest.mark.parametrize("api", wire.APIS)
def test_what_a_reader_gives_is_a_conversation_with_its_pairs_whole(api: str) -> None:
    check_conversation(wire.read(BODIES[api], api).messages)


@pytest.mark.parametrize("api", wire.APIS)
def test_reading_and_writing_never_change_the_body(api: str) -> None:
    body = copy.deepcopy(BODIES[api])
    wire.write(wire.read(body, api), api)
    assert body == BODIES[api]


@pytest.mark.parametrize("api", sorted(set(wire.APIS) - {"bedrock.invoke"}))
def test_every_reader_finds_the_tools_the_calls_and_the_results(api: str) -> None:
    request = wire.read(BODIES[api], api)
    assert request.tools[0]["function"]["name"] == "weather"
    assert request.tools[0]["function"]["parameters"]["properties"]["city"]["type"] == "string"
    calls = [call for message in request.messages for call in message.get("tool_calls", ())]
    assert json.loads(calls[0]["function"]["arguments"]) in ({"city": "Paris"}, {})
    assert "tool" in roles(request)


@pytest.mark.parametrize("api", sorted(set(wire.APIS) - {"bedrock.invoke", "cohere.chat.v1"}))
def test_every_reader_finds_the_schema_of_the_answer(api: str) -> None:
    response_format = wire.read(BODIES[api], api).response_format
    assert response_format is not None
    assert response_format["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize("api", [api for api in wire.APIS if "cohere" not in api and api != "bedrock.invoke"])
def test_every_image_is_in_the_one_shape(api: str) -> None:
    contents = [m["content"] for m in wire.read(BODIES[api], api).messages if isinstance(m["content"], list)]
    images = [part for parts in contents for part in parts if part["type"] == "image_url"]
    assert images
    assert images[0]["image_url"]["url"].endswith("iVBORw0KGgo=")


@pytest.mark.parametrize(
    "body", [None, 1, "text", [], {}, {"messages": 1}, {"messages": [1]}, {"messages": [{}]}]
)
@pytest.mark.parametrize("api", wire.APIS)
def test_a_body_that_is_none_is_refused_by_name(api: str, body: Any) -> None:
    if api.startswith("openai.responses") and body in (
        {},
        {"messages": 1},
        {"messages": [1]},
        {"messages": [{}]},
    ):
        return  # the responses API takes a body without input
    with pytest.raises(InvalidRequest, match=api.replace(".", r"\.")):
        wire.read(body, api)


def test_an_unknown_api_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown API"):
        wire.read({}, "openai.smoke_signals")


def test_the_error_names_the_field() -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}
    with pytest.raises(InvalidRequest) as caught:
        wire.read(body, "anthropic.messages")
    assert caught.value.field == "messages[0].content[0].text"
    assert caught.value.api == "anthropic.messages"


# Round trips


@pytest.mark.parametrize("api", wire.APIS)
def test_a_request_comes_back_whole(api: str) -> None:
    request = wire.read(BODIES[api], api)
    assert wire.read(wire.write(request, api), api) == request


def test_anthropic_bodies_come_back_byte_for_byte() -> None:
    api = "anthropic.messages"
    assert wire.write(wire.read(BODIES[api], api), api) == BODIES[api]


def test_signatures_cache_marks_and_unknown_members_survive() -> None:
    for api in wire.APIS:
        written = json.dumps(wire.write(wire.read(BODIES[api], api), api))
        for needle in ("c2lnbmVk", "ephemeral", "b3BhcXVl", "gAAA", "unheard_of", "user_id", "msg_1", "cu_1"):
            assert (needle in written) == (needle in json.dumps(BODIES[api]))


def test_the_older_functions_come_in_as_tools_and_go_back_as_they_were() -> None:
    body = {
        "model": "gpt-4-0613",
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
            {"role": "function", "name": "weather", "content": "rain"},
        ],
        "functions": [FUNCTION],
        "function_call": {"name": "weather"},
    }
    request = wire.read(body, "openai.chat")
    assert roles(request) == ["user", "assistant", "tool"]
    assert request.tools == ({"type": "function", "function": FUNCTION},)
    assert request.tool_choice == {"type": "function", "function": {"name": "weather"}}
    check_conversation(request.messages)
    assert wire.write(request, "openai.chat") == body


CONVERSATION: dict[str, Any] = {
    "model": "any",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Where is this?"},
                {"type": "image_url", "image_url": {"url": PIXEL}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": "Asking for both.",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Paris"}'},
                },
                {
                    "id": "b",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
        {"role": "tool", "tool_call_id": "b", "content": "sun"},
        {"role": "user", "content": "And the day after?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "snow"},
        {"role": "assistant", "content": "Snow."},
        {"role": "user", "content": "Thanks."},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "required",
    "max_completion_tokens": 100,
    "temperature": 0.5,
}


@pytest.mark.parametrize("through", ["anthropic.messages", "openai.responses"])
def test_a_chat_conversation_survives_the_way_through_another_api(through: str) -> None:
    there = wire.write(wire.read(CONVERSATION, "openai.chat"), through)
    back = wire.write(wire.read(there, through), "openai.chat")
    assert back == CONVERSATION


def test_results_and_the_words_after_them_are_one_turn_for_anthropic() -> None:
    body = wire.write(wire.read(CONVERSATION, "openai.chat"), "anthropic.messages")
    turns = [turn["role"] for turn in body["messages"]]
    assert turns == ["user", "assistant", "user", "assistant", "user", "assistant", "user"]
    kinds = [block["type"] for block in body["messages"][2]["content"]]
    assert kinds == ["tool_result", "tool_result", "text"]
    assert body["system"] == "Be brief."
    assert body["max_tokens"] == 100


def test_members_of_one_api_do_not_leak_into_another() -> None:
    body = copy.deepcopy(BODIES["anthropic.messages"])
    del body["messages"][3], body["tools"][1]  # Anthropic's own search has no counterpart
    written = wire.write(wire.read(body, "anthropic.messages"), "openai.chat")
    text = json.dumps(written)
    for word in ("cache_control", "signature", "budget_tokens", "is_error", "position", "metadata"):
        assert word not in text
    assert written["parallel_tool_calls"] is False
    check_conversation(written["messages"])


def test_what_another_api_cannot_say_is_refused_and_not_dropped() -> None:
    request = wire.read(BODIES["anthropic.messages"], "anthropic.messages")
    with pytest.raises(InvalidRequest, match="no equivalent"):
        wire.write(request, "openai.chat")


def test_the_endpoints_that_count_get_nothing_that_they_refuse() -> None:
    request = wire.read({**BODIES["anthropic.messages"], "stream": True}, "anthropic.messages")
    body = wire.write(request, "anthropic.count_tokens")
    assert not {"max_tokens", "stream", "metadata"} & body.keys()
    assert body["thinking"] == BODIES["anthropic.messages"]["thinking"]
    counted = wire.write(wire.read(CONVERSATION, "openai.chat"), "openai.responses.input_tokens")
    assert counted.keys() == {"model", "input", "tools", "tool_choice"}


def test_one_call_at_a_time_is_said_in_each_api_s_own_way() -> None:
    chat = {**CONVERSATION, "parallel_tool_calls": False}
    body = wire.write(wire.read(chat, "openai.chat"), "anthropic.messages")
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    del chat["tool_choice"]
    body = wire.write(wire.read(chat, "openai.chat"), "anthropic.messages")
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_system_messages_of_a_chat_all_reach_anthropic_s_system() -> None:
    messages = [
        {"role": "system", "content": "One."},
        {"role": "user", "content": "Hello."},
        {"role": "developer", "content": "Two."},
        {"role": "user", "content": "Well?"},
    ]
    body = wire.write(wire.read({"messages": messages}, "openai.chat"), "anthropic.messages")
    assert [block["text"] for block in body["system"]] == ["One.", "Two."]
    assert [turn["role"] for turn in body["messages"]] == ["user", "user"]


def test_anthropic_s_own_late_system_messages_stay_where_they_stood() -> None:
    turns = [
        {"role": "user", "content": "Hello."},
        {"role": "system", "content": "Two."},
        {"role": "user", "content": "Well?"},
    ]
    body = {"system": "One.", "messages": turns}
    assert wire.write(wire.read(body, "anthropic.messages"), "anthropic.messages") == body


def test_arguments_that_are_no_json_still_reach_anthropic() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{broken"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = wire.write(wire.Request(messages=(message,)), "anthropic.messages")
    assert body["messages"][0]["content"][0]["input"] == {"arguments": "{broken"}


# Single shapes


def test_a_turn_of_results_becomes_tool_messages_and_then_the_words() -> None:
    request = wire.read(BODIES["anthropic.messages"], "anthropic.messages")
    assert roles(request) == ["system", "user", "assistant", "tool", "tool", "user", "assistant", "user"]
    assert request.thinking


def test_a_call_between_parts_keeps_its_place() -> None:
    request = wire.read(BODIES["anthropic.messages"], "anthropic.messages")
    assert [call.get("position") for call in request.messages[2]["tool_calls"]] == [2, None]


@given(st.data())
def test_message_items_say_that_they_are_messages_if_they_did_before(data: st.DataObject) -> None:
    def item(role: str, kind: str, content: Any) -> dict[str, Any]:
        text = [{"type": kind, "text": "Hello"}]
        made = {"role": role, "content": data.draw(st.sampled_from(["Hello", text, content]))}
        if role == "assistant":
            made |= data.draw(st.sampled_from([{}, {"id": "msg_1", "status": "completed"}]))
        return {"type": "message", **made} if data.draw(st.booleans()) else made

    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "a", "output": "ok"}
    items: list[Any] = []
    for _ in range(data.draw(st.integers(1, 3))):
        items.append(item(data.draw(st.sampled_from(["user", "developer", "system"])), "input_text", []))
        step = data.draw(st.sampled_from([[], [call, result]]))
        items += [item("assistant", "output_text", "Yes"), *step]
    body = {"model": "gpt-5", "instructions": "Be brief.", "input": items}
    assert wire.write(wire.read(body, "openai.responses"), "openai.responses") == body


def test_items_of_one_answer_are_one_assistant_message() -> None:
    request = wire.read(BODIES["openai.responses"], "openai.responses")
    answer = request.messages[2]
    assert [part["type"] for part in answer["content"]] == ["reasoning", "text"]
    assert [call["id"] for call in answer["tool_calls"]] == ["a", "b"]


@pytest.mark.parametrize("api", ["openai.responses", "anthropic.messages"])
def test_a_text_that_was_shortened_goes_out_short(api: str) -> None:
    def short(message: Any) -> Any:
        if message["role"] == "tool":
            return {**message, "content": "[cut]"}
        if message["role"] == "user" and isinstance(message["content"], list):
            parts = [{**p, "text": "[cut]"} if p["type"] == "document" else p for p in message["content"]]
            return {**message, "content": parts}
        return message

    request = wire.read(BODIES[api], api)
    cut = dataclasses.replace(request, messages=tuple(short(message) for message in request.messages))
    again = wire.read(wire.write(cut, api), api)
    assert [text_of(m["content"]) for m in again.messages] == [text_of(m["content"]) for m in cut.messages]


def test_gemini_is_read_in_snake_case_too() -> None:
    def snake(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                "".join(f"_{c.lower()}" if c.isupper() else c for c in k): snake(v) for k, v in value.items()
            }
        return [snake(each) for each in value] if isinstance(value, list) else value

    camel, snaked = (wire.read(body, "gemini") for body in (BODIES["gemini"], snake(BODIES["gemini"])))
    assert snaked.messages == camel.messages
    assert snaked.tool_choice == camel.tool_choice == {"type": "function", "function": {"name": "weather"}}
    assert snaked.response_format == camel.response_format
    assert snaked.tools[0] == camel.tools[0]


def test_gemini_results_find_their_calls_by_name_and_order() -> None:
    request = wire.read(BODIES["gemini"], "gemini")
    made = [call["id"] for message in request.messages for call in message.get("tool_calls", ())]
    assert [m["tool_call_id"] for m in request.messages if m["role"] == "tool"] == made


@pytest.mark.parametrize(
    ("body", "raw", "text"),
    [
        ({"prompt": "hello"}, True, "hello"),
        ({"inputText": "hello", "textGenerationConfig": {}}, True, "hello"),
        ({"anthropic_version": "v", "messages": [{"role": "user", "content": "hello"}]}, False, "hello"),
        (
            {"messages": [{"role": "user", "content": [{"text": "hello"}]}], "inferenceConfig": {}},
            False,
            "hello",
        ),
        ({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}, False, "hello"),
        ({"message": "hello", "chat_history": []}, False, "hello"),
    ],
)
def test_invoke_bodies_are_known_by_their_shape(body: dict[str, Any], raw: bool, text: str) -> None:
    request = wire.read(body, "bedrock.invoke")
    assert request.raw is raw
    assert [message["content"] for message in request.messages] == [text]


def test_bedrock_takes_real_bytes() -> None:
    image = {"image": {"format": "png", "source": {"bytes": base64.b64decode("iVBORw0KGgo=")}}}
    request = wire.read({"messages": [{"role": "user", "content": [image]}]}, "bedrock.converse")
    assert request.messages[0]["content"][0]["image_url"]["url"].endswith(";base64,iVBORw0KGgo=")


def test_documents_that_are_text_have_their_text() -> None:
    for api in ("anthropic.messages", "cohere.chat.v1", "cohere.chat.v2"):
        contents = [
            m["content"] for m in wire.read(BODIES[api], api).messages if isinstance(m["content"], list)
        ]
        documents = [part for parts in contents for part in parts if part["type"] == "document"]
        assert "Mild." in part_text(documents[0])


def test_calls_without_ids_get_the_same_ids_every_time() -> None:
    body = {
        "messages": [
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}] * 2},
            {"role": "tool", "content": "1"},
            {"role": "tool", "content": "2"},
        ]
    }
    request = wire.read(body, "openai.chat")
    assert request == wire.read(body, "openai.chat")
    check_conversation(request.messages)


# Bodies that nobody should send

WORDS = [
    "",
    "x",
    "text",
    "function",
    "assistant",
    "user",
    "tool",
    "message",
    "document",
    "image_url",
    "custom",
]
MEMBERS = [
    "type",
    "role",
    "content",
    "text",
    "name",
    "id",
    "function",
    "input",
    "source",
    "url",
    "item",
    "tools",
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, each in entries:
        found += places(each, (*path, key))
    return found


def put(body: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        try:
            body = body[key]
        except (KeyError, IndexError, TypeError):
            return  # an earlier change took the place away
    if isinstance(body, dict | list) and (not isinstance(body, list) or isinstance(path[-1], int)):
        if value is ... and isinstance(body, dict):
            body.pop(path[-1], None)
        elif value is not ... and (isinstance(body, dict) or path[-1] < len(body)):
            body[path[-1]] = value


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    api = draw(st.sampled_from(wire.APIS))
    body = copy.deepcopy(BODIES[api])
    for _ in range(draw(st.integers(1, 3))):
        spots = places(body)
        if spots:
            put(body, draw(st.sampled_from(spots)), draw(JUNK | st.just(...)))
    return api, body


@settings(max_examples=600, deadline=None)
@given(damaged())
def test_a_damaged_body_is_read_or_refused_and_what_is_read_comes_back(
    case: tuple[str, dict[str, Any]],
) -> None:
    api, body = case
    try:
        request = wire.read(body, api)
    except InvalidRequest:
        return
    assert wire.write(request, api) == body
    if api.startswith(("openai", "anthropic", "ollama")):  # others write damaged values as objects
        bare = dataclasses.replace(request, original=None)
        assert wire.read(wire.write(bare, api), api) == request
    for other in sorted({*wire.APIS} - {api}):
        try:
            written = wire.write(request, other)
        except InvalidRequest:
            continue
        wire.read(written, other)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(wire.APIS), JUNK)
def test_junk_is_refused_and_never_crashes(api: str, body: Any) -> None:
    with contextlib.suppress(InvalidRequest):
        wire.read(body, api)


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@st.composite
def chats(draw: st.DrawFn) -> dict[str, Any]:
    """Chat conversations with parallel calls, images and a system prompt, in their plainest form."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(TEXTS)}]
    number = 0
    for _ in range(draw(st.integers(1, 4))):
        image = {
            "type": "image_url",
            "image_url": {"url": draw(st.sampled_from([PIXEL, "https://example.org/b.png"]))},
        }
        said = draw(TEXTS)
        messages.append(
            {
                "role": "user",
                "content": draw(st.sampled_from([said, [{"type": "text", "text": said}, image]])),
            }
        )
        for _ in range(draw(st.integers(0, 2))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                arguments = json.dumps({"q": draw(TEXTS)}, ensure_ascii=False, separators=(",", ":"))
                calls.append(
                    {
                        "id": f"c{number}",
                        "type": "function",
                        "function": {"name": "f", "arguments": arguments},
                    }
                )
                number += 1
            messages.append({"role": "assistant", "content": draw(st.none() | TEXTS), "tool_calls": calls})
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": draw(TEXTS)} for call in calls
            ]
        messages.append({"role": "assistant", "content": draw(TEXTS)})
    return {"model": "m", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}


@settings(max_examples=150, deadline=None)
@given(chats(), st.sampled_from(["anthropic.messages", "openai.responses"]))
def test_any_plain_chat_survives_the_way_through_another_api(body: dict[str, Any], through: str) -> None:
    there = wire.write(wire.read(body, "openai.chat"), through)
    assert wire.write(wire.read(there, through), "openai.chat") == body


# Recorded bodies


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    path = Path(os.environ.get("ULLAGE_DATA", "")) / "usage.jsonl.gz"
    if "ULLAGE_DATA" not in os.environ or not path.exists():
        pytest.skip("ULLAGE_DATA does not name a directory with usage.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [record for record in records if record["api"] in wire.APIS and record["request"]]


def test_every_recorded_body_is_understood(recorded: list[dict[str, Any]]) -> None:
    for record in recorded:
        assert wire.read(record["request"], record["api"]).messages, record["id"]


def test_every_recorded_body_comes_back_whole(recorded: list[dict[str, Any]]) -> None:
    for record in recorded:
        api = record["api"]
        request = wire.read(record["request"], api)
        assert wire.read(wire.write(request, api), api) == request, record["id"]
