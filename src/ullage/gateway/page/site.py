"""The routes of the page: its files, its data, its stream of events, and the login.

The files have no data and are the same for everybody. All data routes check the visitor first.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from ullage import __version__
from ullage.errors import StoreError, UllageError
from ullage.gateway import relay
from ullage.gateway.gate import check_place
from ullage.gateway.page.browser import check_origin, cookie_with, token_of
from ullage.gateway.page.login import LASTS, NEIGHBOUR, Logins
from ullage.gateway.page.money import MOST_SESSIONS, Money
from ullage.gateway.page.view import REASONS, dump, event
from ullage.gateway.refusals import GatewayAnswer, Refused, answer, make_refusal
from ullage.gateway.request import Disconnected, parse_object, read_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ullage.config import Settings
    from ullage.gateway.activity import Activity
    from ullage.gateway.gate import Gate
    from ullage.gateway.page.login import Visitor
    from ullage.gateway.page.money import MoneyView
    from ullage.gateway.request import ClientConnection, Received, Send
    from ullage.store import Store

PAGE = "/page/"
"""The beginning of all paths of the page but its address."""
BEAT = 2.0
"""Seconds after which a stream without news sends a sign of life, and looks at the ledger again."""
GATHERED = 0.1
"""Seconds in which news are gathered into one event."""
MOST_STREAMS = 20
SLOWEST = 10.0
"""Longest time in seconds in which a browser takes nothing; then its stream is ended."""
MOST_LOGIN = 4_096
"""Most bytes of a login."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
SAFE: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""The headers of every answer of the page."""


class PageFile(NamedTuple):
    """One file of the page."""

    name: str
    kind: str


FILES: Mapping[str, PageFile] = {
    "/": PageFile("page.html", "text/html; charset=utf-8"),
    f"{PAGE}page.css": PageFile("page.css", "text/css; charset=utf-8"),
    f"{PAGE}page.js": PageFile("page.js", "text/javascript; charset=utf-8"),
    f"{PAGE}icon.svg": PageFile("icon.svg", "image/svg+xml"),
}


def wants_page(request: Received) -> bool:
    """Returns True for a browser: programs do not ask for HTML."""
    return "text/html" in request.header("accept")


class Page:
    """Answers the requests of browsers."""

    def __init__(self, settings: Settings, kept: Store, gate: Gate, activity: Activity) -> None:
        self._gate = gate
        self._activity = activity
        self._logins = Logins(gate, kept.keys)
        self._money = Money(settings, kept)

    async def answer(self, connection: ClientConnection) -> None:
        """Answers one request. The activity shows refused logins, and no other requests of the page."""
        request = connection.request
        try:
            await PAGE_ROUTES[_path(request)].handle(self, connection)
        except Refused as error:
            if request.method == "POST":
                self._activity.refuse(request, None, error)
            await _send(connection, answer(error, None, request.id))
        except UllageError as error:
            await _send(connection, answer(make_refusal(error, None), None, request.id))

    # The routes

    async def send_file(self, connection: ClientConnection) -> None:
        """Answers with a file of the page."""
        if not await self._gate.needs_keys():
            check_place(connection.request)
        file = FILES[_path(connection.request)]
        headers = {"content-type": file.kind, "cache-control": "no-cache", "vary": "accept"}
        await _send(connection, GatewayAnswer(200, headers, _read(file.name)))

    async def send_state(self, connection: ClientConnection) -> None:
        """Sends the state that the page shows: requests, cost, caps and sessions."""
        visitor = await self._admit(connection.request)
        activity = self._activity
        money = await self._read_money()
        state = {
            "version": __version__,
            "started": activity.started,
            "keeps_texts": activity.texts is not None,
            "has_login": visitor is not NEIGHBOUR,
            "reasons": REASONS,
            "money": money,
            "running": activity.running.view()._asdict(),
            **activity.everything()._asdict(),
        }
        await _send_json(connection, dump(state))

    async def send_texts(self, connection: ClientConnection) -> None:
        """Answers with the texts of one request before and after its changes."""
        await self._admit(connection.request)
        if self._activity.texts is None:
            raise Refused("path", "Texts are not kept: start the gateway with --keep-bodies")
        kept = self._activity.texts.get(_number(connection.request.query))
        await _send_json(connection, dump(kept))

    async def stream_events(self, connection: ClientConnection) -> None:
        """Sends news as they come, until the browser goes away, is logged out or is too slow."""
        request, receive, send = connection
        visitor = await self._admit(request)
        if self._activity.watchers >= MOST_STREAMS:
            raise Refused(
                "rate", f"{MOST_STREAMS} pages are open already: close one of them", retry_after=BEAT
            )
        after = _number(request.header("last-event-id") or request.query)
        headers = {
            "content-type": "text/event-stream",
            "cache-control": "no-store",
            "x-accel-buffering": "no",  # a proxy must not hold events back
            **SAFE,
        }
        if request.method == "HEAD":
            await relay.whole(send, 200, headers, b"")
            return
        with relay.ClientWatch(receive), self._activity.watched() as is_new:
            await relay.start(send, 200, headers)
            # If the store fails, the browser asks for the state, and that answer says what is wrong.
            with suppress(StoreError):
                await self._stream(send, visitor, after, is_new)
        await relay.end(send)

    async def _stream(self, send: Send, visitor: Visitor, after: int, is_new: asyncio.Event) -> None:
        sent: MoneyView | None = None
        running = -1
        while not self._activity.is_closed and await self._logins.is_valid(visitor):
            is_new.clear()
            news = self._activity.news(after)
            if news is None:  # the browser has missed some
                await send_part(send, event("reset", {}))
                return
            parts = [event("news", news._asdict(), news.number)] if news.number > after else []
            after = news.number
            if running != self._activity.running.changes:
                running = self._activity.running.changes
                parts.append(event("running", self._activity.running.view()._asdict()))
            money = await self._read_money()
            if money is not sent:
                parts.append(event("money", money))
                sent = money
            await send_part(send, b"".join(parts) or b": still here\n\n")
            try:
                async with asyncio.timeout(BEAT):
                    await is_new.wait()
                await asyncio.sleep(GATHERED)
            except TimeoutError:
                continue

    async def log_in(self, connection: ClientConnection) -> None:
        """Lets a browser in that knows an admin key."""
        request = connection.request
        check_origin(request)
        length = request.header("content-length")
        if not length.isdigit() or int(length) > MOST_LOGIN:
            raise Refused("too large", f"A login must have a content-length of at most {MOST_LOGIN:,} bytes")
        body = await parse_object(await read_body(request, connection.receive))
        secret = body.get("key")
        if not isinstance(secret, str):
            raise Refused("invalid", "the body must have the field 'key'")
        token = await self._logins.enter(secret.strip(), request.client)
        await _send_cookie(connection, token, LASTS)

    async def log_out(self, connection: ClientConnection) -> None:
        """Ends a login."""
        check_origin(connection.request)
        self._logins.leave(token_of(connection.request))
        await _send_cookie(connection, "", 0)

    # Visitors

    async def _admit(self, request: Received) -> Visitor:
        """Returns the visitor; raises Refused if it may not see the page."""
        check_origin(request)
        if not await self._gate.needs_keys():
            check_place(request)
            return NEIGHBOUR
        visitor = await self._logins.find(token_of(request))
        if visitor is None:
            raise Refused("key", "Log in with an admin key: ullage keys create NAME --admin makes one")
        return visitor

    async def _read_money(self) -> MoneyView:
        return await self._money.view(self._activity.newest, self._activity.accounts(MOST_SESSIONS))


class PageRoute(NamedTuple):
    """One row of the table of the page's routes."""

    method: str
    handle: Callable[[Page, ClientConnection], Awaitable[None]]


