"""What was not changed in a request leaves exactly as it came, and conversations survive every other API."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.talks import bodies, items_of, talks
from ullage import wire
from ullage.errors import InvalidRequest
from ullage.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.messages import Message

CUT = "[cut]"
WRAPPER = "generateContentRequest"


def inner(body: dict[str, Any]) -> dict[str, Any]:
    return body.get(WRAPPER, body)


def bare(request: wire.Request) -> wire.Request:
    """The same request, without the body that it was read from."""
    return replace(request, original=None)


def can_be_cut(message: Message) -> bool:
    brings_tools = message.get("item", {}).get("type") == "additional_tools"  # a list of tools, not a text
    return bool(message.get("content")) and isinstance(message["content"], str) and not brings_tools


def cut(request: wire.Request, at: int) -> wire.Request:
    """The request with the text of one message replaced."""
    messages = list(request.messages)
    messages[at] = {**messages[at], "content": CUT}
    return replace(request, messages=tuple(messages))


def assert_only_this_message_changed(body: dict[str, Any], api: str, at: int) -> None:
    request = wire.read(body, api)
    changed = cut(request, at)
    written = wire.write(changed, api)
    again = wire.read(written, api).messages
    assert CUT in text_of(again[at]["content"])
    assert len(again) == len(changed.messages)
    assert [m for i, m in enumerate(again) if i != at] == [
        m for i, m in enumerate(changed.messages) if i != at
    ]
    before, after = inner(body), inner(written)
    different = {
        name for name in before.keys() | after.keys() if before.get(name, ...) != after.get(name, ...)
    }
    assert len(different) == 1
    name = different.pop()
    if isinstance(before[name], list) and isinstance(after[name], list):
        assert len(before[name]) == len(after[name])
        assert sum(one != other for one, other in zip(before[name], after[name], strict=True)) == 1


# Bodies that are drawn


@pytest.mark.parametrize("api", wire.APIS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_body_comes_back_as_it_was(api: str, data: st.DataObject) -> None:
    body, _ = data.draw(bodies(api, data.draw(talks())))
    assert wire.write(wire.read(body, api), api) == body


@pytest.mark.parametrize("api", sorted({*wire.APIS} - {"bedrock.invoke"}))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_writer_loses_nothing_even_without_the_body(api: str, data: st.DataObject) -> None:
    body, _ = data.draw(bodies(api, data.draw(talks())))
    request = wire.read(body, api)
    assert wire.read(wire.write(bare(request), api), api) == request


@pytest.mark.parametrize("api", wire.APIS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_change_to_one_message_leaves_all_others_as_they_were(api: str, data: st.DataObject) -> None:
    body, _ = data.draw(bodies(api, data.draw(talks())))
    texts = [at for at, message in enumerate(wire.read(body, api).messages) if can_be_cut(message)]
    if texts:
        assert_only_this_message_changed(body, api, data.draw(st.sampled_from(texts)))


@pytest.mark.parametrize("api", wire.APIS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_stays_of_a_shortened_conversation_is_as_it_was(api: str, data: st.DataObject) -> None:
    first, *others = data.draw(talks())
    talk = (replace(first, answer="Yes."), *others)
    body, counts = data.draw(bodies(api, talk))
    request = wire.read(body, api)
    name = items_of(inner(body))
    items = inner(body)[name]
    head, gone = len(items) - sum(counts), counts[0]
    starts = [at for at, m in enumerate(request.messages) if m["role"] in ("system", "developer")]
    start = starts[-1] + 1 if starts else 0
    answered = [at for at, m in enumerate(request.messages) if m["role"] == "assistant"]
    end = answered[len(talk[0].steps)] + 1
    messages = (*request.messages[:start], *request.messages[end:])
    written = wire.write(replace(request, messages=messages), api)
    left = [*items[:head], *items[head + gone :]]
    assert inner(written) == {**inner(body), name: left}


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_original_never_changes_what_a_body_means(data: st.DataObject) -> None:
    api = data.draw(st.sampled_from(sorted({*wire.APIS} - {"bedrock.invoke"})))
    body, _ = data.draw(bodies(api, data.draw(talks())))
    request = wire.read(body, api)
    kept = [each for each in request.messages if data.draw(st.booleans())]
    new: Message = {"role": "user", "content": data.draw(st.sampled_from(["New.", "a"]))}
    at = data.draw(st.integers(0, len(kept)))
    changed = replace(request, messages=(*kept[:at], new, *kept[at:]), tools=request.tools[:0])
    with_original = wire.read(wire.write(changed, api), api)
    assert with_original == wire.read(wire.write(bare(changed), api), api)


# From each API to each other


def in_chat(request: wire.Request) -> list[Any]:
    """The conversation as the chat API has it: one system prompt, ids as numbers, arguments as objects."""
    numbers: dict[str, int] = {}
    messages = wire.write(request, "openai.chat")["messages"]
    system = [text_of(message["content"]) for message in messages if is_system(message)]
    return ["\n".join(system), *(plain(message, numbers) for message in messages if not is_system(message))]


def is_system(message: Message) -> bool:
    return message["role"] in ("system", "developer")


def plain(message: dict[str, Any], numbers: dict[str, int]) -> Any:
    calls = []
    for call in message.get("tool_calls") or ():
        numbers[call["id"]] = len(numbers)
        calls.append(
            (numbers[call["id"]], call["function"]["name"], json.loads(call["function"]["arguments"]))
        )
    content = message.get("content") or None
    if isinstance(content, list):
        content = [part.get("text") or image_data(part["image_url"]) for part in content]
        content = content[0] if len(content) == 1 else content
    return message["role"], content, calls, numbers.get(message.get("tool_call_id", ""))


def image_data(image: Any) -> str:
    url: str = image if isinstance(image, str) else image["url"]
    return url.partition(";base64,")[2]


def without_own_parts(body: dict[str, Any]) -> dict[str, Any]:
    """A body of Google's without the parts that no other API has, and without its cache."""
    held = inner(body)
    for content in held.get("contents", ()):
        content["parts"] = [
            part
            for part in content["parts"]
            if {"text", "inlineData", "inline_data"} & part.keys() or calls(part)
        ]
    held.pop("cachedContent", None), held.pop("cached_content", None)
    tools = held.get("tools") or []
    for tool in tools:
        tool.pop("googleSearch", None), tool.pop("google_search", None)
    return body


