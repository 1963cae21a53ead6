"""Every dialect, on streams in the shapes that the providers send (`recorded/`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage import wire
from ullage.broker.ask import Ask
from ullage.broker.dialect import Frame, Progress
from ullage.broker.dialects import DIALECTS
from ullage.broker.endpoint import Key
from ullage.broker.events import Event, Finished, Reason, Reasoning, Text, ToolCall, Used
from ullage.broker.registry import ALIASES, FAMILIES, PROVIDERS, endpoint_for
from ullage.call_pairs import check_conversation
from ullage.errors import (
    ConfigurationError,
    ContextOverflowError,
    InvalidRequest,
    ProviderError,
    StreamBroken,
)
from ullage.models import model_info
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECORDED = Path(__file__).parent / "recorded"
CHAT, RESPONSES, ANTHROPIC, OLLAMA = "openai.chat", "openai.responses", "anthropic.messages", "ollama.chat"


STOP = Finished("stop")


@dataclass(frozen=True)
class Said:
    """What a whole answer comes to."""

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    usage: Usage | None = None
    finished: Finished = STOP


ZURICH, OSLO = ("get_weather", '{"city":"Zürich"}'), ("get_weather", '{"city":"Oslo"}')
PARIS = "The capital of France is Paris."
WEATHER = Said(
    text="Looking up both ☂.",
    thought="Two cities, so two calls.",
    calls=(ZURICH, OSLO),
    usage=Usage(prompt=412, completion=87),
    finished=Finished("tool_calls"),
)

# stream → the API, and what the answer comes to
STREAMS: dict[str, tuple[str, Said]] = {
    "openai_chat_tools.sse": (
        CHAT,
        replace(WEATHER, thought="", usage=Usage(prompt=412, completion=87, cached_read=256)),
    ),
    "openai_chat_refusal.sse": (
        CHAT,
        Said(
            text="I can't help with that.",
            usage=Usage(prompt=80, completion=9),
            finished=Finished("refused", "refusal"),
        ),
    ),
    "vllm_weather.sse": (CHAT, WEATHER),
    "llamacpp_text.sse": (
        CHAT,
        Said(
            text="Bern is it.",
            thought="Capital?",
            usage=Usage(prompt=42, completion=5, cached_read=31),
            finished=Finished("length"),
        ),
    ),
    "llamacpp_timings_only.sse": (
        CHAT,
        Said(text="Bern", usage=Usage(prompt=42, completion=5, cached_read=31)),
    ),
    "llamacpp_captured_chat.sse": (CHAT, Said(text=PARIS, usage=Usage(prompt=24, completion=8))),
    "llamacpp_captured_responses.sse": (
        RESPONSES,
        Said(text=PARIS, usage=Usage(prompt=24, completion=8, cached_read=23)),
    ),
    "llamacpp_captured_messages.sse": (
        ANTHROPIC,
        Said(text=PARIS, usage=Usage(prompt=24, completion=8, cached_read=23)),
    ),
    "openrouter_text.sse": (
        CHAT,
        Said(
            text="Bern.",
            thought="Easy",
            usage=Usage(prompt=210, completion=14, cached_read=128, reasoning=6, cost=Decimal("0.00084")),
        ),
    ),
    "gemini_compatible_tools.sse": (
        CHAT,
        Said(calls=(ZURICH, OSLO), usage=Usage(prompt=66, completion=30), finished=Finished("tool_calls")),
    ),
    "one_index_for_all_tools.sse": (CHAT, Said(calls=(ZURICH, OSLO), finished=Finished("tool_calls"))),
    "responses_weather.sse": (
        RESPONSES,
        replace(WEATHER, usage=Usage(prompt=412, completion=87, cached_read=256, reasoning=21)),
    ),
    "responses_incomplete.sse": (
        RESPONSES,
        Said(text="Once upon", usage=Usage(prompt=20, completion=16), finished=Finished("length")),
    ),
    "anthropic_weather.sse": (
        ANTHROPIC,
        replace(WEATHER, usage=Usage(prompt=412, completion=87, cached_read=256, cache_write=100)),
    ),
    "anthropic_no_arguments.sse": (
        ANTHROPIC,
        Said(
            calls=(("list_cities", "{}"),),
            usage=Usage(prompt=30, completion=12),
            finished=Finished("tool_calls"),
        ),
    ),
    "anthropic_window.sse": (
        ANTHROPIC,
        Said(
            text="Long",
            usage=Usage(prompt=199_000, completion=1_000),
            finished=Finished("length", "model_context_window_exceeded"),
        ),
    ),
    "ollama_weather.ndjson": (OLLAMA, WEATHER),
    "ollama_text.ndjson": (
        OLLAMA,
        Said(text="Bern.", usage=Usage(prompt=26, completion=2), finished=Finished("length")),
    ),
}

# stream that ends in an error → the API, what had come, what the error tells
ERRORS: dict[str, tuple[str, str, str]] = {
    "openrouter_error.sse": (CHAT, "Ber", "Provider disconnected"),
    "responses_failed.sse": (RESPONSES, "Once", "failed to generate"),
    "anthropic_overloaded.sse": (ANTHROPIC, "Ber", "Overloaded"),
    "ollama_error.ndjson": (OLLAMA, "Ber", "unexpected EOF"),
}


def handed_on(told: Iterable[Event | Progress]) -> Iterator[Event]:
    """What a listener hears of what a reader tells."""
    return (each for each in told if not isinstance(each, Progress))


def streamed(api: str, chunks: Iterable[bytes]) -> Iterator[Event]:
    framer, reader = DIALECTS[api].framer(), DIALECTS[api].reader()
    for chunk in chunks:
        for frame in framer.feed(chunk):
            yield from handed_on(reader.read(frame))
    for frame in framer.end():
        yield from handed_on(reader.read(frame))
    yield from reader.end()


def until_error(api: str, stream: bytes) -> tuple[list[Event], ProviderError | None]:
    """What comes of a stream, and the error that it ends in."""
    events: list[Event] = []
    try:
        for event in streamed(api, [stream]):
            events.append(event)  # noqa: PERF402 - what came before an error counts
    except ProviderError as error:
        return events, error
    return events, None


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def said(events: list[Event]) -> Said:
    used = [event.usage for event in events if isinstance(event, Used)]
    last = events[-1]
    assert isinstance(last, Finished)
    return Said(
        text=text_of(events),
        thought="".join(event.text for event in events if isinstance(event, Reasoning)),
        calls=tuple((event.name, event.arguments) for event in events if isinstance(event, ToolCall)),
        usage=used[-1] if used else None,
        finished=last,
    )


def recorded(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


def sse(*data: Any) -> list[bytes]:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in data]
    return [f"data: {text}\n\n".encode() for text in texts]


# Answers


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_comes_to_what_the_model_said(name: str) -> None:
    api, expected = STREAMS[name]
    assert said(list(streamed(api, [recorded(name)]))) == expected


def test_every_stream_of_the_folder_is_tried() -> None:
    assert {path.name for path in RECORDED.iterdir() if path.suffix != ".md"} == set(STREAMS) | set(ERRORS)


@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_where_the_network_cuts_the_bytes_changes_nothing(name: str, data: st.DataObject) -> None:
    api, _ = STREAMS[name]
    whole = recorded(name)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=40)))
    chunks = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert list(streamed(api, chunks)) == list(streamed(api, [whole]))


@pytest.mark.parametrize("name", STREAMS)
def test_byte_by_byte_is_the_same(name: str) -> None:
    api, _ = STREAMS[name]
    whole = recorded(name)
    assert list(streamed(api, [bytes([byte]) for byte in whole])) == list(streamed(api, [whole]))


@pytest.mark.parametrize("name", STREAMS)
def test_one_finished_comes_and_it_is_last(name: str) -> None:
    api, _ = STREAMS[name]
    events = list(streamed(api, [recorded(name)]))
    assert [isinstance(event, Finished) for event in events].count(True) == 1
    assert isinstance(events[-1], Finished)
    assert events[-1].reason in get_args(Reason)


@pytest.mark.parametrize("name", STREAMS)
def test_calls_have_ids_of_their_own_and_arguments_that_are_json(name: str) -> None:
    api, _ = STREAMS[name]
    calls = [event for event in streamed(api, [recorded(name)]) if isinstance(event, ToolCall)]
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id and isinstance(json.loads(call.arguments), dict) for call in calls)


def test_the_same_answer_is_the_same_events_in_every_dialect() -> None:
    names = ("vllm_weather.sse", "responses_weather.sse", "anthropic_weather.sse", "ollama_weather.ndjson")
    told = [said(list(streamed(STREAMS[name][0], [recorded(name)]))) for name in names]
    assert {STREAMS[name][0] for name in names} == set(DIALECTS)
    plain = [
        replace(each, usage=each.usage and replace(each.usage, cached_read=0, cache_write=0, reasoning=0))
        for each in told
    ]
    assert plain == [WEATHER] * len(names)


@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_a_stream_that_is_cut_is_broken_or_whole_and_hands_on_what_had_come(
    name: str, data: st.DataObject
) -> None:
    api, expected = STREAMS[name]
    whole = recorded(name)
    events, error = until_error(api, whole[: data.draw(st.integers(0, len(whole)))])
    if error is None:
        assert replace(said(events), usage=None) == replace(expected, usage=None)
        return
    assert isinstance(error, StreamBroken)
    assert error.may_retry
    assert not any(isinstance(event, Finished) for event in events)
    assert expected.text.startswith(text_of(events))


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_in_the_stream_is_raised_after_what_had_come(name: str) -> None:
    api, before, told = ERRORS[name]
    events, error = until_error(api, recorded(name))
    assert told in str(error)
    assert text_of(events) == before


@pytest.mark.parametrize("api", DIALECTS)
def test_what_is_no_json_is_quoted_in_part(api: str) -> None:
    reader = DIALECTS[api].reader()
    with pytest.raises(StreamBroken) as caught:
        list(reader.read(Frame("<html>" + "x" * 10_000)))
    assert "<html>" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("api", DIALECTS)
@pytest.mark.parametrize("data", [{}, {"type": "of.tomorrow", "choices": [{"index": 0}]}, {"usage": None}])
def test_unknown_frames_are_passed_over_and_the_end_is_still_missing(api: str, data: Any) -> None:
    reader = DIALECTS[api].reader()
    assert list(reader.read(Frame(json.dumps(data)))) == []
    with pytest.raises(StreamBroken):
        list(reader.end())


@pytest.mark.parametrize("api", DIALECTS)
def test_nothing_is_read_after_the_end(api: str) -> None:
    name = next(name for name, (of, _) in STREAMS.items() if of == api)
    reader, framer = DIALECTS[api].reader(), DIALECTS[api].framer()
    for frame in framer.feed(recorded(name)):
        list(reader.read(frame))
    assert list(reader.read(Frame("{ what"))) == []
    assert list(reader.end()) == []


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in inner for found in [(*path, key), *places(each, (*path, key))]]


@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_a_damaged_frame_never_crashes_the_reader(name: str, data: st.DataObject) -> None:
    api, _ = STREAMS[name]
    framer, reader = DIALECTS[api].framer(), DIALECTS[api].reader()
    frames = list(framer.feed(recorded(name)))
    try:
        for frame in frames:
            changed = frame
            if frame.data != "[DONE]" and data.draw(st.booleans()):
                body = json.loads(frame.data)
                *way, last = data.draw(st.sampled_from(places(body)))
                target = body
                for step in way:
                    target = target[step]
                target[last] = data.draw(JUNK)
                changed = Frame(json.dumps(body), frame.event)
            for event in reader.read(changed):
                assert isinstance(event, Event | Progress)
        list(reader.end())
    except (ProviderError, ContextOverflowError):
        pass


# Chat completions in particular


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def test_a_finish_reason_is_an_end_even_where_done_is_never_said() -> None:
    events = list(streamed(CHAT, sse(chunk({"content": "a"}), chunk({}, "stop"))))
    assert events == [Text("a"), Finished("stop")]


def test_done_is_an_end_even_where_no_finish_reason_is_said() -> None:
    assert list(streamed(CHAT, sse(chunk({"content": "a"}), "[DONE]"))) == [Text("a"), Finished("other")]


def test_calls_are_numbered_the_same_in_every_reading_and_otherwise_in_another_answer() -> None:
    call = {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}

    def ids(answer: str) -> list[str]:
        chunks = sse(chunk(call, id=answer), chunk(call), chunk({}, "stop"))
        return [event.id for event in streamed(CHAT, chunks) if isinstance(event, ToolCall)]

    assert ids("a") == ids("a")
    assert len({*ids("a"), *ids("b")}) == 4


@given(st.permutations([0, 0, 0, 1, 1, 1, 2, 2, 2]))
def test_calls_in_any_interleaving_are_put_together(order: list[int]) -> None:
    pieces = {index: [f'{{"n":{index}', ',"m":"', 'x"}'] for index in range(3)}
    chunks = [
        chunk({"tool_calls": [{"index": i, "id": f"c{i}", "function": {"name": f"f{i}", "arguments": ""}}]})
        for i in range(3)
    ]
    for index in order:
        piece = {"index": index, "function": {"arguments": pieces[index].pop(0)}}
        chunks.append(chunk({"tool_calls": [piece]}))
    events = list(streamed(CHAT, sse(*chunks, chunk({}, "tool_calls"), "[DONE]")))
    assert events[:-1] == [ToolCall(f"c{i}", f"f{i}", f'{{"n":{i},"m":"x"}}') for i in range(3)]


def test_the_older_function_call_and_thinking_in_parts_are_read() -> None:
    thinking = {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}
    call = {"function_call": {"name": "f", "arguments": '{"a":'}}
    rest = {"function_call": {"arguments": "1}"}}
    events = list(streamed(CHAT, sse(chunk(thinking), chunk(call), chunk(rest), chunk({}, "function_call"))))
    assert said(events) == Said(thought="hm", calls=(("f", '{"a":1}'),), finished=Finished("tool_calls"))


@pytest.mark.parametrize("usage", [None, 7, [], {}, {"prompt_tokens": "many"}, {"prompt_tokens": -1}])
def test_wrong_usage_is_no_usage(usage: Any) -> None:
    events = list(streamed(CHAT, sse(chunk({}, "stop", usage=usage), "[DONE]")))
    assert events == [Finished("stop")]


def test_half_a_character_and_a_figure_that_is_none_do_not_break_an_answer() -> None:
    halves = [
        '{"choices":[{"index":0,"delta":{"content":"a\\ud83d"},"logprobs":-Infinity}]}',
        '{"choices":[{"index":0,"delta":{"content":"\\ude00b\\ud83d\\ude00"},"finish_reason":"stop"}]}',
    ]
    events = list(streamed(CHAT, sse(*halves)))
    assert text_of(events) == "a\ufffd\ufffdb😀"


# Asking

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
QUESTION = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "The weather in Zürich and Oslo?"},
)
MODELS = {CHAT: "gpt-4o", RESPONSES: "gpt-5", ANTHROPIC: "claude-sonnet-4-5", OLLAMA: "qwen3:8b"}
WEATHERS = {
    CHAT: "openai_chat_tools.sse",
    RESPONSES: "responses_weather.sse",
    ANTHROPIC: "anthropic_weather.sse",
    OLLAMA: "ollama_weather.ndjson",
}


@pytest.mark.parametrize("api", DIALECTS)
def test_a_whole_exchange_with_tools_goes_out_and_comes_back(api: str) -> None:
    calls = [event for event in streamed(api, [recorded(WEATHERS[api])]) if isinstance(event, ToolCall)]
    step = {
        "role": "assistant",
        "content": "Looking up both ☂.",
        "tool_calls": [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in calls
        ],
    }
    results = [{"role": "tool", "tool_call_id": call.id, "content": f"rain {call.id}"} for call in calls]
    ask = Ask(messages=(*QUESTION, step, *results), tools=(TOOL,), max_output=100)
    body = DIALECTS[api].body(MODELS[api], ask)
    assert body["stream"] is True
    assert body["model"] == MODELS[api]
    read = wire.read(json.loads(json.dumps(body)), api)
    check_conversation(read.messages)
    answered = [(m["tool_call_id"], m["content"]) for m in read.messages if m["role"] == "tool"]
    assert answered == [(call.id, f"rain {call.id}") for call in calls]
    asked = [call for message in read.messages for call in message.get("tool_calls", ())]
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in asked] == [
        (call.id, call.name, call.arguments) for call in calls
    ]
    assert read.tools[0]["function"]["name"] == "get_weather"


LIMITS = [
    (CHAT, "gpt-4o", ("max_tokens",)),
    (CHAT, "gpt-5-mini", ("max_completion_tokens",)),
    (CHAT, "openai/o3-mini", ("max_completion_tokens",)),
    (CHAT, "openai/gpt-oss-20b", ("max_tokens",)),
    (CHAT, "olmo-2", ("max_tokens",)),
    (RESPONSES, "gpt-5", ("max_output_tokens",)),
    (ANTHROPIC, "claude-sonnet-4-5", ("max_tokens",)),
    (OLLAMA, "llama3.2", ("options", "num_predict")),
]


@pytest.mark.parametrize(("api", "model", "where"), LIMITS)
def test_the_output_limit_has_the_name_that_the_server_takes(
    api: str, model: str, where: tuple[str, ...]
) -> None:
    value: Any = DIALECTS[api].body(model, Ask(messages=QUESTION, max_output=77))
    for name in where:
        value = value[name]
    assert value == 77


def test_anthropic_is_always_told_a_limit() -> None:
    body = DIALECTS[ANTHROPIC].body
    info = model_info("claude-sonnet-4-5")
    assert info is not None
    assert body("claude-sonnet-4-5", Ask(messages=QUESTION))["max_tokens"] == info.max_output
    assert body("nobody-knows-this", Ask(messages=QUESTION))["max_tokens"] == 4_096


@pytest.mark.parametrize("api", DIALECTS)
def test_options_win_and_none_takes_a_member_out(api: str) -> None:
    ask = Ask(messages=QUESTION, max_output=5, options={"stream": None, "temperature": 0, "model": "other"})
    body = DIALECTS[api].body("any", ask)
    assert "stream" not in body
    assert (body["temperature"], body["model"]) == (0, "other")


def test_a_limit_among_the_options_is_the_only_one() -> None:
    ask = Ask(messages=QUESTION, max_output=5, options={"max_completion_tokens": 6})
    body = DIALECTS[CHAT].body("any", ask)
    assert (body["max_completion_tokens"], "max_tokens" in body) == (6, False)
    ask = Ask(messages=QUESTION, max_output=5, options={"options": {"num_ctx": 8_192}})
    assert DIALECTS[OLLAMA].body("any", ask)["options"] == {"num_predict": 5, "num_ctx": 8_192}


def test_what_each_api_needs_is_switched_on() -> None:
    ask = Ask(messages=QUESTION, tools=(TOOL,))
    assert DIALECTS[CHAT].body("m", ask)["stream_options"] == {"include_usage": True}
    responses = DIALECTS[RESPONSES].body("m", ask)
    assert responses["store"] is False
    assert responses["tools"][0]["strict"] is False
    assert "strict" not in TOOL["function"]
    assert DIALECTS[OLLAMA].body("m", ask)["truncate"] is False


def test_a_chat_body_crosses_to_ollama_with_its_options_and_names() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    body = {
        "model": "m",
        "messages": [
            {
                "role": "developer",
                "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ],
        "max_completion_tokens": 9,
        "temperature": 0,
        "response_format": {"type": "json_object"},
    }
    assert wire.write(wire.read(body, CHAT), OLLAMA) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be\nbrief."},
            {"role": "user", "content": "See", "images": ["AAAA"]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}],
            },
            {"role": "tool", "content": "1", "tool_call_id": "a", "tool_name": "f"},
        ],
        "options": {"num_predict": 9, "temperature": 0},
        "format": "json",
    }


def test_an_image_by_its_address_cannot_go_to_ollama() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    ask = Ask(messages=({"role": "user", "content": [image]},))
    with pytest.raises(InvalidRequest, match="address"):
        DIALECTS[OLLAMA].body("m", ask)


@pytest.mark.parametrize("api", DIALECTS)
def test_a_key_goes_into_one_header_and_none_goes_without(api: str) -> None:
    with_key = DIALECTS[api].headers(Key("s3cret"))
    assert sum("s3cret" in value for value in with_key.values()) == 1
    without = DIALECTS[api].headers(None)
    assert not {"authorization", "x-api-key"} & set(without)
    assert ("anthropic-version" in without) == (api == ANTHROPIC)


# Providers

KEYS = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2", "OPENROUTER_API_KEY": "sk-3"}
SPECS = [
    ("openai/gpt-4o", "https://api.openai.com/v1", "gpt-4o", CHAT, "OPENAI_API_KEY", False),
    ("openai-responses/gpt-5", "https://api.openai.com/v1", "gpt-5", RESPONSES, "OPENAI_API_KEY", False),
    ("gpt-4o", "https://api.openai.com/v1", "gpt-4o", CHAT, "OPENAI_API_KEY", False),
    ("o3-mini", "https://api.openai.com/v1", "o3-mini", CHAT, "OPENAI_API_KEY", False),
    (
        "anthropic/claude-sonnet-4-5",
        "https://api.anthropic.com/v1",
        "claude-sonnet-4-5",
        ANTHROPIC,
        "ANTHROPIC_API_KEY",
        False,
    ),
    (
        "claude-opus-4-1",
        "https://api.anthropic.com/v1",
        "claude-opus-4-1",
        ANTHROPIC,
        "ANTHROPIC_API_KEY",
        False,
    ),
    (
        "openrouter/openai/gpt-4o",
        "https://openrouter.ai/api/v1",
        "openai/gpt-4o",
        CHAT,
        "OPENROUTER_API_KEY",
        False,
    ),
    ("ollama/hf.co/a/b:Q4", "http://127.0.0.1:11434", "hf.co/a/b:Q4", OLLAMA, None, True),
    ("llama.cpp", "http://127.0.0.1:8080/v1", "default", CHAT, None, True),
    ("llamacpp", "http://127.0.0.1:8080/v1", "default", CHAT, None, True),
    ("vllm/Qwen/Qwen3-8B", "http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B", CHAT, None, True),
    ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1", "default", CHAT, None, True),
    ("https://models.example.org/api/", "https://models.example.org/api", "default", CHAT, None, False),
]


@pytest.mark.parametrize(("spec", "url", "model", "api", "source", "local"), SPECS)
def test_a_name_leads_to_its_endpoint(  # noqa: PLR0917 - a row of the table
    spec: str, url: str, model: str, api: str, source: str | None, local: bool
) -> None:
    found = endpoint_for(spec, environ=KEYS)
    assert (found.url, found.model, found.api, found.local) == (url, model, api, local)
    assert (found.key and found.key.source) == source
    assert "sk-" not in repr(found)


@pytest.mark.parametrize("name", [name for name, known in PROVIDERS.items() if known.variable])
def test_a_missing_key_names_the_variable_to_set(name: str) -> None:
    with pytest.raises(ConfigurationError, match=str(PROVIDERS[name].variable)):
        endpoint_for(f"{name}/some-model", environ={})


def test_a_key_of_the_environment_is_never_sent_to_another_address() -> None:
    found = endpoint_for("openai/gpt-4o", url="https://elsewhere.example.org/v1", environ=KEYS)
    assert found.key is None
    given = endpoint_for("openai/gpt-4o", url="https://elsewhere.example.org", key="mine", environ=KEYS)
    assert given.key is not None
    assert given.key.reveal() == "mine"
    assert given.url == "https://elsewhere.example.org/v1"


@pytest.mark.parametrize("spec", ["", "smoke-signals", "gpt-oss-20b", "acme/gpt-4o", "/"])
def test_an_unknown_name_lists_what_there_is(spec: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        endpoint_for(spec, environ=KEYS)
    assert all(name in str(caught.value) for name in PROVIDERS)


@pytest.mark.parametrize("spec", ["ollama", "openai", "vllm/"])
def test_a_provider_of_many_models_needs_one(spec: str) -> None:
    with pytest.raises(ConfigurationError, match="names no model"):
        endpoint_for(spec, environ=KEYS)
    assert endpoint_for(spec, model="m", environ=KEYS).model == "m"


@pytest.mark.parametrize(
    "url",
    ["http://", "http://[::1", "http://h:99999999", "http://u:p@h/v1", "http://h/v1?key=1", "http://h#f"],
)
def test_an_address_that_is_none_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        endpoint_for(url, environ={})
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0:11435", "http://127.0.0.1:11435"),
        ("box", "http://box:11434"),
        ("https://box.example.org/", "https://box.example.org"),
        ("", "http://127.0.0.1:11434"),
    ],
)
def test_ollama_is_sought_where_its_own_tools_seek_it(host: str, url: str) -> None:
    assert endpoint_for("ollama/m", environ={"OLLAMA_HOST": host}).url == url


def test_every_row_speaks_a_dialect_and_every_family_has_a_provider() -> None:
    assert {known.api for known in PROVIDERS.values()} <= set(DIALECTS)
    assert set(FAMILIES.values()) | set(ALIASES.values()) <= set(PROVIDERS)


def test_ollama_is_told_the_window_that_was_reckoned_with() -> None:
    ask = Ask(messages=({"role": "user", "content": "Hello"},), window=6_000)
    assert DIALECTS[OLLAMA].body("any", ask)["options"] == {"num_ctx": 6_000}
    assert "6000" not in str(DIALECTS["openai.chat"].body("any", ask))
