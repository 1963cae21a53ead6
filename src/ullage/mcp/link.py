"""One connection to an MCP server, from start to end, on the event loop that all connections share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ullage.extras import require
from ullage.mcp.tools import offer, result_text
from ullage.text import remove_unsafe

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    import httpx2
    import mcp_types
    from mcp import Client

    from ullage.mcp.spec import ServerSpec
    from ullage.mcp.tools import Offered

T = TypeVar("T")
LinkState = Literal["connecting", "ready", "hanging", "dead"]
"""The state of a connection; "hanging" if a call took too long and a probe checks if the server answers."""

MAX_TOOLS = 128
"""Most tools of one server; providers accept no more in a request."""
MAX_STDERR = 4_096
MAX_STRANGE = 1_000
"""Most lines of standard output that are not MCP: some servers print a greeting, but none prints more."""

PROBE_SECONDS = 2.0
"""Seconds that a server which did not answer a call has to answer a probe."""
STOP_SECONDS = 8.0
"""Seconds to wait for a server's end; the SDK needs less to close its input, ask it to end, and kill it."""

_LOOPBACK = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?:[:/]|$)")


async def make_link(spec: ServerSpec) -> Link:
    """Returns a connection that is being made; raises MissingExtra if the SDK is not installed."""
    require("mcp")
    import mcp  # noqa: F401, PLC0415 - it takes over a second, so before the first timeout begins

    for name in ("mcp", "client"):  # the SDK's loggers; without a handler, they print warnings on the screen
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    return Link(spec)


