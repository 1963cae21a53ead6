"""The gateway under strain: many streams, bad upstreams, bad clients, and requests that nobody sends."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import struct
import time
from contextlib import asynccontextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection

from tests.gateway import MODEL, Gateway, chat, serving
from tests.player import Request, Script, answered, playing, sent_json
from tests.test_http import closing_server
from tests.world import PATIENCE
from ullage.gateway.openapi import document
from ullage.tokens import register_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(600)]

STREAMS = int(os.environ.get("ULLAGE_STREAMS", "200"))
"""Streams at once; `make soak` has 1,000."""
ENDING = answered("Ahoy", 10, 1)
ASKED: dict[str, dict[str, Any]] = {
    "chat/completions": chat("Where is the harbour?"),
    "messages": chat("Where is the harbour?", max_tokens=50),
    "responses": {"model": MODEL, "input": "Where is the harbour?"},
}
"""A request of each API."""
TEXT = " ".join(f"{number * 7_919 % 1_000_003:x}y" for number in range(700_000))


@asynccontextmanager
async def holding(number: int) -> AsyncIterator[str]:
    """A server that begins each stream, and ends none before so many have begun."""
    begun, are_all_there = 0, asyncio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        writer.write(ENDING[: ENDING.index(b"\n\n") + 2])
        await writer.drain()
        begun += 1
        if begun == number:
            are_all_there.set()
        async with asyncio.timeout(PATIENCE):
            await are_all_there.wait()
        writer.write(ENDING[ENDING.index(b"\n\n") + 2 :])
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(converse, "127.0.0.1", 0, backlog=2048) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Lets the process open as many files as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def post(body: bytes, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    """The bytes of a request."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def read_stream(port: int, number: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = orjson.dumps(chat(f"Where is harbour {number}?", stream=True))
    writer.write(post(body, "Connection: close"))
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.usefixtures("many_files")
def test_many_streams_at_once_are_all_complete_and_booked() -> None:
    async def run() -> tuple[list[bytes], int]:
        async with holding(STREAMS) as url:
            with serving(url) as gateway:
                answers = await asyncio.gather(*(read_stream(gateway.port, each) for each in range(STREAMS)))
                booked = await asyncio.to_thread(gateway.booked)
                return answers, sum(entry.calls for entry in booked)

    answers, calls = asyncio.run(run())
    assert all(b"200 OK" in each and each.count(b"[DONE]") == 1 for each in answers)
    assert calls == STREAMS


# Upstreams that misbehave


def test_a_stream_that_trickles_byte_by_byte_arrives_whole() -> None:
    with playing(Script(body=ENDING, piece=1)) as player, serving(player.url) as gateway:
        assert gateway.ask("/v1/chat/completions", chat("Hi", stream=True)).body == ENDING


@pytest.mark.parametrize(
    "headers",
    [
        {"content-length": "5", "content-type": "application/json"},
        {"content-type": "text/event-stream\r\nx-smuggled: yes"},
        {"content-type": "application/json", "transfer-encoding": "chunked", "content-length": "3"},
        {"location": "http://169.254.169.254/", "content-type": "application/json"},
    ],
)
def test_odd_headers_of_an_upstream_break_nothing(headers: dict[str, str]) -> None:
    odd = (
        b"HTTP/1.1 302 Found\r\n"
        + b"".join(f"{n}: {v}\r\n".encode() for n, v in headers.items())
        + b"\r\nabc"
    )

    async def run() -> tuple[int, int]:
        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(65_536)
            writer.write(odd)
            writer.close()

        async with await asyncio.start_server(converse, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with serving(url) as gateway:
                first = await asyncio.to_thread(gateway.ask, "/v1/chat/completions", chat("Hi"))
                alive = await asyncio.to_thread(gateway.ask, "/healthz")
                return first.status, alive.status

    status, alive = asyncio.run(run())
    assert status == 502  # neither is the address in it asked, nor is the client sent there
    assert alive == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (Script(body=b"<html>Log in</html>", kind="text/html", framing="length"), "text/html"),
        (Script(body=b"", kind="application/json", framing="length"), "not with a JSON object"),
        (Script(body=b"[]", kind="application/json", framing="length"), "not with a JSON object"),
        (Script(status=204, kind="", framing="length"), "no content"),
        (
            Script(status=307, kind="", framing="length", headers={"location": "http://other/"}),
            "http://other/",
        ),
        (Script(status=101, kind="", headers={"upgrade": "x", "connection": "upgrade"}), "speak HTTP"),
        (Script(headers={"x-long": "a" * 70_000}), "65,536 bytes of headers"),
    ],
    ids=["page", "empty", "list", "no content", "redirect", "upgrade", "headers"],
)
def test_a_success_that_is_no_answer_of_a_model_is_a_bad_gateway(
    script: Script, said: str, path: str, *, stream: bool
) -> None:
    with playing(script) as player, serving(player.url) as gateway:
        answer = gateway.ask(f"/v1/{path}", ASKED[path] | {"stream": stream})
        assert answer.status == 502
        assert said in answer.json()["error"]["message"]
        assert "location" not in answer.headers


