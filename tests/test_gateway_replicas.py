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
HELD = 5
"""Requests to the first gateway that are under way when it is killed."""
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


class Moments(NamedTuple):
    """What the clients and the upstream wait for."""

    held: asyncio.Event
    """The upstream has the first requests, and answers them only after the end of their gateway."""
    killed: asyncio.Event


@asynccontextmanager
async def upstream(moments: Moments) -> AsyncIterator[str]:
    """A server whose n-th answer has n tokens, so that no two answers cost the same."""
    number = 0

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(size[1]) if size else 0)
                number += 1
                answer = number
                if answer <= HELD:
                    if answer == HELD:
                        moments.held.set()
                    await moments.killed.wait()
                usage = {"prompt_tokens": 10, "completion_tokens": answer}
                message = {"role": "assistant", "content": "ahoy"}
                choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
                body = orjson.dumps({"id": f"a{answer}", "choices": choices, "usage": usage})
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(body), body)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):  # the gateway was killed, or has ended
            pass
        except (
            asyncio.CancelledError
        ):  # the test has ended; asyncio would print a traceback for each connection
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


async def all_at_once(replicas: list[Replica], secret: str, moments: Moments) -> list[Outcome]:
    """Sends all requests at once, and kills the first gateway when a tenth of them has an answer.

    A refusal is no answer: on a busy machine most requests are refused while the first answers are still
    awaited, because each holds its worst case.
    """
    outcomes: list[Outcome] = []
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        held = [asyncio.create_task(ask(session, replicas[0].url, secret, n)) for n in range(HELD)]
        await moments.held.wait()
        rest = range(HELD, REQUESTS)
        asked = [*held, *(ask(session, replicas[n % REPLICAS].url, secret, n) for n in rest)]
        for done in asyncio.as_completed(asked):
            outcomes.append(await done)
            answered = sum(each.status == 200 for each in outcomes)
            if answered == REQUESTS // 10 and not moments.killed.is_set():
                replicas[0].process.send_signal(signal.SIGKILL)
                moments.killed.set()
            # The held requests would wait forever.
            assert moments.killed.is_set() or len(outcomes) < REQUESTS - HELD, (
                f"only {answered} requests were answered"
            )
    return outcomes


def test_three_gateways_never_exceed_a_cap_and_book_each_answer_once(tmp_path: Path) -> None:
    async def run(database: str, secret: str) -> list[Outcome]:
        moments = Moments(asyncio.Event(), asyncio.Event())
        async with upstream(moments) as url:
            config = tmp_path / "config.toml"
            config.write_text(CONFIG.format(url=url))
            with ExitStack() as stack:
                made: list[Any] = [replica(tmp_path, config, database) for _ in range(REPLICAS)]
                replicas = [stack.enter_context(each) for each in made]
                return await all_at_once(replicas, secret, moments)

    # All answers together would cost three times as much as the cap, and those of two gateways more than it.
    # The cap has room for the worst case of more than a tenth of all requests at once.
    whole = sum(Decimal(10 + 2 * number) for number in range(1, REQUESTS + 1)) / 1_000_000
    with emptied_url() as database, store.open(database) as kept:
        key, secret = kept.keys.create("team", dollars=Limits(total=whole / 3))
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
    assert spent + held <= whole / 3
    # Otherwise the test would show nothing.
    assert len(acknowledged) >= REQUESTS // 10
    assert any(each.status == 429 for each in outcomes)
    assert any(each.status == 0 for each in outcomes)
