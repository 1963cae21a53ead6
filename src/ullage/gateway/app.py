"""The ASGI application: one table of routes, and the answers of the gateway itself."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.broker.http import Transport
from ullage.errors import StoreError, UllageError
from ullage.gateway import relay
from ullage.gateway.activity import Activity
from ullage.gateway.asked_counts import AskedCounts
from ullage.gateway.bill import GatewayBill
from ullage.gateway.body_room import BodyRoom
from ullage.gateway.connections import UpstreamConnections
from ullage.gateway.conversations import Conversations
from ullage.gateway.exchange import Exchange
from ullage.gateway.gate import Gate
from ullage.gateway.metrics import Metrics
from ullage.gateway.model_list import find_model, list_models
from ullage.gateway.openapi import document
from ullage.gateway.page.site import PAGE_ROUTES, Page, wants_page
from ullage.gateway.preparation import CallRoute, Preparation
from ullage.gateway.recall import GatewayRecall
from ullage.gateway.refusals import KINDS, GatewayAnswer, Refused, answer, make_failed_response, make_refusal
from ullage.gateway.request import (
    MOST_HEADERS,
    ClientConnection,
    Disconnected,
    parse_object,
    read_body,
    read_head,
)
from ullage.gateway.signals import Signals
from ullage.gateway.token_counts import COUNT_PATHS, TokenCounts
from ullage.gateway.upstream_counts import UpstreamCounts
from ullage.gateway.upstreams import Upstreams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ullage.config import Settings
    from ullage.gateway.request import Message, Receive, Received, Send
    from ullage.gateway.telemetry import Telemetry
    from ullage.gateway.upstream import Upstream
    from ullage.store import Store
    from ullage.target import ApiName

VERSION = "/v1"
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain; charset=utf-8"}

CALLS: Mapping[str, CallRoute] = {
    "/chat/completions": CallRoute("openai.chat", "/chat/completions"),
    "/responses": CallRoute("openai.responses", "/responses"),
    "/responses/compact": CallRoute("openai.responses", "/responses/compact", is_fitted=False),
    "/messages": CallRoute("anthropic.messages", "/messages"),
}
"""The paths of calls to a model, each with and without the version before it."""


class HttpRoute(NamedTuple):
    """One row of the table of routes."""

    method: str
    handle: Callable[[App, ClientConnection], Awaitable[None]]
    api: ApiName | None = None
    """The API whose form of errors is used."""


class Outlet:
    """Sends an answer, and notes that it has begun."""

    __slots__ = ("_send", "is_begun")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_begun = False

    async def __call__(self, message: Message) -> None:
        """Sends a part of the answer."""
        self.is_begun = True
        await self._send(message)


class App:
    """The gateway as an ASGI application."""

    def __init__(
        self,
        settings: Settings,
        kept: Store,
        table: Mapping[str, Upstream],
        *,
        is_open: bool = False,
        keep_bodies: bool = False,
        offers_recall: bool = False,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Takes the parts.

        `is_open` lets all programs on this machine in, even if keys exist. `keep_bodies` keeps the texts of
        changed messages for the page. `offers_recall` offers the recall tool to callers without a key; each
        key says that for itself. `telemetry` is OpenTelemetry; None if it is off.
        """
        self._settings = settings
        self._kept = kept
        self._table = table
        self._closing = AsyncExitStack()
        self._is_ready = False
        self.metrics = Metrics()
        self._telemetry = telemetry
        self._conversations = Conversations()
        self._transport = Transport()
        self._room = BodyRoom()
        self._recall = GatewayRecall(is_open=offers_recall)
        self._gate = Gate(None if is_open else kept.keys)
        self._activity = Activity(keep_bodies=keep_bodies)
        self._page = Page(settings, kept, self._gate, self._activity)

    async def open(self) -> None:
        """Opens the connections to the upstreams and the bill."""
        await self._closing.enter_async_context(self._transport)
        connections = UpstreamConnections(self._transport)
        self._closing.callback(connections.close)
        self._bill = GatewayBill(self._settings, self._kept)
        self._closing.callback(self._bill.close)
        self._upstreams = Upstreams(self._table, self._transport)
        counts = UpstreamCounts(self._kept.calibration)
        self._closing.callback(counts.save_all)
        self._counting = TokenCounts(self._upstreams, self._transport)
        self._exchange = Exchange(
            preparation=Preparation(
                self._upstreams,
                self._conversations,
                counts,
                self._recall,
                reserved_output=self._settings.context.reserved_output,
            ),
            asked_counts=AskedCounts(self._upstreams, self._transport, counts),
            connections=connections,
            bill=self._bill,
            gate=self._gate,
            activity=self._activity,
            signals=Signals(self.metrics, self._telemetry),
            recall=self._recall,
        )
        self._is_ready = True

    def end_streams(self) -> None:
        """Ends the streams to open pages, which would go on for ever."""
        self._activity.close()

    async def close(self) -> None:
        """Closes what `open` opened; all calls are booked then."""
        self._is_ready = False
        await self._closing.aclose()
        if self._telemetry is not None:
            await asyncio.to_thread(self._telemetry.close)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        request = read_head(scope, self._room)
        outlet = Outlet(send)
        route, api = _find_route(request)
        try:
            await _check_route(route, request).handle(self, ClientConnection(request, receive, outlet))
        except Disconnected:
            return
        except Refused as error:
            await self._refuse(error, request, api, outlet)
        except UllageError as error:
            if isinstance(error, StoreError):
                sys.stderr.write(f"ullage: request {request.id}: {error}\n")
            await self._refuse(make_refusal(error, api), request, api, outlet)
        finally:
            if request.held:
                request.hold(0)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Opens and closes the application with its server."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.open()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _refuse(self, error: Refused, request: Received, api: ApiName | None, send: Outlet) -> None:
        self.metrics.add("ullage_refused_total", api or "none", error.kind)
        self.metrics.add("ullage_requests_total", api or "none", str(KINDS[error.kind].status))
        self._activity.refuse(request, api, error)
        if send.is_begun:  # only the bill failed, after the whole answer
            if error.kind != "store":  # that was written already, with its place
                sys.stderr.write(f"ullage: request {request.id}: {error.message}\n")
            await relay.end(send)
            return
        made = answer(error, api, request.id)
        if error.kind == "overflow" and api == "openai.responses" and _is_codex(request):
            made = make_failed_response(error, None, request.id)
        await self._send(made, request, send)

    async def _send(self, made: GatewayAnswer, request: Received, send: Send) -> None:
        headers = {**made.headers, "x-ullage-request-id": request.id}
        await relay.whole(send, made.status, headers, made.body)

    # The routes

    async def call(self, connection: ClientConnection) -> None:
        """Answers a call to a model."""
        await self._exchange.run(connection, CALLS[_bare(connection.request.path)])

    async def count(self, connection: ClientConnection) -> None:
        """Answers with the tokens of a request."""
        request, receive, send = connection
        caller = await self._gate.admit(request)
        raw = await read_body(request, receive)
        route = COUNT_PATHS[_bare(request.path)]
        await self._send(await self._counting.count(route, request, caller, raw), request, send)

    async def tokenize(self, connection: ClientConnection) -> None:
        """Answers with the tokens of a text or of messages."""
        request, receive, send = connection
        await self._gate.admit(request)
        body = await parse_object(await read_body(request, receive))
        await self._send(await self._counting.tokenize(body), request, send)

    async def models(self, connection: ClientConnection) -> None:
        """Answers with the models, or with the one that the path names."""
        request, _, send = connection
        caller = await self._gate.admit(request)
        name = _bare(request.path).removeprefix("/models").strip("/")
        if name:
            cards = await find_model(name, request, caller, self._upstreams, self._transport)
        else:
            cards = await list_models(request, caller, self._upstreams, self._transport)
        await self._send(GatewayAnswer(200, JSON, orjson.dumps(cards)), request, send)

    async def front(self, connection: ClientConnection) -> None:
        """Answers the probe with which clients begin; a browser gets the page."""
        request, _, send = connection
        if wants_page(request):
            await self._page.answer(connection)
            return
        await self._gate.admit(request)
        await self._send(
            GatewayAnswer(200, TEXT, b"Ullage gateway: /openapi.json describes it\n"), request, send
        )

    async def page(self, connection: ClientConnection) -> None:
        """Answers a request of the page."""
        await self._page.answer(connection)

    async def health(self, connection: ClientConnection) -> None:
        """Answers that the process runs."""
        request, _, send = connection
        await self._send(GatewayAnswer(200, TEXT, b"ok\n"), request, send)

    async def ready(self, connection: ClientConnection) -> None:
        """Answers that calls are accepted."""
        request, _, send = connection
        status, text = (200, b"ready\n") if self._is_ready else (503, b"starting or stopping\n")
        await self._send(GatewayAnswer(status, TEXT, text), request, send)

    async def answer_metrics(self, connection: ClientConnection) -> None:
        """Answers with the metrics."""
        request, _, send = connection
        await self._gate.admit(request)
        known = {
            "ullage_conversations": ("Conversations that are remembered.", float(len(self._conversations)))
        }
        await self._send(GatewayAnswer(200, TEXT, self.metrics.text(known).encode()), request, send)

    async def answer_openapi(self, connection: ClientConnection) -> None:
        """Answers with the OpenAPI document."""
        request, _, send = connection
        await self._gate.admit(request)
        await self._send(GatewayAnswer(200, JSON, orjson.dumps(document())), request, send)


