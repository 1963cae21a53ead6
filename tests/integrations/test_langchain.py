"""Agents of LangChain run a long tool loop in a small window, and their state keeps every message."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, PICTURE_TOKENS, PIXEL, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page, strict_server
from ullage import ConfigurationError

pytest.importorskip("langchain")

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from ullage.integrations.fitter import HistoryFitter
from ullage.integrations.langchain import FitMiddleware, trim_messages
from ullage.integrations.langchain_messages import fit_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer

GPT = "gpt-4o"
MANY = {"recursion_limit": 4 * STEPS}


class Words(BaseModel):
    """All code words of the logbook."""

    words: list[str]


def agent_of(server: StrictServer, glued: bool, *more: Any, **options: Any) -> Any:
    model = ChatOpenAI(model=GPT, base_url=f"{server.url}/v1", max_retries=0, streaming="streaming" in more)
    middleware = [FitMiddleware(limit=LIMIT, reserve=RESERVE)] if glued else []
    return create_agent(model, [read_page], system_prompt=SYSTEM, middleware=middleware, **options)


def agent_loop(server: StrictServer, glued: bool) -> Any:
    agent = agent_of(server, glued)
    return agent.invoke({"messages": [HumanMessage(TASK, id="task")]}, MANY)["messages"]


def structured_loop(server: StrictServer, glued: bool) -> Any:
    agent = agent_of(server, glued, response_format=ToolStrategy(Words))
    return agent.invoke({"messages": [HumanMessage(TASK, id="task")]}, MANY)["messages"]


def async_streamed_loop(server: StrictServer, glued: bool) -> Any:
    agent = agent_of(server, glued, "streaming")
    state = asyncio.run(agent.ainvoke({"messages": [HumanMessage(TASK, id="task")]}, MANY))
    return state["messages"]


@pytest.mark.parametrize("run", [agent_loop, structured_loop, async_streamed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_the_schema_of_an_answer_is_counted() -> None:
    told: list[Any] = []
    for options in ({}, {"response_format": ToolStrategy(Words)}):
        with strict_server(steps=0) as server:
            model = ChatOpenAI(model=GPT, base_url=f"{server.url}/v1", max_retries=0)
            middleware = [FitMiddleware(limit=LIMIT, report=told.append)]
            agent = create_agent(model, [read_page], middleware=middleware, **options)  # type: ignore[arg-type]
            agent.invoke({"messages": [HumanMessage(TASK)]})
    bare, structured = told
    assert structured.count.breakdown["tools"] > bare.count.breakdown["tools"] > 0


def history() -> list[Any]:
    made: list[Any] = [SystemMessage(SYSTEM), HumanMessage(TASK)]
    for page in range(30):
        call = {"name": "read_page", "args": {"page": page}, "id": f"call_{page}"}
        made.append(AIMessage("", tool_calls=[call], additional_kwargs={"mine": page}))
        made.append(ToolMessage(read_page(page), tool_call_id=f"call_{page}", artifact={"page": page}))
    return made


def test_trimmed_messages_are_the_given_objects_or_copies_with_other_content() -> None:
    given = history()
    before = [message.model_copy(deep=True) for message in given]
    trimmed = trim_messages(given, max_tokens=2_000, token_counter=GPT, strategy="last", start_on="human")
    assert given == before
    assert len(trimmed) < len(given)
    assert trimmed[0].content.startswith(SYSTEM)
    assert any(message is given[-1] for message in trimmed)
    for message in trimmed:
        if isinstance(message, ToolMessage):
            assert message.artifact["page"] == int(message.tool_call_id.removeprefix("call_"))
    chain = trim_messages(max_tokens=2_000, token_counter=ChatOpenAI(model=GPT))
    assert chain.invoke(given) == trimmed


def test_parts_of_a_question_stay_as_they_were() -> None:
    image = {"type": "image", "source_type": "url", "url": "https://example.org/a.png", "mine": 1}
    talk: list[Any] = [HumanMessage("Keep my diary."), AIMessage("Gladly.")]  # the task is never recalled
    talk += [HumanMessage("The keeper's compass is made of brass."), AIMessage("Noted. " * 300)]
    for page in range(20):
        talk += [HumanMessage(f"Day {page}, nothing new. " * 20), AIMessage("Quiet, as ever. " * 20)]
    talk.append(HumanMessage([{"type": "text", "text": "What is the keeper's compass made of?"}, image]))
    trimmed = trim_messages(talk, max_tokens=3_500, token_counter=GPT)
    head, *own = trimmed[-1].content
    assert "brass" in head["text"]
    assert own == talk[-1].content


PNG = base64.b64encode(PIXEL).decode()
IMAGES: list[Any] = [
    {"type": "image", "base64": PNG, "mime_type": "image/png"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
    {"type": "media", "mime_type": "image/png", "data": PIXEL},
    {"type": "image_url", "image_url": f"data:image/png;base64,{PNG}"},
    {"image": {"format": "png", "source": {"bytes": PIXEL}}},
]
FILES: list[Any] = [
    {"type": "file", "url": "https://example.org/a.pdf"},
    {"type": "image", "file_id": "file_1"},
    {"type": "video", "base64": PNG, "mime_type": "video/mp4"},
    {"type": "text-plain", "text": "Low water at noon.", "mime_type": "text/plain"},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Low water."}},
    {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
    {"type": "search_result", "source": "a", "title": "b", "content": [{"type": "text", "text": "c"}]},
    {"cachePoint": {"type": "default"}},
    {"guardContent": {"text": {"text": "x"}}},
    {"document": {"format": "pdf", "name": "a", "source": {"bytes": b"%PDF"}}},
]


@pytest.mark.parametrize("block", [*IMAGES, *FILES])
def test_blocks_of_every_provider_are_counted_and_left_alone(block: Any) -> None:
    said = {"type": "text", "text": "Look."}
    call = {"name": "look", "args": {}, "id": "call_1"}
    told: list[Any] = []
    fitter = HistoryFitter(model=GPT, limit=200_000, report=told.append)
    plain_talk = [
        HumanMessage([said]),
        AIMessage("", tool_calls=[call]),
        ToolMessage([said], tool_call_id="call_1"),
    ]
    rich_talk = [message.model_copy(deep=True) for message in plain_talk]
    for message in (rich_talk[0], rich_talk[2]):
        message.content.append(block)  # type: ignore[union-attr]
    for talk in (plain_talk, rich_talk):
        assert fit_messages(fitter, talk) is talk
    bare, rich = (each.count for each in told)
    assert rich.tokens - bare.tokens >= (2 * PICTURE_TOKENS if block in IMAGES else 2)


def test_tools_of_the_provider_are_counted() -> None:
    told: list[Any] = []
    fitter = HistoryFitter(model=GPT, limit=4_000, report=told.append)
    for tools in ([], [{"google_search": {}}], [{"type": "web_search_20250305", "name": "web_search"}]):
        fit_messages(fitter, [HumanMessage(TASK)], tools)
    bare, *more = (each.count.tokens for each in told)
    assert all(tokens > bare for tokens in more)


def test_an_answered_call_with_invalid_arguments_keeps_its_result() -> None:
    wrong = {
        "name": "read_page",
        "args": "{bad",
        "id": "call_1",
        "error": "not JSON",
        "type": "invalid_tool_call",
    }
    talk: list[Any] = [
        HumanMessage(TASK),
        AIMessage("", invalid_tool_calls=[wrong]),
        ToolMessage("The arguments are not JSON.", tool_call_id="call_1", status="error"),
    ]
    assert fit_messages(HistoryFitter(model=GPT, limit=4_000), talk) is talk
    assert fit_messages(HistoryFitter(model=GPT, limit=4_000), [*talk[:2], HumanMessage("Again.")])


def test_blocks_that_repeat_a_call_are_counted_once() -> None:
    call = {"name": "read_page", "args": {"page": 1}, "id": "call_1"}
    said = {"type": "text", "text": "Now page 1."}
    repeated = {"type": "function_call", "name": "read_page", "arguments": '{"page": 1}', "call_id": "call_1"}
    told: list[Any] = []
    fitter = HistoryFitter(model=GPT, limit=4_000, report=told.append)
    for content in ("Now page 1.", [said], [said, repeated]):
        answer = AIMessage(content, tool_calls=[call])
        fit_messages(fitter, [HumanMessage(TASK), answer, ToolMessage("x", tool_call_id="call_1")])
    assert len({each.count.tokens for each in told}) == 1


def test_options_that_fitting_does_not_have_are_refused() -> None:
    for options in ({"strategy": "first"}, {"include_system": False}, {"no_such": 1}):
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            trim_messages(history(), max_tokens=4_000, **options)
    with pytest.raises(ConfigurationError, match="token_counter"):
        trim_messages(history(), max_tokens=4_000, token_counter=len)


@pytest.mark.usefixtures("page_server")
def test_the_page_runs() -> None:
    run_page("langchain")
