"""One HTTP client for many streams: bytes in, bytes out, and failures that say what to do.

The only user of pyreqwest. No redirect is followed, so a key goes to the address that it was given for and to
no other; proxies are those of the environment, and none for loopback. Errors name an address by scheme, host
and port alone.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from ullage.broker.endpoint import Timeouts
from ullage.errors import ConfigurationError, ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from types import TracebackType
    from typing import Self

    from pyreqwest.client import Client
    from pyreqwest.request import StreamRequest
    from pyreqwest.response import Response

MOST_JSON = 8 * 1024 * 1024
"""An answer above this is read by nobody as one value."""
PLAIN = frozenset({"content-type", "accept", "user-agent", "anthropic-version"})
"""Headers that may be shown; every other one is marked as a secret for the client underneath."""
SLACK = 1.0
"""How much later than ours the client's own timeout comes, as the last resort for what was given up."""


def address(url: str) -> str:
    """Scheme, host and port: what of an address may be shown anywhere."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "an address that cannot be read"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}" if host else "an address that cannot be read"


def _loopback(url: str) -> bool:
    """Whether an address is on this machine: what another machine's proxy finds there is something else."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host in {"localhost", "::1"} or host.startswith("127.")


class Reply:
    """An answer whose body has not been read yet."""

    def __init__(self, response: Response, place: str, timeouts: Timeouts, deadline: float) -> None:
        self._reader = response.body_reader
        self._place = place
        self._first = timeouts.first
        self._deadline: float | None = deadline
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.between = timeouts.between
        """The seconds to wait from one byte to the next; may be changed while reading."""

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes; raises ProviderError where it stalls or is cut."""
        loop = asyncio.get_running_loop()
        while True:
            first = self._deadline is not None
            end = self._deadline if self._deadline is not None else loop.time() + self.between
            failure: ProviderError | None = None
            try:
                async with asyncio.timeout_at(end):
                    chunk = await self._reader.read_chunk()
            except TimeoutError:
                failure = _stalled(self._place, self._first if first else self.between, first=first)
            except _client_errors() as error:
                failure = _failed(error, self._place)
            if failure is not None:
                raise failure  # here, so that the client's own error, which shows the query, is not kept
            if chunk is None:
                return
            self._deadline = None
            yield bytes(chunk)

    async def read(self, limit: int = MOST_JSON) -> bytes:
        """The body up to the limit; what is beyond it is left out."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) >= limit:
                break
        return bytes(body[:limit])


