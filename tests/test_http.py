"""The transport opens, keeps, closes and gives up connections, and names what fails."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest

from tests.player import Script, playing, sent_json
from tests.world import PATIENCE
from ullage.broker.endpoint import Timeouts
from ullage.broker.http import Transport
from ullage.broker.proxy import proxy_for
from ullage.broker.resolver import DaemonResolver
from ullage.errors import ConfigurationError, ProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.player import Player

pytestmark = pytest.mark.enable_socket

PATIENT = Timeouts(connect=20.0, first=60.0, between=60.0)
CERTIFICATE = Path(__file__).with_name("loopback.pem")
"""For 127.0.0.1, with its key; made for these tests, and no secret."""
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def posted(transport: Transport, url: str, body: bytes = b"{}") -> bytes:
    async with transport.post(url, {}, body, PATIENT) as reply:
        return await reply.read()


def in_transport(work: Callable[[Transport], Awaitable[None]], roots: bytes = b"") -> None:
    async def main() -> None:
        async with Transport(roots=roots) as transport:
            await work(transport)

    asyncio.run(main())


# Giving up


async def begun(player: Player) -> None:
    while not player.requests:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("script", [Script(silent=True), Script(body=b"x" * 9, stall_at=3)])
def test_a_request_that_is_cancelled_closes_its_connection_at_once(script: Script) -> None:
    async def work(transport: Transport) -> None:
        task = asyncio.create_task(posted(transport, player.url))
        await begun(player)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The transport is still open: nothing but the cancel has closed the connection.
        assert await asyncio.to_thread(player.wait_left)

    with playing(script) as player:
        in_transport(work)


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """A server that takes connections and never reads from them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_a_request_that_is_half_sent_is_not_sent_to_its_end_when_it_is_cancelled(deaf: socket.socket) -> None:
    async def work(transport: Transport) -> None:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        task = asyncio.create_task(posted(transport, url, b"x" * 50_000_000))
        loop = asyncio.get_running_loop()
        deaf.setblocking(False)
        taken, _ = await loop.sock_accept(deaf)
        with taken:
            await asyncio.sleep(0.1)  # as much as fits is on its way
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            taken.setblocking(False)
            assert await asyncio.wait_for(read_to_end(taken), 30) < 50_000_000

    in_transport(work)


async def read_to_end(taken: socket.socket) -> int:
    """How many bytes come until the other side has closed or reset the connection."""
    loop, size = asyncio.get_running_loop(), 0
    try:
        while piece := await loop.sock_recv(taken, 1 << 20):
            size += len(piece)
    except ConnectionResetError:
        pass
    return size


@pytest.mark.parametrize("script", [Script(silent=True), Script(body=b"x" * 9, stall_at=3)])
def test_closing_the_transport_ends_the_requests_that_are_under_way(script: Script) -> None:
    async def main(player: Player) -> None:
        async with Transport() as transport:
            task = asyncio.create_task(posted(transport, player.url))
            await begun(player)
            await asyncio.sleep(0.05)
            await transport.close()
            with pytest.raises(ProviderError, match="was closed") as caught:
                await asyncio.wait_for(task, 20)
            assert caught.value.code == "closed"

    with playing(script) as player:
        asyncio.run(main(player))


def test_a_name_server_that_does_not_answer_holds_nobody_up() -> None:
    asked, over = threading.Event(), threading.Event()

    def look_up(*_: object) -> list[object]:
        asked.set()
        over.wait(60)
        return []

    async def main() -> None:
        task = asyncio.create_task(DaemonResolver(look_up).resolve("host.example", 80))
        while not asked.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.monotonic()
    try:
        asyncio.run(main())
        assert time.monotonic() - started < 30
    finally:
        over.set()


# What comes


@contextmanager
def closing_server(*, answers: int) -> Iterator[tuple[str, list[int]]]:
    """A server that answers so many requests of each connection, and then closes it when another one comes.

    Yields its address and the number of requests of each connection.
    """
    seen: list[int] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                seen.append(0)
                with connection, connection.makefile("rb") as lines:
                    while _read_request(lines):
                        seen[-1] += 1
                        if seen[-1] > answers:
                            break
                        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


