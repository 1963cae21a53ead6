"""The server's side of HTTP/1.1, with limits on all that a client may send or leave unread.

The server below reads heads of any size for any time. Here a head has a most size and a most time, offers of
other protocols are declined, trailers are ignored, and a client that takes nothing any more is given up.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ullage.gateway.client_transport import CollectingTransport
from ullage.gateway.refusals import Refused, answer

if TYPE_CHECKING:
    from ullage.gateway.request import Message

MOST_HEAD = 64 * 1024
"""Most bytes of a request before its body, and of anything else between two pieces of bodies."""
MOST_WAITING = 100
"""Most requests of one connection that wait for the answer to an earlier one."""
HEAD_SECONDS = 60.0
"""Seconds for the head of a request, from the beginning of the connection or the first byte of the head."""
UNREAD_SECONDS = 300.0
"""Seconds for which a client may leave an answer unread before its connection is closed."""
LOOK_SECONDS = 15.0
"""Seconds between two looks at the times of a connection."""
OFFER = frozenset({b"upgrade", b"http2-settings"})
"""Headers, and words of `Connection`, that offer another protocol."""


class ClientProtocol(HttpToolsProtocol):
    """One connection of a client."""

    def connection_made(self, transport: Any) -> None:
        """Takes the transport."""
        collecting: Any = CollectingTransport(transport)
        super().connection_made(collecting)
        self._unread = 0
        """Bytes since the last head or piece of a body."""
        self._head_since: float | None = self.loop.time()
        """The time since which a head is awaited; None while a request is under way."""
        self._stuck_since: float | None = None
        """The time since which the client takes nothing; None if it does."""
        self._is_headed = False
        self._timer = self.loop.call_later(LOOK_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what belongs to the connection."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads what has come."""
        self._unset_keepalive_if_required()
        if self._head_since is None and (self.cycle is None or self.cycle.response_complete):
            self._head_since = self.loop.time()
        self._unread += len(data)
        try:
            self._feed(data)
        except HttpParserError:
            self._refuse(Refused("invalid", "The request is not valid HTTP: check the client"))
            return
        if self._unread > MOST_HEAD:
            self._refuse(Refused("head", f"The request's head has more than {MOST_HEAD:,} bytes: send less"))

    def _feed(self, data: bytes) -> None:
        """Parses bytes; a request that offers another protocol is read again without the offer."""
        while data:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as offer:
                data = self._plain_head() + data[offer.args[0] :]
                self.parser = HttpRequestParser(self)
            else:
                return

    def _plain_head(self) -> bytes:
        """Returns the head of the parsed request without its offer of another protocol."""
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        for name, value in self.headers:
            if name == b"connection":
                words = [each.strip() for each in value.split(b",")]
                lines.append(
                    b"connection: " + b", ".join(each for each in words if each.lower() not in OFFER)
                )
            elif name not in OFFER:
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    # For the parser

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._is_headed = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header; one that comes after the body was never checked with the others."""
        if not self._is_headed:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Starts the request; its body follows."""
        self._unread, self._head_since, self._is_headed = 0, None, True
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError(b"CONNECT")  # the parser reports it as invalid
            return
        super().on_headers_complete()
        if len(self.pipeline) > MOST_WAITING:
            raise ValueError(len(self.pipeline))

    def on_body(self, body: bytes) -> None:
        """Takes a piece of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends the request."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    # For the answers

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if cycle.scope["http_version"] == "1.0":
            cycle.chunked_encoding = False  # such a client cannot read pieces with lengths
            super()._start_asgi_task(cycle, partial(_answer_old_client, cycle, app))
        else:
            super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Notes that the client does not read."""
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Notes that the client reads again."""
        self._stuck_since = None
        super().resume_writing()

    def _look(self) -> None:
        """Closes the connection if its client is too slow."""
        now = self.loop.time()
        if self._stuck_since is not None and now - self._stuck_since >= UNREAD_SECONDS:
            self.transport.abort()
        elif self._head_since is not None and now - self._head_since >= HEAD_SECONDS:
            if self._unread:
                told = f"The request's head did not come within {HEAD_SECONDS:g} s: send it again"
                self._refuse(Refused("slow", told))
            else:
                self.transport.close()
        else:
            self._timer = self.loop.call_later(LOOK_SECONDS, self._look)

    def _refuse(self, refusal: Refused) -> None:
        """Answers that the request cannot be read, and closes the connection.

        If the answer to an earlier request is under way, nothing may be written into it.
        """
        if self.transport.is_closing():
            return
        app: Any = self.app
        app.metrics.add("ullage_refused_total", "none", refusal.kind)
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_written(refusal))
        self.transport.close()


def _written(refusal: Refused) -> bytes:
    """Returns the bytes of an answer that ends its connection."""
    made = answer(refusal, None, "")
    status = HTTPStatus(made.status)
    headers = {**made.headers, "content-length": str(len(made.body)), "connection": "close"}
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *(f"{name}: {value}" for name, value in headers.items() if value),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + made.body


async def _answer_old_client(cycle: Any, app: Any, scope: Any, receive: Any, send: Any) -> None:
    """Answers a client of HTTP/1.0: the end of its connection is the end of a stream."""

    async def write(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            return
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        if cycle.scope["method"] != "HEAD":
            cycle.transport.write(message.get("body", b""))
        if not message.get("more_body", False):
            cycle.response_complete = True
            cycle.message_event.set()
            cycle.transport.close()
            cycle.on_response()

    await app(scope, receive, write)
