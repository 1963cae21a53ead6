"""MCP servers lend the model their tools, and nothing that they do stops the shell.

Connections live on an event loop in a thread of their own: they outlast a cancelled turn, a Ctrl-C and the
loop that asked for them. What a server says is somebody else's text: it is cleaned and bounded first.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ullage.errors import ConfigurationError, UllageError
from ullage.tokens.counter import counter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    import httpx2
    import mcp_types
    from mcp import Client

    from ullage.messages import Tool

T = TypeVar("T")
State = Literal["connecting", "ready", "hanging", "dead"]
"""Hanging: a call took too long, and whether the server still answers is being found out."""

MAX_RESULT = 200_000
"""Characters of a result that reach the conversation; the whole of a longer one is kept for recall."""
MAX_DESCRIPTION = 4_000
MAX_SCHEMA = 64_000
"""Characters of a tool's schema; a longer one is left out, and the model may give any arguments."""
MAX_TOOLS = 128
"""Tools of one server; providers take no more in a request."""
MAX_STDERR = 4_096
MAX_STRANGE = 1_000
"""Lines of standard output that are not MCP: some programs greet, and one that goes on is no server."""
MAX_NAME = 64

PROBE_SECONDS = 2.0
"""A server that did not answer a call gets this long to show that it is there at all."""
STOP_SECONDS = 8.0
"""More than the SDK takes to close a server's input, then to ask it to end, then to kill it."""

_SERVER_NAME = re.compile(r"(?!.*__)[a-zA-Z0-9_-]{0,31}[a-zA-Z0-9-]")
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# Control characters, overrides of the reading direction, and letters that only a machine sees.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_LOOPBACK = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?:[:/]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How a server is reached: by a command that is run, or at an address."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All that the process gets beside HOME, LOGNAME, PATH, SHELL, TERM and USER."""
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 30.0
    """Seconds that connecting may take, and each call."""

    def __post_init__(self) -> None:
        if not _SERVER_NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"an MCP server cannot be named {self.name!r}: its name stands before those of its tools. "
                "Use up to 32 letters, digits, - and single _, and no _ at the end."
            )
        if (self.command is None) == (self.url is None):
            raise ConfigurationError(f"MCP server {self.name!r} needs either a command or a url")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"MCP server {self.name!r}: its url begins with http:// or https://")
        if not self.timeout > 0:
            raise ConfigurationError(f"MCP server {self.name!r}: its timeout is more than 0 seconds")

    @property
    def transport(self) -> Literal["stdio", "http"]:
        """Which way it is reached."""
        return "http" if self.command is None else "stdio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A tool of a server, as the model is told of it."""

    name: str
    """`server__tool`, valid for every provider."""
    original: str
    """What the server calls it."""
    read_only: bool
    """The server says that it changes nothing; its word only, so it is asked about all the same."""
    definition: Tool


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
        self._links: dict[str, _Link] = {}
        self._ending: set[_Link] = set()  # no longer listed, and their processes perhaps not gone yet
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    async def connect(self, spec: ServerSpec) -> Sequence[Tool]:
        """The tools of a server, none where it cannot be reached: `state` tells why.

        A server of the same name is disconnected first.
        """
        await self.disconnect(spec.name)
        link = await self._there(_begun(spec))
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
        await self._there(_stopped(self._ending))
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
        ending = asyncio.run_coroutine_threadsafe(_stopped(links), self._running())
        with contextlib.suppress(TimeoutError, KeyboardInterrupt):
            ending.result(STOP_SECONDS + 2)

    def _find(self, tool: str) -> tuple[_Link, Offered] | None:
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


