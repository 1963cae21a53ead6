"""A server on loopback that plays recorded bytes, well or badly, and remembers what it was asked.

    with playing(Script(status=429, headers={"retry-after": "0"}), Script(body=b"data: 1\\n\\n")) as player:
        ...                # player.url is the address, player.requests what came, in order

The first request gets the first script, the last script answers all further ones; a function from the request
to a script may stand in their place. The server has a thread of its own, so a test may use `asyncio.run`;
the test needs `pytest.mark.enable_socket`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from tests.world import PATIENCE, until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One answer, and how it goes wrong."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = "text/event-stream"
    """The content-type; empty for none."""
    framing: str = "chunked"
    """chunked, length (a content-length), or close (the end of the connection is the end of the body)."""
    piece: int = 0
    """How many bytes are written at a time; 0 for all at once, 1 for a trickle."""
    pause: float = 0.0
    """Seconds between two pieces."""
    silent: bool = False
    """Whether not even the status line is sent: the connection stays open and nothing comes."""
    held_at: int | None = None
    """After so many bytes of the body the rest waits for `released`; needs `piece`."""
    released: threading.Event = field(default_factory=threading.Event, compare=False)
    stall_at: int | None = None
    """After so many bytes of the body nothing more comes, and the connection stays open."""
    cut_at: int | None = None
    """After so many bytes of the body the connection is closed."""
    reset: bool = False
    """Whether a connection that `cut_at` closes is reset: the client gets an error instead of an end."""
    delay: float = 0.0
    """Seconds before the status line."""


def sent_json(value: Any, status: int = 200, **more: Any) -> Script:
    """An answer that is one JSON value."""
    return Script(body=orjson.dumps(value), status=status, kind="application/json", framing="length", **more)


def answered(text: str, prompt: int = 41, completion: int = 3) -> bytes:
    """The bytes of an answer that OpenAI's chat completions stream, a word at a time."""
    deltas = [{"role": "assistant"}, *({"content": word} for word in re.findall(r"\S+\s*", text))]
    return streamed(deltas, "stop", prompt, completion)


def streamed(deltas: list[dict[str, Any]], reason: str, prompt: int = 41, completion: int = 3) -> bytes:
    """The bytes of an answer of these deltas."""
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    total = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    events.append({"choices": [], "usage": total})
    return b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events) + b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    """With the query."""
    headers: Mapping[str, str]
    """The names are in lower case."""
    body: bytes

    def json(self) -> Any:
        """The body's JSON value."""
        return orjson.loads(self.body)


class Player:
    """The server: read `url` and `requests`, wait for `left`."""

    def __init__(self, play: Callable[[Request, int], Script], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        """How many connections were opened."""
        self.left = 0
        """How many answers the client went away from before they were at their end."""
        self.url = ""
        self._play = play
        self._tls = tls
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)

    def wait_left(self, number: int = 1, seconds: float = PATIENCE) -> bool:
        """Whether so many clients went away from an unfinished answer within the time."""
        return until(lambda: self.left >= number, seconds)

    def wait_asked(self, number: int = 1, seconds: float = PATIENCE) -> bool:
        """Whether so many requests were read within the time; a client may have gone away by then."""
        return until(lambda: len(self.requests) >= number, seconds)

    def start(self) -> None:
        """Listens, and returns when it does."""
        self._thread.start()
        if not self._ready.wait(PATIENCE) or not self.url:
            raise RuntimeError("the player does not listen")

    def stop(self) -> None:
        """Closes every connection and ends the thread."""
        if self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=512, ssl=self._tls)
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports' own closing is one step behind

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        early: bytes | None = b""
        try:
            while early is not None and (request := await _request(early, reader)) is not None:
                self.requests.append(request)
                script = self._play(request, len(self.requests) - 1)
                early = await self._answer(script, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """What has come of the next request already; None where the connection is at its end."""
        coming = self._loop.create_task(reader.read(1))
        sending = self._loop.create_task(_send(script, writer))
        try:
            await asyncio.wait({coming, sending}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() and coming.exception() is None and coming.result():
                await asyncio.wait({sending})
            if not sending.done() or sending.exception() is not None:
                self.left += 1
                return None
        finally:
            for task in (coming, sending):
                task.cancel()
            early, _ = await asyncio.gather(coming, sending, return_exceptions=True)
        if script.reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        if script.framing == "close" or script.cut_at is not None:
            return None
        return early if isinstance(early, bytes) else b""


async def _request(early: bytes, reader: asyncio.StreamReader) -> Request | None:
    first = early + await reader.readline()
    if not first:
        return None
    method, path, _ = first.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while (size := int(await reader.readline(), 16)) > 0:
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body)


async def _send(script: Script, writer: asyncio.StreamWriter) -> None:
    forever = asyncio.get_running_loop().create_future()
    if script.silent:
        await forever
    await asyncio.sleep(script.delay)
    writer.write(_head(script))
    await writer.drain()
    end = min(n for n in (script.stall_at, script.cut_at, len(script.body)) if n is not None)
    size = script.piece or max(end, 1)
    for start in range(0, end, size):
        if script.held_at is not None and start >= script.held_at:
            await asyncio.to_thread(script.released.wait, PATIENCE)
        piece = script.body[start : min(start + size, end)]
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if script.framing == "chunked" else piece)
        await writer.drain()
        await asyncio.sleep(script.pause)
    if script.stall_at is not None:
        await forever
    if script.cut_at is None and script.framing == "chunked":
        writer.write(b"0\r\n\r\n")
    await writer.drain()


def _head(script: Script) -> bytes:
    try:
        phrase = HTTPStatus(script.status).phrase
    except ValueError:  # 529 is nobody's but Anthropic's
        phrase = "Unknown"
    lines = {
        "chunked": ["transfer-encoding: chunked"],
        "length": [f"content-length: {len(script.body)}"],
        "close": ["connection: close"],
    }[script.framing]
    if script.kind:
        lines.append(f"content-type: {script.kind}")
    lines += [f"{name}: {value}" for name, value in script.headers.items()]
    return "\r\n".join([f"HTTP/1.1 {script.status} {phrase}", *lines, "", ""]).encode("latin-1")


@contextlib.contextmanager
def playing(
    *scripts: Script | Callable[[Request], Script], tls: ssl.SSLContext | None = None
) -> Iterator[Player]:
    """A running player; each script answers one request, the last one all that follow."""

    def play(request: Request, number: int) -> Script:
        script = scripts[min(number, len(scripts) - 1)]
        return script if isinstance(script, Script) else script(request)

    player = Player(play, tls)
    player.start()
    try:
        yield player
    finally:
        player.stop()
