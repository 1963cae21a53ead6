"""One connection to an upstream: HTTP/1.1 as it is needed for a call, and nothing more.

A general client costs as much time as all other work for a small request. This one sends a body that is
complete, reads an answer as it comes, and keeps the connection for the next call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BUFFERED = 256 * 1024
"""Most bytes of an answer that wait for their reader; the upstream is slowed down then."""
MOST_HEAD = 64 * 1024
"""Most bytes of the names and values of an answer's headers."""
NO_BODY = frozenset({204, 304})
"""Statuses of answers that have no body."""


class NotHttp(Exception):  # noqa: N818 - the pool turns it into an error for the user
    """The server sent something that is no answer in HTTP."""


class HeadTooLarge(NotHttp):
    """The headers of the answer have more than `MOST_HEAD` bytes."""


class Late(Exception):  # noqa: N818 - the same
    """Nothing came in time."""


class UpstreamConnection(asyncio.Protocol):
    """A connection; one call at a time uses it."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        """The time of the loop at which the call that waits is late."""
        self._alarm: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._lost: BaseException | None = None
        self._calls = 0
        self._begin()
        self.is_idle = True
        """True between two calls."""
        self.idle_since = 0.0
        """The time of the loop at which its last call ended."""

    def _begin(self) -> None:
        self.status = 0
        self._is_answered = False
        """True once a byte of the answer has come."""
        self.headers: dict[str, str] = {}
        """The names are in lower case."""
        self._head_size = 0
        self._is_headed = self._is_done = self._is_interim = self._ends_with_connection = False
        self._is_kept = False
        self._pieces: list[bytes] = []
        self._size = 0

    # For the call

    @property
    def is_open(self) -> bool:
        """True if another call can use the connection."""
        return self._lost is None and not self._transport.is_closing()

    @property
    def was_stale(self) -> bool:
        """True if the server closed the connection after an earlier call, and did not answer this one.

        Servers close connections that were idle for a while. If a request is on its way just then, the server
        never sees it, so it can be sent again.
        """
        return self._calls > 1 and isinstance(self._lost, OSError) and not self._is_answered

    def send(self, parts: Sequence[bytes]) -> None:
        """Begins a call: sends its request."""
        self._begin()
        self._calls += 1
        self.is_idle = False
        self._transport.writelines(parts)

    async def head(self, deadline: float) -> None:
        """Waits for the status and the headers; raises Late, NotHttp or OSError."""
        while not self._is_headed:
            await self._wait(deadline)

    async def next(self, deadline: float) -> bytes:
        """Returns the bytes of the body that have come; empty at its end. Raises Late, NotHttp or OSError."""
        while not self._pieces:
            if self._is_done:
                return b""
            await self._wait(deadline)
        pieces, self._pieces, self._size = self._pieces, [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self, now: float) -> bool:
        """Ends a call; returns True if the connection can be used again, and closes it otherwise."""
        self.is_idle, self.idle_since = True, now
        if self._is_done and self._is_kept and self.is_open and not self._transport.get_write_buffer_size():
            return True
        self.abort()
        return False

    def abort(self, error: BaseException | None = None) -> None:
        """Closes the connection at once; a call that waits for its answer gets the error."""
        if self._lost is None:
            self._lost = error or ConnectionAbortedError()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._transport.abort()
        self._wake()

    async def _wait(self, deadline: float) -> None:
        """Waits until something has come."""
        if self._lost is not None:
            raise self._lost
        loop = asyncio.get_running_loop()
        self._waiter, self._deadline = loop.create_future(), deadline
        if self._alarm is None or self._alarm.when() > deadline:
            self._set_alarm(loop)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sets the alarm to the deadline. It outlasts the wait: most waits need none of their own."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = loop.call_at(self._deadline, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends a wait that is late; the alarm may have been set for an earlier one."""
        self._alarm = None
        if self._waiter is None or self._waiter.done():
            return
        if loop.time() < self._deadline:
            self._set_alarm(loop)
        else:
            self._waiter.set_exception(Late())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # For the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Reads what has come."""
        if self.is_idle:  # nobody has asked for it
            self.abort()
            return
        self._is_answered = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):  # an upgrade was not asked for
            self.abort(HeadTooLarge() if self._head_size > MOST_HEAD else NotHttp())
            return
        if self._size > MOST_BUFFERED and not self._is_paused and not self._is_done:
            self._is_paused = True
            self._transport.pause_reading()
        waiter = self._waiter
        if waiter is not None and (self._pieces or self._is_headed) and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends an answer whose end is the end of the connection, and breaks off any other."""
        if self._is_headed and self._ends_with_connection and exc is None:
            self._is_done = True
        if self._lost is None:
            self._lost = exc or ConnectionResetError()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._wake()

    # For the parser

    def on_message_begin(self) -> None:
        """Refuses another answer after the one that was asked for; the connection is closed then."""
        if self._is_done:
            raise NotHttp

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header."""
        self._head_size += len(name) + len(value)
        if self._head_size > MOST_HEAD:
            raise NotHttp
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Takes the status; an interim answer (1xx) is not the answer yet."""
        status = self._parser.get_status_code()
        self._is_interim = status < 200
        if self._is_interim:
            return
        headers = self.headers
        self.status, self._is_headed = status, True
        self._ends_with_connection = (
            "content-length" not in headers and "transfer-encoding" not in headers and status not in NO_BODY
        )
        self._is_kept = not self._ends_with_connection and self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Takes a piece of the body."""
        self._pieces.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        """Ends the answer."""
        if self._is_interim:
            self.headers = {}
            return
        self._is_done = True