def test_a_count_that_is_a_page_is_replaced_by_our_own() -> None:
    page = Script(body=b"<html>Log in</html>", kind="text/html", framing="length")
    with playing(page) as player, serving(player.url) as gateway:
        for path in ("messages/count_tokens", "responses/input_tokens"):
            counted = gateway.ask(f"/v1/{path}", ASKED[path.partition("/")[0]])
            assert counted.json()["input_tokens"] > 0
            assert counted.headers["x-ullage-counted-by"] == "ullage"


# Clients that misbehave


def answer_both(request: Request) -> Script:
    """A stream for a call, and a number for a count."""
    return sent_json({"input_tokens": 3}) if "tokens" in request.path else Script(body=ENDING)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with playing(answer_both) as player, serving(player.url) as running:
        yield running


def raw(gateway: Gateway, data: bytes, *, half_close: bool = False) -> bytes:
    """The answer to these bytes."""
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
        connection.sendall(data)
        if half_close:
            with suppress(OSError):  # the gateway may have closed the connection already
                connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
        return answer


def test_a_client_that_closes_its_half_gets_no_wrong_answer(gateway: Gateway) -> None:
    asked = post(orjson.dumps(chat("Hi")), "Connection: close")
    answer = raw(gateway, asked, half_close=True)
    assert answer == b"" or b"200 OK" in answer
    assert b"200 OK" not in raw(gateway, asked[:-10], half_close=True)
    assert gateway.ask("/healthz").status == 200


def test_a_client_that_resets_its_connection_ends_only_its_own_call(gateway: Gateway) -> None:
    for place in range(0, 200, 20):
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(post(orjson.dumps(chat("Hi", stream=True)))[: place + 40])
    assert gateway.ask("/v1/chat/completions", chat("Hi")).status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n",
        b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Many: y\r\n" * 20_000 + b"Connection: close\r\n\r\n",
    ],
    ids=["two lengths", "negative length", "odd coding", "absolute", "dots", "zero byte", "tls", "headers"],
)
def test_requests_that_no_client_sends_are_refused(gateway: Gateway, head: bytes) -> None:
    try:
        answer = raw(gateway, head, half_close=True)
    except ConnectionError:  # refused without a word
        answer = b""
    assert not answer or answer[9:10] == b"4", answer[:100]
    assert gateway.ask("/healthz").status == 200


