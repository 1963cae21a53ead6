"""The connection of a client: HTTP/1.1 on a real socket, with applications that show one thing each."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from tests.world import PATIENCE, until
from ullage.gateway import client_protocol
from ullage.gateway.client_protocol import MOST_HEAD, ClientProtocol
from ullage.gateway.served_request import MOST_UNREAD, ServedRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import TypeAlias

    Application: TypeAlias = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]

pytestmark = pytest.mark.enable_socket

OK = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
END = {"type": "http.response.body"}


@contextlib.contextmanager
def served(application: Application, *, keep_alive: float = 60.0) -> Iterator[int]:
    """The port of a server with this application."""
    config = uvicorn.Config(
        application,
        loop="none",
        http=ClientProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="critical",
        timeout_keep_alive=keep_alive,  # type: ignore[arg-type] # fractions of a second work too
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment] # not the main thread
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), name="served")
    thread.start()
    try:
        assert until(lambda: server.started or not thread.is_alive())
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()


async def echo(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
    """Answers with the request as it was understood."""
    body = await body_of(receive)
    told = f"{scope['method']} {scope['path']} {scope['query_string'].decode()}|".encode() + body
    await send(OK)
    await send({"type": "http.response.body", "body": told})


async def body_of(receive: Any) -> bytes:
    """The whole body."""
    pieces = []
    while True:
        message = await receive()
        assert message["type"] == "http.request"
        pieces.append(message["body"])
        if not message["more_body"]:
            return b"".join(pieces)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def read_all(client: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    pieces = []
    while piece := client.recv(65_536):
        pieces.append(piece)
    return b"".join(pieces)


def asked(port: int, data: bytes) -> bytes:
    """The answers to these bytes, until the server closes the connection."""
    with connected(port) as client:
        client.sendall(data)
        return read_all(client)


def request(
    path: str = "/", body: bytes = b"", *headers: str, method: str = "POST", version: str = "1.1"
) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


LAST = "Connection: close"


def test_requests_that_come_together_are_answered_in_their_order() -> None:
    with served(echo) as port:
        answers = asked(port, request("/a", b"1") + request("/b?c=d", b"2") + request("/e", b"3", LAST))
    assert answers.count(b"200 OK") == 3
    assert answers.index(b"POST /a |1") < answers.index(b"POST /b c=d|2") < answers.index(b"POST /e |3")


def test_a_request_in_single_bytes_is_read() -> None:
    with served(echo) as port, connected(port) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request("/slow%20path", b"body", LAST):
            client.sendall(bytes([byte]))
        assert b"POST /slow path |body" in read_all(client)


def test_a_chunked_body_is_read_and_its_trailers_are_not() -> None:
    async def told(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        body = await body_of(receive)
        await send(OK)
        names = b",".join(name for name, _ in scope["headers"])
        await send({"type": "http.response.body", "body": body + b"|" + names})

    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with served(told) as port:
        answer = asked(port, head + b"2\r\nab\r\n1\r\nc\r\n0\r\nx-late: 1\r\n\r\n")
    assert b"abc|host,connection,transfer-encoding\r\n" in answer


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    with served(echo) as port, connected(port) as client:
        head, body = request("/", b"abc", "Expect: 100-continue", LAST).split(b"\r\n\r\n")
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert b"|abc" in read_all(client)


def test_an_old_client_gets_an_answer_that_ends_with_its_connection() -> None:
    with served(echo) as port:
        answer = asked(port, request("/old", version="1.0"))
    assert answer.endswith(b"\r\n\r\nPOST /old |")
    assert b"transfer-encoding" not in answer
    assert b"connection: close" in answer


def test_an_answer_to_head_has_no_body() -> None:
    with served(echo) as port:
        answer = asked(port, request("/", b"", LAST, method="HEAD"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


def test_another_protocol_is_not_begun() -> None:
    with served(echo) as port:
        offer = request("/", b"body", "Connection: upgrade", "Upgrade: h2c")
        answer = asked(port, offer + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"POST / |body" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * (MOST_HEAD + 200_000),
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * (MOST_HEAD + 200_000),
    ],
    ids=["tls", "two lengths", "no header", "path", "endless header", "chunk", "endless trailer"],
)
def test_bytes_that_are_no_request_are_refused(data: bytes) -> None:
    answer = b""
    with served(echo) as port, contextlib.suppress(ConnectionError):  # it may close before all is sent
        answer = asked(port, data)
    assert not answer or answer[9:12] in {b"400", b"431"}


def test_a_request_is_answered_although_the_bytes_after_it_are_none() -> None:
    with served(echo) as port:
        answer = asked(port, request("/whole", b"1") + b"\x00\x01\x02\x03")
    assert b"POST /whole |1" in answer


def test_a_broken_body_ends_the_connection_of_its_request_only() -> None:
    with served(echo) as port:
        broken = b"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
        answer = asked(port, request("/whole", b"1") + broken)
        assert b"POST /whole |1" in answer
        assert b"/b" not in answer
        assert b"|2" in asked(port, request("/", b"2", LAST))


def test_a_quiet_connection_is_closed_and_a_busy_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_protocol, "LOOK_SECONDS", 0.05)
    begun, may_end = threading.Event(), threading.Event()

    async def slow(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.to_thread(may_end.wait, PATIENCE)
        await echo(scope, receive, send)

    with served(slow, keep_alive=1) as port, connected(port) as busy:
        busy.sendall(request("/busy"))
        assert begun.wait(PATIENCE)
        with connected(port) as quiet, connected(port) as half:
            half.sendall(b"GET / HTTP/1.1\r\nHost:")
            assert read_all(quiet) == b""
            assert read_all(half).startswith(b"HTTP/1.1 408 ")
        may_end.set()
        assert b"POST /busy |" in read_all(busy)


def test_a_fault_before_the_answer_is_told_and_one_in_it_cuts_it() -> None:
    async def faulty(scope: Mapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001
        if scope["path"] == "/late":
            await send(OK)
            await send({"type": "http.response.body", "body": b"part", "more_body": True})
        raise ValueError("secret")

    with served(faulty) as port:
        early, late = asked(port, request()), asked(port, request("/late"))
    assert early.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"secret" not in early + late
    assert not late.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "messages",
    [
        [{**OK, "headers": [(b"x", b"a\r\nx-smuggled: yes")]}, END],
        [{**OK, "headers": [(b"x y", b"a")]}, END],
        [END],
    ],
)
def test_an_answer_that_is_none_becomes_a_fault(messages: list[dict[str, Any]]) -> None:
    async def wrong(scope: Mapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001
        for message in messages:
            await send(message)

    with served(wrong) as port:
        answer = asked(port, request())
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"smuggled" not in answer


@pytest.mark.parametrize("length", [b"3", b"5"])
def test_an_answer_of_another_length_than_announced_ends_the_connection(length: bytes) -> None:
    async def wrong(scope: Mapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001
        await send({**OK, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": b"four"})

    with served(wrong) as port:
        assert asked(port, request()).count(b"HTTP/1.1") == 1


def test_an_application_that_answers_nothing_ends_the_connection() -> None:
    async def silent(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        pass

    with served(silent) as port:
        assert asked(port, request()) == b""


def test_an_application_learns_that_its_client_has_gone() -> None:
    news: list[str] = []
    waiting = threading.Event()

    async def patient(scope: Mapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001
        assert isinstance(receive, ServedRequest)
        receive.tell_lost(lambda: news.append("told"))
        await body_of(receive)
        waiting.set()
        news.append((await receive())["type"])
        await send(OK)  # nobody gets it, and nothing breaks
        receive.tell_lost(lambda: news.append("told again"))

    with served(patient) as port:
        with connected(port) as client:
            client.sendall(request("/", b"abc"))
            assert waiting.wait(PATIENCE)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert until(lambda: len(news) == 3)
    assert news == ["told", "http.disconnect", "told again"]


def test_a_body_that_nobody_reads_is_not_collected() -> None:
    may_read, size = threading.Event(), 64 * 1024 * 1024
    begun: list[ServedRequest] = []

    async def late(scope: Mapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001
        begun.append(receive)
        await asyncio.to_thread(may_read.wait, PATIENCE)
        body = await body_of(receive)
        await send(OK)
        await send({"type": "http.response.body", "body": str(len(body)).encode()})

    with served(late) as port, connected(port) as client:
        data = request("/", b"x" * size, LAST)
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        assert until(lambda: bool(begun) and begun[0]._size > MOST_UNREAD)
        assert until(lambda: not begun[0]._connection.transport.is_reading())
        assert begun[0]._size < size // 8
        may_read.set()
        assert str(size).encode() in read_all(client)
        sender.join(PATIENCE)


def test_an_answer_that_nobody_takes_waits() -> None:
    sent, waits = 0, threading.Event()

    async def long(scope: Mapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001
        nonlocal sent
        await send(OK)
        for _ in range(1_024):
            piece = {"type": "http.response.body", "body": b"x" * 65_536, "more_body": True}
            sending = asyncio.ensure_future(send(piece))
            await asyncio.sleep(0)  # what need not wait has ended now
            if not sending.done():
                waits.set()
            await sending
            sent += 1
        await send(END)

    with served(long) as port, connected(port) as client:
        client.sendall(request("/", b"", LAST))
        assert waits.wait(PATIENCE)
        assert sent < 1_024
        assert len(read_all(client)) > 1_024 * 65_536
    assert sent == 1_024


def test_the_rest_of_a_body_after_its_answer_is_dropped() -> None:
    async def early(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["path"] == "/early":
            await send(OK)
            await send({"type": "http.response.body", "body": b"no"})
        else:
            await echo(scope, receive, send)

    with served(early) as port, connected(port) as client:
        data = request("/early", b"x" * 1_000_000)
        client.sendall(data[:200])
        assert client.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")
        client.sendall(data[200:] + request("/next", b"2", LAST))
        assert b"POST /next |2" in read_all(client)


def test_a_closed_connection_leaves_nothing_for_the_garbage_collector() -> None:
    made: list[weakref.ref[Any]] = []

    async def noting(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        made.append(weakref.ref(receive._connection))
        await echo(scope, receive, send)

    gc.disable()
    try:
        with served(noting) as port:
            asked(port, request("/a", b"1") + request("/b", b"2", LAST))
            with connected(port) as client:
                client.sendall(request("/c"))
                assert client.recv(65_536)
            assert until(lambda: len(made) == 3 and not any(each() for each in made))
    finally:
        gc.enable()


def test_answers_under_way_are_finished_when_the_server_stops() -> None:
    begun, may_end = threading.Event(), threading.Event()

    async def slow(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.to_thread(may_end.wait, PATIENCE)
        await echo(scope, receive, send)

    with socket.socket() as idle, socket.socket() as busy:
        with served(slow) as port:
            idle.connect(("127.0.0.1", port))
            busy.connect(("127.0.0.1", port))
            busy.sendall(request("/busy"))
            assert begun.wait(PATIENCE)
            # The idle connection is closed first; the answer is given only after that.
            follower = threading.Thread(target=lambda: read_all(idle) or may_end.set())
            follower.start()
        follower.join(PATIENCE)
        assert b"POST /busy |" in read_all(busy)
