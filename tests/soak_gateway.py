"""A soak of the gateway: agents, broken clients and broken upstreams at once, while its memory stays flat.

    ULLAGE_SOAK_MINUTES=3 python -m pytest -s tests/soak_gateway.py

Without the variable it lasts 30 minutes. It prints the memory of the gateway's process at each tenth.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.player import answered
from tests.test_gateway_policy import loop
from tests.test_gateway_strength import post
from tests.world import PATIENCE, environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(0)]

MINUTES = float(os.environ.get("ULLAGE_SOAK_MINUTES", "30"))
CLIENTS = 16
STEPS = 24
"""Steps of each conversation; then another one begins."""
TASKS = 4
"""Conversations of each client, in turn: the gateway remembers all of them, so its memory has an end."""
GROWTH = 1.1
"""The memory at the end may be so many times the memory after a third of the time."""
ANSWER = answered("Ahoy there, " * 20, 100, 60)


@contextlib.asynccontextmanager
async def upstream() -> AsyncIterator[str]:
    """A server that mostly answers, and sometimes cuts, stalls for a moment, refuses or talks nonsense."""
    dice = random.Random(7)  # noqa: S311 - the same mishaps in each run

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(size[1]) if size else 0)
                fate = dice.random()
                if fate < 0.03:
                    return
                if fate < 0.06:
                    writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops")
                    continue
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                )
                writer.write(ANSWER[: len(ANSWER) // 2])
                await asyncio.sleep(0.5 if fate < 0.1 else 0)
                writer.write(ANSWER[len(ANSWER) // 2 : None if fate > 0.13 else -40])
                await writer.drain()
                return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(converse, "127.0.0.1", 0, backlog=1024) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.contextmanager
def gateway(home: Path, url: str) -> Iterator[tuple[int, int]]:
    """A gateway in a process of its own: its process and its port."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", "from ullage.cli import program; program()", "serve", "--port", "0"),
            *("--upstream", url, "--window", "16000", "--store", str(home / "ullage.db")),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr)
        found = next(match for line in lines if (match := re.search(r"listening on \S+:(\d+)", line)))
        yield process.pid, int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def memory(process: int) -> float:
    """The resident memory of a process in megabytes."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text("ascii"))
    assert found is not None
    return int(found[1]) / 1024


async def work(port: int, number: int, end: float, done: list[int]) -> None:
    """One client: conversations of many steps, some of which it abandons in the middle."""
    dice = random.Random(number)  # noqa: S311 - the same in each run
    conversation = 0
    while time.monotonic() < end:
        conversation = (conversation + 1) % TASKS
        messages: list[dict[str, Any]] = loop(STEPS)
        messages[0] = {"role": "user", "content": f"Task {number}-{conversation}: read all the files."}
        for step in range(STEPS + 1):
            body = {"model": "gpt-5.1", "stream": True, "messages": messages[: 1 + 2 * step]}
            sent = post(orjson.dumps(body), "Connection: close")
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                fate = dice.random()
                writer.write(sent[: len(sent) // 2] if fate < 0.02 else sent)
                if fate < 0.03:
                    writer.write_eof()
                elif fate < 0.08:
                    await reader.read(10)
                if fate >= 0.08:
                    await reader.read()
                writer.close()
            done.append(step)
            if time.monotonic() > end:
                return


def test_memory_stays_flat_under_clients_and_upstreams_of_every_kind(tmp_path: Path) -> None:
    async def run() -> tuple[list[float], int]:
        async with upstream() as url:
            with gateway(tmp_path, url) as (process, port):
                begin, seconds = time.monotonic(), MINUTES * 60
                done: list[int] = []
                workers = [
                    asyncio.create_task(work(port, number, begin + seconds, done))
                    for number in range(CLIENTS)
                ]
                seen = []
                for tenth in range(1, 11):
                    await asyncio.sleep(max(0, begin + seconds * tenth / 10 - time.monotonic()))
                    seen.append(memory(process))
                    told = f"{seconds * tenth / 10:6.0f} s {len(done):8} requests {seen[-1]:7.1f} MB"
                    sys.stdout.write(f"{told}\n")
                    sys.stdout.flush()
                await asyncio.gather(*workers)
                return seen, len(done)

    seen, requests = asyncio.run(run())
    assert requests > 100
    assert seen[-1] <= GROWTH * max(seen[2:5])