def _read_request(lines: BinaryIO) -> bytes:
    head = b""
    while (line := lines.readline()) not in (b"", b"\r\n"):
        head += line
    size = re.search(rb"(?i)content-length: (\d+)", head)
    lines.read(int(size[1]) if size else 0)
    return head


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_request_on_a_connection_that_the_server_has_closed_is_sent_again(size: int) -> None:
    with closing_server(answers=1) as (url, seen):

        async def work(transport: Transport) -> None:
            for _ in range(3):
                assert await posted(transport, url, b"x" * size) == b"{}"

        in_transport(work)
    assert seen == [2, 2, 1]


def test_a_request_on_a_new_connection_is_sent_once_although_it_is_closed() -> None:
    with closing_server(answers=0) as (url, seen):

        async def work(transport: Transport) -> None:
            with pytest.raises(ProviderError, match="closed the connection before it answered"):
                await posted(transport, url)

        in_transport(work)
    assert seen == [1]


def test_what_came_before_a_reset_is_handed_on_to_a_reader_that_is_late() -> None:
    async def work(transport: Transport) -> None:
        async with transport.post(player.url, {}, b"{}", PATIENT) as reply:
            await asyncio.sleep(0.3)  # the bytes and the reset are there before anybody reads
            chunks = reply.chunks()
            assert await anext(chunks) == b"x" * 1000
            with pytest.raises(ProviderError) as caught:
                await anext(chunks)
            assert caught.value.code == "cut"

    with playing(Script(body=b"x" * 2000, cut_at=1000, reset=True)) as player:
        in_transport(work)


def test_an_answer_that_is_compressed_is_refused_and_not_unpacked() -> None:
    async def work(transport: Transport) -> None:
        with pytest.raises(ProviderError, match="compressed") as caught:
            await posted(transport, player.url)
        assert caught.value.code == "encoding"

    bomb = gzip.compress(bytes(10_000_000))
    with playing(Script(body=bomb, headers={"content-encoding": "gzip"})) as player:
        in_transport(work)
        assert player.requests[0].headers["accept-encoding"] == "identity"


def test_a_cookie_is_not_kept() -> None:
    async def work(transport: Transport) -> None:
        for _ in range(2):
            await posted(transport, player.url.replace("127.0.0.1", "localhost"))

    with playing(Script(body=b"x", headers={"set-cookie": "a=b"})) as player:
        in_transport(work)
        assert "cookie" not in player.requests[1].headers


def test_a_name_and_a_password_in_the_address_are_sent_as_a_header() -> None:
    async def work(transport: Transport) -> None:
        await posted(transport, player.url.replace("//", "//me:p%40ss@"))

    with playing(Script(body=b"x")) as player:
        in_transport(work)
        assert player.requests[0].headers["authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize(
    ("name", "value"), [("x-a", "b\r\nx-c: d"), ("x a", "b"), ("x-a", "\0"), ("x-a", "ü")]
)
def test_a_header_that_cannot_be_sent_is_a_configuration_error(name: str, value: str) -> None:
    async def work(transport: Transport) -> None:
        with pytest.raises(ConfigurationError, match="cannot be sent"):
            async with transport.post("http://127.0.0.1:1", {name: value}, b"", PATIENT):
                pass

    in_transport(work)


def test_an_integer_of_more_than_64_bits_is_sent() -> None:
    async def work(transport: Transport) -> None:
        assert await transport.json("POST", player.url, {}, {"a": 2**70}, 20) == (200, 1)

    with playing(sent_json(1)) as player:
        in_transport(work)
        assert player.requests[0].body == b'{"a":1180591620717411303424}'


# TLS


@pytest.fixture
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def test_a_certificate_that_is_not_known_is_refused_and_one_of_the_users_own_is_taken(
    tls: ssl.SSLContext,
) -> None:
    async def refused(transport: Transport) -> None:
        with pytest.raises(ProviderError, match="not trusted here") as caught:
            await posted(transport, player.url)
        assert (caught.value.code, caught.value.may_retry) == ("tls", False)

    async def taken(transport: Transport) -> None:
        assert await posted(transport, player.url) == b"x"

    with playing(Script(body=b"x"), tls=tls) as player:
        in_transport(refused)
        in_transport(taken, roots=CERTIFICATE.read_bytes())


