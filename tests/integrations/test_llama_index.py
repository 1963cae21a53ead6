"""Agents of LlamaIndex run a long tool loop in a small window, and their memory keeps every message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, PIXEL, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page

pytest.importorskip("llama_index.core")

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import AudioBlock, ChatMessage, DocumentBlock, ImageBlock, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI

from ullage.integrations.llama_index import FitFunctionAgent, FitMemory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.strict_server import StrictServer

TOOL = FunctionTool.from_defaults(read_page)


def memory_of_host() -> Any:
    """A memory of LlamaIndex whose own limit is never reached."""
    return ChatMemoryBuffer.from_defaults(token_limit=1_000_000, tokenizer_fn=str.split)


def model_of(server: StrictServer) -> Any:
    return OpenAI("gpt-4o", api_base=f"{server.url}/v1", api_key="none", max_retries=0)


async def _run_agent(server: StrictServer, glued: bool, *, streaming: bool) -> Any:
    memory = memory_of_host()
    options: Any = {"tools": [TOOL], "llm": model_of(server), "system_prompt": SYSTEM, "streaming": streaming}
    if glued:
        agent: Any = FitFunctionAgent(**options, fit_options={"limit": LIMIT, "reserve": RESERVE})
    else:
        agent = FunctionAgent(**options)
    await agent.run(TASK, memory=memory, max_iterations=2 * STEPS)
    return await memory.aget_all()


def agent_loop(server: StrictServer, glued: bool) -> Any:
    return asyncio.run(_run_agent(server, glued, streaming=False))


def streamed_agent_loop(server: StrictServer, glued: bool) -> Any:
    return asyncio.run(_run_agent(server, glued, streaming=True))


def memory_loop(server: StrictServer, glued: bool) -> Any:
    llm, store = model_of(server), SimpleChatStore()
    if glued:
        memory: Any = FitMemory(
            model="gpt-4o", limit=LIMIT, reserve=RESERVE, tools=[read_page], chat_store=store
        )
    else:
        memory = memory_of_host()
    memory.put_messages([ChatMessage(SYSTEM, role="system"), ChatMessage(TASK, role="user")])
    while True:
        answer = llm.chat_with_tools([TOOL], chat_history=memory.get(), allow_parallel_tool_calls=True)
        memory.put(answer.message)
        calls = llm.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
        if not calls:
            return memory.get_all()
        for call in calls:
            named = {"tool_call_id": call.tool_id}
            memory.put(ChatMessage(read_page(**call.tool_kwargs), role="tool", additional_kwargs=named))


@pytest.mark.parametrize("run", [agent_loop, streamed_agent_loop, memory_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def talk() -> list[ChatMessage]:
    made = [
        ChatMessage("Keep my diary."),  # the task is never recalled
        ChatMessage("Gladly.", role="assistant"),
        ChatMessage("The keeper's compass is made of brass."),
        ChatMessage("Noted. " * 300, role="assistant"),
    ]
    for day in range(40):
        made.append(ChatMessage(f"Day {day}, nothing new. " * 30))
        made.append(ChatMessage("Quiet, as ever. " * 40, role="assistant"))
    return made


def test_a_memory_returns_the_given_blocks_and_counts_the_prompt() -> None:
    image = ImageBlock(url="https://example.org/compass.png")
    asked = TextBlock(text="What is the keeper's compass made of?")
    history = [*talk(), ChatMessage([asked, image])]
    memory = FitMemory(model="gpt-4o", limit=LIMIT, reserve=RESERVE, prompt=SYSTEM)
    memory.set(history)
    system, *rest = memory.get()
    assert system.role.value == "system"
    assert SYSTEM not in str(system.content)
    assert len(rest) < len(history)
    recalled, *own = rest[-1].blocks
    assert "brass" in recalled.text
    assert own == [asked, image]
    assert memory.get_all() == history
    assert asyncio.run(memory.aget()) == [system, *rest]


def test_blocks_with_data_are_counted_by_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Low water at noon. " * 20)
    blocks = [
        ImageBlock(image=PIXEL),
        DocumentBlock(data=b"%PDF-1.4 /Type /Page " + b"0" * 20_000, document_mimetype="application/pdf"),
        DocumentBlock(path=tmp_path / "a.txt", document_mimetype="text/plain"),
        AudioBlock(audio=b"0" * 20_000, format="mp3"),
    ]
    told: list[Any] = []
    for block in ([], *([block] for block in blocks)):
        memory = FitMemory(model="gpt-4o", limit=100_000, report=told.append)
        memory.put(ChatMessage([TextBlock(text="Look."), *block]))
        assert memory.get() == memory.get_all()
    bare, *costs = (each.count.tokens for each in told)
    assert all(bare < cost < bare + 3_000 for cost in costs)


def test_a_wrong_option_is_an_error_before_the_first_step() -> None:
    with pytest.raises(ValueError, match="limit is 0; it must be at least 1"):  # pydantic wraps our error
        FitFunctionAgent(llm=OpenAI("gpt-4o", api_key="none"), fit_options={"limit": 0})


def test_a_memory_can_be_made_of_a_model_and_a_history() -> None:
    history = talk()[:3]
    memory = FitMemory.from_defaults(history, llm=OpenAI("gpt-4o", api_key="none"))
    assert memory.get() == history


@pytest.mark.usefixtures("page_server")
def test_the_page_runs() -> None:
    run_page("llama_index")
