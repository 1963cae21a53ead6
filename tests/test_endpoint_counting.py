"""Counts by the server: each clause of the contract, each server's own shape, and every way to be lied to."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.player import Player, Request, Script, playing, sent_json
from tests.telling import STALL, at, raw, real_llama, run
from ullage import wire
from ullage.broker.ask import Ask
from ullage.broker.count_routes import TEXT_ROUTES, request_routes, root
from ullage.broker.endpoint import Endpoint, Key
from ullage.broker.endpoint_counter import EndpointCounter
from ullage.broker.http import Transport
from ullage.broker.remote import RemoteProvider
from ullage.errors import ConfigurationError
from ullage.tokens import counter_for, register_tokenizer

pytestmark = pytest.mark.enable_socket

HELLO = "hello world"
TWO = {"tokens": [28120, 905]}
ASK = Ask(messages=({"role": "system", "content": "Be short."}, {"role": "user", "content": HELLO}))
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
}
CALLED = Ask(
    messages=(
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "a tree"},
    ),
    tools=(TOOL,),
)


def counter(**more: Any) -> EndpointCounter:
    return EndpointCounter(use_endpoint=True, **more)


# The contract, clause by clause


def test_hello_world_is_two_by_the_endpoint_and_two_by_chars_over_four() -> None:
    async def main(server: Player, transport: Transport) -> None:
        assert await counter().token_count(at(server.url), HELLO, transport) == 2
        for fallback in ("estimate", "chars/4"):
            assert await counter(fallback=fallback).token_count(at(""), HELLO, transport) == 2

    run(lambda _: TWO, main)


def test_the_text_and_the_model_are_posted_to_tokenize() -> None:
    async def main(server: Player, transport: Transport) -> None:
        await counter().token_count(at(server.url, "m"), HELLO, transport)

    (asked,) = run(lambda _: TWO, main)
    assert (asked.method, asked.path, asked.json()) == ("POST", "/tokenize", {"content": HELLO, "model": "m"})
    assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/", "//"])
def test_a_slash_or_v1_at_the_end_of_the_address_is_stripped(ending: str) -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting = counter()
        assert await counting.token_count(at(server.url + ending), HELLO, transport) == 2
        assert counting.tokenize_supported(at(server.url)) is True

    assert [each.path for each in run(lambda _: TWO, main)] == ["/tokenize"]


def test_only_the_end_of_an_address_is_stripped() -> None:
    assert root("https://h/v1/x/v1/") == "https://h/v1/x"
    assert root("https://v1") == "https://v1"
    assert root("https://h/v1?version=2") == "https://h"
    assert root("embedded:") == root("") == ""


def test_a_query_in_the_address_goes_with_every_path() -> None:
    async def main(server: Player, transport: Transport) -> None:
        assert await counter().token_count(at(server.url + "/v1?version=2"), HELLO, transport) == 2

    assert [each.path for each in run(lambda _: TWO, main)] == ["/tokenize?version=2"]


def test_a_capability_is_unknown_before_the_first_use_and_known_after_it() -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        assert counting.tokenize_supported(endpoint) is None
        await counting.token_count(endpoint, HELLO, transport)
        assert counting.tokenize_supported(endpoint) is True

    run(lambda _: TWO, main)


NOT_COUNTS = {
    "404": 404,
    "500": 500,
    "201": raw(b'{"tokens": [1, 2]}', 201),
    "204": raw(b"", 204),
    "an empty list for a text": {"tokens": []},
    "no tokens": {"count": 2},
    "tokens that are no list": {"tokens": 2},
    "tokens that are text": {"tokens": "ab"},
    "null": None,
    "a list": [1, 2],
    "more tokens than the text can have": {"tokens": [0] * 1000},
    "HTML": raw(b"<html>hello</html>", 200),
    "half of a JSON": raw(b'{"tokens": [1, 2'),
    "nothing": raw(b""),
    "bytes": raw(b"\xff\xfe\x00"),
    "deep nesting": raw(b"[" * 100_000),
}


@pytest.mark.parametrize("name", NOT_COUNTS)
def test_anything_but_a_200_with_a_list_of_tokens_means_no_and_is_not_asked_again(name: str) -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        for text in (HELLO, "another text", HELLO):
            expected = counter_for(endpoint.model).text(text).tokens
            assert await counting.token_count(endpoint, text, transport) == expected
        assert counting.tokenize_supported(endpoint) is False

    assert len(run(lambda _: NOT_COUNTS[name], main)) == 1


def test_a_server_that_does_not_answer_is_given_up_after_two_seconds_and_for_the_session() -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        began = time.monotonic()
        assert await counting.token_count(endpoint, HELLO, transport) == 2
        assert 1.5 < time.monotonic() - began < 20
        assert await counting.token_count(endpoint, HELLO, transport) == 2
        assert counting.tokenize_supported(endpoint) is False

    assert len(run(lambda _: STALL, main)) == 1


def test_nobody_there_means_no() -> None:
    async def main(_: Player, transport: Transport) -> None:
        counting = counter()
        for url in ("http://127.0.0.1:9", "http://", "http://[", "https://127.0.0.1:9/v1"):
            assert await counting.token_count(at(url), HELLO, transport) == 2
        assert counting.tokenize_supported(at("http://127.0.0.1:9")) is False

    assert run(lambda _: TWO, main) == []


def test_no_endpoint_and_no_text_mean_no_request() -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting = counter()
        assert await counting.token_count(at(""), HELLO, transport) == 2
        assert await counting.token_count(at("embedded:"), HELLO, transport) == 2
        assert await counting.token_count(at(server.url), "", transport) == 0
        assert counting.tokenize_supported(at(server.url)) is None

    assert run(lambda _: TWO, main) == []


def test_off_means_no_request_at_all() -> None:
    async def main(server: Player, transport: Transport) -> None:
        for counting in (EndpointCounter(), EndpointCounter(use_endpoint=False)):
            assert await counting.token_count(at(server.url), HELLO, transport) == 2
            assert await counting.count_of(at(server.url), transport, ASK) is None
            assert counting.tokenize_supported(at(server.url)) is None

    assert run(lambda _: TWO, main) == []


def test_a_later_failure_turns_yes_into_no() -> None:
    answers = iter([TWO, TWO, 500, TWO])

    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        for supported in (True, True, False, False):
            assert await counting.token_count(endpoint, HELLO, transport) == 2
            assert counting.tokenize_supported(endpoint) is supported

    assert len(run(lambda _: next(answers), main)) == 3


def test_an_answer_under_way_does_not_make_a_failed_server_good_again() -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        await counting.token_count(endpoint, HELLO, transport)
        await asyncio.gather(*(counting.token_count(endpoint, text, transport) for text in ("bad", *"good")))
        assert counting.tokenize_supported(endpoint) is False

    run(lambda asked: 500 if asked.json()["content"] == "bad" else TWO, main)


def test_a_restart_probes_again() -> None:
    async def main(server: Player, transport: Transport) -> None:
        for _ in range(3):
            assert await counter().token_count(at(server.url), HELLO, transport) == 2

    assert len(run(lambda _: 404, main)) == 3


def test_two_models_behind_one_endpoint_are_kept_apart() -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting, good, bad = counter(), at(server.url, "good"), at(server.url, "bad")
        for endpoint in (bad, good, bad, good):
            assert await counting.token_count(endpoint, HELLO, transport) == 2
        assert counting.tokenize_supported(good) is True
        assert counting.tokenize_supported(bad) is False

    asked = run(lambda asked: TWO if asked.json()["model"] == "good" else 404, main)
    assert [each.json()["model"] for each in asked] == ["bad", "good", "good"]


@pytest.mark.parametrize(("answer", "requests"), [(404, 1), (TWO, 20)])
def test_concurrent_first_uses_probe_once(answer: Any, requests: int) -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        counts = await asyncio.gather(*(counting.token_count(endpoint, HELLO, transport) for _ in range(20)))
        assert counts == [2] * 20

    assert len(run(lambda _: answer, main)) == requests


def test_a_first_use_that_is_called_off_leaves_the_question_open() -> None:
    answers = iter([STALL, TWO])

    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        first = asyncio.ensure_future(counting.token_count(endpoint, HELLO, transport))
        await asyncio.sleep(0.2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert counting.tokenize_supported(endpoint) is None
        assert await counting.token_count(endpoint, HELLO, transport) == 2
        assert counting.tokenize_supported(endpoint) is True

    run(lambda _: next(answers), main)


def test_a_text_that_cannot_be_sent_is_counted_here_and_blames_nobody() -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        assert await counting.token_count(endpoint, "a\ud800b", transport) > 0
        ask = Ask(messages=({"role": "user", "content": "a\ud800b"},))
        assert await counting.count_of(endpoint, transport, ask) is None
        assert counting.tokenize_supported(endpoint) is None

    assert run(lambda _: TWO, main) == []


def test_a_registered_tokenizer_that_fails_stops_nobody() -> None:
    class Broken:
        name = "broken"

        def count(self, text: str) -> int:
            raise RuntimeError(text)

    register_tokenizer("model-of-a-broken-tokenizer", Broken())

    async def main(_: Player, transport: Transport) -> None:
        endpoint = at("", "model-of-a-broken-tokenizer")
        assert await counter().token_count(endpoint, HELLO, transport) == 4

    run(lambda _: 404, main)


@pytest.mark.parametrize("message", [{}, {"role": "user", "content": [1]}, {"role": "tool"}], ids=repr)
def test_a_request_that_is_none_is_not_counted_and_blames_nobody(message: dict[str, Any]) -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting = counter()
        for api in ("openai.chat", "openai.responses", "anthropic.messages"):
            endpoint = at(server.url, api=api)
            told = await counting.count_of(endpoint, transport, Ask(messages=(message,)))
            assert told in (None, 7)
        await counting.count_of(
            at("https://generativelanguage.googleapis.com"), transport, Ask(messages=({},))
        )

    run(lambda _: {"input_tokens": 7}, main)


def test_the_fallback_is_the_model_s_own_counter_or_a_rule_by_name() -> None:
    text = "ls -laR\ndrwxr-xr-x 2 root root 4096 Nov 16 01:01 .\n"

    async def main(_: Player, transport: Transport) -> None:
        endpoint = at("", "gpt-4o")
        assert (
            await counter().token_count(endpoint, text, transport) == counter_for("gpt-4o").text(text).tokens
        )
        assert await counter(fallback="chars/4").token_count(endpoint, text, transport) == len(text) // 4
        assert await counter(fallback="chars/3.5").token_count(endpoint, text, transport) == -(
            -len(text) * 2 // 7
        )

    run(lambda _: 404, main)
    with pytest.raises(ConfigurationError, match="chars/4"):
        EndpointCounter(fallback="chars/5")


def test_the_key_and_the_headers_go_to_the_endpoint_and_a_redirect_is_not_followed() -> None:
    elsewhere: list[Request] = []

    async def main(server: Player, transport: Transport) -> None:
        with playing(sent_json(TWO)) as other:
            moved[:] = [
                raw(b"{}", status, location=other.url + "/tokenize") for status in (301, 302, 307, 308)
            ]
            for model in "abcd":
                endpoint = at(server.url, model, key=Key("s3cret"), headers={"x-team": "blue"})
                counting = counter()
                assert await counting.token_count(endpoint, HELLO, transport) == 2
                assert counting.tokenize_supported(endpoint) is False
            elsewhere.extend(other.requests)

    moved: list[Script] = []
    asked = run(lambda each: moved["abcd".index(each.json()["model"])], main)
    assert len(asked) == 4
    assert all(each.headers["authorization"] == "Bearer s3cret" for each in asked)
    assert all(each.headers["x-team"] == "blue" for each in asked)
    assert elsewhere == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["tokens", "count", "input_tokens", "prompt", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


class Same:
    """A transport that answers with whatever it was made with."""

    def __init__(self, status: int, answer: Any) -> None:
        self.status, self.answer = status, answer

    async def json(self, *_: Any, **__: Any) -> tuple[int, Any]:
        return self.status, self.answer


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([200, 200, 404]),
    JSON,
    st.sampled_from(["openai.chat", "anthropic.messages", "openai.responses"]),
)
def test_no_answer_makes_a_count_that_is_none(status: int, answer: Any, api: str) -> None:
    async def main() -> None:
        transport: Any = Same(status, answer)
        for kind in TEXT_ROUTES:
            tokens = await counter().token_count(at("http://h"), HELLO, transport, kind=kind)
            assert tokens.__class__ is int
            assert 0 < tokens <= 60
        whole = await counter().count_of(at("http://h", api=api), transport, ASK)
        assert whole is None or (whole.__class__ is int and 0 < whole <= 100_000_000)

    asyncio.run(main())


# Each server's own shape


@pytest.mark.parametrize(
    ("kind", "path", "body", "answer"),
    [
        ("vllm", "/tokenize", "prompt", {"count": 2, "max_model_len": 9, "tokens": [1, 2]}),
        ("sglang", "/v1/tokenize", "prompt", {"count": 2, "max_model_len": 9, "tokens": [1, 2]}),
        ("tgi", "/tokenize", "inputs", [{"id": 1}, {"id": 2}]),
        ("cohere", "/v1/tokenize", "text", {"tokens": [1, 2], "token_strings": ["a", "b"]}),
    ],
)
def test_a_text_is_counted_in_the_shape_of_its_server(kind: str, path: str, body: str, answer: Any) -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting = counter()
        assert await counting.token_count(at(server.url), HELLO, transport, kind=kind) == 2
        assert counting.tokenize_supported(at(server.url), kind=kind) is True
        assert counting.tokenize_supported(at(server.url)) is None

    (asked,) = run(lambda _: answer, main)
    assert asked.path == path
    assert asked.json()[body] == HELLO


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama.cpp": ("openai.chat", {"/v1/chat/completions/input_tokens": {"input_tokens": 19}}),
    "vllm": ("openai.chat", {"/tokenize": {"count": 19, "max_model_len": 512, "tokens": [0] * 19}}),
    "sglang": ("openai.chat", {"/v1/tokenize": {"count": 19, "max_model_len": 512, "tokens": [0] * 19}}),
    "tgi": ("openai.chat", {"/chat_tokenize": {"tokenize_response": [{}] * 19, "templated_text": "…"}}),
    "llama.cpp template": (
        "openai.chat",
        {"/apply-template": {"prompt": "<|im_start|>"}, "/tokenize": {"tokens": [0] * 19}},
    ),
    "anthropic": ("anthropic.messages", {"/v1/messages/count_tokens": {"input_tokens": 19}}),
    "openai": ("openai.responses", {"/v1/responses/input_tokens": {"input_tokens": 19}}),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("ask", [ASK, CALLED], ids=["plain", "called"])
def test_a_whole_request_is_counted_in_the_shape_of_its_server(name: str, ask: Ask) -> None:
    api, answers = SHAPES[name]

    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url + "/v1", api=api, key=Key("k"))
        assert await counting.count_of(endpoint, transport, ask) == 19
        probed = len(server.requests)
        assert await counting.count_of(endpoint, transport, ask) == 19
        # The second time, only what works is asked.
        assert {each.path for each in server.requests[probed:]} == set(answers)
        assert len(server.requests) - probed == len(answers)

    def answer(asked: Request) -> Any:
        if name == "llama.cpp template" and asked.path == "/tokenize" and "content" not in asked.json():
            return {"tokens": []}  # as llama.cpp answers what it does not know
        return answers.get(asked.path, 404)

    asked = run(answer, main)
    assert all("stream" not in each.json() for each in asked)
    secret = "x-api-key" if name == "anthropic" else "authorization"
    assert all("k" in each.headers[secret] for each in asked)


def test_the_bodies_for_the_clouds_are_what_their_counting_endpoints_take() -> None:
    bodies = {}
    for name, api in (("anthropic", "anthropic.messages"), ("openai", "openai.responses")):
        endpoint = at("http://h", "m", api=api)
        (route,) = request_routes(endpoint)
        bodies[name] = route.steps[0].body(endpoint, CALLED)
    assert wire.read(bodies["anthropic"], "anthropic.count_tokens").tools
    assert wire.read(bodies["openai"], "openai.responses.input_tokens").tools
    assert "max_tokens" not in bodies["anthropic"]


def test_a_chat_request_to_openai_is_counted_by_its_responses_api() -> None:
    endpoint = at("https://api.openai.com/v1", "gpt-4o")
    (route,) = request_routes(endpoint)
    options = {"temperature": 0.5, "tool_choice": "required", "max_tokens": 5}
    body = route.steps[0].body(endpoint, Ask(messages=CALLED.messages, tools=CALLED.tools, options=options))
    assert body["tool_choice"] == "required"
    assert body.keys() == {"model", "input", "tools", "tool_choice"}


def test_gemini_s_body_reads_back_as_the_request_that_it_was_made_of() -> None:
    endpoint = at("https://generativelanguage.googleapis.com/v1beta/openai/", "gemini-2.5-pro", key=Key("k"))
    assert root(endpoint.url) == "https://generativelanguage.googleapis.com"
    (route,) = request_routes(endpoint)
    assert route.name == "gemini"
    for ask in (ASK, CALLED):
        request = wire.read(route.steps[0].body(endpoint, ask), "gemini.count_tokens")
        assert request.model == "gemini-2.5-pro"
        assert [each["role"] for each in request.messages] == [each["role"] for each in ask.messages]
        assert len(request.tools) == len(ask.tools)
    assert route.steps[0].read({"totalTokens": 31, "totalBillableCharacters": 96}) == 31


@pytest.mark.parametrize("url", ["https://openrouter.ai/api/v1", "https://api.groq.com/openai/v1"])
def test_a_cloud_that_cannot_count_is_not_asked(url: str) -> None:
    assert request_routes(at(url)) == ()
    assert request_routes(at("http://127.0.0.1:11434", api="ollama.chat")) == ()


def test_media_are_not_counted_by_a_template() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    ask = Ask(messages=({"role": "user", "content": [{"type": "text", "text": "See"}, image]},))
    answers = SHAPES["llama.cpp template"][1]

    async def main(server: Player, transport: Transport) -> None:
        assert await counter().count_of(at(server.url), transport, ask) is None

    asked = run(lambda each: answers.get(each.path, 404) if "content" in each.json() else 404, main)
    assert "/apply-template" not in [each.path for each in asked]


HOSTILE = {
    "negative": {"input_tokens": -5},
    "zero": {"input_tokens": 0},
    "a string": {"input_tokens": "19"},
    "a boolean": {"input_tokens": True},
    "a float": {"input_tokens": 19.0},
    "absurd": {"input_tokens": 10**18},
    "beyond 64 bits": raw(b'{"input_tokens": 1' + b"0" * 400 + b"}"),
    "a list": {"input_tokens": [19]},
    "a bare number": raw(b"19"),
    "HTML": raw(b"<html></html>", 200),
    "a redirect": raw(b"", 302, location="http://localhost:9/"),
    "an error": 500,
    "refused": 401,
    "too many": 429,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_no_count(name: str) -> None:
    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url, api="anthropic.messages")
        for _ in range(3):
            assert await counting.count_of(endpoint, transport, ASK) is None

    assert len(run(lambda _: HOSTILE[name], main)) == 1


def test_a_body_of_five_megabytes_is_no_count_and_takes_no_longer_than_the_limit() -> None:
    huge = raw(b'{"input_tokens": "' + b"x" * 5_000_000 + b'"}')

    async def main(server: Player, transport: Transport) -> None:
        began = time.monotonic()
        assert await counter().count_of(at(server.url, api="anthropic.messages"), transport, ASK) is None
        assert time.monotonic() - began < 20

    run(lambda _: huge, main)


def test_a_server_that_hangs_is_asked_in_one_way_only() -> None:
    async def main(server: Player, transport: Transport) -> None:
        began = time.monotonic()
        assert await counter().count_of(at(server.url), transport, ASK) is None
        assert time.monotonic() - began < 20

    assert len(run(lambda _: STALL, main)) == 1


@pytest.mark.parametrize(("status", "requests"), [(401, 1), (429, 1), (503, 1), (404, 5), (422, 5)])
def test_other_ways_are_tried_only_where_the_server_does_not_know_this_one(
    status: int, requests: int
) -> None:
    async def main(server: Player, transport: Transport) -> None:
        assert await counter().count_of(at(server.url), transport, ASK) is None

    assert len(run(lambda _: status, main)) == requests


def test_a_provider_probes_once_a_session_however_often_it_is_opened() -> None:
    async def main(server: Player, _: Transport) -> None:
        for session in (counter(), None):
            for _ in range(2):
                provider = RemoteProvider(at(server.url), counter=session)
                for _ in range(3):
                    assert await provider.count(ASK) is None
                await provider.close()

    assert len(run(lambda _: 404, main)) == 3 * len(request_routes(at("http://h")))


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("llama.cpp", ["/tokenize"]),
        ("vllm", ["/tokenize"] * 2),
        ("tgi", ["/tokenize"] * 3),
        ("sglang", ["/tokenize", "/v1/tokenize"]),
        ("none", ["/tokenize", "/v1/tokenize"]),
    ],
)
def test_the_first_text_finds_out_which_server_it_is(name: str, paths: list[str]) -> None:
    answers: dict[str, tuple[str, str, Any]] = {
        "llama.cpp": ("/tokenize", "content", {"tokens": [1, 2]}),
        "vllm": ("/tokenize", "prompt", {"count": 2}),
        "tgi": ("/tokenize", "inputs", [{"id": 1}, {"id": 2}]),
        "sglang": ("/v1/tokenize", "prompt", {"count": 2}),
        "none": ("", "", None),
    }
    path, field, answer = answers[name]

    def play(asked: Request) -> Any:
        return 404 if asked.path != path else answer if field in asked.json() else 422

    async def main(server: Player, transport: Transport) -> None:
        counting, endpoint = counter(), at(server.url)
        found = 2 if path else None
        assert await counting.text_count(endpoint, HELLO, transport) == found
        assert counting.tokenize_supported(endpoint, kind=None) is bool(path)
        assert await counting.text_count(endpoint, "once more", transport) == found

    assert [asked.path for asked in run(play, main)] == [*paths, *([path] if path else [])]


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_after_a_failure_no_other_way_to_count_a_text_is_tried(status: int) -> None:
    async def main(server: Player, transport: Transport) -> None:
        assert await counter().text_count(at(server.url), HELLO, transport) is None

    assert len(run(lambda _: status, main)) == 1


# A real llama.cpp


llama_server = pytest.fixture(scope="module")(real_llama)


def test_a_real_server_s_counts_are_what_it_then_charges(llama_server: Endpoint) -> None:
    async def main() -> None:
        async with Transport() as transport:
            counting = counter()
            assert await counting.token_count(llama_server, HELLO, transport) == 2
            assert counting.tokenize_supported(llama_server) is True
            headers = {"authorization": f"Bearer {llama_server.key.reveal()}"} if llama_server.key else {}
            body = {"model": "m", "messages": list(ASK.messages), "max_tokens": 1}
            url = root(llama_server.url) + "/v1/chat/completions"
            _, answer = await transport.json("POST", url, headers, body, timeout=60.0)
            charged = answer["usage"]["prompt_tokens"]
            assert await counting.count_of(llama_server, transport, ASK) == charged
            for api in ("anthropic.messages", "openai.responses"):
                other = Endpoint(url=llama_server.url, model="m", api=api, key=llama_server.key)
                assert await counter().count_of(other, transport, ASK) == charged

    asyncio.run(main())


def test_a_real_server_s_template_leads_to_the_same_count(llama_server: Endpoint) -> None:
    from ullage.broker.count_routes import REQUEST_ROUTES
    from ullage.broker.endpoint_counter import _follow_route

    async def main() -> None:
        async with Transport() as transport:
            for ask in (
                ASK,
                Ask(messages=({"role": "user", "content": "What is <|im_end|> for?\n\n  Täst"},)),
            ):
                ways = (REQUEST_ROUTES[name] for name in ("llama.cpp", "llama.cpp template"))
                first, second = [await _follow_route(way, llama_server, transport, ask) for way in ways]
                assert first == second

    asyncio.run(main())