def test_certificates_that_are_none_are_a_configuration_error() -> None:
    async def work(transport: Transport) -> None:
        with pytest.raises(ConfigurationError, match="PEM"):
            await posted(transport, "https://127.0.0.1:1")

    in_transport(work, roots=b"no certificate")


def test_a_host_that_is_not_there_is_told() -> None:
    async def work(transport: Transport) -> None:
        with pytest.raises(ProviderError, match=r"no such host: http://nowhere\.invalid") as caught:
            await posted(transport, "http://nowhere.invalid/v1")
        assert (caught.value.code, caught.value.may_retry) == ("unknown_host", True)

    in_transport(work)


def test_a_server_that_speaks_no_http_is_told(deaf: socket.socket) -> None:
    async def work(transport: Transport) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(posted(transport, f"http://127.0.0.1:{deaf.getsockname()[1]}"))
        deaf.setblocking(False)
        taken, _ = await loop.sock_accept(deaf)
        with taken:
            await loop.sock_sendall(taken, b"220 mail.example ESMTP\r\n\r\n")
            with pytest.raises(ProviderError, match="does not speak HTTP") as caught:
                await task
        assert caught.value.code == "connection"

    in_transport(work)


# Proxies


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, "https://api.example/v1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://api.example/v1", None),
        ({"https_proxy": "p:1"}, "https://api.example/v1", "http://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "https://api.example/v1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other,.example"}, "https://api.example/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://api.example/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://10.1.2.3/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://11.1.2.3/v1", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "ALL_PROXY": "http://p:1"}, "http://127.0.0.7:80/v1", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://localhost:80/v1", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://[::1]:80/v1", None),
    ],
)
def test_the_environment_names_the_proxy(
    variables: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = proxy_for(url)
    assert (None if found is None else found.url) == proxy


def test_a_proxy_that_cannot_be_used_is_told_and_not_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    for proxy in ("socks5://me:secret@p:1", "http://me:secret@[p", "http://me:secret@p:high", "secret://"):
        monkeypatch.setenv("ALL_PROXY", proxy)
        with pytest.raises(ConfigurationError, match="cannot be used") as caught:
            proxy_for("https://api.example/v1")
        assert "me:secret" not in str(caught.value)


def test_a_proxy_gets_its_password_and_the_server_does_not_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(transport: Transport) -> None:
        await posted(transport, "http://api.example/v1")
        with pytest.raises(ProviderError, match=r"the proxy cannot reach https://api\.example") as caught:
            await posted(transport, "https://api.example/v1")
        assert "pass" not in str(caught.value)

    with playing(Script(body=b"x"), Script(status=407)) as proxy:
        address = proxy.url.replace("//", "//me:pass@")
        monkeypatch.setenv("HTTP_PROXY", address)
        monkeypatch.setenv("HTTPS_PROXY", address)
        in_transport(work)
        plain, tunnel = proxy.requests
    assert plain.headers["proxy-authorization"] == "Basic bWU6cGFzcw=="
    assert (tunnel.method, tunnel.path) == ("CONNECT", "api.example:443")
    assert tunnel.headers["proxy-authorization"] == "Basic bWU6cGFzcw=="


# Coming and going

PROGRAM = """
import asyncio, sys, warnings
warnings.simplefilter("error")
import ullage.broker.remote
assert "aiohttp" not in sys.modules, "it is loaded before anything is sent"
from ullage.broker.endpoint import Endpoint
from ullage.broker.ask import Ask
from ullage.broker.remote import RemoteProvider

async def main():
    provider = RemoteProvider(Endpoint(url=sys.argv[1], model="m"))
    async for event in provider.stream(Ask(messages=({"role": "user", "content": "Hello"},))):
        print(type(event).__name__)
    if sys.argv[2] == "close":
        await provider.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["close", "forget"])
def test_a_program_leaves_without_a_word_whether_it_closes_its_provider_or_not(end: str) -> None:
    body = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    with playing(Script(body=body)) as player:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, player.url, end],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Text\nFinished\n", "")
