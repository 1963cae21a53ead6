"""The gateway's own connections to upstreams, against servers that write their answers byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from ullage.broker.endpoint import Timeouts
from ullage.broker.http import Transport
from ullage.errors import ConfigurationError, ProviderError
from ullage.gateway.connections import UpstreamConnections, find_route, write_head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

WAITS = Timeouts(connect=30.0, first=30.0, between=30.0)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


class Upstream:
    """A server that reads each request, and sends the next of its answers."""

    def __init__(self, *answers: bytes, closes_after: int | None = None) -> None:
        self._answers = list(answers)
        self._closes_after = closes_after
        self.connections = 0
        self.tasks: list[asyncio.Task[None] | None] = []
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                writer.write(self._answers.pop(0))
                await writer.drain()
                if len(self.requests) == self._closes_after:
                    break
            if self._closes_after is None:
                await reader.read()  # until the gateway closes it
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def asking(upstream: Upstream) -> AsyncIterator[tuple[UpstreamConnections, str]]:
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat"
    async with Transport() as transport:
        connections = UpstreamConnections(transport)
        try:
            yield connections, url
        finally:
            connections.close()
            server.close()
            await asyncio.gather(*filter(None, upstream.tasks))


async def post(connections: UpstreamConnections, url: str, **headers: str) -> tuple[int, bytes]:
    async with connections.post(url, headers, b"{}", WAITS) as reply:
        return reply.status, b"".join([chunk async for chunk in reply.chunks()])


async def collect(connections: UpstreamConnections, url: str, into: list[bytes]) -> None:
    async with connections.post(url, {}, b"{}", WAITS) as reply:
        async for chunk in reply.chunks():
            into.append(chunk)  # noqa: PERF401 - a comprehension would lose what came before an error


def test_a_connection_is_used_again_and_says_who_asks() -> None:
    async def ask() -> None:
        upstream = Upstream(WHOLE, WHOLE)
        async with asking(upstream) as (connections, url):
            assert await post(connections, f"{url}?a=1") == (200, b"hello")
            assert await post(connections, url, accept="text/plain") == (200, b"hello")
        assert upstream.connections == 1
        first, second = upstream.requests
        assert first.startswith(b"POST /v1/chat?a=1 HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"User-Agent: ullage\r\n" in first
        assert b"Accept: */*\r\n" in first
        assert b"accept: text/plain\r\n" in second
        assert b"Accept: */*" not in second

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + WHOLE, b"hello"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_forms_of_an_answer_leave_the_connection_usable(answer: bytes, body: bytes) -> None:
    async def ask() -> None:
        upstream = Upstream(answer, WHOLE)
        async with asking(upstream) as (connections, url):
            assert (await post(connections, url))[1] == body
            assert await post(connections, url) == (200, b"hello")
        assert upstream.connections == 1

    asyncio.run(ask())


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nx-evil: 1\r\n\r\nevil",
        WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
    ],
    ids=["a second answer", "close"],
)
def test_a_connection_that_cannot_be_trusted_is_not_used_again(answer: bytes) -> None:
    async def ask() -> None:
        upstream = Upstream(answer, WHOLE)
        async with asking(upstream) as (connections, url):
            async with connections.post(url, {}, b"{}", WAITS) as reply:
                assert b"".join([chunk async for chunk in reply.chunks()]) == b"hello"
                assert "x-evil" not in reply.headers
            assert await post(connections, url) == (200, b"hello")
        assert upstream.connections == 2

    asyncio.run(ask())


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def ask() -> None:
        async with asking(Upstream(b"HTTP/1.0 200 OK\r\n\r\nhello", closes_after=1)) as (connections, url):
            assert await post(connections, url) == (200, b"hello")

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("answer", "code", "came"),
    [
        (b"", "connection", b""),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "connection", b""),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", "connection", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", "cut", b"hello"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "cut", b"hello"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", "cut", b"hello"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello", "encoding", b""),
    ],
)
def test_an_answer_that_breaks_off_is_an_error_after_all_that_came(
    answer: bytes, code: str, came: bytes
) -> None:
    async def ask() -> None:
        got: list[bytes] = []
        async with asking(Upstream(answer, closes_after=1)) as (connections, url):
            with pytest.raises(ProviderError) as caught:
                await collect(connections, url, got)
        assert caught.value.code == code
        assert "/v1/chat" not in str(caught.value)
        assert b"".join(got) == came

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        ((b"",), 1),  # its first call: the server may have taken it
        ((WHOLE, b"HTTP/1.1 200 OK\r\n"), 2),  # it has begun to answer
        ((WHOLE, b"H"), 2),
    ],
)
def test_a_request_that_may_have_been_taken_is_never_sent_twice(
    answers: tuple[bytes, ...], sent: int
) -> None:
    async def ask() -> None:
        upstream = Upstream(*answers, closes_after=len(answers))
        async with asking(upstream) as (connections, url):
            for _ in answers[:-1]:
                await post(connections, url)
            with pytest.raises(ProviderError) as caught:
                await post(connections, url)
        assert caught.value.code == "connection"
        assert (len(upstream.requests), upstream.connections) == (sent, 1)

    asyncio.run(ask())


def test_a_server_that_says_nothing_is_given_up_and_may_be_charged() -> None:
    async def ask() -> None:
        waits = Timeouts(connect=30.0, first=0.05, between=30.0)
        async with asking(Upstream(b"HTTP/1.1 200 OK\r\n")) as (connections, url):
            with pytest.raises(ProviderError) as caught:
                async with connections.post(url, {}, b"{}", waits):
                    pass
        assert caught.value.code == "timeout"
        assert caught.value.sent

    asyncio.run(ask())


def test_calls_under_way_fail_when_the_gateway_closes() -> None:
    async def ask() -> None:
        upstream = Upstream(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        async with (
            asking(upstream) as (connections, url),
            connections.post(url, {}, b"{}", WAITS) as reply,
        ):
            chunks = reply.chunks()
            assert await anext(chunks) == b"hello"
            connections.close()
            with pytest.raises(ProviderError) as caught:
                await anext(chunks)
        assert caught.value.code == "closed"

    asyncio.run(ask())


def test_nothing_listens() -> None:
    async def ask() -> None:
        async with asking(Upstream(WHOLE)) as (_, url):
            pass
        async with Transport() as transport:
            connections = UpstreamConnections(transport)
            with pytest.raises(ProviderError) as caught:
                await post(connections, url)
            assert caught.value.code == "refused"
            connections.close()

    asyncio.run(ask())


def test_a_header_that_could_begin_another_is_not_sent() -> None:
    async def ask() -> None:
        upstream = Upstream(WHOLE)
        async with asking(upstream) as (connections, url):
            with pytest.raises(ConfigurationError, match="'x-a'"):
                async with connections.post(url, {"x-a": "1\r\nx-b: 2"}, b"{}", WAITS):
                    pass
        assert upstream.requests == []

    asyncio.run(ask())


@pytest.mark.parametrize(
    "url",
    [
        "http://name:secret@127.0.0.1/v1",
        "http://127.0.0.1/v1?q=a b",
        "http://127.0.0.1/v1?q=ü",
        "http://münchen.example/v1",
        "http://127.0.0.1:0/v1",
        "ftp://127.0.0.1/v1",
        "http://[::1/v1",
    ],
)
def test_an_address_that_is_not_plain_is_left_to_the_general_client(url: str) -> None:
    assert find_route(url) is None


def test_a_proxy_is_left_to_the_general_client(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_route("http://api.example.com/v1") is not None
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:3128")
    assert find_route("http://api.example.com/v1") is None


def test_a_header_of_the_connection_is_left_to_the_general_client() -> None:
    route = find_route("https://api.example.com:443/v1")
    assert route is not None
    assert route.start == "POST /v1 HTTP/1.1\r\nHost: api.example.com\r\n"
    assert write_head(route, {"Host": "other.example.com"}, 2) is None
