"""Connects MCP servers, so that the model can use their tools; no failing server stops the shell.

All connections run on one event loop in a thread of its own. So they survive a cancelled turn, a Ctrl-C and
the event loop of the caller. A server's text is foreign text, so it is cleaned and limited first.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ullage.errors import UllageError
from ullage.mcp.link import STOP_SECONDS, make_link, stop_links
from ullage.mcp.tools import Offered, schema_tokens
from ullage.text import remove_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from ullage.mcp.link import Link, LinkState
    from ullage.mcp.spec import ServerSpec
    from ullage.messages import Tool
    from ullage.target import ModelLike

T = TypeVar("T")

MAX_RESULT = 200_000
"""Most characters of a result in the conversation; a longer result is kept whole for recall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """The current state of a server."""

    name: str
    transport: Literal["stdio", "http"]
    state: LinkState
    why: str
    """The reason why the server is dead or hangs. If it is ready: its last problem, or empty."""
    stderr: str
    """The end of what its process wrote to standard error."""
    tools: tuple[Offered, ...]
    left_out: int
    """The number of tools beyond the most that a server may offer."""
    tokens: int | None
    """Tokens that the tools add to a request without other tools; None if no model was named."""


class Servers:
    """The servers of a session, by name."""

    def __init__(
        self, *, always: Iterable[str] = (), kept: Callable[[str], str | None] | None = None
    ) -> None:
        self.always: set[str] = set(always)
        """The names of tools that may be called without asking the user."""
        self._kept = kept
        self._links: dict[str, Link] = {}
        # Servers that are no longer listed, but whose processes may not have ended yet
        self._ending: set[Link] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    async def connect(self, spec: ServerSpec) -> Sequence[Tool]:
        """Connects a server and returns its tools; an empty list if it cannot be reached.

        `state` has the reason. A server of the same name is disconnected first.
        """
        await self.disconnect(spec.name)
        link = await self._there(make_link(spec))
        await self.disconnect(spec.name)  # a server with this name was connected in the meantime
        self._links[spec.name] = link
        try:
            await self._there(link.settle())
        except asyncio.CancelledError:
            self._running().call_soon_threadsafe(link.end, "connecting was stopped")
            raise
        return [offered.definition for offered in link.offered.values()] if link.alive else []

    async def disconnect(self, name: str) -> bool:
        """Ends a server and its process; returns False if no server has this name."""
        link = self._links.pop(name, None)
        if link is None:
            return False
        self._ending.add(link)
        await self._there(link.stop("disconnected"))
        self._ending.discard(link)
        return True

    def listed(self, model: ModelLike = None) -> Sequence[Connected]:
        """Returns all servers that were connected and not disconnected, dead ones included."""
        return [_describe_server(link, model) for link in self._links.values()]

    def state(self, name: str, model: ModelLike = None) -> Connected | None:
        """Returns the state of a server; None if no server has this name."""
        link = self._links.get(name)
        return None if link is None else _describe_server(link, model)

    def tools(self) -> Sequence[Tool]:
        """Returns the tools of all servers that are alive."""
        alive = [link for link in self._links.values() if link.alive]
        return [offered.definition for link in alive for offered in link.offered.values()]

    def offered(self, tool: str) -> Offered | None:
        """Returns the tool with this name, as the model knows it, or None."""
        found = self._find(tool)
        return None if found is None else found[1]

    def allow(self, server: str, tools: Iterable[str]) -> None:
        """Sets the tools of a server that may be called without asking the user."""
        others = {tool for tool in self.always if not tool.startswith(f"{server}__")}
        self.always = others | {tool for tool in tools if tool.startswith(f"{server}__")}

    def target_of(self, tool: str) -> str:
        """Returns the command or the address of the server that has a tool; empty if none has it."""
        found = self._find(tool)
        return "" if found is None else found[0].spec.target

    def needs_confirmation(self, tool: str) -> bool:
        """Returns True if the user must be asked before a call, because the tool is not always allowed."""
        return tool not in self.always

    async def call(self, tool: str, arguments: str | Mapping[str, Any]) -> str:
        """Returns the text that answers a call. An error is returned as `error: …` and not raised."""
        found = self._find(tool)
        if found is None:
            return f"error: no connected MCP server has the tool {tool!r}"
        try:
            given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments)
        except ValueError as wrong:
            return f"error: the arguments of {tool} are not JSON: {wrong}"
        if not isinstance(given, dict):
            return f"error: the arguments of {tool} must be a JSON object, not {type(given).__name__}"
        link, offered = found
        return self._shorten_result(remove_unsafe(await self._there(link.call(offered.original, given))))

    async def close(self) -> None:
        """Ends all servers and their thread."""
        self._ending |= set(self._links.values())
        self._links = {}
        if self._loop is None or self._thread is None:
            return
        await self._there(stop_links(self._ending))
        self._ending = set()
        atexit.unregister(self._leave)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)
        self._loop = self._thread = None

    def _leave(self) -> None:
        """Ends all child processes when this process ends."""
        if os.getpid() != self._pid:  # a forked copy of this process has no servers of its own
            return
        links = {*self._links.values(), *self._ending}
        ending = asyncio.run_coroutine_threadsafe(stop_links(links), self._running())
        with contextlib.suppress(TimeoutError, KeyboardInterrupt):
            ending.result(STOP_SECONDS + 2)

    def _find(self, tool: str) -> tuple[Link, Offered] | None:
        link = self._links.get(tool.partition("__")[0])
        offered = None if link is None else link.offered.get(tool)
        return None if link is None or offered is None else (link, offered)

    def _shorten_result(self, text: str) -> str:
        if len(text) <= MAX_RESULT:
            return text
        recall = ""
        if self._kept is not None:
            try:
                handle = self._kept(text)
                recall = f", recall {handle}" if handle else ""
            except UllageError as failed:  # the head and the tail are still useful
                recall = f", not kept: {failed}"
        half = MAX_RESULT // 2
        return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut{recall} ...]\n{text[-half:]}"

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # A daemon thread, so that the interpreter does not wait for it before it calls `_leave`.
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="ullage-mcp", daemon=True)
            self._thread.start()
            atexit.register(self._leave)
        return self._loop

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running()))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, details: logging.getLogger(__name__).debug("%s", details))
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _describe_server(link: Link, model: ModelLike) -> Connected:
    tools = tuple(link.offered.values())
    return Connected(
        name=link.spec.name,
        transport=link.spec.transport,
        state=link.state,
        why=remove_unsafe(link.why),
        stderr=remove_unsafe(link.stderr.decode(errors="replace")),
        tools=tools,
        left_out=link.left_out,
        tokens=None if model is None else schema_tokens([tool.definition for tool in tools], model),
    )