class _Link:
    """One server's life, on the loop of all servers."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.state: State = "connecting"
        self.why = ""
        self.stderr = b""
        self.offered: dict[str, Offered] = {}
        self.left_out = 0
        self.strange = 0  # lines of its standard output that are not MCP
        self.task = asyncio.create_task(self._live())
        self._client: Client | None = None
        self._refusal = ""  # the status of a refusal over HTTP, which the SDK's errors leave out
        self._settled = asyncio.Event()  # ready or dead
        self._dead = asyncio.Event()
        self._asked: set[asyncio.Task[Any]] = set()

    @property
    def alive(self) -> bool:
        """Whether its tools may be called."""
        return self.state in {"ready", "hanging"}

    def end(self, why: str) -> None:
        """It is dead from now on; its process is gone a little later."""
        if self.state == "dead":
            return
        self.state, self.why = "dead", why
        self._settled.set()
        self._dead.set()
        # Cancelled once at most: a second time would disturb the SDK while it ends the process.
        if self._client is None and asyncio.current_task() is not self.task:
            self.task.cancel()

    async def stop(self, why: str) -> None:
        """End it, and wait until its process is gone."""
        self.end(why)
        _, pending = await asyncio.wait({self.task}, timeout=STOP_SECONDS)
        for task in pending:
            task.cancel()

    async def settle(self) -> None:
        """Wait until it is ready or dead, no longer than its timeout."""
        try:
            await asyncio.wait_for(self._settled.wait(), self.spec.timeout)
        except TimeoutError:
            not_mcp = f", and {self.strange} lines of its standard output are not MCP" if self.strange else ""
            self.end(f"it did not answer within {self.spec.timeout:g} s{not_mcp}")

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """The text of the result, or of what went wrong."""
        if self._client is None or not self.alive:
            return self._obituary()
        asking = self._started(self._client.call_tool(tool, arguments))
        death = self._started(self._dead.wait())
        both: set[asyncio.Task[Any]] = {asking, death}
        try:
            done, _ = await asyncio.wait(both, timeout=self.spec.timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:  # also where the turn was cancelled: the server is told that nobody waits any more
            death.cancel()
            asking.cancel()
        if asking in done and not asking.cancelled():
            failed = asking.exception()
            if failed is None:
                self._answers()
                return told(asking.result())
            await self.probe()
            return f"error: {_reason(failed)}" if self.alive else self._obituary()
        if not self.alive:
            return self._obituary()
        self.state, self.why = "hanging", f"{tool} did not answer within {self.spec.timeout:g} s"
        self._started(self.probe())
        return f"error: {self.why}; it may still be at work"

    async def probe(self) -> None:
        """Find out whether it still answers, and what it offers by now."""
        if not self.alive:
            return
        try:
            await asyncio.wait_for(self._list(), PROBE_SECONDS)
        except TimeoutError:
            if self.state == "hanging":  # one that answers calls may take its time to list its tools
                self.end(f"it hangs: {self.why}")
        except Exception as failed:  # noqa: BLE001 - whatever it is, this server does not answer
            await asyncio.wait({self.task}, timeout=0.1)  # a connection that broke knows better why
            self.end(self._ended(failed))
        else:
            self._answers()

    def _answers(self) -> None:
        if self.state == "hanging":
            self.state = "ready"

    async def _live(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await self._opened(stack)
                await self._list(client)
                self._client = client
                if self.state == "connecting":
                    self.state = "ready"
                self._settled.set()
                await self._dead.wait()
        except Exception as failed:  # noqa: BLE001 - whatever it is, it ends this server and no other
            self.end(self._ended(failed))
        finally:
            self._client = None
            self.end("it was stopped")

    async def _opened(self, stack: contextlib.AsyncExitStack) -> Client:
        import httpx2  # noqa: PLC0415 - slow, as is all of the SDK
        from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415 - the same
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - the same

        spec = self.spec
        if spec.command is None:
            assert spec.url is not None  # noqa: S101 - the spec has one of the two
            seconds = httpx2.Timeout(spec.timeout, read=max(300.0, spec.timeout))
            proxied = not _LOOPBACK.match(spec.url)
            web = httpx2.AsyncClient(
                headers=dict(spec.headers),
                timeout=seconds,
                trust_env=proxied,
                event_hooks={"response": [self._answered]},
            )
            transport = streamable_http_client(
                spec.url, http_client=await stack.enter_async_context(web), max_sse_event_size=1 << 26
            )
            return await stack.enter_async_context(Client(transport, cache=None, message_handler=self._heard))
        run = StdioServerParameters(
            command=spec.command, args=list(spec.args), env=dict(spec.env), encoding_error_handler="replace"
        )
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        asyncio.get_running_loop().add_reader(reading, self._read, reading)
        stack.callback(self._unread, reading)
        with os.fdopen(writing, "w") as errors:  # ours is closed then, so that the end is seen
            transport = stdio_client(run, errlog=errors)
            return await stack.enter_async_context(Client(transport, cache=None, message_handler=self._heard))

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
        made = [_offer(self.spec.name, tool) for tool in found[:MAX_TOOLS]]
        new = {offered.name: offered for offered in made}
        # Tools that are known keep their places, so that the beginning of the request stays the same.
        self.offered = {name: new[name] for name in (*self.offered, *new) if name in new}
        self.left_out = len(found) - len(self.offered)

    async def _answered(self, response: httpx2.Response) -> None:
        self._refusal = f" (HTTP {response.status_code})" if response.status_code >= 400 else ""

    async def _heard(self, message: object) -> None:
        import mcp_types  # noqa: PLC0415 - loaded by now

        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._started(self.probe())
        elif isinstance(message, Exception):
            self._wondered(message)

    def _wondered(self, wrong: Exception) -> None:
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
            self._started(self.probe())  # most likely its process has ended

    def _unread(self, reading: int) -> None:
        asyncio.get_running_loop().remove_reader(reading)
        with contextlib.suppress(BlockingIOError):
            self._note(os.read(reading, 1 << 16))
        os.close(reading)

    def _note(self, data: bytes) -> None:
        self.stderr = (self.stderr + data)[-MAX_STDERR:]

    def _started(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._asked.add(task)  # the loop alone would let it be collected
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # one that nobody looks at is printed over the screen

    def _ended(self, failed: BaseException) -> str:
        reason = _reason(failed)
        ended = reason == "Connection closed" and self.spec.command is not None
        return "its process ended" if ended else reason + self._refusal

    def _obituary(self) -> str:
        last = clean(self.stderr.decode(errors="replace")).strip()[-500:]
        return f"error: MCP server {self.spec.name} is dead: {self.why}" + (f"\n{last}" if last else "")


async def _begun(spec: ServerSpec) -> _Link:
    try:
        import mcp  # noqa: F401, PLC0415 - more than a second, so before the clock of the first server runs
    except ImportError as missing:
        raise ConfigurationError("MCP servers need the package mcp: pip install mcp") from missing
    for name in ("mcp", "client"):  # the SDK's loggers; without a handler their warnings go to the screen
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    return _Link(spec)


async def _stopped(links: Iterable[_Link]) -> None:
    await asyncio.gather(*(link.stop("the shell was left") for link in links))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, told: logging.getLogger(__name__).debug("%s", told))
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _seen(link: _Link, model: str | None) -> Connected:
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


def schema_tokens(tools: Sequence[Tool], model: str) -> int:
    """What these tools add to a request that has none."""
    counter = counter_for(model)
    return counter.request(tools=tools).tokens - counter.request().tokens


def exposed_name(server: str, tool: str) -> str:
    """`server__tool` in letters that every provider takes; with a hash where it had to be changed."""
    plain = f"{server}__{tool}"
    name = _UNSAFE.sub("_", plain)
    if name == plain and len(name) <= MAX_NAME:
        return name
    letters = hashlib.sha256(tool.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{letters}"


def clean(text: str) -> str:
    """Text without terminal escapes, control characters and letters that only a machine sees."""
    return _UNSEEN.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def told(result: mcp_types.CallToolResult) -> str:
    """A result as one text: media and links are named, an error begins with `error: `."""
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)
    return f"error: {text or 'the tool failed and did not say why'}" if result.is_error else text


def _part(part: mcp_types.ContentBlock) -> str:
    match part.type:
        case "text":
            return part.text
        case "image" | "audio":
            return f"[{part.type}: {part.mime_type}, {len(part.data) * 3 // 4} bytes]"
        case "resource_link":
            return f"[resource {part.name}: {part.uri}]"
        case "resource":
            held = part.resource
            text = getattr(held, "text", None)
            return f"[resource {held.uri}]" + ("" if text is None else f"\n{text}")


def _offer(server: str, tool: mcp_types.Tool) -> Offered:
    name = exposed_name(server, tool.name)
    description = clean(tool.description or tool.title or "")
    if len(description) > MAX_DESCRIPTION:
        description = description[:MAX_DESCRIPTION] + " [cut]"
    schema = {key: _cleaned(value) for key, value in tool.input_schema.items() if key != "$schema"}
    if len(json.dumps(schema)) > MAX_SCHEMA:
        schema = {}
    # Some providers refuse an object that does not say which properties it has.
    parameters = {"type": "object", "properties": {}, **schema}
    return Offered(
        name=name,
        original=tool.name,
        read_only=bool(tool.annotations and tool.annotations.read_only_hint),
        definition={
            "type": "function",
            "function": {"name": name, "description": description, "parameters": parameters},
        },
    )


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: _cleaned(held) for key, held in value.items()}
    return [_cleaned(held) for held in value] if isinstance(value, list) else value


def _reason(failed: BaseException) -> str:
    """What went wrong, in the words of the innermost error."""
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    text = clean(str(failed)).strip()[:500]
    return text or type(failed).__name__
