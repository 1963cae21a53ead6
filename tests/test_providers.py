"""Every provider goes through the same suite: its recorded bytes, played well and badly by a real server."""

from __future__ import annotations

import asyncio
import json
import traceback
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from tests.player import Player, Script, playing, sent_json
from tests.test_dialects import (
    ANTHROPIC,
    CHAT,
    ERRORS,
    OLLAMA,
    RESPONSES,
    STREAMS,
    said,
    text_of,
    until_error,
)
from tests.test_dialects import recorded as recording
from ullage.broker.ask import Ask
from ullage.broker.endpoint import Endpoint, Key, Timeouts
from ullage.broker.events import Event, Finished, Reasoning, Text, ToolCall, Used
from ullage.broker.remote import RemoteProvider
from ullage.broker.retry import Retries
from ullage.context import Context
from ullage.cost import Ledger
from ullage.errors import ContextOverflowError, ProviderError, StreamBroken, UllageError
from ullage.target import Target
from ullage.turn import Client, Settled, TurnEvent
from ullage.wire.api import MOST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.enable_socket

SECRET = "verysecret0123456789"  # noqa: S105 - no key of anything
KEY = Key(SECRET, "THE_VARIABLE")
QUICK = Timeouts(connect=30.0, first=30.0, between=30.0)
HASTY = Timeouts(connect=30.0, first=0.5, between=30.0, begin=60.0)
SLOW_AT_FIRST = Timeouts(connect=30.0, first=1.0, begin=60.0)
STALLED = Timeouts(connect=30.0, first=30.0, between=0.1)
AT_ONCE = Retries(attempts=3, base=0.0, most=1.0)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK = Ask(
    messages=(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "The weather in Zürich and Oslo?"},
    ),
    tools=(WEATHER,),
    max_output=100,
)


# What each provider says when something is wrong


def openai_error(message: str, kind: str, code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic_error(message: str, kind: str, _: Any = None) -> dict[str, Any]:
    error = {"details": None, "type": kind, "message": message}
    return {"type": "error", "error": error, "request_id": "req_1"}


def openrouter_error(message: str, _: str, code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "metadata": {"provider_name": None}}, "user_id": "u"}


def llama_error(message: str, kind: str, code: Any = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "type": kind}}


def ollama_error(message: str, _: str, __: Any = None) -> dict[str, Any]:
    return {"error": message}


# An overflow as each one tells it, from the prompt's tokens and the limit


def openai_overflow(told: int, limit: int) -> Script:
    text = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {told} "
        "tokens. Please reduce the length of the messages."
    )
    return sent_json(openai_error(text, "invalid_request_error", "context_length_exceeded"), 400)


def vllm_overflow(told: int, limit: int) -> Script:
    text = (
        f"This model's maximum context length is {limit} tokens. However, you requested {told + 100} tokens "
        f"({told} in the messages, 100 in the completion). Please reduce the length of the messages."
    )
    return sent_json(openai_error(text, "BadRequestError", 400), 400)


def llama_overflow(told: int, limit: int) -> Script:
    text = f"request ({told} tokens) exceeds the available context size ({limit} tokens), try increasing it"
    body = llama_error(text, "exceed_context_size_error", 400)
    body["error"] |= {"n_prompt_tokens": told, "n_ctx": limit}
    return sent_json(body, 400)


def openrouter_overflow(told: int, limit: int) -> Script:
    text = (
        f"This endpoint's maximum context length is {limit} tokens. However, you requested about {told} "
        f"tokens ({told - 20} of text input, 20 of tool input). Please reduce the length of either one."
    )
    return sent_json(openrouter_error(text, "", 400), 400)


def anthropic_overflow(told: int, limit: int) -> Script:
    text = f"prompt is too long: {told} tokens > {limit} maximum"
    return sent_json(anthropic_error(text, "invalid_request_error"), 400)


