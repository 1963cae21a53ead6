"""Agents of smolagents run a long tool loop in a small window, and their memory keeps every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.integrations.text_server import text_server
from tests.strict_server import STEPS, TASK
from tests.strict_server import read_page as read

pytest.importorskip("smolagents")

from smolagents import ChatMessage, MessageRole, Model, OpenAIModel, ToolCallingAgent, tool
from smolagents.models import CODEAGENT_RESPONSE_FORMAT

from ullage.integrations.smolagents import FitModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


@tool
def read_page(page: int) -> str:
    """Reads a page of the logbook.

    Args:
        page: the number of the page
    """
    return read(page)


def agent_loop(server: StrictServer, glued: bool, *, stream: bool = False) -> Any:
    model = OpenAIModel(
        "gpt-4o", api_base=f"{server.url}/v1", api_key="none", client_kwargs={"max_retries": 0}
    )
    fitted = FitModel(model, limit=LIMIT, reserve=RESERVE) if glued else model
    agent = ToolCallingAgent(
        tools=[read_page], model=fitted, max_steps=STEPS, verbosity_level=0, stream_outputs=stream
    )
    agent.run(TASK)
    return [step.observations for step in agent.memory.steps if getattr(step, "observations", None)]


def streamed_loop(server: StrictServer, glued: bool) -> Any:
    return agent_loop(server, glued, stream=True)


@pytest.mark.parametrize("run", [agent_loop, streamed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property, pairs=False, serve=lambda: text_server(action="", calls=True))


class Echo(Model):
    """A model that returns the last message."""

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        last: ChatMessage = messages[-1]
        return last


def test_the_schema_of_an_answer_is_counted() -> None:
    told: list[Any] = []
    model = FitModel(Echo(model_id="gpt-4o"), limit=LIMIT, report=told.append)
    asked = ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": TASK}])
    for options in ({}, {"response_format": CODEAGENT_RESPONSE_FORMAT}):
        assert model.generate([asked], **options) is asked
    bare, structured = (each.count.tokens for each in told)
    assert structured > bare


def test_the_example_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with text_server(action="", calls=True, steps=2) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        names = run_page("smolagents")
    assert len(names["agent"].memory.steps) > 2
