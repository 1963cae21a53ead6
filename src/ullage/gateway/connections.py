"""The connections to the upstreams: the fast way for a call, and the general client for everything else.

A call goes over one of its own connections if the address is plain: without a proxy, a name and a password
in it, or characters that need to be rewritten. If a connection cannot be opened, the general client tries it
too, and its error says why.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urlsplit

from ullage.broker.failures import stalled, transport_closed
from ullage.broker.http import IN_ONE_PIECE, address, check_plain
from ullage.broker.proxy import proxy_for
from ullage.errors import ProviderError
from ullage.gateway.connection import MOST_HEAD, HeadTooLarge, Late, NotHttp, UpstreamConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self

    from ullage.broker.endpoint import Timeouts
    from ullage.broker.http import Transport

IDLE = 15.0
"""Seconds for which a connection is kept without a call."""
MOST_ROUTES = 1_000
"""Most addresses whose routes are remembered."""
EYEBALLS = 0.25
"""Seconds until the next address of a host is tried beside the one that does not answer."""
RESERVED = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect"}
)
"""Headers that belong to the connection. If the settings have one, the general client is used."""
PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
_PLACE = re.compile(r"[!-~]*")
_HEADERS = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e]*\r\n)*")


class UpstreamReply(Protocol):
    """An answer whose body has not been read yet."""

    status: int
    headers: Mapping[str, str]
    """The names are in lower case."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body as it comes; raises ProviderError if it stalls or breaks off."""


class Origin(NamedTuple):
    """A server: the key of its connections."""

    host: str
    port: int
    is_secure: bool


class DirectRoute(NamedTuple):
    """A plain address."""

    origin: Origin
    place: str
    """The address as errors show it."""
    start: str
    """The first two lines of a request."""


class PostCall(NamedTuple):
    """A request to send."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeouts: Timeouts


class UpstreamConnections:
    """The connections of one event loop; close it at the end."""

    def __init__(self, transport: Transport) -> None:
        """Takes the general client, which the caller opens and closes."""
        self._transport = transport
        self._routes: dict[str, DirectRoute | None] = {}
        self._idle: dict[Origin, deque[UpstreamConnection]] = {}
        self._busy: dict[UpstreamConnection, str] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> AbstractAsyncContextManager[UpstreamReply]:
        """Returns the answer to a body, open until the block ends."""
        route = self._routes.get(url) or self._route(url)
        if route is None or len(body) > IN_ONE_PIECE:
            return self._transport.post(url, headers, body, timeouts)
        return DirectCall(self, route, PostCall(url, headers, body, timeouts))

    def general(self, call: PostCall) -> AbstractAsyncContextManager[UpstreamReply]:
        """Returns the answer by the general client."""
        return self._transport.post(*call)

    def close(self) -> None:
        """Closes all connections; the calls under way fail."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection, place in [*self._busy.items()]:
            connection.abort(transport_closed(place))
        for kept in self._idle.values():
            for connection in kept:
                connection.abort()
        self._idle.clear()

    def _route(self, url: str) -> DirectRoute | None:
        if len(self._routes) >= MOST_ROUTES:
            self._routes.clear()
        self._routes[url] = found = find_route(url)
        return found

    def take(self, route: DirectRoute, now: float) -> UpstreamConnection | None:
        """Returns a connection that was kept; None if there is none."""
        kept = self._idle.get(route.origin)
        while kept:
            connection = kept.pop()
            if connection.is_open and connection.idle_since >= now - IDLE:
                self._busy[connection] = route.place
                return connection
            connection.abort()
        return None

    async def open(self, route: DirectRoute, seconds: float) -> UpstreamConnection:
        """Returns a new connection; raises OSError, or ProviderError if it takes too long."""
        connection = await _open(route, seconds)
        self._busy[connection] = route.place
        return connection

    def give_back(self, connection: UpstreamConnection, origin: Origin) -> None:
        """Keeps a connection for the next call, if it can be used again."""
        self._busy.pop(connection, None)
        loop = asyncio.get_running_loop()
        if connection.end(loop.time()):
            self._idle.setdefault(origin, deque()).append(connection)
            if self._sweeper is None:
                self._sweeper = loop.call_later(IDLE, self._sweep)

    def _sweep(self) -> None:
        """Closes the connections that were not used for a while."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - IDLE
        for origin, kept in [*self._idle.items()]:
            while kept and (not kept[0].is_open or kept[0].idle_since <= oldest):
                kept.popleft().abort()
            if not kept:
                del self._idle[origin]
        self._sweeper = loop.call_later(IDLE, self._sweep) if self._idle else None


class DirectCall:
    """One call over a connection of the pool, as an asynchronous context."""

    __slots__ = (
        "_call",
        "_connection",
        "_connections",
        "_deadline",
        "_general",
        "_has_begun",
        "_route",
        "headers",
        "status",
    )

    def __init__(self, connections: UpstreamConnections, route: DirectRoute, call: PostCall) -> None:
        self._connections, self._route, self._call = connections, route, call
        self._connection: UpstreamConnection | None = None
        self._general: AbstractAsyncContextManager[UpstreamReply] | None = None
        self._deadline = 0.0
        self._has_begun = False
        """True once a piece of the body has come."""
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def __aenter__(self) -> UpstreamReply:
        _, headers, body, timeouts = self._call
        head = write_head(self._route, headers, len(body))
        if head is None:
            return await self._ask_general()
        now = asyncio.get_running_loop().time()
        self._deadline = now + timeouts.first
        while True:  # each stale connection leaves the pool, so a new one comes at last
            connection = self._connections.take(self._route, now)
            if connection is None:
                try:
                    connection = await self._connections.open(self._route, timeouts.connect)
                except OSError:
                    return await self._ask_general()
            self._connection = connection
            failure: ProviderError | None = None
            try:
                connection.send((head, body))
                await connection.head(self._deadline)
            except (Late, NotHttp, OSError, ProviderError) as error:
                failure = self._explain_failure(error, is_headed=False)
            except BaseException:
                self._let_go()
                raise
            if failure is None:
                self.status, self.headers = connection.status, connection.headers
                return self
            is_stale = connection.was_stale
            self._let_go()
            if not is_stale:
                raise failure

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._general is not None:
            return await self._general.__aexit__(kind, error, trace)
        self._let_go()
        return None

    async def _ask_general(self) -> UpstreamReply:
        self._general = self._connections.general(self._call)
        return await self._general.__aenter__()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.give_back(connection, self._route.origin)

    def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body as it comes; raises ProviderError if it stalls or breaks off.

        The time until the next piece begins when the reader asks for it. This is a plain object, because the
        event loop registers each asynchronous generator, which takes longer than all of its work.
        """
        check_plain(self.headers, self._route.place)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        connection = self._connection
        if connection is None:  # the block has ended
            raise StopAsyncIteration
        if self._has_begun:
            self._deadline = asyncio.get_running_loop().time() + self._call.timeouts.between
        failure: ProviderError | None = None
        chunk = b""
        try:
            chunk = await connection.next(self._deadline)
        except (Late, NotHttp, OSError, ProviderError) as error:
            failure = self._explain_failure(error, is_headed=True)
        if failure is not None:
            raise failure
        if not chunk:
            raise StopAsyncIteration
        self._has_begun = True
        return chunk

    def _explain_failure(self, error: BaseException, *, is_headed: bool) -> ProviderError:
        """Returns the error for the user."""
        place, waits = self._route.place, self._call.timeouts
        if isinstance(error, ProviderError):
            return error
        if isinstance(error, Late):
            seconds = waits.between if self._has_begun else waits.first
            return stalled(place, seconds, first=not self._has_begun, sent=True)
        if isinstance(error, NotHttp):
            fault = "does not speak HTTP: check the address and the port"
            if is_headed:
                fault = "sent bytes that are not HTTP in the middle of its answer"
            elif isinstance(error, HeadTooLarge):
                fault = f"answered with more than {MOST_HEAD:,} bytes of headers"
            code = "cut" if is_headed else "connection"
            return ProviderError(f"{place} {fault}", code=code, may_retry=True)
        from ullage.broker.connector import describe  # noqa: PLC0415 - it loads the general client

        return describe(error, place, body=is_headed)