class Link:
    """The connection to one server, on the event loop of all servers."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.state: LinkState = "connecting"
        self.why = ""
        self.stderr = b""
        self.offered: dict[str, Offered] = {}
        self.left_out = 0
        self.strange = 0  # lines of its standard output that are not MCP
        self.task = asyncio.create_task(self._live())
        self._client: Client | None = None
        self._refusal = ""  # the HTTP status of a refusal, which the SDK's errors leave out
        self._settled = asyncio.Event()  # ready or dead
        self._dead = asyncio.Event()
        self._asked: set[asyncio.Task[Any]] = set()

    @property
    def alive(self) -> bool:
        """True if the server's tools may be called."""
        return self.state in {"ready", "hanging"}

    def end(self, why: str) -> None:
        """Marks the server as dead; its process ends a little later."""
        if self.state == "dead":
            return
        self.state, self.why = "dead", why
        self._settled.set()
        self._dead.set()
        # Cancelled at most once: a second time would disturb the SDK while it ends the process.
        if self._client is None and asyncio.current_task() is not self.task:
            self.task.cancel()

    async def stop(self, why: str) -> None:
        """Ends the server, and waits until its process has ended."""
        self.end(why)
        _, pending = await asyncio.wait({self.task}, timeout=STOP_SECONDS)
        for task in pending:
            task.cancel()

    async def settle(self) -> None:
        """Waits until the server is ready or dead, at most for its timeout."""
        try:
            await asyncio.wait_for(self._settled.wait(), self.spec.timeout)
        except TimeoutError:
            not_mcp = f", and {self.strange} lines of its standard output are not MCP" if self.strange else ""
            self.end(f"it did not answer within {self.spec.timeout:g} s{not_mcp}")

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Returns the text of the result, or of the error."""
        if self._client is None or not self.alive:
            return self._obituary()
        asking = self._start_task(self._client.call_tool(tool, arguments))
        death = self._start_task(self._dead.wait())
        both: set[asyncio.Task[Any]] = {asking, death}
        try:
            done, _ = await asyncio.wait(both, timeout=self.spec.timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:  # also if the turn was cancelled: the server learns that its answer is no longer needed
            death.cancel()
            asking.cancel()
        if asking in done and not asking.cancelled():
            failed = asking.exception()
            if failed is None:
                self._answers()
                return result_text(asking.result())
            await self.probe()
            return f"error: {_reason(failed)}" if self.alive else self._obituary()
        if not self.alive:
            return self._obituary()
        self.state, self.why = "hanging", f"{tool} did not answer within {self.spec.timeout:g} s"
        self._start_task(self.probe())
        return f"error: {self.why}; it may still be at work"

    async def probe(self, seconds: float | None = None) -> None:
        """Checks if the server answers within the time, `PROBE_SECONDS` by default, and updates its tools."""
        if not self.alive:
            return
        try:
            await asyncio.wait_for(self._list(), PROBE_SECONDS if seconds is None else seconds)
        except TimeoutError:
            if self.state == "hanging":  # a server that answers calls may be slow to list its tools
                self.end(f"it hangs: {self.why}")
        except Exception as failed:  # noqa: BLE001 - after any error, this server does not answer
            await asyncio.wait({self.task}, timeout=0.1)  # a broken connection knows the reason better
            self.end(self._explain_end(failed))
        else:
            self._answers()

    def _answers(self) -> None:
        if self.state == "hanging":
            self.state = "ready"

    async def _live(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await self._open_client(stack)
                await self._list(client)
                self._client = client
                if self.state == "connecting":
                    self.state = "ready"
                self._settled.set()
                await self._dead.wait()
        except Exception as failed:  # noqa: BLE001 - any error ends this server and no other
            self.end(self._explain_end(failed))
        finally:
            self._client = None
            self.end("it was stopped")

    async def _open_client(self, stack: contextlib.AsyncExitStack) -> Client:
        import httpx2  # noqa: PLC0415 - slow, as is all of the SDK
        from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415 - the same
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - the same

        spec = self.spec
        if spec.command is None:
            assert spec.url is not None  # noqa: S101 - a spec has a command or a url
            seconds = httpx2.Timeout(spec.timeout, read=max(300.0, spec.timeout))
            proxied = not _LOOPBACK.match(spec.url)
            web = httpx2.AsyncClient(
                headers=dict(spec.headers),
                timeout=seconds,
                trust_env=proxied,
                event_hooks={"response": [self._note_status]},
            )
            transport = streamable_http_client(
                spec.url, http_client=await stack.enter_async_context(web), max_sse_event_size=1 << 26
            )
            return await stack.enter_async_context(
                Client(transport, cache=None, message_handler=self._read_message)
            )
        run = StdioServerParameters(
            command=spec.command, args=list(spec.args), env=dict(spec.env), encoding_error_handler="replace"
        )
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        asyncio.get_running_loop().add_reader(reading, self._read, reading)
        stack.callback(self._read_rest, reading)
        with os.fdopen(writing, "w") as errors:  # our copy is then closed, so that the end is noticed
            transport = stdio_client(run, errlog=errors)
            return await stack.enter_async_context(
                Client(transport, cache=None, message_handler=self._read_message)
            )

    async def _list(self, client: Client | None = None) -> None:
        client = client or self._client
        if client is None:
            return
        found: list[mcp_types.Tool] = []
        cursor = None
        while len(found) <= MAX_TOOLS:
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor or not page.tools:
                break
        made = [offer(self.spec.name, tool) for tool in found[:MAX_TOOLS]]
        new = {offered.name: offered for offered in made}
        # Known tools keep their order, so that the beginning of the request stays the same.
        self.offered = {name: new[name] for name in (*self.offered, *new) if name in new}
        self.left_out = len(found) - len(self.offered)

    async def _note_status(self, response: httpx2.Response) -> None:
        self._refusal = f" (HTTP {response.status_code})" if response.status_code >= 400 else ""

    async def _read_message(self, message: object) -> None:
        import mcp_types  # noqa: PLC0415 - loaded by now

        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._start_task(self.probe(self.spec.timeout))  # a long list has many pages
        elif isinstance(message, Exception):
            self._note_strange_output(message)

    def _note_strange_output(self, wrong: Exception) -> None:
        import pydantic  # noqa: PLC0415 - loaded by now

        text = wrong.errors()[0].get("input") if isinstance(wrong, pydantic.ValidationError) else wrong
        self._note(f"[not MCP] {str(text)[:200]}\n".encode(errors="replace"))
        self.strange += 1
        if self.strange > MAX_STRANGE:
            self.end("its standard output is not MCP")

    def _read(self, reading: int) -> None:
        with contextlib.suppress(BlockingIOError):
            if data := os.read(reading, 1 << 16):
                self._note(data)
                return
            asyncio.get_running_loop().remove_reader(reading)
            self._start_task(self.probe())  # most probably its process has ended

    def _read_rest(self, reading: int) -> None:
        asyncio.get_running_loop().remove_reader(reading)
        with contextlib.suppress(BlockingIOError):
            self._note(os.read(reading, 1 << 16))
        os.close(reading)

    def _note(self, data: bytes) -> None:
        self.stderr = (self.stderr + data)[-MAX_STDERR:]

    def _start_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._asked.add(task)  # the loop keeps no reference to the task
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # asyncio would print an exception that is never read

    def _explain_end(self, failed: BaseException) -> str:
        reason = _reason(failed)
        ended = reason == "Connection closed" and self.spec.command is not None
        return "its process ended" if ended else reason + self._refusal

    def _obituary(self) -> str:
        last = remove_unsafe(self.stderr.decode(errors="replace")).strip()[-500:]
        return f"error: MCP server {self.spec.name} is dead: {self.why}" + (f"\n{last}" if last else "")


async def stop_links(links: Iterable[Link]) -> None:
    """Ends all servers at the same time, and waits until their processes have ended."""
    await asyncio.gather(*(link.stop("the shell was left") for link in links))


def _reason(failed: BaseException) -> str:
    """Returns the text of the innermost error."""
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    text = str(failed)
    if isinstance(failed, OSError) and failed.strerror:
        text = ": ".join(filter(None, (failed.strerror, str(failed.filename or ""))))
    text = remove_unsafe(text).strip()[:500]
    return text or type(failed).__name__