def calls(part: dict[str, Any]) -> bool:
    return any(name.startswith("function") for name in part)


MODELS = {"bedrock.invoke": "us.anthropic.claude-sonnet-4-5-20250929-v1:0"}


@pytest.mark.parametrize("source", wire.APIS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_conversation_survives_the_way_through_every_other_api(source: str, data: st.DataObject) -> None:
    talk = data.draw(talks(images="cohere.chat.v1" not in source))
    body, _ = data.draw(bodies(source, talk))
    body = without_own_parts(body) if "gemini" in source else body
    request = replace(wire.read(body, source), tool_choice=None, response_format=None)
    said = in_chat(request)
    for target in sorted({*wire.APIS} - {source}):
        if target == "cohere.chat.v1" and any(exchange.image for exchange in talk):
            with pytest.raises(InvalidRequest, match="image_url"):
                wire.write(request, target)
            continue
        there = wire.write(replace(request, model=MODELS.get(target, request.model)), target)
        assert in_chat(wire.read(there, target)) == said, target


# Parts without an equivalent


@pytest.mark.parametrize(
    ("api", "body", "named"),
    [
        ("gemini", {"cachedContent": "c", "contents": "Hi"}, "cachedContent"),
        ("gemini", {"contents": [{"parts": [{"executableCode": {"code": "1"}}]}]}, "executable_code"),
        ("gemini", {"contents": [{"parts": [{"toolCall": {"id": "t"}}]}]}, "gemini.toolCall"),
        ("gemini", {"contents": "Hi", "tools": [{"googleSearch": {}}]}, "googleSearch"),
        ("openai.responses", {"input": "Hi", "previous_response_id": "resp_1"}, "previous_response_id"),
        ("cohere.chat.v1", {"message": "Hi", "conversation_id": "c"}, "conversation_id"),
        (
            "bedrock.converse",
            {"messages": [], "toolConfig": {"tools": [{"systemTool": {"name": "s"}}]}},
            "bedrock.systemTool",
        ),
    ],
)
def test_a_part_that_no_other_api_has_is_refused_by_name(api: str, body: dict[str, Any], named: str) -> None:
    request = wire.read(body, api)
    assert wire.write(request, api) == body
    with pytest.raises(InvalidRequest, match=named) as caught:
        wire.write(request, "anthropic.messages")
    assert caught.value.api == "anthropic.messages"


def asked(**members: Any) -> wire.Request:
    return wire.Request(messages=({"role": "user", "content": "Hi"},), **members)


WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"properties": {"a": {"enum": [1]}}}},
}
ADDRESS = {"type": "image_url", "image_url": {"url": "https://example.org/a"}}
FILE = {"type": "file", "file": {"file_id": "file_1"}}