def responses_overflow(_: int, __: int) -> Script:
    """This one comes as a stream, and has no figures."""
    text = "Your input exceeds the context window of this model. Please adjust your input and try again."
    opening = recording("responses_failed.sse").split(b"\n\n")[:2]
    code = "context_length_exceeded"
    error = {"type": "invalid_request_error", "code": code, "message": text, "param": "input"}
    event = {"type": "error", "sequence_number": 2, "error": error}
    body = b"\n\n".join([*opening, b"event: error\ndata: " + json.dumps(event).encode(), b""])
    return Script(body=body)


def ollama_overflow(_: int, __: int) -> Script:
    return sent_json({"error": "the input length exceeds the context length"}, 400)


@dataclass(frozen=True)
class Row:
    """One provider, and what is its own."""

    api: str
    model: str
    stream: str
    """The recorded answer."""
    path: str
    error: Callable[..., dict[str, Any]]
    overflow: Callable[[int, int], Script]
    figures: tuple[int, int, int | None]
    """What an overflow of 900 tokens against 600 comes to: the tokens, the limit, the prompt's own count."""
    broken: str = ""
    """The recorded answer with an error in it; without one it is made from the good answer."""
    local: bool = False

    @cached_property
    def body(self) -> bytes:
        return recording(self.stream)

    @property
    def kind(self) -> str:
        return "application/x-ndjson" if self.api == OLLAMA else "text/event-stream"

    def script(self, **more: Any) -> Script:
        return Script(**{"body": self.body, "kind": self.kind, **more})

    @cached_property
    def middle(self) -> int:
        """Where a part of the text has come, and a frame is cut in two."""
        ends = [at + 1 for at, byte in enumerate(self.body) if byte == ord("\n")]
        return 12 + next(end for end in ends if text_of(until_error(self.api, self.body[:end])[0]))

    @property
    def failing(self) -> tuple[bytes, str, str]:
        """An answer with an error in it, the text before that, and what the error tells."""
        if self.broken:
            return recording(self.broken), *ERRORS[self.broken][1:]
        start = self.body[: self.middle - 12]
        error = json.dumps(self.error("something gave way", "server_error", 500)).encode()
        before = text_of(until_error(self.api, start)[0])
        return start.rstrip() + b"\n\ndata: " + error + b"\n\n", before, "something gave way"


ROWS = {
    "openai": Row(
        CHAT,
        "gpt-4o",
        "openai_chat_tools.sse",
        "/v1/chat/completions",
        openai_error,
        openai_overflow,
        (900, 600, 900),
    ),
    "llama.cpp": Row(
        CHAT,
        "default",
        "llamacpp_captured_chat.sse",
        "/v1/chat/completions",
        llama_error,
        llama_overflow,
        (900, 600, 900),
        local=True,
    ),
    "vllm": Row(
        CHAT,
        "Qwen/Qwen3-8B",
        "vllm_weather.sse",
        "/v1/chat/completions",
        openai_error,
        vllm_overflow,
        (1000, 600, 900),
        local=True,
    ),
    "openrouter": Row(
        CHAT,
        "anthropic/claude-sonnet-4.5",
        "openrouter_text.sse",
        "/v1/chat/completions",
        openrouter_error,
        openrouter_overflow,
        (900, 600, None),
        "openrouter_error.sse",
    ),
    "responses": Row(
        RESPONSES,
        "gpt-5",
        "responses_weather.sse",
        "/v1/responses",
        openai_error,
        responses_overflow,
        (0, 0, None),
        "responses_failed.sse",
    ),
    "anthropic": Row(
        ANTHROPIC,
        "claude-sonnet-4-5",
        "anthropic_weather.sse",
        "/v1/messages",
        anthropic_error,
        anthropic_overflow,
        (900, 600, 900),
        "anthropic_overloaded.sse",
    ),
    "ollama": Row(
        OLLAMA,
        "qwen3:8b",
        "ollama_weather.ndjson",
        "/api/chat",
        ollama_error,
        ollama_overflow,
        (0, 0, None),
        "ollama_error.ndjson",
        local=True,
    ),
}


@pytest.fixture(params=ROWS)
def row(request: pytest.FixtureRequest) -> Row:
    return ROWS[request.param]


