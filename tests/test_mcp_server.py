"""`ullage mcp`, asked by the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

import ullage
from ullage import Context, store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def ask(talk: Callable[[ClientSession], Awaitable[Any]], *options: str) -> Any:
    """What a client's talk with a fresh server returns."""
    program = "import sys; from ullage.cli import program; sys.exit(program())"
    server = StdioServerParameters(command=sys.executable, args=["-c", program, "mcp", *options])

    async def session() -> Any:
        async with stdio_client(server) as streams, ClientSession(*streams) as client:
            await client.initialize()
            return await talk(client)

    return asyncio.run(session())


def call(name: str, arguments: dict[str, Any], *options: str) -> Any:
    """The structured result of one call; an error as its text."""

    async def talk(client: ClientSession) -> Any:
        answer = await client.call_tool(name, arguments)
        if answer.is_error:
            return answer.content[0].text
        return answer.structured_content

    return ask(talk, *options)


def loop(steps: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read the files."}]
    for step in range(steps):
        made = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": f"file {step} " * 300})
    return messages


def test_the_tools_say_what_they_do_and_that_they_change_nothing() -> None:
    async def talk(client: ClientSession) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in ask(talk)}
    assert set(tools) == {"count", "fit", "recall"}
    for tool in tools.values():
        assert tool.annotations.read_only_hint
        assert tool.description
    assert tools["fit"].input_schema["required"] == ["request"]


def test_count_returns_what_the_library_counts() -> None:
    messages = loop(3)
    told = call("count", {"request": messages, "model": "gpt-4o"})
    counted = ullage.count(messages, model="gpt-4o")
    assert (told["tokens"], told["ceiling"], told["exact"]) == (
        counted.tokens,
        counted.ceiling,
        counted.exact,
    )
    text = call("count", {"request": "How long is this?", "model": "gpt-4o"})
    assert text["tokens"] == ullage.count([{"role": "user", "content": "How long is this?"}], "gpt-4o").tokens


def test_fit_returns_the_body_of_the_same_api_and_its_changes() -> None:
    body = {"model": "gpt-4o", "messages": loop(20), "seed": 7}
    fitted = call("fit", {"request": body, "limit": 2_000})
    done = ullage.fit_request(body, "openai.chat", limit=2_000)
    assert fitted.pop("ullage")["dropped"] == done.dropped
    assert fitted == json.loads(json.dumps(done.body))


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        (
            "fit",
            {"request": [{"role": "user", "content": "word " * 900}], "limit": 100},
            "Cannot fit request",
        ),
        ("fit", {"request": [{"role": "tool", "tool_call_id": "c", "content": "x"}], "limit": 100}, "call"),
        ("count", {"request": {"messages": []}}, "there are no messages"),
        ("count", {"request": "text", "api": "openai.chats"}, "unknown API"),
    ],
)
def test_a_bad_request_is_an_error_that_says_why(tool: str, arguments: dict[str, Any], told: str) -> None:
    answer = call(tool, arguments)
    assert isinstance(answer, str)
    assert told in answer


def test_recall_searches_the_store_of_the_option(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    with store.open(str(path)) as kept:
        context = Context(model="gpt-4o", journal=kept.journal, session="harbour")
        context.append_user("Ingrid, the lighthouse keeper, gave us a brass compass.")
        context.append({"role": "assistant", "content": "How kind of her."})
    told = call("recall", {"words": "lighthouse keeper"}, "--store", str(path))
    assert "brass compass" in told["found"][0]["text"]
    handle = told["found"][0]["handle"]
    assert "brass compass" in call("recall", {"words": handle}, "--store", str(path))["found"][0]["text"]
    nothing = call("recall", {"words": "submarine"}, "--store", str(path))
    assert nothing["found"] == []
    assert nothing["advice"]
    missing = call("recall", {"words": "compass"}, "--store", str(tmp_path / "none.db"))
    assert missing["found"] == []
