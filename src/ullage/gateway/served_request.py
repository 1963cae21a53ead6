"""One request on a client's connection, and its answer: the two ways of ASGI."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ullage.gateway.request import Message

MOST_UNREAD = 64 * 1024
"""Most bytes of a body that wait for the application; the client is slowed down then."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
WITHOUT_BODY = frozenset({204, 304})
"""Statuses of answers that have no body."""
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_LINES = {status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode() for status in range(100, 600)}
_FIELDS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)*")


class ServedConnection(Protocol):
    """The connection of a request."""

    is_lost: bool
    """True if the client has gone away."""
    is_full: bool
    """True while the client takes nothing."""

    def write(self, piece: bytes) -> None:
        """Sends a piece."""

    async def writable(self) -> None:
        """Waits until the client takes something."""

    def pause_reading(self) -> None:
        """Takes no more from the client."""

    def resume_reading(self) -> None:
        """Takes more from the client."""

    def finish(self, request: ServedRequest) -> None:
        """Goes on after a whole answer."""


class ServedRequest:
    """A request and its answer. The object itself is ASGI's `receive`."""

    __slots__ = (
        "_connection",
        "_event",
        "_expects",
        "_has_body",
        "_has_news",
        "_is_chunked",
        "_left",
        "_lost",
        "_pieces",
        "_size",
        "has_begun",
        "is_answered",
        "is_kept",
        "is_whole",
        "scope",
    )

    def __init__(
        self,
        connection: ServedConnection,
        scope: Mapping[str, object],
        *,
        is_kept: bool,
        expects: bool = False,
    ) -> None:
        """Takes the head of a request; `expects` is True if its client waits for `100 Continue`."""
        self.scope = scope
        self.is_kept = is_kept
        """True if the connection goes on after the answer."""
        self.is_whole = False
        """True once the whole body has come."""
        self.has_begun = False
        """True once the head of the answer was sent."""
        self.is_answered = False
        """True once the whole answer was sent."""
        self._connection = connection
        self._expects = expects
        self._pieces: list[bytes] = []
        self._size = 0
        self._has_news = False
        """True if the application does not know all of the body that has come."""
        self._event: asyncio.Event | None = None
        self._lost: Callable[[], object] | None = None
        self._has_body = self._is_chunked = False
        self._left: int | None = None
        """Bytes of the answer that are still to come; None if their number was not announced."""

    # For the connection

    def add(self, piece: bytes) -> None:
        """Takes a piece of the body."""
        if self.is_answered:  # nobody wants it any more
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > MOST_UNREAD:
            self._connection.pause_reading()
        self._has_news = True
        self._wake()

    def complete(self) -> None:
        """Notes the end of the body."""
        self.is_whole = self._has_news = True
        self._wake()

    def lose(self) -> None:
        """Tells the application that the client has gone away."""
        self._wake()
        if self._lost is not None:
            self._lost()

    def _wake(self) -> None:
        """Wakes the application if it waits for news."""
        if self._event is not None:
            self._event.set()

    # For the application

    def tell_lost(self, tell: Callable[[], object] | None) -> None:
        """Calls `tell` once the client has gone away, instead of what it called before."""
        self._lost = tell
        if tell is not None and self._connection.is_lost:
            asyncio.get_running_loop().call_soon(self.lose)

    def whole(self) -> bytes | None:
        """Returns the rest of the body, without waiting, if all of it has come; otherwise None."""
        if not self.is_whole or not self._has_news or self._connection.is_lost:
            return None
        return self._take_pieces()

    async def __call__(self) -> Message:
        """Returns the next part of the body, or the news that the answer is not wanted any more."""
        if self._expects:
            self._expects = False
            self._connection.write(CONTINUE)
        while not (self._has_news or self.is_answered or self._connection.is_lost):
            if self._event is None:
                self._event = asyncio.Event()
            self._event.clear()
            await self._event.wait()
        if self.is_answered or self._connection.is_lost:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take_pieces(), "more_body": not self.is_whole}

    def _take_pieces(self) -> bytes:
        pieces, self._pieces, self._has_news = self._pieces, [], False
        if self._size > MOST_UNREAD:
            self._connection.resume_reading()
        self._size = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def send(self, message: Message) -> None:
        """Sends a part of the answer; nothing if the client has gone away."""
        connection = self._connection
        if connection.is_full and not connection.is_lost:
            await connection.writable()
        if connection.is_lost:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.has_begun and not self.is_answered:
            self._send_piece(message.get("body", b""), is_last=not message.get("more_body", False))
        elif kind == "http.response.start" and not self.has_begun:
            self._send_head(message["status"], [*message.get("headers", ())])
        else:
            raise RuntimeError(f"{kind} cannot be sent at this place of an answer")

    def _send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        fields = b"".join([b"%b: %b\r\n" % each for each in headers])
        if fields.count(b"\r") != len(headers) or not _FIELDS.fullmatch(fields):
            raise RuntimeError("a header of the answer has characters that are invalid in a header")
        self._has_body = self.scope["method"] != "HEAD" and status not in WITHOUT_BODY
        self._left = _length(headers) if self._has_body else None
        if self._has_body and self._left is None:
            self._is_chunked = self.scope["http_version"] != "1.0"
            if self._is_chunked:
                fields += b"transfer-encoding: chunked\r\n"
            else:
                self.is_kept = False  # the end of the connection is the end of the answer
        if not self.is_kept:
            fields += b"connection: close\r\n"
        self.has_begun, self._expects = True, False
        self._connection.write(b"%b%b\r\n" % (_LINES[status], fields))

    def _send_piece(self, body: bytes, *, is_last: bool) -> None:
        write = self._connection.write
        if self._is_chunked:
            if body:
                write(b"%x\r\n" % len(body))
                write(body)
                write(b"\r\n0\r\n\r\n" if is_last else b"\r\n")
            elif is_last:
                write(b"0\r\n\r\n")
        elif self._has_body:
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0:
                    raise RuntimeError("an answer is longer than its content-length")
            write(body)
        if is_last:
            if self._left:
                raise RuntimeError("an answer is shorter than its content-length")
            self.is_answered = True
            self._wake()
            self._connection.finish(self)


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Returns the announced bytes of an answer; None if it announces none."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
    return None
