"""Agents of Microsoft's Agent Framework run a long tool loop in a small window, and keep every message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page, strings_of
from tests.strict_server import STEPS, SYSTEM, TASK, read_page, strict_server

pytest.importorskip("agent_framework")

from agent_framework import Agent, Content, Message
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from openai import AsyncOpenAI

from ullage.integrations.agent_framework import FitChatMiddleware
from ullage.integrations.agent_messages import fit_messages
from ullage.integrations.fitter import HistoryFitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


def agent_loop(
    server: StrictServer,
    glued: bool,
    kind: Any = OpenAIChatCompletionClient,
    *,
    stream: bool = False,
    limit: int = LIMIT,
) -> Any:
    async def run() -> Any:
        sdk = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        client = kind(model="gpt-4o", async_client=sdk)
        client.function_invocation_configuration["max_iterations"] = 2 * STEPS
        agent = Agent(
            client,
            SYSTEM,
            tools=[read_page],
            middleware=[FitChatMiddleware(limit=limit, reserve=RESERVE)] if glued else [],
            default_options={"store": False},
        )
        session = agent.create_session()
        if stream:
            answer = agent.run(TASK, stream=True, session=session)
            async for _ in answer:
                pass
            done = await answer.get_final_response()
        else:
            done = await agent.run(TASK, session=session)
        return [
            [message.to_dict() for message in done.messages],
            [message.to_dict() for message in session.state["in_memory"]["messages"]],
        ]

    return asyncio.run(run())


def streamed_loop(server: StrictServer, glued: bool) -> Any:
    return agent_loop(server, glued, stream=True)


@pytest.mark.parametrize("run", [agent_loop, streamed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_requests_of_the_responses_api_fit_and_are_valid() -> None:
    # The framework sends a text that follows a thought after the calls and without its id (step 21).
    with strict_server(steps=18, window=4_000) as server:
        stored = agent_loop(server, True, OpenAIChatClient, limit=4_000)
    report = server.report()
    assert (report.finished, report.overflows, report.invalid) == (True, 0, ())
    assert read_page(0) in "\n".join(strings_of(stored))


def test_messages_that_stay_are_the_given_ones_and_nothing_is_changed() -> None:
    messages = [Message("user", ["Look.", Content.from_uri("data:image/png;base64,iVBORw0KGgo=")])]
    for page in range(40):
        calls = [Content.from_function_call(f"{name}{page}", name, arguments={}) for name in "ab"]
        texts = [f"boat {page} " * 30, "-"]
        results = [
            Content.from_function_result(call.call_id, result=text)
            for call, text in zip(calls, texts, strict=True)
        ]
        messages += [Message("assistant", ["On.", *calls]), Message("tool", results)]
    before = [message.to_dict() for message in messages]
    done = fit_messages(HistoryFitter(limit=2_000), messages, "Read.", [], "gpt-4o")
    assert done is not None
    assert [message.to_dict() for message in messages] == before
    assert done.instructions is not None
    assert done.instructions.startswith("Read.")
    assert done.messages[0] is messages[0]
    assert done.messages[-2:] == messages[-2:]
    assert all(len(message.contents) == 2 for message in done.messages if message.role == "tool")
    assert fit_messages(HistoryFitter(limit=2_000), messages[:3], "Read.", [], "gpt-4o") is None


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    run_page("agent_framework")
    assert page_server.report().finished
