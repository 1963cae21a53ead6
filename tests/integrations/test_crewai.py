"""Agents of CrewAI run a long tool loop in a small window, and keep every message."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK
from tests.strict_server import read_page as read

pytest.importorskip("crewai")

from crewai import LLM, Agent, Crew, Task
from crewai.hooks import LLMCallHookContext
from crewai.tools import tool

from ullage.integrations.crewai import FitHooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


@tool("read_page")
def read_page(page: int) -> str:
    """Reads a page of the logbook."""
    return read(page)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CREWAI_DISABLE_TELEMETRY", "OTEL_SDK_DISABLED", "CREWAI_DISABLE_TRACKING"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("CREWAI_TRACING_ENABLED", "false")


def crew_loop(server: StrictServer, glued: bool) -> Any:
    with FitHooks(model="gpt-4o", limit=LIMIT, reserve=RESERVE) if glued else nullcontext():
        llm = LLM(model="openai/gpt-4o", base_url=f"{server.url}/v1", api_key="none")
        agent = Agent(
            role="reader",
            goal=SYSTEM,
            backstory="You have all day.",
            tools=[read_page],
            llm=llm,
            max_iter=2 * STEPS,
            respect_context_window=False,
        )
        task = Task(description=TASK, expected_output="All code words.", agent=agent)
        try:
            Crew(agents=[agent], tasks=[task]).kickoff()
        except SystemExit as error:  # so it ends if the context is too long
            raise RuntimeError(str(error)) from None
        return list(agent.agent_executor.messages)


def test_the_loop_ends_only_with_the_glue(record_property: Callable[[str, object], None]) -> None:
    check_loop(crew_loop, record_property)


def test_messages_come_back_after_a_call_that_failed() -> None:
    hooks = FitHooks(model="gpt-4o", limit=600)
    messages: list[Any] = [{"role": "user", "content": "Read."}]
    for day in range(40):
        messages += [
            {"role": "assistant", "content": f"Day {day}. " * 10},
            {"role": "user", "content": "On."},
        ]
    before = list(messages)
    hooks._before(LLMCallHookContext(messages=messages))
    assert len(messages) < len(before)
    messages.append({"role": "user", "content": "Try again."})  # the call failed: nobody asks the second hook
    hooks._before(LLMCallHookContext(messages=messages))
    hooks._after(LLMCallHookContext(messages=messages))
    assert messages == [*before, {"role": "user", "content": "Try again."}]


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    run_page("crewai")
    assert page_server.report().finished
