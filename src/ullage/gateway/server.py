"""The server: opens the models and listens until a signal stops it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ullage.broker.embedded_info import ABOUT, EMBEDDED
from ullage.broker.http import address
from ullage.broker.proxy import is_loopback
from ullage.errors import ConfigurationError
from ullage.extras import require
from ullage.gateway.app import App
from ullage.gateway.page.site import PAGE
from ullage.gateway.telemetry import telemetry_for
from ullage.gateway.upstream import Upstream
from ullage.gateway.upstreams import ANY, any_model_at, read_configured_models
from ullage.session.endpoint import open_provider_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

    from ullage.config import ModelSettings, Settings
    from ullage.store import Store
    from ullage.target import ApiName

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
PORT = 8787
GRACE = 10
"""Seconds for the answers under way when a signal stops the server."""
BACKLOG = 2048
MOST_FILES = 65_536
"""Most files and connections that the process asks for; the service in `deploy/` has the same number."""
STARTING = 0.01
"""Seconds between two looks at a server that starts."""
NEW_OBJECTS = 20_000
"""New objects after which the garbage collector looks for cycles. A long request has some thousand, and none
of them is in a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of `ullage serve`."""

    host: str = LOOPBACK
    port: int = PORT
    """0 for any free port."""
    upstream: str | None = None
    """The address that every model name goes to."""
    upstream_api: ApiName | None = None
    """The only API of that address; None if it may have all three."""
    model: str | None = None
    """The configured model that answers under every name."""
    window: int | None = None
    """The window of all models; None for each model's own."""
    keep_bodies: bool = False
    """True to keep the texts of changed messages in memory, for the page."""
    offers_recall: bool = False
    """True to offer the recall tool to models for callers without a key."""
    is_open: bool = False
    """True for a gateway of one agent, which every program on this machine may use although keys exist."""


async def serve(
    options: ServerOptions,
    settings: Settings,
    kept: Store,
    environ: Mapping[str, str],
    tell: Callable[[str], None],
) -> None:
    """Serves until SIGTERM or SIGINT; `tell` takes the lines for the user."""
    async with running(options, settings, kept, environ, tell) as gateway:
        with _stopped_by_signals(gateway.server):
            for line in gateway.lines:
                tell(line)
            await gateway.task


class Running(NamedTuple):
    """A gateway that accepts requests."""

    url: str
    lines: list[str]
    """The served models, the address, and how a client uses it."""
    server: Any
    task: asyncio.Task[None]


@asynccontextmanager
async def running(
    options: ServerOptions,
    settings: Settings,
    kept: Store,
    environ: Mapping[str, str],
    tell: Callable[[str], None],
) -> AsyncIterator[Running]:
    """Starts a gateway, and stops it in order at the end of the block."""
    require("gateway")
    listener = _listen(options.host, options.port)
    async with AsyncExitStack() as closing:
        closing.callback(listener.close)
        table = await _table(options, settings, environ, tell, closing)
        app = App(
            settings,
            kept,
            table,
            is_open=options.is_open,
            keep_bodies=options.keep_bodies,
            offers_recall=options.offers_recall,
            telemetry=telemetry_for(environ),
        )
        server = make_server(app)
        task = asyncio.get_running_loop().create_task(server.serve([listener]))
        url = f"http://{_write_host(options.host)}:{listener.getsockname()[1]}"
        try:
            while not server.started and not task.done():
                await asyncio.sleep(STARTING)
            lines = list(_describe_service(url, table, has_keys=kept.keys.exist()))
            yield Running(url, lines, server, task)
        finally:
            server.should_exit = True
            await task


