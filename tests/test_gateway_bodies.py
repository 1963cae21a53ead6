"""Bodies that cost much more memory or time than their bytes."""

from __future__ import annotations

import gzip
import socket
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.gateway import MODEL, Gateway, chat, serving
from tests.player import Script, answered, playing
from tests.test_gateway_strength import post, raw
from tests.world import PATIENCE, until
from ullage.gateway import body_room, request
from ullage.gateway.body_room import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.enable_socket

CALL = "/v1/chat/completions"
ASKED = orjson.dumps(chat("Where is the harbour?"))
BEGIN = b'{"model":"%b","messages":[' % MODEL.encode()
ZIPPED = {"content-encoding": "gzip"}


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with playing(Script(body=answered("Ahoy"))) as player, serving(player.url) as running:
        yield running


@pytest.mark.parametrize(
    "value", [b"[]", b"{}", b"1", b'{"role":"user","content":"a"}', b'"\\"a"', b"[[[[[1]]]]]"]
)
def test_a_small_body_of_very_many_values_is_refused(gateway: Gateway, value: bytes) -> None:
    body = BEGIN + b",".join([value] * 600_000) + b"]}"
    answer = gateway.ask(CALL, gzip.compress(body, 1), headers=ZIPPED)
    assert answer.status == 413
    assert "500,000 values" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "text", ["1,2,[3],{4}", 'He said: \\"a, b\\", and [c].', "C:\\\\, [a], ", "no end, ,"]
)
def test_marks_inside_texts_are_no_values(gateway: Gateway, text: str) -> None:
    written = b'{"role":"user","content":"%b"}' % (text * 300_000).encode()
    answer = gateway.ask(CALL, BEGIN + written + b"]}")
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_a_text_without_an_end_is_no_json(gateway: Gateway) -> None:
    answer = gateway.ask(CALL, BEGIN + b'"' + b'\\",' * 1_000_000)
    assert answer.status == 400
    assert "is not JSON" in answer.json()["error"]["message"]


def test_large_bodies_under_way_share_a_fixed_room(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_room, "MOST_UNDER_WAY", 3 * SMALL)
    room = gateway.app._room
    large = b"%b%b%b" % (ASKED[:-1], b" " * 2 * SMALL, b"}")
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
        connection.sendall(post(large)[:-10])
        assert until(lambda: room.used > 1.9 * SMALL)
        refused = gateway.ask(CALL, gzip.compress(large), headers=ZIPPED)
        assert refused.status == 503
        assert refused.headers["x-should-retry"] == "true"
        assert gateway.ask(CALL, ASKED).status == 200
    assert until(lambda: room.used == 0)
    assert gateway.ask(CALL, large).status == 200
    assert until(lambda: room.used == 0)


def test_a_body_that_trickles_for_too_long_is_refused(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "MOST_SECONDS", 0.2)
    answer = raw(gateway, post(ASKED, "Connection: close")[:-10])
    assert b" 408 " in answer
    assert b'"request_timeout"' in answer