class Transport:
    """A pool of connections for one event loop; open it with `async with`."""

    def __init__(self, *, roots: bytes = b"") -> None:
        self._roots = roots
        """More certificates to trust, as PEM."""
        self._clients: dict[tuple[Timeouts, bool], Client] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise ConfigurationError(
                "this transport is open already: one `async with` around all of its users"
            )
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; a second time does nothing."""
        clients, self._clients, self._loop = list(self._clients.values()), {}, None
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        for client in clients:
            await client.close()

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], body: Any, timeouts: Timeouts
    ) -> AsyncIterator[Reply]:
        """The answer to a body (bytes, or a value to be sent as JSON), open as long as the block lasts."""
        async with self._asked("POST", url, headers, body, timeouts) as reply:
            yield reply

    async def json(
        self, method: str, url: str, headers: Mapping[str, str], body: Any = None, timeout: float = 2.0
    ) -> tuple[int, Any]:
        """The status and the JSON value of a small answer within the time; None for what is not JSON."""
        # The whole answer has the time; a gap in it is not to be told of instead, should both end together.
        waits = Timeouts(connect=timeout, first=timeout, between=timeout + SLACK)
        content = b""
        late = False
        try:
            async with (
                asyncio.timeout(timeout),
                self._asked(method, url, headers, body, waits) as reply,
            ):
                content = await reply.read()
        except TimeoutError:
            late = True
        if late:
            raise _stalled(address(url), timeout, first=True)
        try:
            return reply.status, orjson.loads(content)
        except orjson.JSONDecodeError:
            return reply.status, None

    @asynccontextmanager
    async def _asked(
        self, method: str, url: str, headers: Mapping[str, str], body: Any, timeouts: Timeouts
    ) -> AsyncIterator[Reply]:
        place = address(url)
        request = self._request(method, url, headers, body, timeouts)
        deadline = asyncio.get_running_loop().time() + timeouts.first
        response = await self._head(request, place, timeouts)
        try:
            yield Reply(response, place, timeouts, deadline)
        finally:
            await request.__aexit__(None, None, None)

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: Any, timeouts: Timeouts
    ) -> StreamRequest:
        client = self._client(timeouts, near=_loopback(url))
        problem = ""
        try:
            builder = client.request(method, url)
        except ValueError:
            problem = f"{address(url)}: give one such as https://api.example.com/v1"
        for name, value in headers.items() if not problem else ():
            try:
                builder = builder.header(name, value, is_sensitive=name.lower() not in PLAIN)
            except ValueError:
                problem = (
                    f"the header {name!r} cannot be sent: its value has characters that no header may have"
                )
        if problem:
            raise ConfigurationError(problem)
        if body is not None and not isinstance(body, bytes):
            body = orjson.dumps(body)
            if not any(name.lower() == "content-type" for name in headers):
                builder = builder.header("content-type", "application/json")
        if body is not None:
            builder = builder.body_bytes(body)
        # Without a read-ahead each piece is handed on when it comes, and none is lost when the next does not.
        return builder.streamed_read_buffer_limit(0).build_streamed()

    def _client(self, timeouts: Timeouts, *, near: bool) -> Client:
        from pyreqwest.client import ClientBuilder  # noqa: PLC0415 - only who sends needs the client

        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "a transport is used inside its `async with` and in the event loop of that: open one here"
            )
        if (timeouts, near) not in self._clients:
            patience = max(timeouts.connect, timeouts.first, timeouts.between) + SLACK
            builder = (
                ClientBuilder()
                .follow_redirects(False)
                .referer(False)
                .user_agent("ullage")
                .connect_timeout(_seconds(timeouts.connect))
                .read_timeout(_seconds(patience))
            )
            if self._roots:
                builder = builder.add_root_certificate_pem(self._roots)
            self._clients[timeouts, near] = (builder.no_proxy() if near else builder).build()
        return self._clients[timeouts, near]

    async def _head(self, request: StreamRequest, place: str, timeouts: Timeouts) -> Response:
        """The answer's beginning.

        The client does not let go of a request that is cancelled before its answer begins. So it is never
        cancelled: who stops waiting leaves it to a task that hangs up as soon as the answer does begin.
        """
        asking = asyncio.ensure_future(request.__aenter__())
        try:
            done, _ = await asyncio.wait({asking}, timeout=timeouts.first)
        except asyncio.CancelledError:
            self._leave(request, asking)
            raise
        if not done:
            self._leave(request, asking)
            raise _stalled(place, timeouts.first, first=True)
        error = asking.exception()
        if error is None:
            return asking.result()
        if isinstance(error, _client_errors()):
            raise _failed(error, place)
        raise error

    def _leave(self, request: StreamRequest, asking: asyncio.Future[Response]) -> None:
        task = asyncio.get_running_loop().create_task(_hang_up(request, asking))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=min(number, 1e8))  # infinity is no length of time there


async def _hang_up(request: StreamRequest, asking: asyncio.Future[Response]) -> None:
    try:
        await asking
    except _client_errors():
        return
    await request.__aexit__(None, None, None)


def _client_errors() -> tuple[type[Exception], ...]:
    from pyreqwest.exceptions import PyreqwestError  # noqa: PLC0415 - the same

    return (PyreqwestError,)


def _stalled(place: str, seconds: float, *, first: bool) -> ProviderError:
    if first:
        text = (
            f"{place} did not begin to answer within {seconds:g} s: wait longer (timeouts.first) or ask again"
        )
    else:
        text = f"{place} stopped in the middle of its answer: nothing came for {seconds:g} s"
    return ProviderError(text, code="timeout", may_retry=True)


@dataclass(frozen=True, slots=True)
class _Trouble:
    """What a failure of the connection is called, told by a word of its cause."""

    word: str
    code: str
    text: str
    may_retry: bool = True


TROUBLES = (
    _Trouble("certificate", "tls", "{place} shows a certificate that is not trusted here ({cause})", False),
    _Trouble("connection refused", "refused", "nothing answers at {place}: is the server running?"),
    _Trouble("dns error", "unknown_host", "no such host: {place}. Check the address and the network"),
    _Trouble("tls", "tls", "no TLS with {place} ({cause}): is it http:// instead of https://?", False),
    _Trouble("ssl", "tls", "no TLS with {place} ({cause}): is it http:// instead of https://?", False),
    _Trouble(
        "invalidcontenttype", "tls", "{place} does not speak TLS: is it http:// instead of https://?", False
    ),
    _Trouble(
        "corrupt message", "tls", "{place} does not speak TLS: is it http:// instead of https://?", False
    ),
    _Trouble("(connect)", "connection", "no connection to {place} ({cause})"),
    _Trouble("reading a body", "cut", "{place} hung up in the middle of its answer ({cause})"),
    _Trouble("", "connection", "{place} hung up before it answered ({cause})"),
)
"""The first row whose word is among the causes names the trouble."""


def _failed(error: BaseException, place: str) -> ProviderError:
    from pyreqwest.exceptions import ClientClosedError, ConnectTimeoutError  # noqa: PLC0415 - the same

    if isinstance(error, ClientClosedError):
        return ProviderError(f"the transport was closed while {place} was answering", code="closed")
    if isinstance(error, ConnectTimeoutError):
        return ProviderError(
            f"no connection to {place} in time (timeouts.connect)", code="timeout", may_retry=True
        )
    details = getattr(error, "details", None) or {}
    # The first cause shows the whole address, with its query.
    causes = [str(cause["message"]) for cause in details.get("causes") or () if "://" not in cause["message"]]
    told = " / ".join(causes).lower()
    trouble = next(row for row in TROUBLES if row.word in told)
    cause = causes[-1][:200] if causes else type(error).__name__
    return ProviderError(
        trouble.text.format(place=place, cause=cause), code=trouble.code, may_retry=trouble.may_retry
    )
