"""Agents of Microsoft's Agent Framework run a long tool loop in a small window, and keep every message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, PICTURE_TOKENS, PIXEL, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page, strict_server

pytest.importorskip("agent_framework")

from agent_framework import Agent, Content, Message
from agent_framework.exceptions import ChatClientException
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
) -> Any:
    async def run() -> Any:
        sdk = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        client = kind(model="gpt-4o", async_client=sdk)
        client.function_invocation_configuration["max_iterations"] = 2 * STEPS
        agent = Agent(
            client,
            SYSTEM,
            tools=[read_page],
            middleware=[FitChatMiddleware(limit=LIMIT, reserve=RESERVE)] if glued else [],
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


def responses_loop(server: StrictServer, glued: bool) -> Any:
    return agent_loop(server, glued, OpenAIChatClient)


def test_a_loop_on_the_responses_api_ends_only_with_the_glue(
    record_property: Callable[[str, object], None],
) -> None:
    check_loop(responses_loop, record_property, serve=lambda: strict_server(lone_thoughts=True))


def test_the_framework_itself_breaks_answers_with_a_thought_and_a_text() -> None:
    # It sends the text after the calls and without its id, which the API refuses. If this test fails, the
    # framework has mended that, and the loop above needs no `lone_thoughts`.
    with strict_server(window=1_000_000) as server, pytest.raises(ChatClientException):
        responses_loop(server, False)
    report = server.report()
    assert (report.overflows, report.steps) == (0, 21)
    assert [each for each in report.invalid if "reasoning item" in each]


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


def test_pictures_in_results_are_counted_and_left_alone() -> None:
    picture = Content.from_data(PIXEL, "image/png")
    told: list[Any] = []
    fitter = HistoryFitter(limit=4_000, report=told.append)
    for pictures in ([], [picture] * 2):
        result = Content.from_function_result("a", result=[Content.from_text("A boat."), *pictures])
        call = Content.from_function_call("a", "look", arguments={})
        messages = [Message("user", ["Look."]), Message("assistant", [call]), Message("tool", [result])]
        assert fit_messages(fitter, messages, None, [], "gpt-4o") is None
    bare, seen = (each.count.tokens for each in told)
    assert seen >= bare + 2 * PICTURE_TOKENS


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    run_page("agent_framework")
    assert page_server.report().finished
