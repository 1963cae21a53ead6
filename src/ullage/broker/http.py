"""One HTTP client for many streams: it sends and receives bytes, and its errors say what to do.

aiohttp is loaded when the first request is sent. No redirect is followed, so a key is sent only to the
address that it belongs to. The environment names the proxies. Answers are not compressed, so their size is
the size on the network. Errors show only scheme, host and port of an address.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from ullage.broker.connections import Connections
from ullage.broker.endpoint import Timeouts
from ullage.broker.failures import client_errors, describe_error, stalled, transport_closed
from ullage.broker.jsontext import dump
from ullage.broker.proxy import basic, proxy_for
from ullage.errors import ConfigurationError, ProviderError
from ullage.extras import require

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from types import TracebackType
    from typing import Self

    from aiohttp import ClientResponse, ClientSession, ClientTimeout

MOST_JSON = 8 * 1024 * 1024
"""Most bytes of an answer that is read as one value."""
IN_ONE_PIECE = 256 * 1024
"""Most bytes of a body that are written at once; a larger body goes in pieces, so other tasks can run."""
LONGEST = 1e8
"""Seconds that stand for no timeout, because infinity is not accepted."""

_OPENED: ContextVar[Connections] = ContextVar("opened")
"""The connections of the current request."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


@lru_cache(maxsize=1024)
def address(url: str) -> str:
    """Returns the scheme, host and port of an address, which may be shown anywhere."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "an address that cannot be read"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}" if host else "an address that cannot be read"


class Reply:
    """An answer whose body has not been read yet."""

    def __init__(self, response: ClientResponse, place: str, timeouts: Timeouts, deadline: float) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._content = response.content
        self._place = place
        self._timeouts = timeouts
        self._deadline = deadline
        self._begun = False
        self._ending = False

    def renew(self) -> None:
        """Restarts the time until the next piece, because a part of the answer has come."""
        if not self._ending:
            self._begun = True
            self._deadline = asyncio.get_running_loop().time() + self._timeouts.between

    def prolong(self, seconds: float) -> None:
        """Moves the end of the wait, because the reader's own time does not count against the server."""
        self._deadline += seconds

    def end_within(self, seconds: float) -> None:
        """Limits the time for the whole rest of the answer."""
        self._ending = True
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + seconds)

    async def chunks(self, *, renewing: bool = True) -> AsyncGenerator[bytes, None]:
        """Yields the body as it comes; raises ProviderError if it stalls or breaks off.

        Each piece restarts the time until the next one. With `renewing=False` the reader does that, because
        it knows which pieces are part of the answer; it also tells the time that it takes (`prolong`).
        """
        check_plain(self.headers, self._place)
        loop = asyncio.get_running_loop()
        was_late = False
        while True:
            # No timeout ends a read that need not wait. One late piece may still renew the time; pieces that
            # renew nothing and never stop may not.
            is_late = loop.time() >= self._deadline
            if is_late and was_late:
                raise self._make_timeout_error()
            was_late = is_late
            failure: ProviderError | None = None
            chunk = b""
            try:
                async with asyncio.timeout_at(self._deadline):
                    chunk = await self._content.readany()
            except TimeoutError as error:
                failure = (
                    self._make_timeout_error()
                    if type(error) is TimeoutError
                    else describe_error(error, self._place)
                )
            except client_errors() as error:
                # aiohttp raises its error before it returns the last bytes that came.
                chunk = self._content._read_nowait(-1)  # noqa: SLF001 - no public method returns them
                failure = describe_error(error, self._place, body=True)
            if chunk and renewing:
                self.renew()
            if chunk:
                handed = loop.time()
                yield chunk
                if renewing:
                    self.prolong(loop.time() - handed)
            if failure is not None:
                # Raised here, so that the client's own error, which shows the query, is not chained
                raise failure
            if not chunk:
                return

    async def read(self, limit: int = MOST_JSON) -> bytes:
        """Returns the body up to the limit; the rest is dropped."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) >= limit:
                break
        return bytes(body[:limit])

    async def read_start(self, limit: int, seconds: float) -> bytes:
        """Returns the part of the body that comes within the time, up to the limit. Never raises."""
        body = bytearray()
        self.end_within(seconds)
        try:
            async for chunk in self.chunks():
                body += chunk
                if len(body) >= limit:
                    break
        except ProviderError:  # the part that has come is the result
            pass
        return bytes(body[:limit])

    def _make_timeout_error(self) -> ProviderError:
        waits = self._timeouts
        seconds = waits.between if self._begun else waits.first
        return stalled(self._place, seconds, first=not self._begun, sent=True)


class Transport:
    """A pool of connections for one event loop; open it with `async with`."""

    def __init__(self, *, roots: bytes = b"") -> None:
        self._roots = roots
        """More certificates to trust, as PEM."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lifetime: AsyncGenerator[ClientSession, None] | None = None
        self._session: ClientSession | None = None
        self._asking: set[asyncio.Task[ClientResponse]] = set()
        self._answering: set[ClientResponse] = set()

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise ConfigurationError(
                "this transport is already open: use one `async with` around all of its users"
            )
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; a second call does nothing."""
        lifetime, self._lifetime, self._session, self._loop = self._lifetime, None, None, None
        for task in self._asking:
            task.cancel()
        for response in self._answering:
            response.content.set_exception(_make_closed_error())
        if lifetime is not None:
            await lifetime.aclose()

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], body: Any, timeouts: Timeouts
    ) -> AsyncIterator[Reply]:
        """Yields the answer to a body (bytes, or a value to send as JSON), open until the block ends."""
        async with self._send_request("POST", url, headers, body, timeouts) as reply:
            yield reply

    async def json(
        self, method: str, url: str, headers: Mapping[str, str], body: Any = None, timeout: float = 2.0
    ) -> tuple[int, Any]:
        """Returns the status and the JSON value of a small answer within the time; None if it is not JSON."""
        # `timeout` limits the whole answer. The limit of a gap is longer, so that it does not end first.
        waits = Timeouts(connect=timeout, first=timeout, between=timeout + 1.0)
        content = b""
        late = False
        try:
            async with asyncio.timeout(timeout):
                status, content = await self._small(method, url, headers, body, waits)
        except TimeoutError:
            late = True
        if late:
            raise stalled(address(url), timeout, first=True)
        try:
            return status, orjson.loads(content)
        except orjson.JSONDecodeError:
            return status, None

    async def _small(
        self, method: str, url: str, headers: Mapping[str, str], body: Any, waits: Timeouts
    ) -> tuple[int, bytes]:
        """Returns a whole answer."""
        async with self._send_request(method, url, headers, body, waits) as reply:
            return reply.status, await reply.read()

    @asynccontextmanager
    async def _send_request(
        self, method: str, url: str, headers: Mapping[str, str], body: Any, timeouts: Timeouts
    ) -> AsyncIterator[Reply]:
        place = address(url)
        deadline = asyncio.get_running_loop().time() + timeouts.first
        response: ClientResponse | None = None
        while response is None:  # each stale connection leaves the pool, so a new one comes at last
            request = await self._request(method, url, headers, body, timeouts)
            response = await self._head(request, place, timeouts, deadline)
        self._answering.add(response)
        try:
            yield Reply(response, place, timeouts, deadline)
        finally:
            self._answering.discard(response)
            _let_go(response)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: Any, timeouts: Timeouts
    ) -> dict[str, Any]:
        """Returns the checked arguments for aiohttp; an error names the problem without a secret."""
        waits = _connect_within(min(timeouts.connect, LONGEST))
        target, userinfo = _split_address(url)
        sent = {name: value.strip(" \t") for name, value in headers.items()}
        for name, value in sent.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ConfigurationError(
                    f"the header {name!r} cannot be sent: it has characters that are invalid in a header"
                )
        known = {name.lower() for name in sent}
        if userinfo and "authorization" not in known:
            sent["authorization"] = basic(userinfo)
        if body is not None and not isinstance(body, bytes):
            body = dump(body)
            if "content-type" not in known:
                sent["content-type"] = "application/json"
        if "accept-encoding" not in known:
            sent["accept-encoding"] = "identity"
        data = BytesIO(body) if body is not None and len(body) > IN_ONE_PIECE else body
        request: dict[str, Any] = {"method": method, "data": data, "headers": sent}
        proxy = proxy_for(target)
        if proxy is not None:
            request |= {"proxy": proxy.url, "proxy_headers": proxy.headers}
            if target.startswith("http:"):  # without a tunnel, the proxy's headers go with the request
                sent |= proxy.headers
        return request | {"url": target, "timeout": waits, "allow_redirects": False}

    async def _head(
        self, request: Mapping[str, Any], place: str, timeouts: Timeouts, deadline: float
    ) -> ClientResponse | None:
        """Returns the beginning of the answer; None if the server had closed the connection of the pool.

        Closes the connection at once if the caller stops waiting.
        """
        session = await self._open()
        opened = Connections()
        context = copy_context()
        context.run(_OPENED.set, opened)

        async def ask() -> ClientResponse:
            return await session.request(**request)

        failure: Exception | None = None
        task = asyncio.get_running_loop().create_task(ask(), context=context)
        self._asking.add(task)
        try:
            async with asyncio.timeout_at(deadline):
                return await task
        except asyncio.CancelledError:
            _abort(opened.transports)
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            failure = transport_closed(place)
        except TimeoutError as error:
            _abort(opened.transports)
            late = type(error) is TimeoutError
            failure = (
                stalled(place, timeouts.first, first=True, sent=bool(opened.transports))
                if late
                else describe_error(error, place)
            )
        except client_errors() as error:
            _abort(opened.transports)
            if _is_stale(error, opened):
                return None
            failure = describe_error(error, place)
        finally:
            self._asking.discard(task)
        raise failure

    async def _open(self) -> ClientSession:
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "a transport works only inside its `async with` and its event loop: open another one here"
            )
        if self._session is None:
            self._lifetime = _lifetime(self._roots)
            self._session = await anext(self._lifetime)
        return self._session


async def _lifetime(roots: bytes) -> AsyncGenerator[ClientSession, None]:
    """Yields one session, which is closed with this generator.

    An event loop closes its generators when it ends. So a program that forgets to close its provider leaves
    no connection open and gets no warning.
    """
    from aiohttp import ClientSession, DummyCookieJar  # noqa: PLC0415 - only who sends needs the client

    from ullage.broker.connector import Connector  # noqa: PLC0415 - the same

    session = ClientSession(
        connector=Connector(_OPENED, roots),
        cookie_jar=DummyCookieJar(),
        headers={"user-agent": "ullage"},
        auto_decompress=False,
    )
    try:
        yield session
    finally:
        await session.close()


@lru_cache(maxsize=1024)
def _split_address(url: str) -> tuple[str, str]:
    """Returns a valid address without name and password, and the name and password separately."""
    problem = f"{address(url)} is not a valid address: use one such as https://api.example.com/v1"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        userinfo, _, netloc = parts.netloc.rpartition("@")
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(problem)
    return urlunsplit((parts.scheme, netloc, parts.path, parts.query, "")), userinfo


def check_plain(headers: Mapping[str, str], place: str) -> None:
    """Raises ProviderError if an answer is compressed."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise ProviderError(
            f"{place} sent a compressed answer ({encoding[:40]!r}), which was not asked for: check "
            "the proxy or gateway before the server",
            code="encoding",
        )