VERSIONED: Mapping[str, HttpRoute] = {
    **{path: HttpRoute("POST", App.call, call.api) for path, call in CALLS.items()},
    **{path: HttpRoute("POST", App.count, route.api) for path, route in COUNT_PATHS.items()},
    "/models": HttpRoute("GET", App.models),
}
"""The routes that clients ask for with and without `/v1`."""
ROUTES: Mapping[str, HttpRoute] = {
    **VERSIONED,
    **{VERSION + path: route for path, route in VERSIONED.items()},
    "/tokenize": HttpRoute("POST", App.tokenize),
    **{path: HttpRoute(route.method, App.page) for path, route in PAGE_ROUTES.items()},
    "/": HttpRoute("GET", App.front),
    "/healthz": HttpRoute("GET", App.health),
    "/readyz": HttpRoute("GET", App.ready),
    "/metrics": HttpRoute("GET", App.answer_metrics),
    "/openapi.json": HttpRoute("GET", App.answer_openapi),
}


def _bare(path: str) -> str:
    """Returns a path without the version and a final slash."""
    return path.removeprefix(VERSION).rstrip("/") or "/"


def _find_route(request: Received) -> tuple[HttpRoute | None, ApiName | None]:
    """Returns the route of a request, and the API of its errors."""
    path = request.path if request.path == "/" else request.path.rstrip("/")
    route = ROUTES.get(path)
    if route is None and _bare(path).startswith("/models/"):
        route = VERSIONED["/models"]
    if route is not None and request.method == "HEAD" and route.method == "GET":
        route = route._replace(method="HEAD")  # the server leaves the body out
    if route is not None and route.api is not None:
        return route, route.api
    return route, "anthropic.messages" if request.header("anthropic-version") else None


def _check_route(route: HttpRoute | None, request: Received) -> HttpRoute:
    """Returns the route; refuses an unknown path, a wrong method and too many headers."""
    if request.is_cut:
        raise Refused("invalid", f"the request has more than {MOST_HEADERS} headers: send fewer")
    if route is None:
        raise Refused("path", f"Unknown request URL: {request.method} {request.path[:200]}")
    if request.method != route.method:
        allowed = "GET, HEAD" if route.method == "GET" else route.method
        raise Refused("method", f"{request.path} takes {allowed}, not {request.method[:20]}", allowed=allowed)
    return route


def _is_codex(request: Received) -> bool:
    """Returns True for Codex, which recognises an overflow only inside a stream."""
    return request.header("originator").startswith("codex") or request.header("user-agent").startswith(
        "codex"
    )
