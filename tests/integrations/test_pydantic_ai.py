"""Agents of Pydantic AI run a long tool loop in a small window, and their history keeps every message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, PICTURE_TOKENS, PIXEL, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page, strict_server

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, BinaryContent, ImageUrl
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ModelSettingsDeltaPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from ullage.integrations.fitter import HistoryFitter
from ullage.integrations.pydantic_ai import FitCapability
from ullage.integrations.pydantic_messages import read_history, restore_history

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer

MANY = UsageLimits(request_limit=2 * STEPS)


def agent_of(server: StrictServer, glued: bool, kind: Any = OpenAIChatModel, **options: Any) -> Any:
    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="none")
    capabilities = [FitCapability(limit=LIMIT, reserve=RESERVE)] if glued else []
    return Agent(kind("gpt-4o", provider=provider), tools=[read_page], capabilities=capabilities, **options)


def chat_loop(server: StrictServer, glued: bool) -> Any:
    agent = agent_of(server, glued, instructions=SYSTEM)
    return asyncio.run(agent.run(TASK, usage_limits=MANY)).all_messages()


def system_prompt_loop(server: StrictServer, glued: bool) -> Any:
    agent = agent_of(server, glued, system_prompt=SYSTEM)
    return asyncio.run(agent.run(TASK, usage_limits=MANY)).all_messages()


def responses_loop(server: StrictServer, glued: bool) -> Any:
    settings = {"openai_store": False}
    agent = agent_of(server, glued, OpenAIResponsesModel, instructions=SYSTEM, model_settings=settings)
    return asyncio.run(agent.run(TASK, usage_limits=MANY)).all_messages()


async def _read_events(_: Any, events: Any) -> None:
    async for _event in events:
        pass


def streamed_loop(server: StrictServer, glued: bool) -> Any:
    agent = agent_of(server, glued, instructions=SYSTEM)
    run = agent.run(TASK, usage_limits=MANY, event_stream_handler=_read_events)
    return asyncio.run(run).all_messages()


@pytest.mark.parametrize("run", [chat_loop, system_prompt_loop, responses_loop, streamed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_a_failed_result_that_is_cut_has_no_words_around_it() -> None:
    call = ToolCallPart("read_page", {"page": 1}, tool_call_id="call_1")
    failed = ToolReturnPart("read_page", read_page(1) * 30, "call_1", outcome="failed")
    history: list[Any] = [
        ModelRequest([UserPromptPart(TASK)]),
        ModelResponse([call]),
        ModelRequest([failed]),
    ]
    with strict_server(steps=0) as server:
        asyncio.run(agent_of(server, True).run(message_history=history))
    result = server.bodies[0]["messages"][-1]
    assert result["role"] == "tool"
    assert result["content"].startswith('{"error":"Page 1 of the logbook')
    assert server.report().overflows == 0


def test_an_image_stays_with_a_question_that_recalls() -> None:
    history: list[Any] = [
        ModelRequest([UserPromptPart("Keep my diary.")]),  # the task is never recalled
        ModelResponse([TextPart("Gladly.")]),
        ModelRequest([UserPromptPart("The keeper's compass is made of brass.")]),
        ModelResponse([TextPart("Noted. " * 300)]),
    ]
    for day in range(40):
        history.append(ModelRequest([UserPromptPart(f"Day {day}, nothing new. " * 30)]))
        history.append(ModelResponse([TextPart("Quiet, as ever. " * 40)]))
    prompt = ["What is the keeper's compass made of?", ImageUrl("https://example.org/compass.png")]
    with strict_server(steps=0) as server:
        asyncio.run(agent_of(server, True).run(prompt, message_history=history))
    recalled, asked, image = server.bodies[0]["messages"][-1]["content"]
    assert "brass" in recalled["text"]
    assert asked["text"] == prompt[0]
    assert image["image_url"]["url"] == "https://example.org/compass.png"


def test_files_in_results_are_counted_and_left_alone() -> None:
    image = BinaryContent(PIXEL, media_type="image/png")
    told: list[Any] = []
    sent: list[Any] = []

    def answer(messages: list[Any], _: Any) -> ModelResponse:
        sent.append(messages[-1])
        return ModelResponse([TextPart("Read.")])

    for files in ([], [image] * 3):
        history: list[Any] = [
            ModelRequest([UserPromptPart(TASK)]),
            ModelResponse([ToolCallPart("read_page", {"page": 1}, tool_call_id="call_1")]),
            ModelRequest([ToolReturnPart("read_page", [read_page(1), *files], "call_1")]),
        ]
        fit = FitCapability(limit=LIMIT, model="gpt-4o", report=told.append)
        asyncio.run(Agent(FunctionModel(answer), capabilities=[fit]).run(message_history=history))
        assert sent[-1].parts[0].files == files
    without, with_images = told
    assert not with_images.changed
    assert with_images.count.tokens >= without.count.tokens + 3 * PICTURE_TOKENS


def test_what_changed_between_requests_stays_when_its_message_goes() -> None:
    changes = [ModelSettingsDeltaPart(settings={"thinking": "low"}) for _ in range(31)]
    history: list[Any] = []
    for day, change in enumerate(changes[:-1]):
        history.append(ModelRequest([UserPromptPart(f"Day {day}, nothing new. " * 30), change]))
        history.append(ModelResponse([TextPart("Quiet, as ever. " * 60)]))
    history.append(ModelRequest([UserPromptPart("What day is it?"), changes[-1]]))
    places, given = zip(*read_history(history), strict=True)
    fitted = HistoryFitter(model="gpt-4o", limit=3_000).fit(given)
    assert fitted.messages[-1]["content"].endswith("What day is it?")
    restored = restore_history(history, given, places, fitted)
    assert len(restored) < len(history) or len(fitted.messages) < len(given)
    kept = [
        part for message in restored for part in message.parts if isinstance(part, ModelSettingsDeltaPart)
    ]
    assert list(map(id, kept)) == list(map(id, changes))


def test_a_request_that_only_tells_what_changed_is_sent() -> None:
    history: list[Any] = [
        ModelRequest([UserPromptPart(TASK)]),
        ModelResponse([TextPart("Gladly.")]),
        ModelRequest([ModelSettingsDeltaPart(settings={"thinking": "low"})]),
    ]
    with strict_server(steps=0) as server:
        asyncio.run(agent_of(server, True).run("Go on.", message_history=history))
    assert [message["content"] for message in server.bodies[0]["messages"]] == [TASK, "Gladly.", "Go on."]


@pytest.mark.usefixtures("page_server")
def test_the_page_runs() -> None:
    run_page("pydantic_ai")
