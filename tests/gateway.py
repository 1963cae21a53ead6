"""A gateway on loopback in a thread of its own, in front of an upstream of the test."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tests.world import PATIENCE, until
from ullage import store
from ullage.config import load
from ullage.gateway.app import App
from ullage.gateway.server import make_server
from ullage.gateway.upstreams import any_model_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.gateway.telemetry import Telemetry
    from ullage.gateway.upstream import Upstream
    from ullage.store import Store

MODEL = "gpt-5.1"
CLAUDE = "claude-sonnet-4-5"


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


class Gateway(NamedTuple):
    url: str
    port: int
    kept: Store
    app: App

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """Sends a request, of bytes or of a JSON value, and reads the whole answer."""
        data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(
                method or ("GET" if data is None else "POST"),
                path,
                data,
                {"content-type": "application/json", **(headers or {})},
            )
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, told, answer.read())
        finally:
            connection.close()

    def booked(self) -> list[Any]:
        """The entries of the bill, as soon as all calls so far are in it."""
        assert until(lambda: self.app._bill._free_calls._writer is None)
        return [entry for _, entry in self.kept.book.entries()]

    def metric(self, line: str) -> float:
        """The value of a metric with its labels; 0 if it is not there."""
        for each in self.ask("/metrics").body.decode().splitlines():
            if each.startswith(line + " "):
                return float(each.rpartition(" ")[2])
        return 0.0


@contextlib.contextmanager
def serving(
    upstream: str | Mapping[str, Upstream],
    *,
    window: int | None = 100_000,
    config: str = "",
    keep_bodies: bool = False,
    buffer: int = 0,
    telemetry: Telemetry | None = None,
    recall: bool = False,
) -> Iterator[Gateway]:
    """A running gateway, for the address of an upstream or a table of upstreams.

    `buffer` is the number of bytes that the system takes from it before a client reads; 0 for the default.
    """
    table = any_model(upstream, window) if isinstance(upstream, str) else upstream
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.toml")
        file.write_text(config)
        settings = load(file, environ={}, cwd=Path(folder))
        with store.open(Path(folder, "ullage.db")) as kept:
            app = App(
                settings, kept, table, keep_bodies=keep_bodies, offers_recall=recall, telemetry=telemetry
            )
            server = make_server(app)
            listener = socket.create_server(("127.0.0.1", 0))
            if buffer:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), name="gateway")
            thread.start()
            try:
                assert until(lambda: server.started or not thread.is_alive())
                port = listener.getsockname()[1]
                yield Gateway(f"http://127.0.0.1:{port}", port, kept, app)
            finally:
                server.should_exit = True
                thread.join(PATIENCE)
                listener.close()


def any_model(url: str, window: int | None) -> dict[str, Upstream]:
    """A table that sends every name to this address, however long a busy machine takes to connect."""
    table = any_model_at(url, window, {})
    return {
        name: replace(
            each, endpoint=replace(each.endpoint, timeouts=replace(each.endpoint.timeouts, connect=PATIENCE))
        )
        for name, each in table.items()
    }


def priced(url: str, window: int | None = 100_000) -> dict[str, Upstream]:
    """A table in which every model costs money, although its server is on this machine."""
    table = any_model(url, window)
    return {name: replace(each, endpoint=replace(each.endpoint, local=False)) for name, each in table.items()}


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    """A body of the chat API, with messages of user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return {"model": MODEL, "messages": messages, **more}
