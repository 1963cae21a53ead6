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
from google.adk.runners import InMemoryRunner
from google.genai import types

from ullage.integrations.google_adk import FitPlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


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


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    run_page("google_adk")
    assert page_server.report().finished
