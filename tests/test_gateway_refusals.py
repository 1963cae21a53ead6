"""The official SDKs turn the gateway's refusals into their own exceptions, and try again what they should."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from tests.gateway import MODEL, chat, priced, serving
from tests.player import Script, answered, playing, sent_json
from tests.test_gateway import MESSAGE_STREAM, RESPONSE_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.enable_socket

LONG = "harbour " * 4_000
CAPPED = """\
[cost]
cap_at_dollars_a_day = 0.000001
"""


def ask_chat(url: str, text: str, model: str = MODEL, **more: Any) -> Any:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-own", max_retries=1) as client:
        made = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], **more
        )
        return list(made) if more.get("stream") else made


def ask_responses(url: str, text: str, model: str = MODEL, **more: Any) -> Any:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-own", max_retries=1) as client:
        made = client.responses.create(model=model, input=text, **more)
        return list(made) if more.get("stream") else made


def ask_messages(url: str, text: str, model: str = "claude-opus-4-6", **more: Any) -> Any:
    with anthropic.Anthropic(base_url=url, api_key="sk-own", max_retries=1) as client:
        made = client.messages.create(
            model=model, max_tokens=100, messages=[{"role": "user", "content": text}], **more
        )
        return list(made) if more.get("stream") else made


ASKS: dict[str, Callable[..., Any]] = {
    "chat": ask_chat,
    "responses": ask_responses,
    "messages": ask_messages,
}
STREAMS = {"chat": answered("Ahoy"), "responses": RESPONSE_STREAM, "messages": MESSAGE_STREAM}
ERRORS = {"chat": openai, "responses": openai, "messages": anthropic}


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_overflow_is_a_bad_request_and_is_not_sent(name: str, stream: bool) -> None:
    with (
        playing(Script()) as player,
        serving(player.url, window=2_000) as gateway,
        pytest.raises(ERRORS[name].BadRequestError) as caught,
    ):
        ASKS[name](gateway.url, LONG, stream=stream)
    assert player.requests == []
    assert len(caught.value.request_id) == 32
    if name == "messages":
        assert "prompt is too long: " in str(caught.value)
        assert " tokens > " in str(caught.value)
    else:
        assert caught.value.code == "context_length_exceeded"


def test_codex_gets_an_overflow_inside_a_stream() -> None:
    body = {"model": MODEL, "input": LONG, "stream": True}
    with playing(Script()) as player, serving(player.url, window=2_000) as gateway:
        answer = gateway.ask("/v1/responses", body, headers={"originator": "codex_exec"})
    assert answer.status == 200
    assert answer.body.startswith(b"event: response.failed\n")
    assert b"context_length_exceeded" in answer.body


@pytest.mark.parametrize("name", ASKS)
def test_a_spent_cap_is_a_rate_limit_that_is_not_tried_again(name: str) -> None:
    with playing(Script()) as player, serving(priced(player.url), config=CAPPED) as gateway:
        with pytest.raises(ERRORS[name].RateLimitError) as caught:
            ASKS[name](gateway.url, "Hi")
        assert gateway.metric(f'ullage_refused_total{{api="{_api(name)}",reason="cap"}}') == 1
    assert player.requests == []
    if name != "messages":
        assert caught.value.code == "insufficient_quota"


@pytest.mark.parametrize("name", ASKS)
def test_a_wrong_key_is_an_authentication_error_that_is_not_tried_again(name: str) -> None:
    with playing(Script()) as player, serving(player.url) as gateway:
        gateway.kept.keys.create("team")
        with pytest.raises(ERRORS[name].AuthenticationError, match="This key is unknown"):
            ASKS[name](gateway.url, "Hi")
        state = gateway.app.metrics.text({})
    assert f'ullage_refused_total{{api="{_api(name)}",reason="key"}} 1' in state
    assert player.requests == []


@pytest.mark.parametrize("name", ASKS)
def test_an_unknown_model_is_not_found(name: str) -> None:
    with playing(Script()) as player:
        (table,) = priced(player.url).values()
        with serving({"boat": table}) as gateway, pytest.raises(ERRORS[name].NotFoundError, match="boat"):
            ASKS[name](gateway.url, "Hi", "ship")
    assert player.requests == []


@pytest.mark.parametrize("name", ASKS)
def test_an_upstream_that_fails_is_tried_again_by_the_sdk(name: str) -> None:
    value = {
        "chat": {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []},
        "responses": {"id": "r", "object": "response", "output": [], "model": "m"},
        "messages": {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"},
    }[name]
    with (
        playing(replace(sent_json(value), cut_at=3), sent_json(value)) as player,
        serving(player.url) as gateway,
    ):
        assert ASKS[name](gateway.url, "Hi").id == value["id"]
    assert len(player.requests) == 2


@pytest.mark.parametrize("name", ASKS)
def test_a_cut_stream_raises_in_the_sdk(name: str) -> None:
    stream = STREAMS[name]
    with (
        playing(Script(body=stream, cut_at=len(stream) // 2)) as player,
        serving(player.url) as gateway,
        pytest.raises(ERRORS[name].APIError),
    ):
        ASKS[name](gateway.url, "Hi", stream=True)


@pytest.mark.parametrize("name", ASKS)
def test_a_whole_stream_is_read_by_the_sdk(name: str) -> None:
    with playing(Script(body=STREAMS[name], piece=11)) as player, serving(player.url) as gateway:
        assert len(ASKS[name](gateway.url, "Hi", stream=True)) >= 3
    assert len(player.requests) == 1


def _api(name: str) -> str:
    return {"chat": "openai.chat", "responses": "openai.responses"}.get(name, "anthropic.messages")


def test_a_store_that_fails_is_told_without_its_place_and_does_not_delay_the_end(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with playing(sent_json({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})) as player:
        with serving(priced(player.url)) as gateway:
            assert gateway.ask("/v1/chat/completions", chat("Where is the harbour?")).status == 200
            gateway.kept.close()
            answer = gateway.ask("/v1/chat/completions", chat("Where is the harbour?"))
        assert answer.status == 503
        assert answer.headers["x-should-retry"] == "true"
        assert answer.json()["error"]["code"] == "ledger_unavailable"
        assert "ullage.db" not in answer.body.decode()
        assert len(player.requests) == 1
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert f"ullage: request {answer.headers['x-ullage-request-id']}: " in told
    assert "what was learned about the counts of servers is lost" in told
