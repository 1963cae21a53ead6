"""Every turn ends: a finished answer is finished whatever comes after it, and nothing goes on for ever."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.player import Script, playing
from ullage.broker import remote
from ullage.broker.endpoint import Endpoint, Timeouts
from ullage.broker.events import Event, Finished, Text, ToolCall
from ullage.broker.remote import RemoteProvider
from ullage.broker.retry import Retries
from ullage.context import Context
from ullage.cost import Ledger
from ullage.errors import ProviderError, StreamBroken, UllageError
from ullage.turn import Client, Settled

pytestmark = pytest.mark.enable_socket

RECORDED = Path(__file__).parent / "recorded"
LONG = Timeouts(connect=60.0, first=120.0, between=120.0)
"""Far longer than a test may take: whoever waits for these fails by the clock."""
SOON = 60.0
"""Seconds within which a turn has ended that does not wait for them."""
ONCE = Retries(attempts=1)

ENDED: dict[str, tuple[str, bytes]] = {
    "openai.chat": ("openai_chat_tools.sse", b'"finish_reason":"tool_calls"}],"usage":null,'),
    "openai.responses": ("responses_weather.sse", b'"type":"response.completed"'),
    "anthropic.messages": ("anthropic_weather.sse", b'"stop_reason":"tool_use"'),
    "ollama.chat": ("ollama_weather.ndjson", b'"done":true'),
}
"""By API: a stream with calls, and what stands in the event with which the model ends its answer."""


def ended(api: str) -> bytes:
    """A stream up to the event that ends the answer, that one included, and nothing behind it."""
    name, mark = ENDED[api]
    body = (RECORDED / name).read_bytes()
    end = b"\n" if api == "ollama.chat" else b"\n\n"
    return body[: body.index(end, body.index(mark)) + len(end)]


@dataclass
class Turn:
    """What a turn left behind."""

    context: Context
    ledger: Ledger
    events: list[Any] = field(default_factory=list)
    error: UllageError | None = None
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Text))


def turn(url: str, api: str = "openai.chat", timeouts: Timeouts = LONG, retries: Retries = ONCE) -> Turn:
    context = Context(model="gpt-4o", system_prompt="Be brief.")
    context.append_user("The weather?")
    left = Turn(context, Ledger(cap_at_dollars=1))

    async def main() -> None:
        source = RemoteProvider(Endpoint(url=url, model="gpt-4o", api=api, timeouts=timeouts), None, retries)
        client = Client(source, ledger=left.ledger, max_output=100)
        try:
            async with aclosing(client.stream(context)) as events:  # type: ignore[type-var]
                async for event in events:
                    left.events.append(event)
        finally:
            await source.close()

    started = time.monotonic()
    try:
        asyncio.run(main())
    except UllageError as error:
        left.error = error
    left.seconds = time.monotonic() - started
    return left


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "a", "choices": [choice]}) + b"\n\n"


# A finished answer is finished


@pytest.mark.parametrize("api", ENDED)
@pytest.mark.parametrize("trouble", ["stall", "reset", "unclean end", "clean end", "nonsense"])
def test_what_happens_after_the_end_of_an_answer_does_not_break_it(api: str, trouble: str) -> None:
    body = ended(api)
    after = b"data: {nonsense\n\n" if api != "ollama.chat" else b"{nonsense\n"
    script = {
        "stall": Script(body=body, stall_at=len(body)),
        "reset": Script(body=body + b"x", cut_at=len(body), reset=True),
        "unclean end": Script(body=body + b"x", cut_at=len(body)),
        "clean end": Script(body=body),
        "nonsense": Script(body=body + after),
    }[trouble]
    with playing(script) as player:
        left = turn(player.url, api)
    assert left.error is None
    assert left.seconds < SOON
    calls = tuple(event.id for event in left.events if isinstance(event, ToolCall))
    assert len(calls) == 2
    assert left.context.waiting == calls
    finished, settled = left.events[-2:]
    assert finished == Finished("tool_calls")
    assert isinstance(settled, Settled)
    assert left.ledger.used()[1] == 0


def test_an_anthropic_error_after_the_reason_for_the_end_does_not_break_the_answer() -> None:
    wrong = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'
    with playing(Script(body=ended("anthropic.messages") + wrong)) as player:
        left = turn(player.url, "anthropic.messages")
    assert left.error is None
    assert len(left.context.waiting) == 2


# Nothing goes on for ever


def endless(start: bytes, piece: bytes) -> Script:
    """An answer that begins, and goes on with the same piece for longer than any test."""
    return Script(body=start + piece * 20_000, piece=len(piece), pause=0.02)


QUIET = {
    "comments": b": ping\n\n",
    "empty deltas": chunk({"content": ""}),
    "usage": b'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}\n\n',
}


@pytest.mark.parametrize("kind", QUIET)
def test_pings_after_the_end_cost_no_more_than_the_grace(kind: str) -> None:
    whole = chunk({"content": "a"}) + chunk({}, "stop") + b"data: [DONE]\n\n"
    with playing(endless(whole, QUIET[kind])) as player:
        left = turn(player.url)
    assert (left.error, left.text) == (None, "a")
    assert remote.GRACE <= left.seconds < SOON


@pytest.mark.parametrize("kind", QUIET)
def test_what_says_nothing_does_not_keep_an_answer_alive(kind: str) -> None:
    timeouts = Timeouts(connect=60.0, first=60.0, between=0.5)
    with playing(endless(chunk({"content": "a"}), QUIET[kind])) as player:
        left = turn(player.url, timeouts=timeouts)
    assert isinstance(left.error, StreamBroken)
    assert left.error.code == "timeout"
    assert left.context.turns[-1]["content"] == "a"
    assert left.seconds < SOON


@pytest.mark.parametrize("kind", QUIET)
def test_what_says_nothing_is_not_the_beginning_of_an_answer(kind: str) -> None:
    timeouts = Timeouts(connect=60.0, first=0.5, between=60.0)
    with playing(endless(b"", QUIET[kind])) as player:
        left = turn(player.url, timeouts=timeouts)
    assert type(left.error) is ProviderError
    assert left.error.code == "timeout"
    assert left.seconds < SOON


@pytest.mark.parametrize("api", ["openai.chat", "ollama.chat"])
@pytest.mark.parametrize("is_ended", [False, True])
def test_what_says_nothing_ends_in_time_however_fast_it_comes(
    api: str, is_ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GRACE", 0.1)
    quiet = b'{"message":{"content":""},"done":false}\n' if api == "ollama.chat" else chunk({"content": ""})
    flood = quiet * (60_000_000 // len(quiet))
    with playing(Script(body=(ended(api) if is_ended else b"") + flood, piece=1_000_000)) as player:
        left = turn(player.url, api, Timeouts(connect=60.0, first=0.1 if not is_ended else 60.0, between=0.1))
        assert player.wait_left()  # before the flood was at its end
    if is_ended:
        assert left.error is None
    else:
        assert isinstance(left.error, ProviderError)
        assert left.error.code == "timeout"


def test_anthropic_pings_do_not_keep_an_answer_alive() -> None:
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    start = ended("anthropic.messages")
    start = start[: start.index(b"event: content_block_stop")]
    with playing(endless(start, ping)) as player:
        left = turn(player.url, "anthropic.messages", Timeouts(connect=60.0, first=60.0, between=0.5))
    assert isinstance(left.error, StreamBroken)
    assert left.seconds < SOON


def test_the_pieces_of_a_long_call_keep_an_answer_alive() -> None:
    pieces = [
        chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": "'}}]})
    ]
    pieces += [chunk({"tool_calls": [{"index": 0, "function": {"arguments": "abcde"}}]})] * 30
    pieces.append(chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]}, "tool_calls"))
    size = max(map(len, pieces))
    body = b"".join(piece[:-2] + b" " * (size - len(piece)) + b"\n\n" for piece in pieces)
    with playing(Script(body=body, piece=size, pause=0.1)) as player:
        left = turn(player.url, timeouts=Timeouts(connect=60.0, first=60.0, between=2.0))
    assert left.error is None
    (call,) = [event for event in left.events if isinstance(event, ToolCall)]
    assert call.arguments == '{"a": "' + "abcde" * 30 + '"}'


def test_a_refusal_that_trickles_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REFUSAL_SECONDS", 0.5)
    body = b"no such engine. " + b"x" * 20_000
    with playing(Script(status=404, body=body, piece=16, pause=0.1)) as player:
        left = turn(player.url)
    assert isinstance(left.error, ProviderError)
    assert left.error.status == 404
    assert "no such engine" in str(left.error)
    assert left.seconds < SOON


def test_an_answer_has_a_size_and_what_came_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MOST_ANSWER", 100_000)
    piece = chunk({"content": "x" * 1000})
    with playing(Script(body=piece * 1000)) as player:
        left = turn(player.url)
    assert isinstance(left.error, StreamBroken)
    assert left.error.code == "answer_too_large"
    assert "100,000 characters" in str(left.error)
    assert 90_000 < len(left.text) <= 100_000
    assert left.context.turns[-1]["content"] == left.text
    assert left.ledger.used()[0] > 0


@pytest.mark.parametrize(
    "piece",
    [
        chunk({"content": "x"}),
        chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "x" * 100}}]}),
        chunk({"tool_calls": [{"function": {"name": "f"}}]}),
    ],
    ids=["small texts", "one call", "many calls"],
)
def test_small_pieces_and_calls_count_for_the_size(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MOST_ANSWER", 25_000)
    with playing(Script(body=piece * 3000)) as player:
        left = turn(player.url)
    assert isinstance(left.error, ProviderError)
    assert left.error.code == "answer_too_large"


PART_OF_A_CALL = chunk({"role": "assistant"}) + b"".join(
    chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": text}}]})
    for text in ('{"a": "', "fog " * 100)
)


@pytest.mark.parametrize(
    "script",
    [
        Script(body=PART_OF_A_CALL + b"x", cut_at=len(PART_OF_A_CALL)),
        Script(body=PART_OF_A_CALL + b"x", cut_at=len(PART_OF_A_CALL), reset=True),
        Script(body=PART_OF_A_CALL),
        Script(body=PART_OF_A_CALL + b"data: null\n\n"),
    ],
    ids=["cut", "reset", "ended", "nonsense"],
)
def test_a_call_that_breaks_off_is_booked_although_nothing_of_it_was_handed_on(script: Script) -> None:
    with playing(script) as player:
        left = turn(player.url)
    assert isinstance(left.error, ProviderError)
    spent, held = left.ledger.used()
    assert (spent > 0, held) == (True, 0)
    (slot,) = left.context.meter.slots.values()
    assert slot.estimated_calls == 1


@pytest.mark.parametrize("api", ["openai.chat", "anthropic.messages"])
def test_a_refusal_in_a_stream_that_has_not_begun_costs_nothing(api: str) -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    begin = {"openai.chat": chunk({"role": "assistant"}), "anthropic.messages": event_of(block)}[api]
    refused = event_of({"type": "error", "error": {"message": "Overloaded", "code": "overloaded_error"}})
    with playing(Script(body=begin + refused)) as player:
        left = turn(player.url, api)
    assert isinstance(left.error, ProviderError)
    assert left.ledger.used() == (0, 0)


def event_of(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


# One time for the beginning


def test_all_tries_together_have_one_time_to_begin() -> None:
    timeouts = Timeouts(connect=60.0, first=0.4, between=60.0, begin=2.0)
    with playing(Script(silent=True)) as player:
        left = turn(player.url, timeouts=timeouts, retries=Retries(attempts=1_000, base=0.0))
        assert player.wait_asked(2)
        assert len(player.requests) <= 7
    assert isinstance(left.error, ProviderError)
    assert "no answer began within 2 s" in str(left.error)
    assert "timeouts.begin" in str(left.error)
    assert left.seconds < SOON
    spent, held = left.ledger.used()
    assert (spent > 0, held) == (True, 0)


def test_no_wait_goes_beyond_the_time_to_begin() -> None:
    timeouts = Timeouts(connect=60.0, first=60.0, between=60.0, begin=5.0)
    busy = Script(status=429, headers={"retry-after": "25"})
    with playing(busy) as player:
        left = turn(player.url, timeouts=timeouts, retries=Retries(attempts=9))
        assert len(player.requests) == 1
    assert isinstance(left.error, ProviderError)
    assert left.error.status == 429
    assert left.ledger.used() == (0, 0)


def test_an_answer_that_has_begun_may_take_longer_than_its_beginning() -> None:
    pieces = [chunk({"content": "a"})] * 20 + [chunk({}, "stop")]
    size = max(map(len, pieces))
    body = b"".join(piece[:-2] + b" " * (size - len(piece)) + b"\n\n" for piece in pieces)
    timeouts = Timeouts(connect=60.0, first=60.0, between=60.0, begin=1.0)
    with playing(Script(body=body, piece=size, pause=0.1)) as player:
        left = turn(player.url, timeouts=timeouts)
    assert (left.error, left.text) == (None, "a" * 20)


# Nothing takes time that grows with the square


def frames(number: int, how: str) -> list[bytes]:
    """Many calls, or many pieces of one, in the shapes that servers number them in."""
    one = {"id": "c", "function": {"name": "f", "arguments": '{"a":"'}}
    shapes: dict[str, list[dict[str, Any]]] = {
        "calls": [
            {"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(number)
        ],
        "calls without a number": [
            {"id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(number)
        ],
        "pieces of one id": [
            {"index": 0, **one},
            *({"index": n, "id": "c", "function": {"arguments": "}x"}} for n in range(1, number)),
        ],
    }
    return [chunk({"tool_calls": [call]}) for call in shapes[how]] + [chunk({}, "tool_calls")]


def lines_run(number: int, how: str) -> int:
    """How many lines of our own code it takes to read so many: a count, and no time."""
    import sys

    from ullage.broker.dialects import DIALECTS

    dialect = DIALECTS["openai.chat"]
    framer, reader = dialect.framer(), dialect.reader()
    body = frames(number, how)
    count = itertools.count()

    def trace(*_: Any) -> Any:
        next(count)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        told = [event for piece in body for each in framer.feed(piece) for event in reader.read(each)]
    finally:
        sys.settrace(before)
    calls = [event for event in told if isinstance(event, ToolCall)]
    assert len(calls) == (1 if how == "pieces of one id" else number)
    return next(count)


@pytest.mark.parametrize("how", ["calls", "calls without a number", "pieces of one id"])
def test_the_work_for_calls_and_pieces_grows_as_they_do(how: str) -> None:
    small, large = lines_run(200, how), lines_run(1_600, how)
    assert large < 10 * small  # 8 times as many; with the square it would be 64


def test_the_arguments_are_not_read_anew_for_each_piece() -> None:
    """Lines do not show how long one of them takes, so this counts the characters that are looked at."""
    from ullage.broker.dialects import shared

    seen = 0

    class Counting:
        def finditer(self, piece: str, start: int = 0) -> Any:
            nonlocal seen
            seen += len(piece)
            return pattern.finditer(piece, start)

    pattern = shared.MARKS
    part = shared.Part()
    pieces = ['{"a": "', *["x}"] * 20_000, '"}']
    shared.MARKS = Counting()  # type: ignore[assignment]
    try:
        for piece in pieces:
            assert not part.whole
            list(part.add(piece))
    finally:
        shared.MARKS = pattern
    assert part.whole
    assert seen == len("".join(pieces))


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (['{"a": 1}'], True),
        (['{"a": "}"'], False),
        (['{"a": "}\\', '"}"', "}"], True),
        (['{"a": "}\\', '"}'], False),
        (['{"a": "\\\\', '"}'], True),
        (['{"a": [{}', "]", "}"], True),
        (['{"a": [{}', "]"], False),
        ([""], False),
    ],
)
def test_a_call_is_whole_when_its_object_is_closed(pieces: list[str], whole: bool) -> None:
    from ullage.broker.dialects.shared import Part

    part = Part()
    for piece in pieces:
        list(part.add(piece))
    assert part.whole is whole


# Integers of any length


@pytest.mark.parametrize("digits", [20, 400, 5_000])
@pytest.mark.parametrize("api", ["openai.chat", "ollama.chat"])
def test_an_integer_over_64_bits_in_a_call_is_taken_and_sent_back(api: str, digits: int) -> None:
    number = "7" * digits
    if api == "openai.chat":
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": f'{{"a":{number}}}'}}
        body = chunk({"tool_calls": [call]}, "tool_calls")
    else:
        function = f'{{"name": "f", "arguments": {{"a": {number}}}}}'
        body = f'{{"message": {{"tool_calls": [{{"function": {function}}}]}}}}\n{{"done": true}}\n'.encode()
    with playing(Script(body=body)) as player:
        left = turn(player.url, api)
        assert left.error is None
        (call_id,) = left.context.waiting
        (event,) = [each for each in left.events if isinstance(each, ToolCall)]
        if digits < 5_000:
            assert event.arguments == f'{{"a":{number}}}'
        left.context.append({"role": "tool", "tool_call_id": call_id, "content": "ok"})
        again = asyncio.run(answered_again(player.url, api, left.context))
        assert again[-1] == Finished("tool_calls")
        if digits < 5_000:
            assert number.encode() in player.requests[-1].body


async def answered_again(url: str, api: str, context: Context) -> list[Event]:
    source = RemoteProvider(Endpoint(url=url, model="gpt-4o", api=api, timeouts=LONG), None, ONCE)
    try:
        return [event async for event in Client(source).stream(context) if not isinstance(event, Settled)]
    finally:
        await source.close()
