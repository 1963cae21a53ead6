"""Agents of AutoGen run a long tool loop in a small window, and their context keeps every message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page
from ullage import ConfigurationError

pytest.importorskip("autogen_agentchat")

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall, Image
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.openai import OpenAIChatCompletionClient
from PIL import Image as Picture

from ullage.integrations.autogen import FitChatCompletionContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


def agent_loop(server: StrictServer, glued: bool, *, stream: bool = False) -> Any:
    async def run() -> Any:
        url = f"{server.url}/v1"
        client = OpenAIChatCompletionClient(model="gpt-4o", base_url=url, api_key="none", max_retries=0)
        context: Any = UnboundedChatCompletionContext()
        if glued:
            context = FitChatCompletionContext(
                client, token_limit=LIMIT, reserve=RESERVE, tools=[read_page], system_message=SYSTEM
            )
        agent = AssistantAgent(
            "reader",
            client,
            tools=[read_page],
            system_message=SYSTEM,
            model_context=context,
            max_tool_iterations=2 * STEPS,
            model_client_stream=stream,
        )
        await agent.run(task=TASK)
        return await context.save_state()

    return asyncio.run(run())


def streamed_loop(server: StrictServer, glued: bool) -> Any:
    return agent_loop(server, glued, stream=True)


@pytest.mark.parametrize("run", [agent_loop, streamed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def talk() -> list[Any]:
    picture = Image(Picture.new("RGB", (8, 8)))
    messages: list[Any] = [UserMessage(content=["Look.", picture], source="user")]
    for page in range(40):
        calls = [FunctionCall(id=f"{name}{page}", name=name, arguments="{}") for name in "ab"]
        texts = [f"boat {page} " * 30, "-"]
        results = [
            FunctionExecutionResult(content=text, name=call.name, call_id=call.id)
            for call, text in zip(calls, texts, strict=True)
        ]
        messages += [
            AssistantMessage(content=calls, thought="On.", source="reader"),
            FunctionExecutionResultMessage(content=results),
        ]
    return messages


def test_messages_that_stay_are_the_given_ones_and_nothing_is_changed() -> None:
    messages = talk()
    before = [message.model_copy(deep=True) for message in messages]
    context = FitChatCompletionContext(
        model="gpt-4o", token_limit=2_000, initial_messages=messages, system_message=SYSTEM
    )
    system, first, *rest = asyncio.run(context.get_messages())
    assert messages[1:] == before[1:]
    assert isinstance(system, SystemMessage)
    assert SYSTEM not in system.content
    assert first is messages[0]
    assert [id(each) for each in rest[-2:]] == [id(each) for each in messages[-2:]]
    assert len(rest) < len(messages)
    results = [each for each in rest if isinstance(each, FunctionExecutionResultMessage)]
    assert all(len(each.content) == 2 for each in results)


def test_a_short_history_comes_back_as_it_is_and_the_digest_stays_away() -> None:
    messages = talk()[:3]
    context = FitChatCompletionContext(model="gpt-4o", token_limit=2_000, system_message=SYSTEM)
    for message in messages:
        asyncio.run(context.add_message(message))
    got = asyncio.run(context.get_messages())
    assert [id(each) for each in got] == [id(each) for each in messages]


def test_the_model_of_the_client_names_the_limit_and_a_wrong_limit_is_an_error() -> None:
    reports: list[Any] = []
    client = OpenAIChatCompletionClient(model="gpt-4o", api_key="none")
    context = FitChatCompletionContext(client, initial_messages=talk(), report=reports.append)
    asyncio.run(context.get_messages())
    assert reports[0].limit > 100_000
    with pytest.raises(ConfigurationError, match="limit is 0"):
        FitChatCompletionContext(client, token_limit=0)


@pytest.mark.usefixtures("page_server")
def test_the_page_runs() -> None:
    run_page("autogen")
