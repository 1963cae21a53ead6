"""A real MCP server, made with the SDK: `python -m tests.harbour_server stdio|http|babble|…`.

Those in `WITHOUT_SDK` start fast: three speak the protocol as older servers do, by hand, and the others go
wrong before they say anything of use.
"""
# ruff: noqa: T201 - a server speaks by printing

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LONG_NAME = "the_state_of_every_berth_in_the_inner_and_in_the_outer_harbour.v2"


def harbour() -> Any:
    """The server with its tools."""
    import mcp_types as types
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("harbour", log_level="CRITICAL")

    @server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
    def tide(port: str, hours: int = 0) -> str:
        """\x1b[31mThe height\x1b[0m of the tide\u202e at a port, some hours from now."""
        return f"{port}: {3 + hours} m"

    @server.tool()
    def moor(ship: str) -> str:
        """Give a ship a berth."""
        raise ToolError(f"no berth for {ship}")

    @server.tool()
    async def fathom(seconds: float) -> str:
        """Measure the depth, slowly."""
        import anyio

        await anyio.sleep(seconds)
        return "deep"

    @server.tool()
    def sink() -> str:
        """End the process in the middle of a call."""
        print("struck a rock", file=sys.stderr, flush=True)
        os._exit(3)

    @server.tool()
    def process() -> str:
        """The id of the process, and the names in its environment."""
        return " ".join([str(os.getpid()), *sorted(os.environ)])

    @server.tool()
    def manifest(letters: int) -> str:
        """A long text."""
        return "first " + "x" * letters + " last"

    @server.tool()
    def shout() -> str:
        """Text that would move the cursor."""
        return "a\x1b[2Jb\x07c\r\nd\te\x9b\U000e0041f"

    @server.tool(structured_output=False)
    def chart() -> list[Any]:
        """Everything that is not plain text."""
        held = types.TextResourceContents(uri="chart://north", text="shoals")
        return [
            types.TextContent(text="see:"),
            types.ImageContent(data=PIXEL, mime_type="image/png"),
            types.ResourceLink(name="south", uri="chart://south"),
            types.EmbeddedResource(resource=held),
        ]

    @server.tool(name=LONG_NAME)
    def berths() -> str:
        """The berths."""
        return "all free"

    return server


def serve_http() -> None:
    """On a free port of the loopback, which is printed."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(harbour().streamable_http_app(), log_level="critical")).run([listening])


def serve_babbling() -> None:
    """Write what is not MCP to standard output first, then serve."""
    print("Harbour 1.0, good morning!\n{not json}", flush=True)
    serve_old()


def serve_patient() -> None:
    """Stay when the input ends, until asked to end."""
    serve_old()
    time.sleep(60)


def serve_stubborn() -> None:
    """Stay when the input ends, and when asked to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve_old()
    time.sleep(60)


def wreck() -> None:
    """End at once, with a reason."""
    sys.stderr.write("no harbour here\n")
    sys.exit(2)


def serve_old() -> None:
    """A handshake, a list in pages, a tool that makes it longer and tells the process, one that sleeps."""
    tools = [{"name": f"buoy {number}", "inputSchema": {"type": "object"}} for number in range(20)]
    tools[0] = {
        "name": "grow",
        "description": "x" * 10_000,
        "inputSchema": {"$schema": "x", "type": "object", "properties": {"y": {"description": "z" * 70_000}}},
    }
    tools[2] = {"name": "doze", "inputSchema": {"type": "object"}}

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            info = {"name": "old", "version": "1"}
            return {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            begin = int(params.get("cursor", 0))
            more = {"nextCursor": str(begin + 15)} if begin + 15 < len(tools) else {}
            return {"tools": tools[begin : begin + 15], **more}
        if method == "tools/call":
            tools.extend({**tools[1], "name": f"more {number}"} for number in range(len(tools), 200))
            print('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}', flush=True)
            return {"content": [{"type": "text", "text": str(os.getpid())}]}
        return None

    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and asked.get("params", {}).get("name") != "doze":
            result = answer(asked["method"], asked.get("params", {}))
            error = {"error": {"code": -32601, "message": "Method not found"}}
            told = {"jsonrpc": "2.0", "id": asked["id"], **({"result": result} if result else error)}
            print(json.dumps(told), flush=True)


WITHOUT_SDK: dict[str, Callable[[], object]] = {
    "old": serve_old,
    "babbling": serve_babbling,
    "patient": serve_patient,
    "stubborn": serve_stubborn,
    "wreck": wreck,
    "silent": lambda: time.sleep(60),
}
WAYS: dict[str, Callable[[], object]] = {
    "stdio": lambda: harbour().run(),
    "http": serve_http,
}

if __name__ == "__main__":
    (WITHOUT_SDK | WAYS)[sys.argv[1]]()
