"""Gateway keys through HTTP: who is let in, what a key may use, and that it never goes upstream."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway import CLAUDE, MODEL, chat, priced, serving
from tests.player import Script, answered, playing
from tests.test_gateway import STREAMS
from tests.world import PATIENCE, until
from ullage.cost.keys import Limits
from ullage.gateway.app import ROUTES
from ullage.store.keys import KeyStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway import Gateway
    from tests.player import Player

pytestmark = pytest.mark.enable_socket

ALIVE = {"/healthz", "/readyz"}
"""They tell nothing but that the process runs."""
FORM = {"/page/page.css", "/page/page.js", "/page/icon.svg", "/page/login", "/page/logout"}
"""The form for the key of the page, which has no data."""
OPEN = ALIVE | FORM
"""The routes that need no key."""
ASKED = chat("Where is the harbour?", max_tokens=100)


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@pytest.fixture
def player() -> Iterator[Player]:
    with playing(Script(body=answered("Ahoy there", 20, 4))) as running:
        yield running


@pytest.fixture
def gateway(player: Player) -> Iterator[Gateway]:
    with serving(priced(player.url)) as running:
        yield running


@pytest.mark.parametrize("path", sorted({*ROUTES, "/v1/models/gpt-5.1"} - OPEN))
@pytest.mark.parametrize("headers", [{}, bearer("ullage-unknown"), {"x-api-key": "sk-own"}])
def test_no_route_goes_around_the_keys(
    gateway: Gateway, player: Player, path: str, headers: dict[str, str]
) -> None:
    gateway.kept.keys.create("team")
    method = ROUTES[path].method if path in ROUTES else "GET"
    assert gateway.ask(path, ASKED if method == "POST" else None, headers=headers).status == 401
    assert player.requests == []
    assert gateway.booked() == []


def test_requests_that_come_while_the_store_is_asked_for_keys_wait(
    gateway: Gateway, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.kept.keys.create("team")
    is_asked, may_answer = threading.Event(), threading.Event()

    def exist(_: KeyStore) -> bool:
        is_asked.set()
        return may_answer.wait(PATIENCE)

    monkeypatch.setattr(KeyStore, "exist", exist)
    with ThreadPoolExecutor(8) as crowd:
        first = crowd.submit(gateway.ask, "/v1/chat/completions", ASKED)
        assert is_asked.wait(PATIENCE)
        others = [crowd.submit(gateway.ask, "/v1/chat/completions", ASKED) for _ in range(7)]
        wait(others, timeout=0.2)
        may_answer.set()
        assert [each.result().status for each in (first, *others)] == [401] * 8
    assert player.requests == []


@pytest.mark.parametrize("path", sorted(ALIVE))
def test_the_probes_of_an_operator_need_no_key(gateway: Gateway, path: str) -> None:
    gateway.kept.keys.create("team")
    assert gateway.ask(path).status == 200


@pytest.mark.parametrize(
    ("name", "header"), [("chat", "authorization"), ("responses", "api-key"), ("messages", "x-api-key")]
)
def test_a_gateway_key_is_never_sent_upstream(name: str, header: str) -> None:
    bodies = {
        "chat": ("/v1/chat/completions", ASKED),
        "responses": ("/v1/responses", {"model": MODEL, "input": "Hi"}),
        "messages": (
            "/v1/messages",
            {"model": CLAUDE, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
        ),
    }
    with playing(Script(body=STREAMS[name])) as player, serving(player.url) as gateway:
        _, secret = gateway.kept.keys.create("team")
        value = f"Bearer {secret}" if header == "authorization" else secret
        path, body = bodies[name]
        extra = {"cookie": "session=mine", "proxy-authorization": f"Basic {secret}"}
        assert gateway.ask(path, body, headers={header: value, **extra}).status == 200
        (sent,) = player.requests
        assert secret not in str(sent.headers) + sent.body.decode()
        assert "mine" not in str(sent.headers)


def test_a_key_uses_only_its_models(gateway: Gateway, player: Player) -> None:
    _, secret = gateway.kept.keys.create("team", models=["claude-*"])
    refused = gateway.ask("/v1/chat/completions", ASKED, headers=bearer(secret))
    assert (refused.status, player.requests) == (403, [])
    assert MODEL in refused.json()["error"]["message"]
    allowed = ASKED | {"model": CLAUDE}
    assert gateway.ask("/v1/chat/completions", allowed, headers=bearer(secret)).status == 200


@pytest.mark.parametrize(
    "caps",
    [{"dollars": Limits(day=Decimal("0.0014"))}, {"tokens": Limits(month=250)}],
    ids=["dollars", "tokens"],
)
def test_a_cap_of_a_key_ends_its_calls_and_no_others(
    gateway: Gateway, player: Player, caps: dict[str, Any]
) -> None:
    key, secret = gateway.kept.keys.create("small", **caps)
    _, other = gateway.kept.keys.create("large")
    statuses = [gateway.ask("/v1/chat/completions", ASKED, headers=bearer(secret)).status for _ in range(12)]
    passed = statuses.count(200)
    assert statuses == [200] * passed + [429] * (12 - passed)
    assert 0 < passed < 12
    refused = gateway.ask("/v1/chat/completions", ASKED, headers=bearer(secret))
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert refused.headers["x-should-retry"] == "false"
    assert gateway.ask("/v1/chat/completions", ASKED, headers=bearer(other)).status == 200
    assert len(player.requests) == passed + 1
    (entry,) = [entry for account, entry in gateway.kept.book.entries(key=key.id)]
    assert entry.calls == passed


def test_a_rate_limit_says_when_to_come_back(gateway: Gateway) -> None:
    _, secret = gateway.kept.keys.create("slow", requests_a_minute=2)
    while time.time() % 60 > 50:  # all requests of the test belong to one minute
        time.sleep(1)
    answers = [gateway.ask("/v1/chat/completions", ASKED, headers=bearer(secret)) for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60
    assert answers[-1].headers["x-should-retry"] == "true"


def test_a_revoked_key_is_refused_within_two_seconds(gateway: Gateway) -> None:
    _, secret = gateway.kept.keys.create("team")

    def status() -> int:
        return gateway.ask("/v1/models", headers=bearer(secret)).status

    assert status() == 200
    gateway.kept.keys.revoke("team")
    revoked = time.monotonic()
    assert until(lambda: status() == 401)
    assert time.monotonic() - revoked < 2 + 1  # a second for a busy machine


def test_a_rotated_key_works_with_both_secrets_during_its_grace(gateway: Gateway) -> None:
    key, old = gateway.kept.keys.create("team")
    same, new = gateway.kept.keys.rotate("team", grace=600)
    for secret in (old, new):
        assert gateway.ask("/v1/chat/completions", ASKED, headers=bearer(secret)).status == 200
    assert same.id == key.id
    assert sum(entry.calls for _, entry in gateway.kept.book.entries(key=key.id)) == 2
    _, newest = gateway.kept.keys.rotate("team")
    assert until(lambda: gateway.ask("/v1/models", headers=bearer(old)).status == 401)
    assert gateway.ask("/v1/models", headers=bearer(newest)).status == 200


def test_a_secret_appears_in_no_answer_and_no_metric(gateway: Gateway) -> None:
    _, secret = gateway.kept.keys.create("team", models=["claude-*"])
    for path in ("/metrics", "/v1/models", "/openapi.json"):
        assert secret.encode() not in gateway.ask(path, headers=bearer(secret)).body
    refused = gateway.ask("/v1/chat/completions", ASKED, headers=bearer(secret))
    assert secret.encode() not in refused.body
    assert b"unknown-secret" not in gateway.ask("/v1/models", headers=bearer("unknown-secret")).body
