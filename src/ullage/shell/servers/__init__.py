"""MCP servers lend the model their tools, and nothing that they do stops the shell.

Connections live on an event loop in a thread of their own: they outlast a cancelled turn, a Ctrl-C and the
loop that asked for them. What a server says is somebody else's text: it is cleaned and bounded first.
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
from ullage.shell.servers.link import STOP_SECONDS, begun, stopped
from ullage.shell.servers.spec import ServerSpec, spec_for, spec_of
from ullage.shell.servers.tools import Offered, clean, exposed_name, schema_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from ullage.messages import Tool
    from ullage.shell.servers.link import Link, State

__all__ = [
    "MAX_RESULT",
    "Connected",
    "Offered",
    "ServerSpec",
    "Servers",
    "clean",
    "exposed_name",
    "schema_tokens",
    "spec_for",
    "spec_of",
]

T = TypeVar("T")

MAX_RESULT = 200_000
"""Characters of a result that reach the conversation; the whole of a longer one is kept for recall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A server as it stands."""

    name: str
    transport: Literal["stdio", "http"]
    state: State
    why: str
    """Why it is dead or hanging; of a ready one, the last trouble, or nothing."""
    stderr: str
    """The end of what its process wrote there."""
    tools: tuple[Offered, ...]
    left_out: int
    """Tools beyond the most that a server may offer."""
    tokens: int | None
    """What the schemas add to a request that has no other tools; None where no model was named."""


class Servers:
    """The servers of a session, by name."""

    def __init__(
        self, *, always: Iterable[str] = (), kept: Callable[[str], str | None] | None = None
    ) -> None:
        self.always: set[str] = set(always)
        """Tools that are no longer asked about; the caller keeps this set from one session to the next."""
        self._kept = kept
        self._links: dict[str, Link] = {}
        self._ending: set[Link] = set()  # no longer listed, and their processes perhaps not gone yet
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    async def connect(self, spec: ServerSpec) -> Sequence[Tool]:
        """The tools of a server, none where it cannot be reached: `state` tells why.

        A server of the same name is disconnected first.
        """
        await self.disconnect(spec.name)
        link = await self._there(begun(spec))
        await self.disconnect(spec.name)  # one that was connected meanwhile
        self._links[spec.name] = link
        try:
            await self._there(link.settle())
        except asyncio.CancelledError:
            self._running().call_soon_threadsafe(link.end, "connecting was stopped")
            raise
        return [offered.definition for offered in link.offered.values()] if link.alive else []

    async def disconnect(self, name: str) -> bool:
        """End a server, its process included; whether there was one of this name."""
        link = self._links.pop(name, None)
        if link is None:
            return False
        self._ending.add(link)
        await self._there(link.stop("disconnected"))
        self._ending.discard(link)
        return True

    def listed(self, model: str | None = None) -> Sequence[Connected]:
        """Every server that was connected and not disconnected, the dead ones too."""
        return [_seen(link, model) for link in self._links.values()]

    def state(self, name: str, model: str | None = None) -> Connected | None:
        """One server, or None where there is none of this name."""
        link = self._links.get(name)
        return None if link is None else _seen(link, model)

    def tools(self) -> Sequence[Tool]:
        """The tools of all servers that are alive."""
        alive = [link for link in self._links.values() if link.alive]
        return [offered.definition for link in alive for offered in link.offered.values()]

    def offered(self, tool: str) -> Offered | None:
        """The tool that the model knows by this name."""
        found = self._find(tool)
        return None if found is None else found[1]

    def needs_confirmation(self, tool: str) -> bool:
        """Whether the user is asked before a call: yes, until they said that this tool always may."""
        return tool not in self.always

    async def call(self, tool: str, arguments: str | Mapping[str, Any]) -> str:
        """The text that answers a call; what went wrong is told in it, as `error: …`, and not raised."""
        found = self._find(tool)
        if found is None:
            return f"error: no MCP server that is connected has a tool {tool!r}"
        try:
            given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments)
        except ValueError as wrong:
            return f"error: the arguments of {tool} are not JSON: {wrong}"
        if not isinstance(given, dict):
            return f"error: the arguments of {tool} are a JSON object, not {type(given).__name__}"
        link, offered = found
        return self._bounded(clean(await self._there(link.call(offered.original, given))))

    async def close(self) -> None:
        """End all servers and the thread that they live in."""
        self._ending |= set(self._links.values())
        self._links = {}
        if self._loop is None or self._thread is None:
            return
        await self._there(stopped(self._ending))
        self._ending = set()
        atexit.unregister(self._leave)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)
        self._loop = self._thread = None

    def _leave(self) -> None:
        """At the end of the process: no child of ours outlives it."""
        if os.getpid() != self._pid:  # a fork that never became another program has no servers
            return
        links = {*self._links.values(), *self._ending}
        ending = asyncio.run_coroutine_threadsafe(stopped(links), self._running())
        with contextlib.suppress(TimeoutError, KeyboardInterrupt):
            ending.result(STOP_SECONDS + 2)

    def _find(self, tool: str) -> tuple[Link, Offered] | None:
        link = self._links.get(tool.partition("__")[0])
        offered = None if link is None else link.offered.get(tool)
        return None if link is None or offered is None else (link, offered)

    def _bounded(self, text: str) -> str:
        if len(text) <= MAX_RESULT:
            return text
        recall = ""
        if self._kept is not None:
            try:
                handle = self._kept(text)
                recall = f", recall {handle}" if handle else ""
            except UllageError as failed:  # the head and the tail are still worth having
                recall = f", not kept: {failed}"
        half = MAX_RESULT // 2
        return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut{recall} ...]\n{text[-half:]}"

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # A daemon, so that the interpreter does not wait for it before `_leave` is called.
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="ullage-mcp", daemon=True)
            self._thread.start()
            atexit.register(self._leave)
        return self._loop

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running()))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, told: logging.getLogger(__name__).debug("%s", told))
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _seen(link: Link, model: str | None) -> Connected:
    tools = tuple(link.offered.values())
    return Connected(
        name=link.spec.name,
        transport=link.spec.transport,
        state=link.state,
        why=clean(link.why),
        stderr=clean(link.stderr.decode(errors="replace")),
        tools=tools,
        left_out=link.left_out,
        tokens=None if model is None else schema_tokens([tool.definition for tool in tools], model),
    )
