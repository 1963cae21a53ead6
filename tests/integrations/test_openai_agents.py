"""Agents of OpenAI Agents run a long tool loop in a small window, and their session keeps every item."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page, strict_server

pytest.importorskip("agents")

from agents import (
    Agent,
    ModelSettings,
    OpenAIProvider,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
)
from agents.run import CallModelData, ModelInputData
from openai import AsyncOpenAI
from pydantic import BaseModel

from ullage.integrations.openai_agents import FitFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


class Words(BaseModel):
    """All code words of the logbook."""

    words: list[str]


def agent(**options: Any) -> Any:
    settings = ModelSettings(store=False, response_include=["reasoning.encrypted_content"])
    tools = [function_tool(read_page)]
    return Agent(
        "reader", instructions=SYSTEM, tools=tools, model="gpt-4o", model_settings=settings, **options
    )


def config(server: StrictServer, glued: bool, responses: bool) -> Any:
    client = AsyncOpenAI(
        base_url=f"{server.url}/v1", max_retries=0
    )  # the default one outlives its event loop
    provider = OpenAIProvider(openai_client=client, use_responses=responses)
    fit = FitFilter(limit=LIMIT, reserve=RESERVE) if glued else None
    return RunConfig(model_provider=provider, call_model_input_filter=fit, tracing_disabled=True)


async def _run(server: StrictServer, glued: bool, *, responses: bool) -> Any:
    session = SQLiteSession("logbook")
    options: Any = {
        "max_turns": 2 * STEPS,
        "session": session,
        "run_config": config(server, glued, responses),
    }
    try:
        result = await Runner.run(agent(), TASK, **options)
        return [result.to_input_list(), await session.get_items()]
    finally:
        session.close()


def responses_loop(server: StrictServer, glued: bool) -> Any:
    return asyncio.run(_run(server, glued, responses=True))


def chat_loop(server: StrictServer, glued: bool) -> Any:
    return asyncio.run(_run(server, glued, responses=False))


async def _stream(server: StrictServer, glued: bool) -> Any:
    result = Runner.run_streamed(agent(), TASK, max_turns=2 * STEPS, run_config=config(server, glued, True))
    async for _ in result.stream_events():
        pass
    return result.to_input_list()


def streamed_loop(server: StrictServer, glued: bool) -> Any:
    return asyncio.run(_stream(server, glued))


@pytest.mark.parametrize("run", [responses_loop, chat_loop, streamed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def items() -> list[Any]:
    made: list[Any] = [{"role": "user", "content": TASK}]
    for page in range(30):
        call = {"call_id": f"call_{page}", "name": "read_page", "arguments": f'{{"page": {page}}}'}
        made.append({"type": "function_call", "id": f"fc_{page}", **call})
        output = {"type": "function_call_output", "call_id": f"call_{page}", "output": read_page(page)}
        made.append(output)
    return made


def fitted(given: Any, made: Any, **options: Any) -> Any:
    return asyncio.run(FitFilter(**options)(CallModelData(model_data=given, agent=made, context=None)))


def test_items_that_did_not_change_are_the_same_objects() -> None:
    given = ModelInputData(input=items(), instructions=SYSTEM)
    assert fitted(given, agent(), limit=100_000) is given
    done = fitted(given, agent(), limit=3_000)
    assert given == ModelInputData(input=items(), instructions=SYSTEM)
    known = {id(item) for item in given.input}
    calls = [item for item in done.input if item.get("type") == "function_call"]
    assert calls
    assert all(id(item) in known for item in calls)
    assert id(done.input[-1]) in known
    assert done.instructions.startswith(SYSTEM)


def test_an_agent_without_a_model_has_the_window_of_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_DEFAULT_MODEL", "gpt-4o-mini")
    told: list[Any] = []
    given = ModelInputData(input=items(), instructions=SYSTEM)
    assert fitted(given, Agent("reader"), report=told.append) is given
    assert told[0].limit == 111_616


def test_handoffs_and_the_schema_of_the_answer_are_counted() -> None:
    told: list[Any] = []
    given = ModelInputData(input=items()[:1], instructions=SYSTEM)
    other = Agent("harbour master")
    for made in (agent(), agent(handoffs=[other]), agent(handoffs=[other], output_type=Words)):
        fitted(given, made, limit=100_000, report=told.append)
    plain, handed, structured = (each.count.tokens for each in told)
    assert plain < handed < structured


def test_the_page_runs(page_server: StrictServer) -> None:
    run_page("openai_agents")
    assert page_server.report().finished


def test_the_loop_is_strict_about_reasoning() -> None:
    with strict_server() as server:
        asyncio.run(_run(server, True, responses=True))
    kinds = [item.get("type") for body in server.bodies for item in body["input"]]
    assert "reasoning" in kinds
