"""A client's connection: HTTP/1.1 as the gateway needs it, and nothing more.

The usual protocol of the server costs as much as all our work for a small answer: a task for each request, a
timer for each answer, and a call of the system for each piece of it. Here one task answers all requests of a
connection, one timer watches it, and what one turn of the event loop writes is sent together.

All that a client may send, wait for or leave unread has a limit. Offers of another protocol are declined, and
trailers are not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from ullage.gateway.refusals import Refused, answer
from ullage.gateway.request import MOST_HEADERS
from ullage.gateway.served_request import ServedRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn import Config
    from uvicorn.server import ServerState

MOST_HEAD = 64 * 1024
"""Most bytes of a request before its body, and of anything else between two pieces of bodies."""
MOST_WAITING = 100
"""Most requests of one connection that wait for the answer to an earlier one."""
HEAD_SECONDS = 60.0
"""Seconds for the head of a request, from the beginning of the connection or the first byte of the head."""
UNREAD_SECONDS = 300.0
"""Seconds for which a client may leave an answer unread before its connection is closed."""
LOOK_SECONDS = 15.0
"""Most seconds between two looks at the times of a connection."""
OFFER = frozenset({b"upgrade", b"http2-settings"})
"""Headers, and words of `Connection`, that offer another protocol."""
LOG = logging.getLogger("uvicorn.error")
FAULT = b"Internal Server Error"


class ClientProtocol(asyncio.Protocol):
    """The connection of one client. The server makes it, and the parser calls it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002 - the server passes it
        _loop: asyncio.AbstractEventLoop | None = None,
        note_refusal: Callable[[str], object] = str,
    ) -> None:
        """Takes what the server passes, and a function that is called with the kind of each refusal."""
        if not config.loaded:
            config.load()
        self.transport: Any = None
        self.is_lost = self.is_full = False
        self._application: Any = config.loaded_app
        self._patience = config.timeout_keep_alive
        """Seconds between two requests, after which the connection is closed."""
        self._note_refusal = note_refusal
        self._state: Any = server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._quiet_since = 0.0
        self._head_since: float | None = None
        """The time since which a head is awaited; None if none has begun."""
        self._stuck_since: float | None = None
        """The time since which the client takes nothing; None if it does."""
        self._client: tuple[str, int] | None = None
        self._server: tuple[str, int] | None = None
        self._out: list[bytes] = []
        self._room = asyncio.Event()
        self._is_paused = False
        # The requests: one is answered, others wait for their turn, and the newest may not be whole yet.
        self._task: asyncio.Task[None] | None = None
        self._next: asyncio.Future[None] | None = None
        self._current: ServedRequest | None = None
        self._waiting: deque[ServedRequest] = deque()
        self._newest: ServedRequest | None = None
        # The request that is being read
        self._parser: Any = self._new_parser()
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects = self._is_headed = self._is_ended = False
        self._formless = 0
        """Bytes since the last head, the last piece of a body or the last end of a request."""

    # For the server and the event loop

    @property
    def path(self) -> str:
        """The path of the newest request; empty before the first."""
        return "" if self._newest is None else str(self._newest.scope["path"])

    @property
    def is_busy(self) -> bool:
        """True if a request has no whole answer yet."""
        return bool(self._waiting) or (self._current is not None and not self._current.is_answered)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport."""
        self.transport = transport
        self._client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        self._state.connections.add(self)
        self._quiet_since = self._head_since = self._loop.time()
        self._set_alarm()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it does not matter why
        """Tells the application, which ends its work for this client."""
        self.is_lost = True
        self._state.connections.discard(self)
        if self._alarm is not None:
            self._alarm.cancel()
        if self._current is not None:
            self._current.lose()
        self._room.set()
        self._wake()
        # Nothing may refer to itself, or its memory would wait for the garbage collector.
        self._parser = self._newest = None
        self._waiting.clear()

    def shutdown(self) -> None:
        """Closes the connection after the answer under way."""
        if not self.is_busy:
            self.transport.close()
        for each in (self._current, *self._waiting):
            if each is not None:
                each.is_kept = False

    def pause_writing(self) -> None:
        """Notes that the client takes nothing."""
        self.is_full = True
        self._stuck_since = self._loop.time()
        self._room.clear()

    def resume_writing(self) -> None:
        """Notes that the client takes something again."""
        self.is_full = False
        self._stuck_since = None
        self._room.set()

    def data_received(self, data: bytes) -> None:
        """Reads what has come."""
        if self._is_ended:
            return
        if self._head_since is None and not self.is_busy:
            self._head_since = self._loop.time()
        self._formless += len(data)
        try:
            self._feed(data)
        except HttpParserError:
            self._refuse(Refused("invalid", "The request is not valid HTTP: check the client"))
            return
        if self._formless > MOST_HEAD:
            self._refuse(Refused("head", f"The request's head has more than {MOST_HEAD:,} bytes: send less"))

    def _feed(self, data: bytes) -> None:
        """Parses bytes; a request that offers another protocol is read again without the offer."""
        while data:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as offer:
                data = self._plain_head() + data[offer.args[0] :]
                self._parser = self._new_parser()
            else:
                return

    def _new_parser(self) -> HttpRequestParser:
        parser = HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # such data is not read
        return parser

    def _plain_head(self) -> bytes:
        """Returns the head of the parsed request without its offer of another protocol."""
        lines = [b"%b %b HTTP/1.1" % (self._parser.get_method(), self._url)]
        for name, value in self._headers:
            if name == b"connection":
                words = [each.strip() for each in value.split(b",")]
                lines.append(b"connection: " + b", ".join([w for w in words if w.lower() not in OFFER]))
            elif name not in OFFER:
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, refusal: Refused) -> None:
        """Ends the connection after bytes that are no request; answers to whole requests go out first."""
        self._is_ended = True
        self._note_refusal(refusal.kind)
        current, newest = self._current, self._newest
        if newest is not None and not newest.is_whole and newest in self._waiting:
            self._waiting.remove(newest)
        if self._waiting or (current is not None and not current.is_answered and current.is_whole):
            last = self._waiting[-1] if self._waiting else current
            if last is not None:
                last.is_kept = False
            return
        if current is None or current.is_answered or not current.has_begun:
            self.write(_write_refusal(refusal))
        self._close()

    # The times of the connection

    def _set_alarm(self) -> None:
        """Looks again at the next time at which the connection may have to end."""
        seconds = min(LOOK_SECONDS, max(0.0, self._end_of_patience() - self._loop.time()))
        self._alarm = self._loop.call_later(seconds, self._look)

    def _end_of_patience(self) -> float:
        """Returns the time at which the connection ends if nothing happens."""
        ends = [float("inf")]
        if self._stuck_since is not None:
            ends.append(self._stuck_since + UNREAD_SECONDS)
        if self._head_since is not None:
            ends.append(self._head_since + HEAD_SECONDS)
        if not self.is_busy:
            ends.append(self._quiet_since + self._patience)
        return min(ends)

    def _look(self) -> None:
        """Closes the connection if its client is too slow, or was quiet for too long."""
        now = self._loop.time()
        if now < self._end_of_patience():
            self._set_alarm()
        elif self._stuck_since is not None:
            self.transport.abort()
        elif self._formless:
            self._refuse(Refused("slow", "The request's head did not come in time: send it again"))
        else:
            self.transport.close()

    # For the parser

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._url, self._headers = b"", []
        self._expects = self._is_headed = False

    def on_url(self, url: bytes) -> None:
        """Takes a part of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header; those after the body are not read."""
        if self._is_headed or len(self._headers) > MOST_HEADERS:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Takes the head of a request, and has it answered in its turn."""
        self._formless, self._head_since, self._is_headed = 0, None, True
        if self._parser.should_upgrade():
            if self._parser.get_method() == b"CONNECT":
                raise ValueError(b"CONNECT")  # the parser reports it as invalid
            return  # it is read again without the offer
        parser = self._parser
        version = parser.get_http_version()
        path, query = _parts(self._url)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": self._client,
            "server": self._server,
        }
        is_kept = version != "1.0" and parser.should_keep_alive()
        self._newest = request = ServedRequest(self, scope, is_kept=is_kept, expects=self._expects)
        if self.is_busy:
            self.pause_reading()
        self._waiting.append(request)
        if len(self._waiting) > MOST_WAITING:
            raise ValueError(len(self._waiting))
        if self._task is None:
            self._task = self._loop.create_task(self._serve())
            self._state.tasks.add(self._task)
        self._wake()

    def on_body(self, body: bytes) -> None:
        """Takes a piece of the body."""
        self._formless = 0
        if self._newest is not None:
            self._newest.add(body)

    def on_message_complete(self) -> None:
        """Ends the request."""
        self._formless = 0
        if self._newest is not None and not self._parser.should_upgrade():
            self._newest.complete()

    # Answers

    async def _serve(self) -> None:
        """Answers the requests of this connection in their order."""
        try:
            while not self.is_lost and not self.transport.is_closing():
                if self._waiting:
                    self._current = request = self._waiting.popleft()
                    if not self._waiting:
                        self.resume_reading()
                    await self._answer(request)
                else:
                    self._next = self._loop.create_future()
                    await self._next
        finally:
            self._state.tasks.discard(self._task)
            self._task = self._current = None

    async def _answer(self, request: ServedRequest) -> None:
        """Has the application answer; a fault of it ends the connection."""
        try:
            await self._application(request.scope, request, request.send)
        except Exception:
            LOG.exception("The application did not answer.")
            if not request.has_begun:
                request.is_kept = False
                await request.send({"type": "http.response.start", "status": 500, "headers": _FAULT_HEADERS})
                await request.send({"type": "http.response.body", "body": FAULT})
        finally:
            if not request.is_answered and not self.is_lost:
                self._close()

    def _wake(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)

    # For the requests

    def write(self, piece: bytes) -> None:
        """Sends a piece, together with the others of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(piece)

    def _flush(self) -> None:
        pieces, self._out = self._out, []
        if pieces and not self.transport.is_closing():
            self.transport.writelines(pieces)

    def _close(self) -> None:
        """Closes the connection after all that was written is sent."""
        self._flush()
        self.transport.close()

    async def writable(self) -> None:
        """Waits until the client takes something."""
        await self._room.wait()

    def pause_reading(self) -> None:
        """Takes no more from the client."""
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Takes more from the client, unless requests wait for their turn."""
        if self._is_paused and not self._waiting:
            self._is_paused = False
            self.transport.resume_reading()

    def finish(self, request: ServedRequest) -> None:
        """Sends the end of an answer; the connection goes on if both sides want that."""
        self._state.total_requests += 1
        self._quiet_since = self._loop.time()
        if request.is_kept:
            self._flush()
            self.resume_reading()  # the rest of a body that was not read
        else:
            self._close()


_FAULT_HEADERS = [
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", str(len(FAULT)).encode()),
]


def _write_refusal(refusal: Refused) -> bytes:
    """Returns the bytes of an answer that ends its connection."""
    made = answer(refusal, None, "")
    status = HTTPStatus(made.status)
    headers = {**made.headers, "content-length": str(len(made.body)), "connection": "close"}
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *(f"{name}: {value}" for name, value in headers.items() if value),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + made.body


def _address(name: Any) -> tuple[str, int] | None:
    """Returns the address and the port of one end of a connection."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None


def _parts(url: bytes) -> tuple[str, bytes]:
    """Returns the path and the query of a request's address; raises ValueError or HttpParserError."""
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path.decode("ascii"), query
    parsed = parse_url(url)
    return (parsed.path or b"/").decode("ascii"), parsed.query or b""
