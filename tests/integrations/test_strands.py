"""Agents of Strands run a long tool loop in a small window, and keep every message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.strict_server import SYSTEM, TASK
from tests.strict_server import read_page as read

pytest.importorskip("strands")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel

from ullage.integrations.strands import fit_agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


@tool
def read_page(page: int) -> str:
    """Reads a page of the logbook."""
    return read(page)


def agent_loop(server: StrictServer, glued: bool, system: Any = SYSTEM) -> Any:
    client = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
    agent = Agent(
        model=OpenAIModel(client_args=client, model_id="gpt-4o"),
        tools=[read_page],
        system_prompt=system,
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )
    if glued:
        fit_agent(agent, limit=LIMIT, reserve=RESERVE)
    agent(TASK)
    return agent.messages


def blocks_loop(server: StrictServer, glued: bool) -> Any:
    return agent_loop(server, glued, [{"text": SYSTEM}])


@pytest.mark.parametrize("run", [agent_loop, blocks_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    names = run_page("strands")
    assert len(names["agent"].messages) > 3
    assert page_server.report().finished
