"""Graphs of LangGraph run a long tool loop in a small window, and their state keeps every message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page

pytest.importorskip("langgraph")

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition

from ullage.integrations.langgraph import FitNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer

CONFIG: Any = {"recursion_limit": 4 * STEPS, "configurable": {"thread_id": "logbook"}}


def model_of(server: StrictServer) -> Any:
    return ChatOpenAI(model="gpt-4o", base_url=f"{server.url}/v1", max_retries=0)


def hook_loop(server: StrictServer, glued: bool) -> Any:
    node = FitNode(model="gpt-4o", limit=LIMIT, reserve=RESERVE, tools=[read_page], prompt=SYSTEM)
    agent = create_react_agent(
        model_of(server),
        [read_page],
        prompt=SYSTEM,
        pre_model_hook=node if glued else None,
        checkpointer=InMemorySaver(),
    )
    agent.invoke({"messages": [HumanMessage(TASK, id="task")]}, CONFIG)
    return agent.get_state(CONFIG).values["messages"]


def node_loop(server: StrictServer, glued: bool) -> Any:
    fit = FitNode(model="gpt-4o", limit=LIMIT, reserve=RESERVE, tools=[read_page])
    model = model_of(server).bind_tools([read_page])

    def call_model(state: MessagesState) -> Any:
        messages = fit(state)["llm_input_messages"] if glued else state["messages"]
        return {"messages": [model.invoke(messages)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode([read_page]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    ready = graph.compile(checkpointer=InMemorySaver())
    ready.invoke({"messages": [SystemMessage(SYSTEM, id="s"), HumanMessage(TASK, id="task")]}, CONFIG)
    return ready.get_state(CONFIG).values["messages"]


@pytest.mark.filterwarnings("ignore:.*create_react_agent")  # deprecated by its owner, and still in use
@pytest.mark.parametrize("run", [hook_loop, node_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_a_prompt_of_the_agent_is_counted_and_not_sent_twice() -> None:
    told: list[Any] = []
    talk = [HumanMessage("Good morning.")]
    node = FitNode(limit=LIMIT, prompt=SYSTEM, report=told.append)
    assert node({"messages": talk}) == {"llm_input_messages": talk}
    FitNode(limit=LIMIT, report=told.append)({"messages": talk})
    assert told[0].count.tokens > told[1].count.tokens


@pytest.mark.usefixtures("page_server")
def test_the_page_runs() -> None:
    run_page("langgraph")