def provider(row: Row, url: str, timeouts: Timeouts = QUICK, retries: Retries = AT_ONCE) -> RemoteProvider:
    base = url if row.api == OLLAMA else f"{url}/v1"
    endpoint = Endpoint(url=base, model=row.model, api=row.api, key=KEY, timeouts=timeouts, local=row.local)
    return RemoteProvider(endpoint, None, retries)


def asked(row: Row, player: Player, **more: Any) -> tuple[list[Event], UllageError | None]:
    """What comes of one request, and the error that it ends in."""
    ((got, error),) = asked_often(row, player, 1, **more)
    return got, error


def asked_often(
    row: Row, player: Player, times: int, **more: Any
) -> list[tuple[list[Event], UllageError | None]]:
    """The same of several requests, one after the other."""
    results: list[tuple[list[Event], UllageError | None]] = []

    async def ask(source: RemoteProvider) -> tuple[list[Event], UllageError | None]:
        got: list[Event] = []
        try:
            async with aclosing(source.stream(ASK)) as events:
                async for event in events:
                    got.append(event)  # noqa: PERF401 - what came before an error is kept
        except UllageError as error:
            return got, error
        return got, None

    async def main() -> None:
        source = provider(row, player.url, **more)
        try:
            for _ in range(times):
                results.append(await ask(source))  # noqa: PERF401 - the same
        finally:
            await source.close()

    asyncio.run(main())
    return results


def answer(row: Row, player: Player, **more: Any) -> list[Event]:
    got, error = asked(row, player, **more)
    assert error is None
    return got


def whole(row: Row) -> list[Event]:
    """The events of the recorded answer, the way the network does not come into it."""
    return until_error(row.api, row.body)[0]


# The answer


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_the_answer_comes_whole(row: Row, framing: str) -> None:
    with playing(row.script(framing=framing)) as player:
        got = answer(row, player)
    assert said(got) == STREAMS[row.stream][1]


def test_the_answer_comes_byte_by_byte(row: Row) -> None:
    with playing(row.script(piece=1)) as player:
        assert answer(row, player) == whole(row)


def test_a_cut_hands_on_what_came_and_says_so(row: Row) -> None:
    with playing(row.script(cut_at=row.middle)) as player:
        got, error = asked(row, player)
        assert len(player.requests) == 1
    assert isinstance(error, StreamBroken)
    assert got
    assert got == whole(row)[: len(got)]
    assert text_of(got)


def test_an_end_that_comes_too_early_is_a_cut(row: Row) -> None:
    with playing(row.script(body=row.body[: row.middle])) as player:
        got, error = asked(row, player)
    assert isinstance(error, StreamBroken)
    assert got == whole(row)[: len(got)]


def test_nothing_at_all_is_waited_for_only_so_long(row: Row) -> None:
    for script in (row.script(silent=True), row.script(stall_at=0)):
        with playing(script) as player:
            got, error = asked(row, player, timeouts=HASTY, retries=Retries(attempts=1))
        assert got == []
        assert isinstance(error, ProviderError)
        assert not isinstance(error, StreamBroken)
        assert error.code == "timeout"
        assert error.may_retry


def test_a_stall_in_the_middle_is_a_broken_stream(row: Row) -> None:
    with playing(row.script(stall_at=row.middle)) as player:
        got, error = asked(row, player, timeouts=STALLED)
        assert player.wait_left()
    assert isinstance(error, StreamBroken)
    assert error.code == "timeout"
    assert text_of(got)


def test_a_stall_before_the_answer_is_tried_again(row: Row) -> None:
    with playing(row.script(silent=True), row.script()) as player:
        assert answer(row, player, timeouts=SLOW_AT_FIRST) == whole(row)


# Refusals


def test_slow_down_is_obeyed(row: Row) -> None:
    busy = sent_json(row.error("slow down", "rate_limit_error", 429), 429, headers={"retry-after": "0.1"})
    with playing(busy, row.script()) as player:
        assert answer(row, player, retries=Retries(attempts=2, base=0.0, most=1.0)) == whole(row)
        assert len(player.requests) == 2
        assert player.requests[0].body == player.requests[1].body