def find_route(url: str) -> DirectRoute | None:
    """Returns the route of a plain address; None for one that the general client must take."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    place = parts.path + (f"?{parts.query}" if parts.query else "")
    if (
        parts.scheme not in PORTS
        or port == 0
        or "@" in parts.netloc
        or not _HOST.fullmatch(host)
        or not _PLACE.fullmatch(place)
        or proxy_for(url) is not None
    ):
        return None
    usual = PORTS[parts.scheme]
    named = f"[{host}]" if ":" in host else host
    if port not in {None, usual}:
        named += f":{port}"
    origin = Origin(host, port or usual, parts.scheme == "https")
    return DirectRoute(origin, address(url), f"POST {place or '/'} HTTP/1.1\r\nHost: {named}\r\n")


def write_head(route: DirectRoute, headers: Mapping[str, str], size: int) -> bytes | None:
    """Returns the head of a request; None for headers that the general client must check or write."""
    head = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    known = {name.lower() for name in headers}
    if known & RESERVED or head.count("\r") != len(headers) or not _HEADERS.fullmatch(head):
        return None
    more = "" if "user-agent" in known else "User-Agent: ullage\r\n"
    if "accept" not in known:
        more += "Accept: */*\r\n"
    end = f"Accept-Encoding: identity\r\nContent-Length: {size}\r\n\r\n"
    return f"{route.start}{head}{more}{end}".encode("ascii")


async def _open(route: DirectRoute, seconds: float) -> UpstreamConnection:
    """Returns a new connection; raises OSError, or ProviderError if it takes too long."""
    # Both load the general client, which takes a moment.
    from aiohappyeyeballs import start_connection  # noqa: PLC0415
    from aiohttp import ConnectionTimeoutError  # noqa: PLC0415

    from ullage.broker.connector import describe  # noqa: PLC0415
    from ullage.broker.resolver import DaemonResolver  # noqa: PLC0415

    origin = route.origin
    try:
        async with asyncio.timeout(seconds):
            found = await DaemonResolver().resolve(origin.host, origin.port, socket.AF_UNSPEC)
            places = [
                (each["family"], socket.SOCK_STREAM, each["proto"], "", (each["host"], each["port"]))
                for each in found
            ]
            sock = await start_connection(places, happy_eyeballs_delay=EYEBALLS, interleave=1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            _, connection = await asyncio.get_running_loop().create_connection(
                UpstreamConnection,
                sock=sock,
                ssl=_tls() if origin.is_secure else None,
                server_hostname=origin.host if origin.is_secure else None,
            )
            return connection
    except TimeoutError:
        late = ConnectionTimeoutError()
    raise describe(late, route.place)


@cache
def _tls() -> ssl.SSLContext:
    """Returns the usual certificates, and the only protocol that these connections speak."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
