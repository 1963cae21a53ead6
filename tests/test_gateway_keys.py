"""Gateway keys through HTTP: who is let in, what a key may use, and that it never goes upstream."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from tests.gateway import CLAUDE, MODEL, chat, priced, serving
from tests.player import Script, answered, playing
from tests.test_gateway import STREAMS
from tests.test_gateway_policy import loop
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


@pytest.mark.parametrize("answers", [128, "128", 128.0])
def test_a_cap_covers_all_answers_that_a_request_asks_for(
    gateway: Gateway, player: Player, answers: object
) -> None:
    _, secret = gateway.kept.keys.create("small", tokens=Limits(month=5_000))
    asked = {**ASKED, "max_tokens": 50}
    many = gateway.ask("/v1/chat/completions", asked | {"n": answers}, headers=bearer(secret))
    assert many.json()["error"]["code"] == "insufficient_quota"
    assert player.requests == []
    for number in (1, None, 0, "many", [2]):
        one = gateway.ask("/v1/chat/completions", asked | {"n": number}, headers=bearer(secret))
        assert one.status == 200


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 1, "max_completion_tokens": 50_000},
        {"max_tokens": 50_000, "max_completion_tokens": 1},
        {"max_tokens": 1, "max_completion_tokens": "50000"},
        {"max_tokens": 1, "n_predict": 50_000},
        {"max_tokens": 1, "n_predict": -1},
    ],
)
def test_a_cap_covers_the_longest_answer_that_any_field_asks_for(
    gateway: Gateway, player: Player, limits: dict[str, Any]
) -> None:
    _, secret = gateway.kept.keys.create("small", tokens=Limits(month=5_000))
    answer = gateway.ask("/v1/chat/completions", {**ASKED, **limits}, headers=bearer(secret))
    assert answer.json()["error"]["code"] == "insufficient_quota"
    assert player.requests == []


@pytest.mark.parametrize("dearer", [{"service_tier": "priority"}, {"speed": "fast"}, {"inference_geo": "us"}])
def test_a_service_that_costs_more_than_usual_is_not_booked_at_the_usual_price(
    gateway: Gateway, player: Player, dearer: dict[str, str]
) -> None:
    _, capped = gateway.kept.keys.create("capped", dollars=Limits(day=Decimal(5)))
    _, free = gateway.kept.keys.create("free")
    refused = gateway.ask("/v1/chat/completions", ASKED | dearer, headers=bearer(capped))
    assert "is unknown, so a cap cannot be checked" in refused.json()["error"]["message"]
    assert player.requests == []
    assert gateway.ask("/v1/chat/completions", ASKED | dearer, headers=bearer(free)).status == 200
    ((account, entry),) = gateway.kept.book.entries()
    assert account.model == f"{MODEL} ({next(iter(dearer.values()))})"
    assert entry.cost is None


def test_a_rate_limit_says_when_to_come_back(gateway: Gateway) -> None:
    _, secret = gateway.kept.keys.create("slow", requests_a_minute=2)
    while time.time() % 60 > 50:  # all requests of the test belong to one minute
        time.sleep(1)
    answers = [gateway.ask("/v1/chat/completions", ASKED, headers=bearer(secret)) for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60
    assert answers[-1].headers["x-should-retry"] == "true"


def loop_body(steps: int = 12, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": loop(steps), **more}


def test_a_key_with_a_largest_limit_trims_each_request_to_it(gateway: Gateway, player: Player) -> None:
    _, secret = gateway.kept.keys.create("small", largest_limit=6_000)
    _, other = gateway.kept.keys.create("free")
    told = gateway.ask("/v1/chat/completions", loop_body(), headers=bearer(secret))
    assert (told.status, told.headers["x-ullage-limit"]) == (200, "6000")
    assert int(told.headers["x-ullage-tokens"]) <= 6_000 < int(told.headers["x-ullage-tokens-before"])
    lower = gateway.ask(
        "/v1/chat/completions", loop_body(), headers={**bearer(secret), "x-ullage-limit": "4000"}
    )
    assert lower.headers["x-ullage-limit"] == "4000"
    free = gateway.ask("/v1/chat/completions", loop_body(), headers=bearer(other))
    assert "x-ullage-tokens-before" not in free.headers
    asked = len(player.requests)
    compacted = gateway.ask(
        "/v1/responses/compact", {"model": MODEL, "input": "word " * 20_000}, headers=bearer(secret)
    )
    assert (compacted.status, compacted.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert len(player.requests) == asked


HEADERS = {
    "limit": ({"largest_limit": 6_000}, {"x-ullage-limit": "6001"}, "at most 6,000 tokens"),
    "policy": ({"policy_fields": ["max_age"]}, {"x-ullage-policy": "low_water=0.5"}, "It may set max_age"),
    "none": ({"policy_fields": []}, {"x-ullage-policy": '{"max_age": 3}'}, "It may set none"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_beyond_what_the_key_allows_is_refused_and_nothing_is_sent(
    gateway: Gateway, player: Player, case: str
) -> None:
    rights, headers, words = HEADERS[case]
    _, secret = gateway.kept.keys.create("strict", **rights)
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
        body = {"model": MODEL, "messages": ASKED["messages"], "input": "Where?", "max_tokens": 9}
        told = gateway.ask(path, body, headers={**bearer(secret), **headers})
        assert (told.status, told.json()["error"]["type"]) == (403, "permission_error")
        assert words in told.json()["error"]["message"]
        assert told.headers["x-should-retry"] == "false"
    assert not player.requests
    with (
        openai.OpenAI(api_key=secret, base_url=f"{gateway.url}/v1", default_headers=headers) as client,
        pytest.raises(openai.PermissionDeniedError, match=words),
    ):
        client.responses.create(model=MODEL, input="Where?")
    asked = {"model": MODEL, "max_tokens": 9, "messages": ASKED["messages"]}
    with (
        anthropic.Anthropic(api_key=secret, base_url=gateway.url, default_headers=headers) as client,
        pytest.raises(anthropic.PermissionDeniedError, match=words),
    ):
        client.messages.create(**asked)
    assert gateway.ask("/v1/chat/completions", ASKED, headers=bearer(secret)).status == 200
    allowed = {**bearer(secret), "x-ullage-policy": "max_age=3"}
    status = gateway.ask("/v1/chat/completions", ASKED, headers=allowed).status
    assert status == (403 if case == "none" else 200)


def test_a_limit_in_a_header_holds_for_a_model_with_an_unknown_window(player: Player) -> None:
    with serving(priced(player.url, window=None)) as gateway:
        told = gateway.ask(
            "/v1/chat/completions",
            {**loop_body(), "model": "nobody-knows"},
            headers={"x-ullage-limit": "6000"},
        )
        assert told.headers["x-ullage-limit"] == "6000"
        assert int(told.headers["x-ullage-tokens"]) <= 6_000


def test_a_revoked_key_is_refused_within_two_seconds(gateway: Gateway) -> None:
    _, secret = gateway.kept.keys.create("team")

    def status() -> int:
        return gateway.ask("/v1/models", headers=bearer(secret)).status

    assert status() == 200
    gateway.kept.keys.revoke("team")
    end = time.monotonic() + 2
    assert until(lambda: time.monotonic() >= end)
    assert status() == 401


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