def test_a_wait_that_is_too_long_is_told_and_not_waited_for(row: Row) -> None:
    busy = sent_json(row.error("slow down", "rate_limit_error", 429), 429, headers={"retry-after": "3600"})
    with playing(busy) as player:
        _, error = asked(row, player)
    assert isinstance(error, ProviderError)
    assert (error.status, error.retry_after, error.may_retry) == (429, 3600.0, True)


@pytest.mark.parametrize("status", [500, 503, 529])
def test_a_failure_of_theirs_passes(row: Row, status: int) -> None:
    failure = sent_json(row.error("overloaded", "overloaded_error", status), status)
    with playing(failure, failure, row.script()) as player:
        assert answer(row, player) == whole(row)
        assert len(player.requests) == 3


def test_a_failure_that_stays_is_raised_with_their_words(row: Row) -> None:
    with playing(sent_json(row.error("the tide is out", "server_error", 500), 500)) as player:
        got, error = asked(row, player)
        assert len(player.requests) == AT_ONCE.attempts
    assert got == []
    assert isinstance(error, ProviderError)
    assert error.status == 500
    assert "the tide is out" in str(error)


def test_a_key_that_is_refused_is_named_and_not_shown(row: Row) -> None:
    refused = sent_json(row.error(f"wrong key: {SECRET}", "authentication_error", 401), 401)
    with playing(refused) as player:
        _, error = asked(row, player)
        assert len(player.requests) == 1
    assert isinstance(error, ProviderError)
    assert error.status == 401
    assert "THE_VARIABLE" in str(error)
    shown = "".join(traceback.format_exception(error)) + repr(vars(error))
    assert SECRET not in shown


def test_an_overflow_is_one_error_with_the_figures(row: Row) -> None:
    with playing(row.overflow(900, 600)) as player:
        got, error = asked(row, player)
        assert len(player.requests) == 1
    assert got == []
    assert isinstance(error, ContextOverflowError)
    assert (error.tokens, error.limit, error.reported) == row.figures


def test_an_error_in_the_stream_comes_after_what_had_come(row: Row) -> None:
    body, before, told = row.failing
    with playing(row.script(body=body)) as player:
        got, error = asked(row, player)
        assert len(player.requests) == 1
    assert isinstance(error, StreamBroken)
    assert told in str(error)
    assert text_of(got) == before
    assert not any(isinstance(event, Finished) for event in got)


FIRST_ERRORS = {
    "openai": b'data: {"error":{"message":"gone","type":"server_error","param":null,"code":null}}\n\n',
    "llama.cpp": b'data: {"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}\n\n',
    "vllm": b'data: {"error":{"message":"gone","type":"InternalServerError","param":null,"code":500}}\n\n',
    "openrouter": b': OPENROUTER PROCESSING\n\ndata: {"error":{"code":502,"message":"gone"}}\n\n',
    "responses": b'event: error\ndata: {"type":"error","sequence_number":0,"error":{"type":"server_error",'
    b'"code":"server_error","message":"gone","param":null}}\n\n',
    "anthropic": b'event: error\ndata: {"type":"error","error":{"details":null,"type":"overloaded_error",'
    b'"message":"Overloaded"}}\n\n',
}


@pytest.mark.parametrize("name", FIRST_ERRORS)
def test_an_error_at_the_beginning_of_the_stream_is_tried_again(name: str) -> None:
    row = ROWS[name]
    with playing(row.script(body=FIRST_ERRORS[name]), row.script()) as player:
        assert answer(row, player) == whole(row)
        assert len(player.requests) == 2


# Usage that cannot be true


