"""The gateway's side of HTTP: limits on heads, times and unread answers, and clients of other versions."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.gateway import MODEL, Gateway, chat, serving
from tests.player import Script, answered, playing
from tests.test_gateway_strength import post, raw
from tests.world import PATIENCE, until
from ullage.gateway import client_protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.player import Player

pytestmark = pytest.mark.enable_socket

ANSWER = answered("Ahoy", 10, 1)
ASKED = orjson.dumps(chat("Where is the harbour?", stream=True))
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")


@pytest.fixture
def player() -> Iterator[Player]:
    with playing(Script(body=ANSWER)) as playing_now:
        yield playing_now


@pytest.fixture
def gateway(player: Player) -> Iterator[Gateway]:
    with serving(player.url) as running:
        yield running


def is_refused(gateway: Gateway, start: bytes, piece: bytes) -> bool:
    """Sends the piece again and again, and returns True if it is not taken any more."""
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
        connection.sendall(start)
        try:
            for _ in range(2_000):
                connection.sendall(piece)
        except ConnectionError:
            return True
    return False


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (HEAD + b"X-Long: ", b"a" * 65_536),
        (HEAD, b"X-More: yes\r\n" * 5_000),
        (b"GET /", b"a" * 65_536),
        (b"", b"\r\n" * 30_000),
        (CHUNKED + b"1\r\n{\r\n0\r\n", b"X-Trailer: yes\r\n" * 5_000),
        (CHUNKED + b"1;", b"a" * 65_536),
        (b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1_500),
    ],
    ids=["value", "headers", "address", "empty lines", "trailers", "chunk extension", "pipeline"],
)
def test_what_never_ends_is_refused_and_not_kept(gateway: Gateway, start: bytes, piece: bytes) -> None:
    assert is_refused(gateway, start, piece)
    assert gateway.ask("/healthz").status == 200


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"400", None),
        (HEAD + b"X-Long: " + b"a" * 100_000, b"431", "request_head_too_large"),
        (b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\n\r\n", b"400", None),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_as_the_sdks_expect(
    gateway: Gateway, sent: bytes, status: bytes, code: str | None
) -> None:
    head, _, body = raw(gateway, sent).partition(b"\r\n\r\n")
    error = orjson.loads(body)["error"]
    assert head[9:12] == status
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert b"x-should-retry: false" in head


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/comp"])
def test_a_client_that_never_sends_its_head_is_let_go(
    gateway: Gateway, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_protocol, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(client_protocol, "LOOK_SECONDS", 0.05)
    answer = raw(gateway, sent)
    assert (b" 408 " in answer and b'"request_timeout"' in answer) if sent else answer == b""


def test_a_client_that_stops_reading_is_let_go_and_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_protocol, "UNREAD_SECONDS", 0.2)
    monkeypatch.setattr(client_protocol, "LOOK_SECONDS", 0.05)
    endless = ANSWER[: ANSWER.index(b"\n\n") + 2] * 200_000
    with (
        playing(Script(body=endless)) as player,
        serving(player.url, buffer=4_096) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection,
    ):
        connection.sendall(post(ASKED))
        assert player.wait_left()
        assert until(lambda: gateway.metric('ullage_clients_gone_total{api="openai.chat"}') == 1)
        assert until(lambda: sum(entry.calls for entry in gateway.booked()) == 1)


def test_a_slow_client_of_a_running_answer_is_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_protocol, "LOOK_SECONDS", 0.02)
    script = Script(body=ANSWER, piece=1_000, held_at=0)
    with (
        playing(script) as player,
        serving(player.url) as gateway,
        ThreadPoolExecutor(1) as client,
    ):
        asking = client.submit(gateway.ask, "/v1/chat/completions", ASKED)
        assert player.wait_asked()
        monkeypatch.setattr(client_protocol, "HEAD_SECONDS", 0.0)
        wait([asking], timeout=0.2)  # the connection is looked at several times
        script.released.set()
        assert asking.result(PATIENCE).body == ANSWER


def test_a_trailer_is_not_taken_for_a_header(gateway: Gateway, player: Player) -> None:
    trailers = b"x-ullage-limit: 3\r\nauthorization: Bearer of-somebody\r\n"
    sent = CHUNKED + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(ASKED), ASKED, trailers)
    assert b" 200 OK" in raw(gateway, sent)
    assert "authorization" not in player.requests[0].headers


def test_a_client_of_the_first_version_gets_its_stream_without_lengths(gateway: Gateway) -> None:
    sent = post(ASKED).replace(b"HTTP/1.1", b"HTTP/1.0")
    head, _, body = raw(gateway, sent).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body == ANSWER
    alone = raw(gateway, b"HEAD / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
    assert alone.endswith(b"connection: close\r\n\r\n")


@pytest.mark.parametrize("cut", [0, 30, 150, -40])
def test_a_request_that_offers_another_protocol_is_answered_in_this_one(
    gateway: Gateway, player: Player, cut: int
) -> None:
    """Java's client offers HTTP/2 with each request, and wants its answer whether or not that is taken."""
    sent = post(ASKED, *OFFER)
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (sent[:cut], sent[cut:] + sent + post(ASKED, "Connection: close")):
            connection.sendall(piece)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert [request.json()["model"] for request in player.requests] == [MODEL] * 3
    assert not {"upgrade", "http2-settings"} & set(player.requests[0].headers)