@pytest.mark.parametrize(
    ("api", "request_", "named"),
    [
        ("bedrock.converse", asked(tools=(WEATHER,), tool_choice="none"), "tool_choice none"),
        ("bedrock.converse", asked(response_format={"type": "json_object"}), "response_format json_object"),
        ("bedrock.converse", wire.Request(messages=({"role": "user", "content": [ADDRESS]},)), "image_url"),
        (
            "gemini",
            wire.Request(messages=({"role": "user", "content": [ADDRESS]},)),
            "does not show its media type",
        ),
        ("gemini", wire.Request(messages=({"role": "user", "content": [FILE]},)), "file by its id"),
        ("gemini", asked(tools=({"type": "custom", "custom": {"name": "sh"}},)), "custom"),
        ("cohere.chat.v1", asked(tools=(WEATHER,)), "the schema of the parameter a"),
        ("cohere.chat.v1", asked(tool_choice="required"), "tool_choice required"),
        ("cohere.chat.v2", wire.Request(messages=({"role": "user", "content": [FILE]},)), "file"),
        ("bedrock.invoke", asked(model="a-model"), "a-model"),
    ],
)
def test_what_an_api_cannot_say_is_refused_by_name(api: str, request_: wire.Request, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named) as caught:
        wire.write(request_, api)
    assert caught.value.api == api


# Single shapes


def test_gemini_gets_no_ids_that_it_did_not_send() -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    result = {"functionResponse": {"name": "f", "response": {"a": 1}}}
    body = {
        "contents": [{"role": "model", "parts": [call, call]}, {"role": "user", "parts": [result, result]}]
    }
    assert wire.write(bare(wire.read(body, "gemini")), "gemini") == body


def test_gemini_takes_the_ids_of_another_api_and_names_the_function_of_a_result() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"q":1}'}}
    messages = (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
    )
    contents = wire.write(wire.Request(messages=messages), "gemini")["contents"]
    assert contents == [
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"q": 1}, "id": "a"}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "f", "response": {"output": "one"}, "id": "a"}}],
        },
    ]


def test_bedrock_s_turns_alternate() -> None:
    words = [{"role": "user", "content": text} for text in ("One.", "Two.")]
    messages = (*words, {"role": "assistant", "content": "Yes."})
    body = wire.write(wire.Request(messages=messages), "bedrock.converse")
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "One."}, {"text": "Two."}]},
        {"role": "assistant", "content": [{"text": "Yes."}]},
    ]


def test_bedrock_gets_its_documents_by_a_name_that_it_accepts() -> None:
    file = {"filename": "notes_v1.2.pdf", "file_data": "data:application/pdf;base64,JVBE"}
    message = {"role": "user", "content": [{"type": "file", "file": file}]}
    body = wire.write(wire.Request(messages=(message,)), "bedrock.converse")
    document = {"format": "pdf", "name": "notes-v1-2", "source": {"bytes": "JVBE"}}
    assert body["messages"][0]["content"] == [{"document": document}]


