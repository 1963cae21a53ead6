"""A request that seems too long is counted by its upstream before it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway import CLAUDE, MODEL, serving
from tests.player import Request, Script, playing, sent_json
from ullage import count_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.target import ApiName

pytestmark = pytest.mark.enable_socket

WORDS = (
    "Reads the logbook of the harbour, from its first page to the last, and tells the names of all boats. "
)
SCHEMA = {"type": "object", "properties": {"page": {"type": "string", "description": WORDS}}}
NAMES = [f"read_{number}" for number in range(40)]


def body_of(api: ApiName) -> dict[str, Any]:
    """The first request of an agent with many tools."""
    if api == "anthropic.messages":
        tools: list[dict[str, Any]] = [
            {"name": name, "description": WORDS * 3, "input_schema": SCHEMA} for name in NAMES
        ]
        asked = [{"role": "user", "content": "Read on."}]
        fields = {"max_tokens": 100, "metadata": {"user_id": "u"}, "stream": False}
        return {"model": CLAUDE, "messages": asked, "tools": tools, **fields}
    tools = [
        {"type": "function", "name": name, "description": WORDS * 3, "parameters": SCHEMA} for name in NAMES
    ]
    return {"model": MODEL, "input": "Read on.", "tools": tools, "max_output_tokens": 100, "store": False}


ROUTES: dict[ApiName, tuple[str, str]] = {
    "anthropic.messages": ("/v1/messages", "/v1/messages/count_tokens"),
    "openai.responses": ("/v1/responses", "/v1/responses/input_tokens"),
}
USED = {"input_tokens": 3_000, "output_tokens": 5}


def play(counted: Script) -> Callable[[Request], Script]:
    """An upstream whose route that counts plays this script."""
    answer = sent_json({"id": "r", "content": [], "output": [], "usage": USED})
    routes = {counting for _, counting in ROUTES.values()}
    return lambda request: counted if request.path in routes else answer


def window_for(api: ApiName) -> int:
    """A window that the request does not fit into by our count."""
    return count_request(body_of(api), api).tokens * 6 // 7


@pytest.mark.parametrize("api", ROUTES)
def test_a_request_that_only_our_count_finds_too_long_is_sent(api: ApiName) -> None:
    path, counting = ROUTES[api]
    body = body_of(api)
    window = window_for(api)
    told = {"input_tokens": window * 3 // 4}
    with playing(play(sent_json(told))) as player, serving(player.url, window=window) as gateway:
        answer = gateway.ask(path, body, headers={"authorization": "Bearer sk-own"})
        assert answer.status == 200
        assert [each.path for each in player.requests] == [counting, path]
        asked = player.requests[0]
        assert asked.headers["authorization"] == "Bearer sk-own"
        assert {"max_tokens", "metadata", "stream", "store"}.isdisjoint(asked.json())
        assert asked.json()["tools"] == body["tools"]
        assert player.requests[1].json()["tools"] == body["tools"]
        assert gateway.ask(path, body).status == 200
        assert len(player.requests) == 3  # what was learned is enough for the next request


OTHERS = {
    "too long": sent_json({"input_tokens": 1_000_000}),
    "absent": sent_json({"error": {"message": "no such route"}}, 404),
    "refused": sent_json({"error": {"message": "extra inputs"}}, 400),
    "no number": sent_json({"input_tokens": "many"}),
    "no object": sent_json([3]),
    "no JSON": Script(body=b"hello", kind="text/plain", framing="length"),
    "cut": Script(cut_at=0),
}


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("api", ROUTES)
def test_a_request_that_the_upstream_does_not_find_short_is_refused_with_its_biggest_block(
    api: ApiName, case: str
) -> None:
    path, _ = ROUTES[api]
    with playing(play(OTHERS[case])) as player, serving(player.url, window=window_for(api)) as gateway:
        answer = gateway.ask(path, body_of(api))
        assert answer.status == 400
        message = answer.json()["error"]["message"]
        assert "The biggest block is tools (" in message
        assert path not in [each.path for each in player.requests]


def test_a_request_that_no_count_could_make_fit_is_refused_at_once() -> None:
    body = body_of("anthropic.messages")
    window = count_request(body, "anthropic.messages").tokens * 2 // 5
    with (
        playing(play(sent_json({"input_tokens": 10}))) as player,
        serving(player.url, window=window) as gateway,
    ):
        assert gateway.ask("/v1/messages", body).status == 400
    assert player.requests == []


def test_an_upstream_is_asked_only_until_its_counts_are_known() -> None:
    api: ApiName = "anthropic.messages"
    path, counting = ROUTES[api]
    told = sent_json({"input_tokens": window_for(api) + 1})
    with playing(play(told)) as player, serving(player.url, window=window_for(api)) as gateway:
        for _ in range(9):
            assert gateway.ask(path, body_of(api)).status == 400
        assert [each.path for each in player.requests] == [counting] * 5


def test_a_chat_request_has_no_such_route_and_is_refused() -> None:
    def refuse(request: Request) -> Script:
        raise AssertionError(request.path)

    tool = {"type": "function", "function": {"name": "read", "description": WORDS * 99}}
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Read on."}], "tools": [tool]}
    with playing(refuse) as player, serving(player.url, window=1_000) as gateway:
        answer = gateway.ask("/v1/chat/completions", body)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert not player.requests
