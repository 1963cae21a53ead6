"""Clients of the OpenAI SDK run a long tool loop in a small window, and return the SDK's own types."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.strict_server import CHAT_TOOL, SYSTEM, TASK, read_page, strict_server
from ullage import ConfigurationError, ContextOverflowError

openai = pytest.importorskip("openai")

from openai.types.chat import ChatCompletion, ChatCompletionChunk  # noqa: E402 - the host may be missing

from ullage.integrations.openai_sdk import fit_client  # noqa: E402 - the host may be missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer

MODEL = "gpt-4o"
ITEM_TOOL = {"type": "function", **CHAT_TOOL["function"]}  # type: ignore[dict-item]


def client_of(server: StrictServer, glued: bool, kind: Any = None) -> Any:
    client = (kind or openai.OpenAI)(base_url=f"{server.url}/v1", max_retries=0)
    return fit_client(client, limit=LIMIT, reserve=RESERVE) if glued else client


def result_of(call: Any) -> str:
    return read_page(**json.loads(call.function.arguments))


def chat_loop(server: StrictServer, glued: bool) -> Any:
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    with client_of(server, glued) as client:
        while True:
            answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[CHAT_TOOL])
            said = answer.choices[0].message
            messages.append(said)
            if not said.tool_calls:
                return messages
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": result_of(call)}
                for call in said.tool_calls
            ]


def streamed_chat_loop(server: StrictServer, glued: bool) -> Any:
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    with client_of(server, glued) as client:
        while True:
            with client.chat.completions.stream(model=MODEL, messages=messages, tools=[CHAT_TOOL]) as stream:
                said = stream.get_final_completion().choices[0].message
            messages.append({"role": "assistant", "content": said.content})
            if not said.tool_calls:
                return messages
            calls = [call.model_dump(include={"id", "type", "function"}) for call in said.tool_calls]
            for call in calls:
                call["function"].pop("parsed_arguments", None)
            messages[-1]["tool_calls"] = calls
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": result_of(call)}
                for call in said.tool_calls
            ]


def responses_loop(server: StrictServer, glued: bool) -> Any:
    items: list[Any] = [{"role": "user", "content": TASK}]
    with client_of(server, glued) as client:
        while True:
            answer = client.responses.create(
                model=MODEL,
                instructions=SYSTEM,
                input=items,
                tools=[ITEM_TOOL],
                store=False,
                include=["reasoning.encrypted_content"],
            )
            items += answer.output
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return items
            for call in calls:
                output = read_page(**json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


async def _async_loop(server: StrictServer, glued: bool) -> Any:
    items: list[Any] = [{"role": "user", "content": TASK}]
    async with client_of(server, glued, openai.AsyncOpenAI) as client:
        while True:
            stream = await client.responses.create(
                model=MODEL, instructions=SYSTEM, input=items, tools=[ITEM_TOOL], store=False, stream=True
            )
            async for event in stream:
                last = event
            items += last.response.output
            calls = [item for item in last.response.output if item.type == "function_call"]
            if not calls:
                return items
            for call in calls:
                output = read_page(**json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


def async_streamed_loop(server: StrictServer, glued: bool) -> Any:
    return asyncio.run(_async_loop(server, glued))


@pytest.mark.parametrize("run", [chat_loop, streamed_chat_loop, responses_loop, async_streamed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_the_answers_have_the_types_of_the_sdk() -> None:
    ask: Any = {"model": MODEL, "messages": [{"role": "user", "content": TASK}], "tools": [CHAT_TOOL]}
    with strict_server() as server, client_of(server, True) as client:
        assert type(client) is openai.OpenAI
        assert type(client.chat.completions.create(**ask)) is ChatCompletion
    with strict_server() as server, client_of(server, True) as client:
        stream = client.chat.completions.create(**ask, stream=True)
        assert {type(chunk) for chunk in stream} == {ChatCompletionChunk}
    with strict_server() as server, client_of(server, True) as client:
        raw = client.chat.completions.with_raw_response.create(**ask)
        assert type(raw.parse()) is ChatCompletion


def long_talk() -> list[Any]:
    return [
        {"role": "user" if place % 2 == 0 else "assistant", "content": read_page(place)}
        for place in range(61)
    ]


def test_the_given_client_is_not_changed_and_its_copies_fit() -> None:
    with strict_server(steps=0) as server, openai.OpenAI(base_url=f"{server.url}/v1", max_retries=0) as given:
        fitted = fit_client(given, limit=LIMIT, reserve=RESERVE)
        ask: Any = {"model": MODEL, "messages": long_talk()}
        with pytest.raises(openai.BadRequestError):
            given.chat.completions.create(**ask)
        fitted.chat.completions.create(**ask)
        fitted.with_options(timeout=30).chat.completions.create(**ask)
        fitted.copy().chat.completions.create(**ask)
    assert len(server.bodies) == 3
    assert server.report().overflows == 1


def test_the_client_for_azure_fits() -> None:
    with strict_server(steps=0) as server:
        options: Any = {"azure_endpoint": server.url, "api_version": "2026-01-01", "api_key": "none"}
        with fit_client(openai.AzureOpenAI(**options), limit=LIMIT, reserve=RESERVE) as client:
            client.chat.completions.create(model=MODEL, messages=long_talk())
    assert server.report().overflows == 0
    assert len(server.bodies) == 1


async def _many(server: StrictServer) -> None:
    async with client_of(server, True, openai.AsyncOpenAI) as client:
        asked = [[*long_talk(), {"role": "user", "content": f"Question {number}?"}] for number in range(20)]
        calls = [client.chat.completions.create(model=MODEL, messages=messages) for messages in asked]
        await asyncio.gather(*calls)


def test_many_tasks_share_a_client() -> None:
    with strict_server(steps=0) as server:
        asyncio.run(_many(server))
    assert len(server.bodies) == 20
    asked = {body["messages"][-1]["content"].rpartition("\n")[2] for body in server.bodies}
    assert asked == {f"Question {number}?" for number in range(20)}


def test_a_request_that_cannot_fit_is_not_sent() -> None:
    told: list[Any] = []
    with strict_server() as server, openai.OpenAI(base_url=f"{server.url}/v1") as given:
        fitted = fit_client(given, limit=200, report=told.append)
        with pytest.raises(ContextOverflowError):
            fitted.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": read_page(1)}])
        assert told == []
        fitted.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": TASK}])
        assert [each.changed for each in told] == [False]
    assert len(server.bodies) == 1


def test_another_object_is_no_client() -> None:
    with pytest.raises(ConfigurationError, match="not a str"):
        fit_client("client", limit=100)  # type: ignore[type-var]


@pytest.mark.usefixtures("page_server")
def test_the_page_runs() -> None:
    run_page("openai_sdk")
