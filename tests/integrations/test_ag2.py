"""Agents of AG2 run a long tool loop in a small window, and their stream keeps every event."""

from __future__ import annotations

import asyncio
from operator import is_
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, PICTURE_TOKENS, PIXEL, RESERVE, check_loop, run_page
from tests.strict_server import SYSTEM, TASK, read_page

pytest.importorskip("ag2")

from ag2 import Agent
from ag2.config import OpenAIConfig
from ag2.events import (
    BinaryInput,
    BinaryType,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextInput,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResult,
    ToolResultEvent,
    ToolResultsEvent,
    UrlInput,
    UsageEvent,
)

from ullage.integrations.ag2 import FitEvents
from ullage.integrations.ag2_events import fit_events
from ullage.integrations.fitter import HistoryFitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer


def agent_loop(server: StrictServer, glued: bool, stream: bool = False) -> Any:
    fit = FitEvents(model="gpt-4o", limit=LIMIT, reserve=RESERVE, tools=[read_page])
    config = OpenAIConfig(
        "gpt-4o", api_key="none", base_url=f"{server.url}/v1", max_retries=0, streaming=stream
    )
    agent = Agent("reader", SYSTEM, config=config, tools=[read_page], middleware=[fit] if glued else [])

    async def run() -> Any:
        reply = await agent.ask(TASK)
        return await reply.context.stream.history.get_events()

    events = asyncio.run(run())
    results = [result for event in events if isinstance(event, ToolResultsEvent) for result in event.results]
    return [events, [result.result.parts for result in results]]


def streamed_loop(server: StrictServer, glued: bool) -> Any:
    return agent_loop(server, glued, stream=True)


@pytest.mark.parametrize("run", [agent_loop, streamed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_events_that_are_not_sent_stay_with_the_event_behind_them() -> None:
    events: list[Any] = []
    for day in range(40):
        asked, answered = ModelRequest([TextInput(f"Day {day}. " * 30)]), ModelResponse(ModelMessage("On."))
        events += [asked, UsageEvent(label=str(day)), answered]
    events.append(ModelRequest([TextInput("How many?")]))
    given = list(events)
    assert fit_events(HistoryFitter(model="gpt-4o", limit=100_000), events, "Read.", []) is None
    done = fit_events(HistoryFitter(model="gpt-4o", limit=1_000), events, "Read.", [])
    assert done is not None
    assert all(map(is_, events, given))
    assert done.prompt.startswith("Read.")
    assert done.events[-1] is events[-1]
    assert len(done.events) < len(events)
    answers = [at for at, event in enumerate(done.events) if isinstance(event, ModelResponse)]
    for at in answers:
        place = next(number for number, event in enumerate(events) if event is done.events[at])
        assert done.events[at - 1] is events[place - 1]


def test_pictures_and_files_are_counted_and_left_alone() -> None:
    picture = BinaryInput(PIXEL * 1_000, media_type="image/png", kind=BinaryType.IMAGE)
    told: list[Any] = []
    fitter = HistoryFitter(model="gpt-4o", limit=200_000, report=told.append)
    call = ToolCallEvent(id="a", name="look", arguments="{}")
    for parts in ([], [picture], [UrlInput("https://example.org/a.pdf", kind=BinaryType.DOCUMENT)]):
        result = ToolResultEvent(parent_id="a", name="look", result=ToolResult(TextInput("A boat."), *parts))
        answer = ModelResponse(tool_calls=ToolCallsEvent([call]))
        events = [ModelRequest([TextInput("Look.")]), answer, ToolResultsEvent([result])]
        assert fit_events(fitter, events, "Read.", []) is None
    bare, seen, named = (each.count for each in told)
    assert PICTURE_TOKENS <= seen.tokens - bare.tokens < 2_000  # the price of its size
    assert named.ceiling > bare.ceiling + 10_000  # nobody knows its pages


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    run_page("ag2")
    assert page_server.report().finished