PAGE_ROUTES: Mapping[str, PageRoute] = {
    **{path: PageRoute("GET", Page.send_file) for path in FILES},
    f"{PAGE}state": PageRoute("GET", Page.send_state),
    f"{PAGE}texts": PageRoute("GET", Page.send_texts),
    f"{PAGE}events": PageRoute("GET", Page.stream_events),
    f"{PAGE}login": PageRoute("POST", Page.log_in),
    f"{PAGE}logout": PageRoute("POST", Page.log_out),
}


@cache
def _read(name: str) -> bytes:
    return files(__package__).joinpath("files", name).read_bytes()


def _path(request: Received) -> str:
    """Returns a path without a final slash."""
    return request.path.rstrip("/") or "/"


def _number(text: str) -> int:
    """Returns the number of a request in a query such as `after=12`, or alone; -1 if there is none."""
    digits = text.rpartition("=")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1


async def _send(connection: ClientConnection, made: GatewayAnswer) -> None:
    await relay.whole(connection.send, made.status, {**made.headers, **SAFE}, made.body)


async def _send_json(connection: ClientConnection, body: bytes) -> None:
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    await _send(connection, GatewayAnswer(200, headers, body))


async def _send_cookie(connection: ClientConnection, token: str, seconds: float) -> None:
    """Sets the cookie of a login; an empty one ends it."""
    headers = {
        "content-type": "application/json",
        "cache-control": "no-store",
        "set-cookie": cookie_with(connection.request, token, seconds),
    }
    await _send(connection, GatewayAnswer(200, headers, b"{}"))


async def send_part(send: Send, data: bytes) -> None:
    """Sends a part of a stream; the stream ends if the browser does not take the part in time."""
    try:
        async with asyncio.timeout(SLOWEST):
            await send({"type": "http.response.body", "body": data, "more_body": True})
    except TimeoutError:
        raise Disconnected from None
