"""A program that talked to a model ends with its own exit code, also on a machine that is busy.

A few runs by default; `make soak` asks for as many as ULLAGE_EXITS says.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.player import Player, Script, answered, playing

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
RUNS = int(os.environ.get("ULLAGE_EXITS", "4"))

# A run takes about a second, and several on a machine with more to do.
pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(300 + 20 * RUNS)]

ANSWER = Script(body=answered("Seven boats."))

LIBRARY = """
import asyncio, sys
import ullage
from ullage.broker.endpoint import Endpoint
from ullage.broker.remote import RemoteProvider

async def main():
    provider = RemoteProvider(Endpoint(url=sys.argv[1] + "/v1", model="gpt-4o"))
    client = ullage.Client(provider, max_output=100)
    context = ullage.Context(model=provider.target)
    context.append_user("How many boats?")
    async for event in client.stream(context):
        pass
    await provider.close()
    assert context.turns[-1]["content"] == "Seven boats."

asyncio.run(main())
sys.exit(7)
"""
CANCELLED = """
import asyncio, sys
from ullage.broker.endpoint import Endpoint
from ullage.broker.ask import Ask
from ullage.broker.remote import RemoteProvider

async def main():
    provider = RemoteProvider(Endpoint(url=sys.argv[1] + "/v1", model="gpt-4o"))

    async def listen():
        async for event in provider.stream(Ask(messages=({"role": "user", "content": "Hello"},))):
            pass

    task = asyncio.create_task(listen())
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task})
    await provider.close()

asyncio.run(main())
sys.exit(7)
"""


@pytest.fixture(scope="module", autouse=True)
def _busy() -> Iterator[None]:
    """Two processes that do nothing but keep the machine busy."""
    with contextlib.ExitStack() as ending:
        for _ in range(2):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            ending.callback(busy.wait)
            ending.callback(busy.kill)
        yield


def ends(*command: str, player: Player, folder: Path) -> tuple[int, str]:
    """The exit code of a program, and what it said on standard error."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ}
    own = {"XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    server = {"OPENAI_BASE_URL": f"{player.url}/v1", "OPENAI_API_KEY": "sk-nobody"}
    done = subprocess.run(
        command,
        env=kept | own | server,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
    )
    return done.returncode, done.stderr


def example() -> str:
    """The first program of docs/library/endpoints.md."""
    text = (ROOT / "docs" / "library" / "endpoints.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert program is not None
    return program[1]


@pytest.mark.parametrize(
    ("program", "code", "script"),
    [(LIBRARY, 7, ANSWER), (CANCELLED, 7, Script(silent=True)), (example(), 0, ANSWER)],
    ids=["library", "cancelled", "docs"],
)
def test_a_program_that_uses_the_library_ends_with_its_own_exit_code(
    program: str, code: int, script: Script, tmp_path: Path
) -> None:
    with playing(script) as player:
        for run in range(RUNS):
            end = ends(sys.executable, "-c", program, player.url, player=player, folder=tmp_path)
            assert end == (code, ""), f"run {run + 1} of {RUNS}"


@pytest.mark.parametrize(("script", "code"), [(ANSWER, 0), (Script(status=401, body=b"no"), None)])
def test_ullage_ask_ends_with_its_own_exit_code(script: Script, code: int | None, tmp_path: Path) -> None:
    from ullage.cli.exit_codes import code_of
    from ullage.errors import ProviderError

    expected = code_of(ProviderError("no", status=401)) if code is None else code
    program = str(Path(sys.executable).with_name("ullage"))
    question = ("ask", "--store", str(tmp_path / "ullage.db"), "--model", "openai/gpt-4o", "How many boats?")
    with playing(script) as player:
        for run in range(RUNS):
            got, told = ends(program, *question, player=player, folder=tmp_path)
            assert got == expected, f"run {run + 1} of {RUNS}: {told}"
