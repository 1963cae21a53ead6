"""One HTTP request of a client: its headers, and its body, which is read within limits."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from dataclasses import dataclass, field
from random import getrandbits
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.broker import jsontext
from ullage.gateway.body_room import SMALL, BodyRoom
from ullage.gateway.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping
    from typing import TypeAlias

    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]

MOST_BYTES = 64 * 1024 * 1024
"""Most bytes of a body, before and after it is decompressed."""
MOST_HEADERS = 200
"""Most headers of a request."""
SECONDS = 60.0
"""Seconds between two pieces of a body; a client that is slower is refused."""
MOST_SECONDS = 600.0
"""Seconds for a whole body."""
MOST_VALUES = 500_000
"""Most values in a body. Python needs a hundred times the bytes of a very small value."""
IN_ONE_PIECE = 256 * 1024
"""Most bytes that are decompressed or parsed on the event loop."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)


class Disconnected(Exception):  # noqa: N818 - nobody is left to answer
    """The client went away before its request was complete."""


@dataclass(slots=True)
class Received:
    """A request as it came.

    Nobody changes it. The class is not frozen, because a frozen one takes three times as long to make.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """The names are in lower case; values of repeated headers are joined with commas."""
    client: str
    """The address of the client's machine."""
    is_cut: bool = False
    """True if it has more than `MOST_HEADERS` headers, of which the rest was not read."""
    id: str = field(default_factory=lambda: f"{getrandbits(128):032x}")
    begun: float = field(default_factory=time.monotonic)
    """The time at which it came, on the monotonic clock."""
    room: BodyRoom = field(default_factory=BodyRoom)
    held: int = 0
    """The bytes of `room` that its body holds."""

    def hold(self, size: int) -> None:
        """Takes room for a body of so many bytes; 0 gives it back. Raises Refused if there is none."""
        self.held = self.room.change(self.held, size)

    def header(self, name: str) -> str:
        """Returns the value of a header, empty if it is missing."""
        return self.headers.get(name, "")


class ClientConnection(NamedTuple):
    """A request, and the two ways of its connection."""

    request: Received
    receive: Receive
    send: Send


def read_head(scope: Mapping[str, Any], room: BodyRoom) -> Received:
    """Returns the head of a request; its body will hold a part of the room."""
    client = scope.get("client")
    headers: dict[str, str] = {}
    for name, value in scope["headers"][:MOST_HEADERS]:
        known, text = name.decode("latin-1"), value.decode("latin-1")
        headers[known] = f"{headers[known]}, {text}" if known in headers else text
    return Received(
        method=scope["method"],
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        headers=headers,
        client=client[0] if client else "",
        is_cut=len(scope["headers"]) > MOST_HEADERS,
        room=room,
    )


async def read_body(request: Received, receive: Receive) -> bytes:
    """Returns the whole body, decompressed; refuses one that is too large, too slow or damaged."""
    announced = request.header("content-length")
    if announced.isdigit() and int(announced) > MOST_BYTES:
        raise _too_large()
    whole = await _whole(request, receive)
    encoding = request.header("content-encoding").strip().lower()
    if encoding in {"", "identity"}:
        return whole
    plain = await asyncio.to_thread(_decompress_body, whole, encoding)
    request.hold(len(plain))
    return plain


async def _whole(request: Received, receive: Receive) -> bytes:
    """Returns the bytes of a body; each piece restarts the time for the next one.

    Our own server knows if all of a body has come with its head. Then nothing needs to be waited for, and the
    body is small, because the server takes no more of one that nobody reads.
    """
    at_once: Callable[[], bytes | None] | None = getattr(receive, "whole", None)
    if at_once is not None and (body := at_once()) is not None:
        return body
    pieces: list[bytes] = []
    size = 0
    end = asyncio.get_running_loop().time() + MOST_SECONDS
    try:
        async with asyncio.timeout(SECONDS) as limit:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                if piece := message.get("body"):
                    pieces.append(piece)
                    size += len(piece)
                    if size > MOST_BYTES:
                        raise _too_large()
                    if size > SMALL:
                        request.hold(size)
                if not message.get("more_body"):
                    break
                limit.reschedule(min(asyncio.get_running_loop().time() + SECONDS, end))
    except TimeoutError:
        raise Refused(
            "slow",
            f"nothing of the request's body came for {SECONDS:g} s, or it took more than {MOST_SECONDS:g} s: "
            "send it again",
        ) from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large() -> Refused:
    return Refused(
        "too large",
        f"the request's body has more than {MOST_BYTES:,} bytes: send less, or smaller files",
    )


def _decompress_body(body: bytes, encoding: str) -> bytes:
    """Returns the body; stops at the largest size, so that a small body cannot fill the memory."""
    import zstandard  # noqa: PLC0415 - few clients compress

    try:
        if encoding == "zstd":
            with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
                plain = reader.read(MOST_BYTES + 1)
        elif encoding in {"gzip", "x-gzip", "deflate"}:
            inflating = zlib.decompressobj(wbits=47)  # gzip or zlib, by its header
            plain = inflating.decompress(body, MOST_BYTES + 1)
            if not inflating.eof and len(plain) <= MOST_BYTES:
                raise Refused("invalid", "the request's body ends before its gzip data does: send it again")
        else:
            raise Refused(
                "invalid",
                f"the body's encoding {encoding[:40]!r} is unknown: send it plain, as gzip or as zstd",
            )
    except (zlib.error, zstandard.ZstdError):
        raise Refused("invalid", f"the request's body is not valid {encoding} data: send it again") from None
    if len(plain) > MOST_BYTES:
        raise _too_large()
    return plain


async def parse_object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body; a deep or invalid one is refused."""
    value = _parse_body(body) if len(body) <= IN_ONE_PIECE else await asyncio.to_thread(_parse_body, body)
    if not isinstance(value, dict):
        raise Refused("invalid", "the request's body must be a JSON object")
    return value


def _parse_body(body: bytes) -> Any:
    """Returns a JSON value. Halves of characters are read as U+FFFD: clients that cut texts send them."""
    if len(body) > SMALL and _has_too_many_values(body):
        raise Refused(
            "too large",
            f"the request's body has more than {MOST_VALUES:,} values: send fewer and longer ones",
        )
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = jsontext.load(body.decode("utf-8", "replace"))
        if value is None:
            raise Refused("invalid", f"the request's body is not JSON: {error}") from None
        return value


def _has_too_many_values(body: bytes) -> bool:
    """Returns True if a JSON text has more than `MOST_VALUES` values; marks in its strings do not count."""
    if _values(body) <= MOST_VALUES:
        return False
    number = end = 0
    for found in _STRING.finditer(body):
        number += _values(body[end : found.start()])
        if number > MOST_VALUES:
            return True
        end = found.end()
    return number + _values(body[end:]) > MOST_VALUES


def _values(text: bytes) -> int:
    """Returns at least the number of values that a text without strings begins."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def write_json(value: Any) -> bytes:
    """Returns a client's value as JSON; refuses one that is nested too deeply to be written."""
    try:
        return jsontext.dump(value)
    except (RecursionError, TypeError, ValueError):
        raise Refused(
            "invalid",
            "the request's body is nested too deeply: nest fewer lists and objects",
        ) from None
