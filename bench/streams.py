"""200 streams at once through one transport and one client: time, memory and descriptors, round by round.

    python -m bench.streams [STREAMS [ROUNDS]]

The server is a process of its own that says to each stream what only that one may hear, 40 pieces with a
pause between two, so that all are under way together. `bytes` are the rounds in which the transport alone
reads; `turns` are whole turns of a client, each with a context of its own; in `left` every other listener
goes away in the middle. Memory and descriptors are taken after each round.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from contextlib import aclosing
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING

from ullage.broker.endpoint import Endpoint, Timeouts
from ullage.broker.events import Text
from ullage.broker.http import Transport
from ullage.broker.remote import RemoteProvider
from ullage.context import Context
from ullage.cost import Ledger
from ullage.turn import Client, Settled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STREAMS = 200
ROUNDS = 6
PIECES = 40
PAUSE = 0.01
LEFT_AFTER = 10
"""Pieces that a listener hears before it goes away."""
WARMED = 1
"""Rounds of each kind after which memory and descriptors may not grow any more."""
GROWTH = 4.0
"""MiB that the last round may be above the first that counts: what an allocator keeps, and no leak."""


def said(name: str) -> list[str]:
    """What the server says to a stream."""
    return [f"{name}:{piece} " for piece in range(PIECES)]


# The server


def chunk(name: str, delta: dict[str, str], finish: str | None = None) -> bytes:
    """One event of the answer, framed for HTTP."""
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return framed({"id": name, "object": "chat.completion.chunk", "model": "gpt-4o", "choices": choices})


def framed(value: object) -> bytes:
    """An event of server-sent events as a chunk of HTTP."""
    text = value if isinstance(value, str) else json.dumps(value)
    event = f"data: {text}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers the requests of one connection, until it is closed."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = next(
                int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"
            )
            body = json.loads(await reader.readexactly(size))
            name = body["messages"][-1]["content"]
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            writer.write(chunk(name, {"role": "assistant", "content": ""}))
            for piece in said(name):
                writer.write(chunk(name, {"content": piece}))
                await writer.drain()
                await asyncio.sleep(PAUSE)
            usage = {"prompt_tokens": 30, "completion_tokens": PIECES, "total_tokens": 30 + PIECES}
            end = framed({"id": name, "choices": [], "usage": usage}) + framed("[DONE]")
            writer.write(chunk(name, {}, "stop") + end + b"0\r\n\r\n")
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the client went away
    finally:
        writer.close()


async def serve() -> None:
    """Listens on loopback, prints the port, and serves until its input is closed."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4 * STREAMS)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


# The streams


async def read_bytes(transport: Transport, endpoint: Endpoint, name: str) -> str:
    """The answer as the transport has it, put together in the plainest way."""
    body = {"messages": [{"role": "user", "content": name}], "stream": True}
    got = b""
    async with transport.post(f"{endpoint.url}/chat/completions", {}, body, endpoint.timeouts) as reply:
        async for piece in reply.chunks():
            got += piece
    lines = [json.loads(line[6:]) for line in got.split(b"\n") if line.startswith(b"data: {")]
    return "".join(choice["delta"].get("content", "") for line in lines for choice in line["choices"])


async def take_turn(client: Client, name: str, pieces: int | None = None) -> str:
    """The answer to a turn of a conversation of its own; its first pieces, where the listener goes away."""
    context = Context(system_prompt="Be brief.", session=name, model="gpt-4o")
    context.append_user(name)
    heard: list[str] = []
    async with aclosing(client.stream(context)) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, Text):
                heard.append(event.text)
            if isinstance(event, Settled) and event.usage.completion != PIECES:
                raise RuntimeError(f"{name} was settled with {event.usage}")
            if len(heard) == pieces:
                break
    if context.turns[-1]["content"] != "".join(heard):
        raise RuntimeError(f"{name} keeps something else than it heard")
    return "".join(heard)


def standing() -> tuple[float, int]:
    """The MiB of memory and the number of descriptors that this process has."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def stood_at(when: str, memory: float, descriptors: int) -> str:
    """The line for what there is outside of the rounds."""
    return f"{when:<60} {memory:>8.1f} {descriptors:>12}"


async def rounds(
    kind: str,
    count: int,
    streams: int,
    one: Callable[[str, int], Awaitable[str]],
    pieces: Callable[[int], int],
) -> None:
    """Prints the rounds of one kind, and raises RuntimeError where they leak or mix."""
    stood: list[tuple[float, int]] = []
    for number in range(count):
        names = [f"{kind}{number}stream{stream}" for stream in range(streams)]
        wall, cpu = time.perf_counter(), time.process_time()
        heard = await asyncio.gather(*(one(name, stream) for stream, name in enumerate(names)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        await asyncio.sleep(0.2)  # what was left is hung up a moment later
        own = sum(
            text == "".join(said(name)[: pieces(stream)])
            for stream, (name, text) in enumerate(zip(names, heard, strict=True))
        )
        stood.append(standing())
        each = cpu * 1e6 / sum(map(pieces, range(streams)))
        print(
            f"{kind:<7} {number + 1:>5} {wall * 1e3:>9.0f} {cpu * 1e3:>9.0f} {each:>12.0f} "
            f"{own:>5} of {streams:<5} {stood[-1][0]:>8.1f} {stood[-1][1]:>12}",
            flush=True,
        )
        if own != streams:
            raise RuntimeError(f"{streams - own} streams did not get their own text")
    for what, first, last in zip(
        ("MiB", "descriptors"), stood[min(WARMED, count - 1)], stood[-1], strict=True
    ):
        if last - first > GROWTH:
            raise RuntimeError(f"{kind}: from {first} to {last} {what}: something is not let go of")


async def measure(url: str, streams: int, count: int) -> None:
    """Prints the table."""
    patience = Timeouts(connect=10.0, first=30.0, between=30.0)
    endpoint = Endpoint(url=url, model="gpt-4o", timeouts=patience)
    print(
        f"{'':<7} {'round':>5} {'wall ms':>9} {'CPU ms':>9} {'CPU µs/piece':>12} {'own text':>14} "
        f"{'MiB':>8} {'descriptors':>12}"
    )
    print(stood_at("before", *standing()))
    ledger = Ledger()
    async with Transport() as transport:
        client = Client(RemoteProvider(endpoint, transport), ledger=ledger, max_output=100)

        def some(stream: int) -> int:
            return LEFT_AFTER if stream % 2 else PIECES

        await rounds(
            "bytes", count, streams, lambda name, _: read_bytes(transport, endpoint, name), lambda _: PIECES
        )
        await rounds("turns", count, streams, lambda name, _: take_turn(client, name), lambda _: PIECES)
        await rounds(
            "left",
            count,
            streams,
            lambda name, stream: take_turn(client, name, LEFT_AFTER if stream % 2 else None),
            some,
        )
    print(stood_at("closed", *standing()))
    spent, held = ledger.used()
    print(f"the ledger: ${spent:f} spent, ${held:f} held")
    if held:
        raise RuntimeError("the ledger still holds money for calls that are over")


def main(streams: int = STREAMS, count: int = ROUNDS) -> None:
    """Starts the server, prints the table, and stops the server."""
    command = [sys.executable, "-m", "bench.streams", "serve"]
    with Popen(
        command, stdin=PIPE, stdout=PIPE, text=True, cwd=Path(__file__).resolve().parent.parent
    ) as server:
        try:
            port = int(server.stdout.readline())  # type: ignore[union-attr]
            asyncio.run(measure(f"http://127.0.0.1:{port}", streams, count))
        finally:
            server.terminate()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        main(*map(int, sys.argv[1:]))