def make_server(app: App) -> Any:
    """Returns a server for the application; it takes no signals and believes no header about addresses."""
    import uvicorn  # noqa: PLC0415 - an extra

    from ullage.gateway.client_protocol import ClientProtocol  # noqa: PLC0415 - the same

    class Server(uvicorn.Server):
        """A server whose signals are handled by its owner."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Takes no signals."""
            yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Stops in order; open pages do not delay it, not even those that take nothing any more."""
            app.end_streams()
            for connection in list[Any](self.server_state.connections):
                if connection.transport.is_closing() and connection.path.startswith(PAGE):
                    connection.transport.abort()
            await super().shutdown(sockets)

    def note_refusal(kind: str) -> None:
        app.metrics.add("ullage_refused_total", "none", kind)

    return Server(
        uvicorn.Config(
            app,
            loop="none",
            http=partial(ClientProtocol, note_refusal=note_refusal),  # type: ignore[arg-type] # it is called
            ws="none",
            lifespan="on",
            access_log=False,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=GRACE,
        )
    )


def allow_many_files() -> None:
    """Lets this process open as many files as it may: a call needs two, and the usual limit is 1,024."""
    import resource  # noqa: PLC0415 - programs that only import this module need no limit

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs the coroutine of a server on the fast event loop, if that is installed."""
    gc.freeze()  # the loaded objects live until the end, so the collector need not look at them
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        from uvloop import new_event_loop as factory  # noqa: PLC0415 - an extra
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work())


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]
        raise ConfigurationError(
            f"cannot listen on {host} port {port} ({reason}): choose another with --port, or with --host"
        ) from None


@contextmanager
def _stopped_by_signals(server: Any) -> Iterator[None]:
    """Stops the server in order at the first SIGTERM or SIGINT, and at once at the second."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for each in signals:
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


# The models


async def _table(
    options: ServerOptions,
    settings: Settings,
    environ: Mapping[str, str],
    tell: Callable[[str], None],
    closing: AsyncExitStack,
) -> Mapping[str, Upstream]:
    """Returns the upstreams by model name, and opens the models that run in this process."""
    if options.upstream is not None:
        return any_model_at(options.upstream, options.window, environ, options.upstream_api)
    if options.model is not None:
        chosen = settings.model(options.model)
        found = await _one(chosen, environ, closing)
        return {ANY: _within(found, options.window)}
    wanted = {**settings.models}
    wanted.setdefault(settings.default_model, settings.model())
    table, notices = read_configured_models((each for each in wanted.values() if not each.runs_here), environ)
    for notice in notices:
        tell(notice)
    for model in wanted.values():
        if model.runs_here:
            table[model.name] = await _one(model, environ, closing)
    return {name: _within(each, options.window) for name, each in table.items()}


async def _one(model: ModelSettings, environ: Mapping[str, str], closing: AsyncExitStack) -> Upstream:
    """Returns the upstream of one model; loads a model that runs in this process."""
    if not model.runs_here:
        table, notices = read_configured_models([model], environ)
        if notices:
            raise ConfigurationError(notices[0])
        return replace(table[model.name], renamed=True)
    from ullage.broker.embedded import EmbeddedProvider  # noqa: PLC0415 - only for local models

    provider = open_provider_of(model, environ).provider
    closing.push_async_callback(provider.close)
    assert isinstance(provider, EmbeddedProvider)  # noqa: S101 - `runs_here` says so
    return Upstream(endpoint=await provider.endpoint(), renamed=True, billed_as=model.name)


def _within(upstream: Upstream, window: int | None) -> Upstream:
    """Returns an upstream with the window of the command line."""
    if window is None:
        return upstream
    return replace(upstream, endpoint=replace(upstream.endpoint, window=window))


def _describe_service(place: str, table: Mapping[str, Upstream], *, has_keys: bool) -> Iterator[str]:
    """Yields the lines that say what is served, and how a client uses it."""
    for name, upstream in table.items():
        endpoint = upstream.endpoint
        window = "" if endpoint.window is None else f", window {endpoint.window:,}"
        model = f"{endpoint.model} at " if upstream.renamed else ""
        whose = "every model" if name == ANY else name
        only = "" if upstream.api is None else f", {upstream.api}"
        yield f"{whose} → {model}{address(endpoint.url)}{only}{window}"
        if upstream.billed_as == EMBEDDED:
            yield ABOUT.replace("\n", " ")
    yield f"listening on {place} (OpenAI: {place}/v1, Anthropic: {place}; in a browser: {place}/)"
    if not has_keys and not is_loopback(place):
        yield "other machines are refused until a gateway key exists: ullage keys create NAME"


def _write_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
