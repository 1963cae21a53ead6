"""Three gateways on one PostgreSQL server: a cap holds for all of them, and each answer is booked once."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager, contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import orjson
import pytest

from tests.postgres import emptied_url
from tests.world import PATIENCE, environment
from ullage import store
from ullage.cost.keys import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(600)]

REQUESTS = int(os.environ.get("ULLAGE_REQUESTS", "180"))
"""Requests of all clients together; `make soak` has 2,000."""
REPLICAS = 3
CONFIG = """\
model = "tide"

[models.tide]
endpoint = "{url}/v1"
window = 100000
key = "env:TIDE_KEY"

[models.tide.prices]
input = 1
output = 2
"""


@asynccontextmanager
async def upstream() -> AsyncIterator[str]:
    """A server whose n-th answer has n tokens, so that no two answers cost the same."""
    number = 0

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(size[1]) if size else 0)
                number += 1
                usage = {"prompt_tokens": 10, "completion_tokens": number}
                message = {"role": "assistant", "content": "ahoy"}
                choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
                body = orjson.dumps({"id": f"a{number}", "choices": choices, "usage": usage})
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(body), body)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):  # the gateway was killed, or has ended
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, backlog=4096)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Replica(NamedTuple):
    process: subprocess.Popen[str]
    url: str


@contextmanager
def replica(home: Path, config: Path, database: str) -> Iterator[Replica]:
    """A gateway in a process of its own."""
    command = [sys.executable, "-c", "from ullage.cli import program; program()", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--config", str(config), "--store", database],
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(home), "TIDE_KEY": "upstream-key"},
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"listening on (\S+)", line):
                yield Replica(process, found[1])
                break
        else:
            raise AssertionError("the gateway ended before it listened")
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


class Outcome(NamedTuple):
    status: int
    cost: Decimal | None


async def ask(session: aiohttp.ClientSession, url: str, secret: str, number: int) -> Outcome:
    """The status and the cost of one request; 0 if the gateway did not answer it."""
    body = {
        "model": "tide",
        "max_tokens": REQUESTS,
        "messages": [{"role": "user", "content": f"tide {number}"}],
    }
    try:
        async with session.post(
            f"{url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {secret}"}
        ) as answer:
            await answer.read()
            cost = answer.headers.get("x-ullage-cost")
            return Outcome(answer.status, None if cost is None else Decimal(cost))
    except (aiohttp.ClientError, ConnectionError):
        return Outcome(0, None)


async def all_at_once(replicas: list[Replica], secret: str) -> list[Outcome]:
    """Sends all requests at once, and kills the first gateway when an eighth of them is answered."""
    outcomes: list[Outcome] = []
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        asked = [ask(session, replicas[number % REPLICAS].url, secret, number) for number in range(REQUESTS)]
        for done in asyncio.as_completed(asked):
            outcomes.append(await done)
            if len(outcomes) == REQUESTS // 8:
                replicas[0].process.send_signal(signal.SIGKILL)
    return outcomes


def test_three_gateways_never_exceed_a_cap_and_book_each_answer_once(tmp_path: Path) -> None:
    async def run(database: str, secret: str) -> list[Outcome]:
        async with upstream() as url:
            config = tmp_path / "config.toml"
            config.write_text(CONFIG.format(url=url))
            with ExitStack() as stack:
                made: list[Any] = [replica(tmp_path, config, database) for _ in range(REPLICAS)]
                replicas = [stack.enter_context(each) for each in made]
                return await all_at_once(replicas, secret)

    # All answers together would cost twice as much as the cap.
    whole = sum(Decimal(10 + 2 * number) for number in range(1, REQUESTS + 1)) / 1_000_000
    with emptied_url() as database, store.open(database) as kept:
        key, secret = kept.keys.create("team", dollars=Limits(total=whole / 2))
        outcomes = asyncio.run(run(database, secret))
        entries = kept.book.entries(key=key.id)
        booked = [entry.cost for _, entry in entries]
        spent, held = kept.book.used("key", key.id)
    acknowledged = [each.cost for each in outcomes if each.status == 200]
    assert {each.status for each in outcomes} <= {0, 200, 429}
    assert all(entry.calls == 1 for _, entry in entries)
    assert len(set(booked)) == len(booked)
    assert set(acknowledged) <= set(booked)
    assert spent == sum(each for each in booked if each is not None)
    assert spent + held <= whole / 2
    # Otherwise the test would show nothing.
    assert len(acknowledged) > REQUESTS / 8
    assert any(each.status == 429 for each in outcomes)
    assert any(each.status == 0 for each in outcomes)