def test_an_invoked_claude_gets_a_body_of_anthropic_s_without_the_model() -> None:
    request = wire.Request(
        model="us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        messages=({"role": "user", "content": "Hi"},),
        rest={"max_tokens": 5},
    )
    assert wire.write(request, "bedrock.invoke") == {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize("name", ["prompt", "inputText", "inputs"])
def test_a_prompt_goes_back_under_its_name(name: str) -> None:
    body = {name: "Human: hello", "max_gen_len": 10, "modelId": "m"}
    request = wire.read(body, "bedrock.invoke")
    assert wire.write(request, "bedrock.invoke") == body
    assert wire.write(cut(request, 0), "bedrock.invoke") == {**body, name: CUT}


OPTIONS = {
    "openai.chat": {"max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stop": ["x"]},
    "openai.responses": {"max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9},
    "anthropic.messages": {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stop_sequences": ["x"]},
    "gemini": {
        "generationConfig": {"maxOutputTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["x"]}
    },
    "bedrock.converse": {
        "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["x"]}
    },
    "ollama.chat": {"options": {"num_predict": 9, "temperature": 0.5, "top_p": 0.9, "stop": ["x"]}},
    "cohere.chat.v2": {"max_tokens": 9, "temperature": 0.5, "p": 0.9, "stop_sequences": ["x"]},
}


@pytest.mark.parametrize("target", OPTIONS)
@pytest.mark.parametrize("source", OPTIONS)
def test_options_have_the_name_and_the_place_of_each_api(source: str, target: str) -> None:
    turn = {"role": "user", "content": "Hi"}
    bodies_of = {
        "openai.responses": {"input": "Hi"},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        "bedrock.converse": {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
    }
    body = {**bodies_of.get(source, {"messages": [turn]}), **OPTIONS[source]}
    written = wire.write(wire.read(body, source), target)
    wanted = OPTIONS[target]
    if "openai.responses" in (source, target):  # it has no stop sequences
        written, wanted = (json.loads(json.dumps(each)) for each in (written, wanted))
        for each in (written, wanted):
            for holder in (each, *(value for value in each.values() if isinstance(value, dict))):
                for name in ("stop", "stop_sequences", "stopSequences"):
                    holder.pop(name, None)
    assert {name: written.get(name) for name in wanted} == wanted


def test_an_image_of_bytes_stays_bytes_beside_a_changed_text() -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
    body = {"messages": [{"role": "user", "content": [{"text": "Look."}, image]}]}
    request = wire.read(body, "bedrock.converse")
    parts = [{"type": "text", "text": CUT}, *request.messages[0]["content"][1:]]
    changed = replace(request, messages=({**request.messages[0], "content": parts},))
    assert wire.write(changed, "bedrock.converse")["messages"][0]["content"] == [{"text": CUT}, image]


def test_a_body_may_be_changed_without_changing_the_one_that_was_read() -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    written = wire.write(wire.read(body, "gemini"), "gemini")
    written["contents"].append({"role": "model", "parts": [{"text": "Hello."}]})
    assert len(body["contents"]) == 1


# Recorded bodies


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    path = Path(os.environ.get("ULLAGE_DATA", "")) / "usage.jsonl.gz"
    if "ULLAGE_DATA" not in os.environ or not path.exists():
        pytest.skip("ULLAGE_DATA does not name a directory with usage.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [record for record in records if record["api"] in wire.APIS and record["request"]]


def test_every_recorded_body_comes_back_as_it_was(recorded: list[dict[str, Any]]) -> None:
    different = [
        record["id"]
        for record in recorded
        if wire.write(wire.read(record["request"], record["api"]), record["api"]) != record["request"]
    ]
    assert different == []


def test_every_writer_loses_nothing_of_a_recorded_body(recorded: list[dict[str, Any]]) -> None:
    for record in recorded:
        api = record["api"]
        if api == "bedrock.invoke":
            continue  # only its body shows the format
        request = wire.read(record["request"], api)
        assert wire.read(wire.write(bare(request), api), api) == request, record["id"]


def changes(records: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    for record in records:
        messages = wire.read(record["request"], record["api"]).messages
        for at in [at for at, message in enumerate(messages) if can_be_cut(message)][:3]:
            yield record, at


def test_a_change_to_a_recorded_message_leaves_all_others_as_they_were(
    recorded: list[dict[str, Any]],
) -> None:
    changed = 0
    for record, at in changes(recorded):
        assert_only_this_message_changed(record["request"], record["api"], at)
        changed += 1
    assert changed > 1_000