def _let_go(response: ClientResponse) -> None:
    """Returns the connection to the pool if the answer was read to its end; otherwise closes it at once."""
    connection = response.connection
    if response.content.at_eof() or connection is None:
        response.release()
        return
    if connection.transport is not None:
        _abort([connection.transport])
    response.close()


def _abort(transports: list[asyncio.BaseTransport]) -> None:
    """Closes connections without waiting for the rest of a request to be sent."""
    for transport in transports:
        # A transport that only reads has nothing to send
        abort = getattr(transport, "abort", transport.close)
        abort()


@lru_cache(maxsize=64)
def _connect_within(seconds: float) -> ClientTimeout:
    """Returns the time limit for a connection, as aiohttp takes it."""
    try:
        from aiohttp import ClientTimeout  # noqa: PLC0415 - only who sends needs the client
    except ImportError:
        require("client", "aiohttp")
        raise
    return ClientTimeout(total=None, connect=seconds)


def _is_stale(error: BaseException, opened: Connections) -> bool:
    from ullage.broker.connector import is_stale  # noqa: PLC0415 - only who sends needs the client

    return is_stale(error, opened)


def _make_closed_error() -> Exception:
    from ullage.broker.connector import TransportClosed  # noqa: PLC0415 - only who sends needs the client

    return TransportClosed()
