"""What a provider behind HTTP does with a server that answers, refuses, stalls, cuts and redirects."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
import traceback
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.player import Player, Request, Script, playing, sent_json
from ullage.broker.ask import Ask
from ullage.broker.dialect import Dialect, Frame
from ullage.broker.endpoint import Endpoint, Key, Timeouts
from ullage.broker.events import Event, Finished, Text
from ullage.broker.frames import SseFramer
from ullage.broker.http import Transport, address
from ullage.broker.refusals import clean, refusal
from ullage.broker.remote import RemoteProvider
from ullage.broker.retry import Retries, delay, may_retry, read_wait
from ullage.errors import (
    ConfigurationError,
    ContextOverflowError,
    InvalidRequest,
    ProviderError,
    StreamBroken,
    UllageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.enable_socket

SECRET = "verysecret0123456789"  # noqa: S105 - no key of anything
KEY = Key(SECRET, "THE_VARIABLE")
QUICK = Timeouts(connect=30.0, first=30.0, between=30.0)
HASTY = Timeouts(connect=30.0, first=0.2, between=0.2, begin=60.0)
STALLED = Timeouts(connect=30.0, first=30.0, between=0.2)
AT_ONCE = Retries(attempts=3, base=0.0, most=1.0)


class PlainReader:
    """Each event is a text, `end` is the end."""

    def __init__(self) -> None:
        self.ended = False

    @property
    def whole(self) -> bool:
        return self.ended

    def read(self, frame: Frame) -> Iterator[Event]:
        if frame.event == "error":
            raise refusal(None, frame.data)
        if frame.data == "end":
            self.ended = True
            yield Finished("stop")
        else:
            yield Text(frame.data)

    def end(self) -> Iterator[Event]:
        if not self.ended:
            raise StreamBroken("the answer was not at its end")
        return iter(())


PLAIN = Dialect(
    path="/say",
    body=lambda model, ask: {"model": model, "options": dict(ask.options)},
    headers=lambda key: {} if key is None else {"authorization": f"Bearer {key.reveal()}"},
    framer=SseFramer,
    reader=PlainReader,
)
ASK = Ask(messages=())


def said(*texts: str) -> bytes:
    return b"".join(f"data: {text}\n\n".encode() for text in texts)


GOOD = Script(body=said("a", "b", "end"))
ANSWER = [Text("a"), Text("b"), Finished("stop")]


def provider(
    url: str,
    transport: Transport | None = None,
    *,
    timeouts: Timeouts = QUICK,
    retries: Retries = AT_ONCE,
    headers: dict[str, str] | None = None,
) -> RemoteProvider:
    endpoint = Endpoint(url=url, model="m", key=KEY, timeouts=timeouts, headers=headers or {})
    return RemoteProvider(endpoint, transport, retries, dialect=PLAIN)


async def heard(source: RemoteProvider, into: list[Event] | None = None, ask: Ask = ASK) -> list[Event]:
    got: list[Event] = [] if into is None else into
    try:
        async with aclosing(source.stream(ask)) as events:
            async for event in events:
                got.append(event)  # noqa: PERF401 - what came before an error is kept
    finally:
        await source.close()
    return got


def answer(player: Player, **more: Any) -> list[Event]:
    return asyncio.run(heard(provider(player.url, **more)))


def failure(player: Player, **more: Any) -> tuple[list[Event], UllageError]:
    got: list[Event] = []
    with pytest.raises(UllageError) as caught:
        asyncio.run(heard(provider(player.url, **more), got))
    return got, caught.value


# What comes


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("piece", [0, 1, 7])
def test_an_answer_is_the_same_however_its_bytes_travel(framing: str, piece: int) -> None:
    with playing(Script(body=GOOD.body, framing=framing, piece=piece)) as player:
        assert answer(player) == ANSWER


def test_the_request_has_the_body_the_key_and_the_headers() -> None:
    with playing(GOOD) as player:
        answer(player, headers={"x-org": "us"})
        (request,) = player.requests
    assert (request.method, request.path) == ("POST", "/say")
    assert request.json() == {"model": "m", "options": {}}
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-org"] == "us"


def test_a_query_of_the_address_stays_at_the_end() -> None:
    with playing(GOOD) as player:
        asyncio.run(heard(provider(f"{player.url}/v1/?api-version=2")))
        assert player.requests[0].path == "/v1/say?api-version=2"


def test_each_event_is_handed_on_when_it_comes() -> None:
    async def main(url: str) -> float:
        async with Transport() as transport, aclosing(provider(url, transport).stream(ASK)) as events:
            started = time.monotonic()
            assert await anext(events) == Text("a")
            return time.monotonic() - started

    with playing(Script(body=GOOD.body, stall_at=len(said("a")))) as player:
        assert asyncio.run(main(player.url)) < 20


def test_the_end_comes_last_even_if_the_server_stays() -> None:
    late = Script(body=said("a", "end", "b"))
    with playing(late) as player:
        assert answer(player) == ANSWER
    with playing(Script(body=GOOD.body, stall_at=len(GOOD.body))) as player:
        assert answer(player, timeouts=STALLED) == ANSWER
    with playing(Script(body=GOOD.body, cut_at=len(GOOD.body))) as player:
        assert answer(player) == ANSWER


def test_fifty_streams_share_a_transport_without_a_word_in_the_wrong_one() -> None:
    def echo(request: Request) -> Script:
        name = request.json()["options"]["name"]
        return Script(body=said(*(f"{name}-{n}" for n in range(20)), "end"), piece=11)

    async def main(url: str) -> None:
        async with Transport() as transport:
            streams = [
                heard(provider(url, transport), ask=Ask(messages=(), options={"name": name}))
                for name in range(50)
            ]
            for name, events in enumerate(await asyncio.gather(*streams)):
                assert events == [*(Text(f"{name}-{n}") for n in range(20)), Finished("stop")]

    with playing(echo) as player:
        asyncio.run(main(player.url))
        assert len(player.requests) == 50


def test_a_connection_is_used_again() -> None:
    async def main(url: str) -> None:
        async with Transport() as transport:
            for _ in range(5):
                assert await heard(provider(url, transport)) == ANSWER

    with playing(GOOD) as player:
        asyncio.run(main(player.url))
        assert (len(player.requests), player.connections) == (5, 1)


# What breaks


def test_a_cut_stream_keeps_what_came_and_says_so() -> None:
    for framing in ("chunked", "length", "close"):
        with playing(Script(body=GOOD.body, cut_at=len(said("a")) + 3, framing=framing)) as player:
            got, error = failure(player)
        assert got == [Text("a")]
        assert type(error) is StreamBroken
        assert len(player.requests) == 1


def test_a_stalled_stream_keeps_what_came_and_says_so() -> None:
    with playing(Script(body=GOOD.body, stall_at=len(said("a")))) as player:
        got, error = failure(player, timeouts=STALLED)
    assert got == [Text("a")]
    assert type(error) is StreamBroken
    assert "nothing came for 0.2 s" in str(error)


def test_a_stream_that_ends_without_its_end_is_broken() -> None:
    with playing(Script(body=said("a", "b"))) as player:
        got, error = failure(player)
    assert got == ANSWER[:2]
    assert type(error) is StreamBroken


def test_an_error_inside_the_stream_breaks_it_or_refuses_it() -> None:
    wrong = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    with playing(Script(body=said("a") + wrong)) as player:
        got, error = failure(player)
    assert (got, type(error), len(player.requests)) == ([Text("a")], StreamBroken, 1)
    with playing(Script(body=wrong), GOOD) as player:
        assert answer(player) == ANSWER
        assert len(player.requests) == 2


@pytest.mark.parametrize("script", [Script(silent=True), Script(body=b"x", stall_at=0)])
def test_a_server_that_does_not_begin_is_given_up_and_asked_again(script: Script) -> None:
    with playing(script) as player:
        got, error = failure(player, timeouts=HASTY, retries=Retries(attempts=2, base=0.0, most=0.0))
        assert player.wait_asked(2)
        assert len(player.requests) == 2
    assert not got
    assert isinstance(error, ProviderError)
    assert error.may_retry
    assert f"{player.url} did not begin to answer within 0.2 s" in str(error)


def test_a_server_that_hangs_up_before_it_answers_is_asked_again() -> None:
    for framing in ("chunked", "length"):
        with playing(Script(body=b"data", cut_at=2, framing=framing), GOOD) as player:
            assert answer(player) == ANSWER
            assert len(player.requests) == 2


def test_nobody_at_the_address_is_told_in_so_many_words() -> None:
    with playing(GOOD) as player:
        url = player.url
    with pytest.raises(ProviderError, match=f"nothing answers at {url}: is the server running?") as caught:
        asyncio.run(heard(provider(f"{url}/v1?key={SECRET}")))
    assert caught.value.may_retry


def test_tls_with_a_server_that_has_none_is_told() -> None:
    with playing(GOOD) as player:
        _, error = failure(_Elsewhere(player.url.replace("http:", "https:")), timeouts=Timeouts(connect=0.2))
    assert "https://127.0.0.1" in str(error)


class _Elsewhere(Player):
    def __init__(self, url: str) -> None:
        self.url = url


def test_no_redirect_is_followed() -> None:
    with playing(GOOD) as other:
        place = f"{other.url}/say?key={SECRET}"
        with playing(Script(status=307, headers={"location": place})) as player:
            _, error = failure(player)
            assert len(player.requests) == 1
        assert not other.requests
    assert f"redirects to {other.url}," in str(error)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (Script(body=b"<html><h1>Welcome</h1></html>", kind="text/html"), "not with a stream"),
        (Script(body=b"", kind=""), "(nothing)"),
        (sent_json({"choices": []}), "not with a stream"),
        (sent_json({"error": {"message": "no such engine"}}), "no such engine"),
    ],
)
def test_an_answer_that_is_no_stream_is_told(script: Script, words: str) -> None:
    with playing(script) as player:
        _, error = failure(player)
    assert words in str(error)


def test_leaving_a_stream_frees_its_connection() -> None:
    async def main(player: Player) -> None:
        async with Transport() as transport:
            task = asyncio.create_task(heard(provider(player.url, transport)))
            while not player.requests:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(player.wait_left)

    for script in (Script(body=GOOD.body, stall_at=12), Script(body=GOOD.body, delay=0.3, stall_at=0)):
        with playing(script) as player:
            asyncio.run(main(player))


def test_a_request_that_was_left_before_it_was_answered_does_not_stay_for_ever() -> None:
    async def main(player: Player) -> None:
        async with Transport() as transport:
            patient = Timeouts(connect=5.0, first=2.0, between=2.0)
            task = asyncio.create_task(heard(provider(player.url, transport, timeouts=patient)))
            while not player.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(player.wait_left)

    with playing(Script(silent=True)) as player:
        asyncio.run(main(player))


def test_breaking_out_of_a_stream_frees_its_connection() -> None:
    async def main(player: Player) -> None:
        async with Transport() as transport:
            async with aclosing(provider(player.url, transport).stream(ASK)) as events:
                assert await anext(events) == Text("a")
            assert await asyncio.to_thread(player.wait_left)

    with playing(Script(body=GOOD.body, stall_at=12)) as player:
        asyncio.run(main(player))


# Trying again


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(status: int) -> None:
    with playing(
        sent_json({"error": {"message": "later"}}, status, headers={"retry-after": "0"}), GOOD
    ) as player:
        assert answer(player) == ANSWER
        assert len(player.requests) == 2
        assert player.requests[0].body == player.requests[1].body


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    with playing(sent_json({"error": {"message": "never", "code": "bad"}}, status), GOOD) as player:
        _, error = failure(player)
        assert len(player.requests) == 1
    assert isinstance(error, ProviderError)
    assert (error.status, error.code, error.may_retry) == (status, "bad", False)
    assert "never" in str(error)


def test_an_empty_purse_is_not_tried_again() -> None:
    with playing(sent_json({"error": {"message": "x", "code": "insufficient_quota"}}, 429), GOOD) as player:
        _, error = failure(player)
        assert len(player.requests) == 1
    assert isinstance(error, ProviderError)
    assert error.code == "insufficient_quota"


def test_tries_end() -> None:
    with playing(Script(status=500, body=b"oh")) as player:
        _, error = failure(player)
        assert len(player.requests) == 3
    assert str(error) == "the provider failed (500: oh)"


def test_the_wait_that_the_provider_asks_for_is_kept() -> None:
    with playing(sent_json({}, 429, headers={"retry-after-ms": "300"}), GOOD) as player:
        started = time.monotonic()
        assert answer(player) == ANSWER
        assert time.monotonic() - started >= 0.3
    with playing(sent_json({}, 429, headers={"retry-after": "3600"})) as player:
        _, error = failure(player)
        assert len(player.requests) == 1
    assert isinstance(error, ProviderError)
    assert error.retry_after == 3600


def test_waits_grow_are_spread_and_end() -> None:
    rng = random.Random(1)  # noqa: S311 - seeded
    passing = ProviderError("later", may_retry=True)
    retries = Retries(attempts=10, base=1.0, most=8.0)
    for attempt, most in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (9, 8.0)):
        waits = [delay(passing, attempt, rng, retries) for _ in range(500)]
        known = [wait for wait in waits if wait is not None]
        assert len(known) == 500
        assert 0 <= min(known) < 0.1 * most < 0.9 * most < max(known) <= most
    assert delay(passing, 10, rng, retries) is None
    for final in (ProviderError("no"), StreamBroken("cut", may_retry=True), ContextOverflowError(2, 1)):
        assert delay(final, 1, rng, retries) is None
    asked = ProviderError("later", may_retry=True, retry_after=8.0)
    assert delay(asked, 1, rng, retries) == 8.0
    assert delay(ProviderError("x", may_retry=True, retry_after=8.1), 1, rng, retries) is None


def test_waits_are_read_in_each_form() -> None:
    now = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT
    assert read_wait({"retry-after": "7"}, now) == 7
    assert read_wait({"retry-after": "1.5"}, now) == 1.5
    assert read_wait({"retry-after-ms": "1500", "retry-after": "7"}, now) == 1.5
    assert read_wait({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, now) == 30
    assert read_wait({"retry-after": "Wed, 21 Oct 2015 07:27:30 GMT"}, now) == 0
    for nonsense in ("", "soon", "-1", "nan", "inf"):
        assert read_wait({"retry-after": nonsense}, now) is None
    assert read_wait({}, now) is None
    assert may_retry(500, None, {"x-should-retry": "false"}) is False
    assert may_retry(400, None, {"x-should-retry": "true"}) is True


# Refusals


OVERFLOWS: list[tuple[str, int, Any, tuple[int, int, int | None]]] = [
    ("openai", 400, {"error": {"message": "This model's maximum context length is 128000 tokens. "
     "However, your "
     "messages resulted in 204308 tokens. Please reduce the length of the messages.",
     "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}},
     (204308, 128000, 204308)),
    ("openai with output", 400, {"error": {"message": "This model's maximum context length is 4097 "
     "tokens. However, "
     "you requested 4120 tokens (3120 in the messages, 1000 in the completion). Please reduce the length.",
     "code": "context_length_exceeded"}}, (4120, 4097, 3120)),
    ("openai responses", 400, {"error": {"message": "Your input exceeds the context window of this "
     "model. Please "
     "adjust your input and try again.", "code": "context_length_exceeded", "param": "input"}}, (0, 0, None)),
    ("responses failed", 0, {"type": "response.failed", "response": {"status": "failed", "error": {
     "code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}}},
     (0, 0, None)),
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error",
     "message": "prompt is too long: 208310 tokens > 200000 maximum"}}, (208310, 200000, 208310)),
    ("anthropic with output", 400, {"type": "error", "error": {"type": "invalid_request_error",
     "message": "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input "
     "length or `max_tokens` and try again"}}, (242959, 200000, 178959)),
    ("llama.cpp", 400, {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 700,
     "n_ctx": 512, "message": "the request exceeds the available context size"}}, (700, 512, 700)),
    ("localai", 500, {"error": {"code": 500, "message": "request (61234 tokens) exceeds the "
     "available context "
     "size (32768)"}}, (61234, 32768, 61234)),
    ("vllm, older", 400, {"object": "error", "message": "This model's maximum context length is "
     "16384 tokens. "
     "However, you requested 122946 tokens (112946 in the messages, 10000 in the completion).",
     "type": "BadRequestError", "param": None, "code": 400}, (122946, 16384, 112946)),
    ("vllm", 400, {"error": {"message": "You passed 170753 input tokens and requested 32000 output "
     "tokens. However, "
     "the model's context length is only 202752 tokens, resulting in a maximum input length of "
     "170752 tokens."}},
     (202753, 202752, 170753)),
    ("openrouter", 400, {"error": {"message": "This endpoint's maximum context length is 204800 "
     "tokens. However, you "
     "requested about 626524 tokens (585543 of text input, 8981 of tool input, 32000 in the output).",
     "code": 400, "metadata": {"provider_name": None}}}, (626524, 204800, None)),
    ("openrouter, upstream", 400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {
     "raw": '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: '
     '5 tokens > 4 '
     'maximum"}}', "provider_name": "Anthropic"}}}, (5, 4, 5)),
    ("gemini", 400, [{"error": {"code": 400, "message": "The input token count (1200293) exceeds "
     "the maximum number "
     "of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}}], (1200293, 1048576, 1200293)),
    ("ollama", 400, {"error": "input length exceeds the context length"}, (0, 0, None)),
    ("tgi", 422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= "
     "4096. Given: 4000 "
     "`inputs` tokens and 500 `max_new_tokens`", "error_type": "validation"}, (4500, 4096, 4000)),
    ("a text in a text", 400, {"error": {"message": "Error from provider: "
     "{\"error\":{\"message\":\"prompt is too "
     "long: 9 tokens > 8 maximum\"}}", "type": "api_error"}}, (9, 8, 9)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "figures"), [row[1:] for row in OVERFLOWS], ids=[r[0] for r in OVERFLOWS]
)
def test_each_providers_overflow_is_ours(
    status: int, body: Any, figures: tuple[int, int, int | None]
) -> None:
    for form in (body, orjson.dumps(body), orjson.dumps(body).decode()):
        error = refusal(status or None, form)
        assert isinstance(error, ContextOverflowError)
        assert (error.tokens, error.limit, error.reported) == figures
        assert " 0 " not in str(error)


def test_an_overflow_is_raised_once_and_not_tried_again() -> None:
    with playing(sent_json(OVERFLOWS[0][2], 400)) as player:
        _, error = failure(player)
        assert len(player.requests) == 1
    assert isinstance(error, ContextOverflowError)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"error": {"message": "Limit 6000, requested 7000: maximum context length is 5 "
     "tokens. However, you "
         "requested 9 tokens", "code": "rate_limit_exceeded"}}),
        (400, {"error": {"message": "max_tokens is too large"}}),
        (413, {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
        (400, {"error": {"n_prompt_tokens": "many", "n_ctx": -1, "message": "odd"}}),
        (400, {"error": {"n_prompt_tokens": 10**30, "n_ctx": True, "message": "odd"}}),
    ],
)  # fmt: skip
def test_what_only_looks_like_an_overflow_is_none(status: int, body: Any) -> None:
    assert type(refusal(status, body)) is ProviderError


@pytest.mark.parametrize(
    "body", [None, b"", "", 7, [], {}, {"error": None}, b"\xff\x00", "<html>x</html>", [[]]]
)
def test_any_body_gives_an_error_with_words(body: Any) -> None:
    for status in (None, 400, 500, 999):
        error = refusal(status, body)
        assert type(error) is ProviderError
        assert str(error)


def test_a_refused_key_is_named_by_its_source() -> None:
    told = {
        "error": {
            "message": f"Incorrect API key provided: {SECRET} or sk-ab****yz.",
            "code": "invalid_api_key",
        }
    }
    for status in (401, 403):
        error = refusal(status, told, key=KEY)
        assert "from THE_VARIABLE" in str(error)
        assert SECRET not in str(error)
        assert "sk-ab" not in str(error)
    assert "none was given" in str(refusal(401, {}))


def test_a_foreign_text_is_bounded_and_harmless() -> None:
    text = str(refusal(400, {"error": {"message": "a\x1b[31m\n\u202e" + "b" * 10_000}}))
    assert len(text) < 600
    assert text.isprintable()


# The transport


def test_json_gives_the_status_and_the_value() -> None:
    async def main(url: str) -> list[tuple[int, Any]]:
        async with Transport() as transport:
            return [
                await transport.json("GET", url, {}),
                await transport.json("POST", url, {}, {"a": 1}),
                await transport.json("GET", url, {}),
            ]

    with playing(sent_json({"x": 1}), sent_json([2], 404), Script(body=b"no")) as player:
        assert asyncio.run(main(player.url)) == [(200, {"x": 1}), (404, [2]), (200, None)]
        get, post, _ = player.requests
    assert (get.method, get.body, post.json()) == ("GET", b"", {"a": 1})
    assert post.headers["content-type"] == "application/json"


@pytest.mark.parametrize("script", [Script(silent=True), Script(body=b"x" * 1_000, piece=1, pause=0.05)])
def test_json_ends_in_time(script: Script) -> None:
    async def main(url: str) -> None:
        async with Transport() as transport:
            await transport.json("GET", url, {}, timeout=0.2)

    with playing(script) as player:
        started = time.monotonic()
        with pytest.raises(ProviderError, match=r"within 0\.2 s"):
            asyncio.run(main(player.url))
        assert time.monotonic() - started < 20


def test_a_reply_is_read_up_to_the_limit() -> None:
    async def main(url: str) -> bytes:
        async with Transport() as transport, transport.post(url, {}, b"", QUICK) as reply:
            return await reply.read(1000)

    with playing(Script(body=b"x" * 1_000_000)) as player:
        assert asyncio.run(main(player.url)) == b"x" * 1000


def test_a_proxy_is_used_for_other_machines_and_not_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with playing(GOOD) as proxy, playing(GOOD) as player:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        assert answer(player) == ANSWER
        assert not proxy.requests
        assert asyncio.run(heard(provider("http://model.example/v1"))) == ANSWER
        assert proxy.requests[0].path == "http://model.example/v1/say"


def test_a_transport_works_only_where_it_is_open() -> None:
    async def ask(transport: Transport) -> None:
        await transport.json("GET", "http://127.0.0.1:1", {})

    async def closed() -> None:
        async with Transport() as transport:
            pass
        await ask(transport)

    for use in (ask(Transport()), closed()):
        with pytest.raises(ConfigurationError, match="open another one here"):
            asyncio.run(use)


@pytest.mark.parametrize("url", ["nonsense", "", "http://", "http://[::1", "/path", "ftp:x"])
def test_an_address_that_is_none_is_a_configuration_error(url: str) -> None:
    with pytest.raises(UllageError):
        asyncio.run(heard(provider(url)))


def test_an_address_is_shown_without_secrets() -> None:
    assert address(f"https://me:{SECRET}@host.example:8443/v1?key={SECRET}#x") == "https://host.example:8443"
    assert address("http://[::1]:80/x") == "http://[::1]:80"
    assert provider(f"https://me:{SECRET}@host/v1?key={SECRET}").target.endpoint == "https://host/v1"


def test_an_unknown_api_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="use one of"):
        RemoteProvider(Endpoint(url="http://x", model="m", api="telepathy"))


def test_what_cannot_be_written_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest):
        asyncio.run(heard(provider("http://127.0.0.1:1"), ask=Ask(messages=(), options={"x": "\ud800"})))


# Secrets


TROUBLES: dict[str, Callable[[str], Script]] = {
    "echo": lambda _: sent_json({"error": {"message": f"bad {SECRET}", "code": SECRET}}, 400),
    "echo in text": lambda _: Script(status=500, body=f"Authorization: Bearer {SECRET}".encode()),
    "page": lambda _: Script(body=f"<p>{SECRET}</p>".encode()),
    "silent": lambda _: Script(silent=True),
    "cut": lambda _: Script(body=GOOD.body, cut_at=14),
    "redirect": lambda _: Script(status=302, headers={"location": f"http://x/?key={SECRET}"}),
    "in the stream": lambda _: Script(body=f'event: error\ndata: {{"error": "{SECRET}"}}\n\n'.encode()),
    "good": lambda _: GOOD,
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_nothing_that_a_run_leaves_behind_has_the_key(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    left = []
    with playing(TROUBLES[trouble]("")) as player:
        url = player.url.replace("//", f"//me:{SECRET}@") + f"/v1?key={SECRET}"
        one = provider(url, timeouts=HASTY, retries=Retries(attempts=2, base=0.0))
        try:
            asyncio.run(heard(one))
        except UllageError as error:
            seen: BaseException | None = error
            while seen is not None:
                left += [str(seen), repr(seen), repr(vars(seen)), "".join(traceback.format_exception(seen))]
                seen = seen.__cause__ or seen.__context__
    left += [repr(one), repr(KEY), repr(one.target), caplog.text]
    gc.collect()
    assert SECRET not in "\n".join(left)


def test_an_endpoint_shows_neither_headers_nor_credentials() -> None:
    endpoint = Endpoint(
        url="https://user:hunter2@example.org/v1?token=hunter3",
        model="m",
        key=Key("hunter4"),
        headers={"Authorization": "Bearer hunter5"},
    )
    assert "hunter" not in repr(endpoint)
    assert "example.org/v1" in repr(endpoint)


@pytest.mark.parametrize("before", range(3_960, 4_001, 5))
def test_a_key_is_taken_out_before_a_text_is_cut(before: int) -> None:
    secret = "-".join(("harbour", "Zq81xKp04LmWv77Q"))
    for most in (80, 500):
        for key in (Key(secret), None):
            text = " " * (8 * most - (4_000 - before)) + (secret if key else f"sk-{secret}") + " is wrong"
            shown = clean(text, key, most)
            assert "harbour-" not in shown
            assert "sk-" not in shown