def with_usage(row: Row, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The recorded answer with every usage in it changed."""

    def walk(value: Any) -> None:
        for name, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if name in {"usage", "timings"} and isinstance(inner, dict):
                change(inner)
            elif isinstance(inner, dict | list):
                walk(inner)

    def changed(line: bytes) -> bytes:
        start, brace, rest = line.partition(b"{")
        if not brace or start not in {b"", b"data: "}:
            return line
        value = json.loads(brace + rest)
        walk(value)
        if "prompt_eval_count" in value:
            counts = {name: value.pop(name) for name in ("prompt_eval_count", "eval_count")}
            change(counts)
            value |= counts
        return start + json.dumps(value, ensure_ascii=False).encode()

    return b"\n".join(changed(line) for line in row.body.split(b"\n"))


def put(value: Any) -> Callable[[dict[str, Any]], None]:
    def change(usage: dict[str, Any]) -> None:
        usage.update(dict.fromkeys(usage, value))

    return change


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "negative": put(-5),
    "text": put("many"),
    "null": put(None),
    "list": put([1]),
    "huge": put(10**30),
    "fraction": put(1.5),
    "missing": dict.clear,
}


def test_wrong_usage_breaks_nothing_and_is_never_absurd(row: Row) -> None:
    scripts = [row.script(body=with_usage(row, change)) for change in CHANGES.values()]
    expected = [event for event in whole(row) if not isinstance(event, Used)]
    with playing(*scripts) as player:
        results = asked_often(row, player, len(scripts))
    for got, error in results:
        assert error is None
        assert [event for event in got if not isinstance(event, Used)] == expected
        for event in got:
            if isinstance(event, Used):
                usage = event.usage
                parts = (usage.cached_read, usage.cache_write, usage.reasoning)
                assert all(0 <= count <= MOST_TOKENS for count in (usage.prompt, usage.completion, *parts))


# The request


def test_the_request_is_what_the_api_wants(row: Row) -> None:
    with playing(row.script()) as player:
        answer(row, player)
        (request,) = player.requests
    body, headers = request.json(), request.headers
    assert (request.method, request.path) == ("POST", row.path)
    assert headers["content-type"] == "application/json"
    assert body["model"] == row.model
    assert body["stream"] is True
    if row.api == ANTHROPIC:
        assert headers["x-api-key"] == SECRET
        assert headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in headers
        assert body["system"]
        assert body["max_tokens"] == 100
        assert body["tools"][0]["input_schema"]["required"] == ["city"]
    else:
        assert headers["authorization"] == f"Bearer {SECRET}"
        assert "x-api-key" not in headers
    if row.api == CHAT:
        assert body["stream_options"] == {"include_usage": True}
        assert body["max_tokens"] == 100
        assert body["tools"] == [WEATHER]
    if row.api == RESPONSES:
        assert body["store"] is False
        assert body["max_output_tokens"] == 100
        assert body["tools"][0]["name"] == "get_weather"
        assert "messages" not in body
    if row.api == OLLAMA:
        assert body["truncate"] is False
        assert body["options"] == {"num_predict": 100}
        assert body["tools"] == [WEATHER]
    assert SECRET not in request.body.decode()


# The same through a turn: context, ledger, calibration


def conversation(row: Row) -> Context:
    target = Target(model=row.model, api=row.api, endpoint="http://127.0.0.1" if row.local else "")
    context = Context(model=target, token_budget=600, system_prompt="Be brief.")
    for number in range(20):
        context.append_user(f"Question {number}. " + "word " * 20)
        context.append({"role": "assistant", "content": "Answer. " + "more " * 20})
    context.append_user("The weather in Zürich and Oslo?")
    return context


@dataclass
class Turn:
    """What a turn left behind."""

    events: list[TurnEvent]
    error: BaseException | None
    context: Context
    ledger: Ledger
    turns: int
    """How many turns there were before."""

    @property
    def kept(self) -> str | None:
        """The text that was appended; None where nothing was."""
        if len(self.context) == self.turns:
            return None
        return self.context.turns[-1]["content"] or ""


def turn(row: Row, player: Player, *, stop_after: int | None = None, **more: Any) -> Turn:
    context, ledger = conversation(row), Ledger(cap_at_dollars=1)
    left = Turn([], None, context, ledger, len(context))

    async def main() -> None:
        source = provider(row, player.url, **more)
        client = Client(source, ledger=ledger, max_output=100, local=row.local)
        try:
            async with aclosing(client.stream(context)) as events:  # type: ignore[type-var]
                async for event in events:
                    left.events.append(event)
                    if len(left.events) == stop_after:
                        break
        finally:
            await source.close()

    try:
        asyncio.run(main())
    except UllageError as error:
        left.error = error
    return left


def settled(left: Turn, row: Row, *, paid: bool) -> None:
    """Nothing is held, and only what was answered was paid for."""
    spent, held = left.ledger.used()
    assert held == 0
    assert (spent > 0) == (paid and not row.local)


def test_a_turn_keeps_the_answer_and_is_settled(row: Row) -> None:
    with playing(row.script()) as player:
        left = turn(row, player)
    *events, last = left.events
    expected = STREAMS[row.stream][1]
    assert events == whole(row)
    assert isinstance(last, Settled)
    assert not last.estimated
    assert last.usage == expected.usage
    assert left.kept == expected.text
    calls = [event.id for event in events if isinstance(event, ToolCall)]
    assert left.context.waiting == tuple(calls)
    assert len(calls) == len(expected.calls)
    settled(left, row, paid=True)


def test_a_turn_that_is_cut_or_stalls_keeps_what_came(row: Row) -> None:
    for script in (row.script(cut_at=row.middle), row.script(stall_at=row.middle)):
        with playing(script) as player:
            left = turn(row, player, timeouts=STALLED)
        assert isinstance(left.error, StreamBroken)
        assert left.kept
        assert left.kept == text_of([event for event in left.events if not isinstance(event, Settled)])
        assert left.context.waiting == ()
        settled(left, row, paid=True)


def test_a_turn_with_an_error_in_the_stream_keeps_what_came(row: Row) -> None:
    body, before, _ = row.failing
    with playing(row.script(body=body)) as player:
        left = turn(row, player)
    assert isinstance(left.error, StreamBroken)
    assert left.kept == before
    settled(left, row, paid=True)


def test_a_turn_that_is_refused_leaves_all_as_it_was(row: Row) -> None:
    scripts = (
        sent_json(row.error("no", "authentication_error", 401), 401),
        sent_json(row.error("down", "server_error", 500), 500),
    )
    for script in scripts:
        with playing(script) as player:
            left = turn(row, player, retries=Retries(attempts=1))
        assert isinstance(left.error, ProviderError)
        assert not isinstance(left.error, StreamBroken)
        assert left.events == []
        assert left.kept is None
        settled(left, row, paid=False)


def test_a_turn_that_is_given_up_without_an_answer_is_booked_as_a_cancelled_one(row: Row) -> None:
    for script in (row.script(silent=True), row.script(stall_at=0)):
        with playing(script) as player:
            left = turn(row, player, timeouts=HASTY, retries=Retries(attempts=2, base=0.0))
            assert player.wait_asked(2)
            assert len(player.requests) == 2
        assert isinstance(left.error, ProviderError)
        assert left.error.sent
        assert left.kept is None
        settled(left, row, paid=True)
        (slot,) = left.context.meter.slots.values()
        assert (slot.calls, slot.completion, slot.estimated_calls) == (1, 0, 1)
        assert slot.prompt == slot.estimate


def test_a_turn_that_is_tried_again_is_paid_for_once(row: Row) -> None:
    busy = sent_json(row.error("slow down", "rate_limit_error", 429), 429, headers={"retry-after": "0"})
    with playing(row.script()) as player:
        once = turn(row, player)
    with playing(busy, sent_json(row.error("down", "server_error", 500), 500), row.script()) as player:
        left = turn(row, player)
    assert left.error is None
    assert left.kept == once.kept
    assert left.ledger.used() == once.ledger.used()


def test_a_turn_that_is_too_long_is_refitted_and_sent_again(row: Row) -> None:
    with playing(row.overflow(900, 600), row.script()) as player:
        left = turn(row, player)
        first, second = player.requests
    if row.figures[-1] is not None:  # else all that is learned is that it is more than was thought
        assert len(second.body) < len(first.body)
    assert left.error is None
    assert left.kept == STREAMS[row.stream][1].text
    settled(left, row, paid=True)


def test_a_turn_that_stays_too_long_is_given_up(row: Row) -> None:
    with playing(row.overflow(900, 600)) as player:
        left = turn(row, player)
        assert len(player.requests) == 2
    assert isinstance(left.error, ContextOverflowError)
    assert left.kept is None
    settled(left, row, paid=False)


@pytest.mark.parametrize("change", ["negative", "missing"])
def test_a_turn_with_wrong_usage_is_settled_with_what_can_be_true(row: Row, change: str) -> None:
    with playing(row.script(body=with_usage(row, CHANGES[change]))) as player:
        left = turn(row, player)
    last = left.events[-1]
    assert isinstance(last, Settled)
    assert left.kept == STREAMS[row.stream][1].text
    assert 0 < last.usage.prompt <= MOST_TOKENS
    settled(left, row, paid=True)


def test_who_stops_listening_still_pays_for_what_came(row: Row) -> None:
    first = next(at for at, event in enumerate(whole(row)) if isinstance(event, Text))
    with playing(row.script(stall_at=row.middle)) as player:
        left = turn(row, player, stop_after=first + 1)
        assert player.wait_left()
    assert left.error is None
    assert left.kept
    settled(left, row, paid=True)


# What was seen in recordings, and is no provider's whole answer


def test_pieces_of_one_call_that_are_numbered_anyhow_are_one_call() -> None:
    """Vertex repeats name and id in each piece, and numbers the first otherwise than the rest."""

    def piece(identity: str, index: int, arguments: str, **more: Any) -> bytes:
        function = {"arguments": arguments, "name": "get_weather"}
        call = {"function": function, "id": identity, "index": index, "type": "function"}
        choice = {"delta": {"role": "assistant", "tool_calls": [call]}, "index": 0, "logprobs": None, **more}
        chunk = {"choices": [choice], "id": "a", "object": "chat.completion.chunk", "system_fingerprint": ""}
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    pieces = [
        piece("one", 1, ""),
        *(piece("one", 0, text) for text in ('{"city":"Bern', '"', "}")),
        piece("two", 0, ""),
        *(piece("two", 1, text) for text in ('{"city":"Oslo', '"')),
        piece("two", 1, "}", finish_reason="tool_calls"),
        b"data: [DONE]\n\n",
    ]
    events, error = until_error(CHAT, b"".join(pieces))
    assert error is None
    assert events == [
        ToolCall("one", "get_weather", '{"city":"Bern"}'),
        ToolCall("two", "get_weather", '{"city":"Oslo"}'),
        Finished("tool_calls"),
    ]


def test_calls_that_share_an_id_get_one_of_their_own() -> None:
    def chunk(index: int, name: str) -> bytes:
        call = {"id": "call_0", "index": index, "function": {"name": name, "arguments": "{}"}}
        delta = {"tool_calls": [call]}
        return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"

    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    events, _ = until_error(CHAT, chunk(0, "a") + chunk(1, "b") + chunk(2, "b") + end)
    calls = [event for event in events if isinstance(event, ToolCall)]
    assert [call.name for call in calls] == ["a", "b", "b"]
    assert calls[0].id == "call_0"
    assert len({call.id for call in calls}) == 3


def test_an_error_after_the_end_of_the_answer_does_not_undo_it() -> None:
    """OpenRouter sends the usage of an answer that reached its limit together with an error."""
    row = ROWS["openrouter"]
    head, usage, done = row.body.rstrip().rsplit(b"\n\n", 2)
    head = head.replace(
        b'"stop","native_finish_reason":"end_turn"', b'"length","native_finish_reason":"length"'
    )
    remark = b'"error":{"code":400,"message":"Token limit reached"},"model"'
    body = b"\n\n".join([head, usage.replace(b'"model"', remark, 1), done, b""])
    with playing(row.script(body=body)) as player:
        got = answer(row, player)
    assert got[-1] == Finished("length")
    assert [event for event in got if isinstance(event, Text | Reasoning)] == [
        Reasoning("Easy"),
        Text("Bern."),
    ]
    assert any(isinstance(event, Used) for event in got)
