"""Clients of the Anthropic SDK run a long tool loop in a small window; signed blocks stay as they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.player import playing, sent_json
from tests.strict_server import CHAT_TOOL, SYSTEM, TASK, read_page, strict_server
from ullage import ConfigurationError

anthropic = pytest.importorskip("anthropic")

from ullage.integrations.anthropic_sdk import fit_client  # noqa: E402 - the host may be missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer

FUNCTION: Any = CHAT_TOOL["function"]
ASK: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1_000,
    "system": SYSTEM,
    "tools": [
        {
            "name": FUNCTION["name"],
            "description": FUNCTION["description"],
            "input_schema": FUNCTION["parameters"],
        }
    ],
}
THINKING = {"type": "enabled", "budget_tokens": 1_024}


def client_of(server: StrictServer, glued: bool, kind: Any = None) -> Any:
    client = (kind or anthropic.Anthropic)(base_url=server.url, max_retries=0)
    return fit_client(client, limit=LIMIT, reserve=RESERVE) if glued else client


def results_of(content: list[Any]) -> list[dict[str, Any]]:
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": read_page(**block.input)}
        for block in content
        if block.type == "tool_use"
    ]


def messages_loop(server: StrictServer, glued: bool) -> Any:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    with client_of(server, glued) as client:
        while True:
            answer = client.messages.create(**ASK, messages=messages, thinking=THINKING)
            messages.append({"role": "assistant", "content": answer.content})
            if not (results := results_of(answer.content)):
                return messages
            messages.append({"role": "user", "content": results})


async def _async_loop(server: StrictServer, glued: bool) -> Any:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    async with client_of(server, glued, anthropic.AsyncAnthropic) as client:
        while True:
            async with client.messages.stream(**ASK, messages=messages) as stream:
                answer = await stream.get_final_message()
            messages.append({"role": "assistant", "content": answer.content})
            if not (results := results_of(answer.content)):
                return messages
            messages.append({"role": "user", "content": results})


def async_streamed_loop(server: StrictServer, glued: bool) -> Any:
    return asyncio.run(_async_loop(server, glued))


def beta_loop(server: StrictServer, glued: bool) -> Any:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    with client_of(server, glued) as client:
        while True:
            answer = client.beta.messages.create(**ASK, messages=messages)
            messages.append({"role": "assistant", "content": answer.content})
            if not (results := results_of(answer.content)):
                return messages
            messages.append({"role": "user", "content": results})


@pytest.mark.parametrize("run", [messages_loop, async_streamed_loop, beta_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_the_answers_have_the_types_of_the_sdk() -> None:
    asked: Any = {**ASK, "messages": [{"role": "user", "content": TASK}]}
    with strict_server() as server, client_of(server, True) as client:
        assert type(client) is anthropic.Anthropic
        assert type(client.messages.create(**asked)) is anthropic.types.Message
    with strict_server() as server, client_of(server, True) as client:
        assert type(client.messages.create(**asked, stream=True)) is anthropic.Stream


def long_talk() -> list[Any]:
    return [{"role": ("user", "assistant")[place % 2], "content": read_page(place)} for place in range(61)]


def test_the_client_for_vertex_fits() -> None:
    said = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "model": "c",
        "content": [],
        "stop_reason": None,
    }
    answer = sent_json({**said, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}})
    with playing(answer) as player:
        options: Any = {"base_url": player.url, "region": "x", "project_id": "y", "access_token": "none"}
        with fit_client(anthropic.AnthropicVertex(**options), limit=LIMIT) as client:
            client.messages.create(**ASK, messages=long_talk())
    sent = player.requests[0].json()
    assert 0 < len(sent["messages"]) < 61
    assert sent["messages"][-1]["content"].endswith(read_page(60))


def test_messages_may_come_from_a_generator() -> None:
    talk = long_talk()
    with strict_server(steps=0) as server, client_of(server, True) as client:
        client.messages.create(**ASK, messages=(message for message in talk))
    assert server.report().overflows == 0
    assert server.bodies[0]["messages"][-1]["content"].endswith(read_page(60))


def test_another_object_is_no_client() -> None:
    with pytest.raises(ConfigurationError, match="not a dict"):
        fit_client({}, limit=100)  # type: ignore[type-var]


@pytest.mark.usefixtures("page_server")
def test_the_page_runs() -> None:
    run_page("anthropic_sdk")
