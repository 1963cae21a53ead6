"""Agents of Google's ADK run a long tool loop in a small window, and their session keeps every event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page

pytest.importorskip("google.adk")

from google.adk.agents import Agent, RunConfig
from google.adk.apps import App
from google.adk.models.lite_llm import LiteLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import BaseModel

from ullage.integrations.google_adk import FitPlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


class Words(BaseModel):
    """All code words of the logbook."""

    words: list[str]


async def converse(server: StrictServer, glued: bool) -> Any:
    model = LiteLlm("openai/gpt-4o", api_base=f"{server.url}/v1", api_key="none", num_retries=0)
    agent = Agent(name="reader", model=model, instruction=SYSTEM, tools=[read_page])
    plugins = [FitPlugin(model="gpt-4o", limit=LIMIT, reserve=RESERVE)] if glued else []
    runner = InMemoryRunner(app=App(name="harbour", root_agent=agent, plugins=plugins))
    session = await runner.session_service.create_session(app_name="harbour", user_id="keeper")
    task = types.Content(role="user", parts=[types.Part(text=TASK)])
    options = RunConfig(max_llm_calls=2 * STEPS)
    async for _ in runner.run_async(
        user_id="keeper", session_id=session.id, new_message=task, run_config=options
    ):
        pass
    kept = await runner.session_service.get_session(
        app_name="harbour", user_id="keeper", session_id=session.id
    )
    return [event.model_dump(mode="json") for event in kept.events]


def agent_loop(server: StrictServer, glued: bool) -> Any:
    return asyncio.run(converse(server, glued))


def test_the_loop_ends_only_with_the_glue(record_property: Callable[[str, object], None]) -> None:
    check_loop(agent_loop, record_property)


def test_the_schema_of_an_answer_and_an_instruction_with_parts_are_counted() -> None:
    told: list[Any] = []
    plugin = FitPlugin(model="gpt-4o", limit=LIMIT, report=told.append)
    asked = types.Content(role="user", parts=[types.Part(text=TASK)])
    text = types.GenerateContentConfig(system_instruction=SYSTEM)
    parts = types.GenerateContentConfig(system_instruction=types.Content(parts=[types.Part(text=SYSTEM)]))
    answer = types.GenerateContentConfig(system_instruction=SYSTEM, response_schema=Words)
    for config in (types.GenerateContentConfig(), text, parts, answer):
        request = LlmRequest(contents=[asked], config=config)
        asyncio.run(plugin.before_model_callback(callback_context=None, llm_request=request))
    bare, instructed, in_parts, structured = (each.count.tokens for each in told)
    assert bare < instructed == in_parts < structured


def test_an_instruction_with_parts_takes_the_digest() -> None:
    plugin = FitPlugin(model="gpt-4o", limit=2_000)
    talk = [
        types.Content(role=role, parts=[types.Part(text=f"{role} {day}: {read_page(day)}")])
        for day in range(20)
        for role in ("user", "model")
    ]
    asked = types.Content(role="user", parts=[types.Part(text=TASK)])
    kept = types.Part(text=SYSTEM)
    config = types.GenerateContentConfig(system_instruction=types.Content(parts=[kept]))
    request = LlmRequest(contents=[*talk, asked], config=config)
    asyncio.run(plugin.before_model_callback(callback_context=None, llm_request=request))
    assert len(request.contents) < len(talk)
    texts = [part.text for part in request.config.system_instruction.parts]
    assert texts[0].startswith(SYSTEM)
    assert "user 0" in "\n".join(texts)


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    run_page("google_adk")
    assert page_server.report().finished