# Requests that nobody foresaw

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
FIELDS = [
    "messages",
    "input",
    "tools",
    "system",
    "stream",
    "max_tokens",
    "thinking",
    "metadata",
    "model",
    "text",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["chat/completions", "responses", "messages", "messages/count_tokens"]),
    body=st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=6),
    named=st.booleans(),
)
def test_any_json_gets_an_answer_and_never_a_fault(
    gateway: Gateway, path: str, body: dict[str, Any], *, named: bool
) -> None:
    status = gateway.ask(f"/v1/{path}", {**body, "model": MODEL} if named else body).status
    assert status == 200 or 400 <= status < 500, (status, body)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_damaged_bodies_get_a_refusal(gateway: Gateway, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - damage
    body = bytearray(orjson.dumps(chat("Where is the harbour?", stream=True)))
    for _ in range(dice.randint(1, 6)):
        body[dice.randrange(len(body))] = dice.randrange(256)
    status = gateway.ask("/v1/chat/completions", bytes(body[: dice.randint(1, len(body))])).status
    assert status == 200 or 400 <= status < 500


@pytest.mark.parametrize("value", [b'{"a":' * 500 + b"1" + b"}" * 500, b"[NaN, 99999999999999999999999]"])
def test_json_that_is_hard_to_write_gets_an_answer_and_never_a_fault(gateway: Gateway, value: bytes) -> None:
    bodies = (
        b'{"messages":[{"role":"user","content":%b}]',
        b'{"messages":[{"role":"user","content":"hi"}],"tools":[%b]',
        b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":900000,"more":%b',
    )
    for body in bodies:
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"):
            assert gateway.ask(path, body % value + b',"model":"gpt-5.1"}').status < 500


def test_an_answer_leaves_in_one_piece() -> None:
    body = orjson.dumps(chat("Where is the harbour?"))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    with (
        playing(sent_json({"choices": ["north"]})) as player,
        serving(player.url) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as client,
    ):
        client.sendall(head.encode() + body)
        piece = client.recv(65_536)
    assert piece.startswith(b"HTTP/1.1 200 OK\r\n")
    assert orjson.loads(piece.partition(b"\r\n\r\n")[2])["choices"]


def test_a_request_on_a_connection_that_the_upstream_has_closed_is_sent_again() -> None:
    with closing_server(answers=1) as (url, seen), serving(url) as gateway:
        for _ in range(3):
            assert gateway.ask("/v1/chat/completions", chat("Where is the harbour?")).status == 200
        assert sum(entry.calls for entry in gateway.booked()) == 3
    assert seen == [2, 2, 1]


SCHEMA = schemathesis.openapi.from_dict(document())


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_operation_of_the_document_answers_as_it_says(case: Any, gateway: Gateway) -> None:
    # A form that the gateway does not know is forwarded if it fits: the upstream decides about it.
    case.call_and_validate(base_url=gateway.url, excluded_checks=[negative_data_rejection])


# Long work


class Slow:
    """A tokenizer whose first count waits for the test, as the load of a vocabulary waits for the disk."""

    name = "slow"

    def __init__(self) -> None:
        self.is_asked = Event()
        self.may_go_on = Event()

    def count(self, text: str) -> int:
        self.is_asked.set()
        assert self.may_go_on.wait(PATIENCE)
        return len(text)


def test_the_first_request_of_a_model_does_not_stop_others() -> None:
    slow = Slow()
    register_tokenizer("slow-boat", slow)
    with playing(sent_json({"choices": []})) as player, serving(player.url) as gateway:
        body = {**chat("Where is the harbour?"), "model": "slow-boat"}
        told: list[int] = []
        asking = Thread(target=lambda: told.append(gateway.ask("/v1/chat/completions", body).status))
        asking.start()
        assert slow.is_asked.wait(PATIENCE)
        try:
            assert gateway.ask("/v1/chat/completions", chat("Where is the harbour?")).status == 200
        finally:
            slow.may_go_on.set()
        asking.join(PATIENCE)
    assert told == [200]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", lambda text: {"prompt": text}),
        ("/v1/messages/count_tokens", lambda text: {"messages": [{"role": "user", "content": text}]}),
        ("/v1/chat/completions", lambda text: {"messages": [{"role": "user", "content": {"unknown": text}}]}),
    ],
    ids=["tokenize", "count_tokens", "completions"],
)
def test_a_very_long_text_does_not_stop_other_requests(
    path: str, body: Callable[[str], dict[str, Any]]
) -> None:
    with playing(sent_json({}, 404)) as player, serving(player.url, window=4_000) as gateway:
        gateway.ask("/tokenize", {"model": MODEL, "prompt": "loads the vocabulary"})
        # On a busy machine a short request can wait for the processor. One that waits for the long text does
        # so every time. Each text is a new one, because counts are kept.
        bodies = ({"model": MODEL, **body(f"{path} {number} {TEXT}")} for number in range(6))
        assert any(longest_share(gateway, path, each) < 0.7 for each in bodies)


def longest_share(gateway: Gateway, path: str, body: dict[str, Any]) -> float:
    """The longest of the short requests beside a long one, as a share of the long one's time."""
    took: list[float] = []
    started = time.monotonic()
    asking = Thread(target=gateway.ask, args=(path, body))
    asking.start()
    while asking.is_alive():
        begun = time.monotonic()
        assert gateway.ask("/healthz").status == 200
        took.append(time.monotonic() - begun)
    asking.join()
    return max(took) / (time.monotonic() - started)
