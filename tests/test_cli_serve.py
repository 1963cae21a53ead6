"""`ullage serve` and `ullage run`, as a user starts them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.llama import needs_local
from tests.player import Script, answered, playing
from tests.world import PATIENCE, environment
from ullage import store
from ullage.config import load
from ullage.gateway.server import ServerOptions, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.enable_socket

AGENT = """\
#!{python}
import json, os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"]
asked = {{"role": "user", "content": " ".join(sys.argv[1:])}}
body = {{"model": "gpt-5.1", "stream": True, "messages": [asked]}}
request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode())
print(urllib.request.urlopen(request).read().decode())
sys.exit(7)
"""


def opened(url: str, data: bytes | None = None) -> Any:
    """The answer of a gateway on loopback."""
    request = urllib.request.Request(url, data)  # noqa: S310 - the loopback
    return urllib.request.urlopen(request, timeout=PATIENCE)  # noqa: S310 - the same


@contextmanager
def started(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway that listens, with its address."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from ullage.cli import program; program()",
            "serve",
            "--port",
            "0",
            *arguments,
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
        cwd=home,
    )
    assert process.stderr is not None
    said = ""
    try:
        for line in process.stderr:
            said += line
            if found := re.search(r"listening on (http://\S+)", line):
                process.said = said  # type: ignore[attr-defined]
                yield process, found[1]
                break
        else:
            pytest.fail(f"it does not listen: {said}")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop_and_ends_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with (
        playing(Script(body=answered("Ahoy"))) as player,
        started(tmp_path, "--upstream", player.url, "--window", "4096") as (process, url),
    ):
        body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]})
        with opened(f"{url}/v1/chat/completions", body.encode()) as answer:
            assert answer.read() == answered("Ahoy")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order_as_soon_as_it_says_that_it_listens(
    tmp_path: Path, number: signal.Signals
) -> None:
    unhandled: list[int] = []
    said: list[str] = []

    def tell(line: str) -> None:
        said.append(line)
        if line.startswith("listening on"):
            os.kill(os.getpid(), number)

    before = signal.signal(number, lambda signum, _: unhandled.append(signum))
    try:
        options = ServerOptions(port=0, upstream="http://127.0.0.1:9")
        settings = load(environ={}, cwd=tmp_path)
        with store.open(tmp_path / "ullage.db") as kept:
            asyncio.run(asyncio.wait_for(serve(options, settings, kept, {}, tell), PATIENCE))
    finally:
        signal.signal(number, before)
    assert any(line.startswith("listening on") for line in said)
    assert unhandled == []


@pytest.mark.parametrize(("arguments", "expected"), [((), False), (("--keep-bodies",), True)])
def test_texts_are_kept_for_the_page_only_if_asked(
    tmp_path: Path, arguments: tuple[str, ...], expected: bool
) -> None:
    with started(tmp_path, "--upstream", "http://127.0.0.1:9", *arguments) as (process, url):
        with opened(f"{url}/page/state") as answer:
            assert json.load(answer)["keeps_texts"] is expected
        assert f"in a browser: {url}/" in process.said  # type: ignore[attr-defined]


@needs_local
def test_alone_it_serves_the_embedded_model_and_says_what_it_is(tmp_path: Path) -> None:
    with started(tmp_path) as (process, url):
        assert "embedded" in process.said  # type: ignore[attr-defined]
        assert "demonstration" in process.said  # type: ignore[attr-defined]
        body = {"model": "embedded", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
        with opened(f"{url}/v1/chat/completions", json.dumps(body).encode()) as answer:
            assert json.load(answer)["choices"][0]["message"]["role"] == "assistant"
        with opened(f"{url}/v1/models") as answer:
            (card,) = json.load(answer)["data"]
        assert (card["id"], card["context_window"]) == ("embedded", 2047)


def run(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from ullage.cli import program; program()", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(home, **more),
        cwd=home,
        check=False,
    )


def test_a_port_in_use_is_told_with_what_to_do(tmp_path: Path) -> None:
    with playing(Script()) as player:
        port = player.url.rpartition(":")[2]
        done = run(tmp_path, "serve", "--upstream", player.url, "--port", port)
    assert done.returncode == 2
    assert f"port {port} (Address already in use): choose another with --port" in done.stderr


def test_a_port_that_cannot_exist_is_told_as_wrong_usage(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--upstream", "http://127.0.0.1:9", "--port", "65536")
    assert done.returncode == 2
    assert "--port: 65536 is more than 65535" in done.stderr


def test_run_starts_an_agent_behind_a_gateway_and_leaves_nothing(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    agent = programs / "claude"
    agent.write_text(AGENT.format(python=sys.executable))
    agent.chmod(0o755)
    before = sorted(tmp_path.rglob("*"))
    with playing(Script(body=answered("Ahoy there"))) as player:
        done = run(
            tmp_path,
            *("run", "--store", "sqlite://:memory:", "--upstream", player.url, "--window", "4096"),
            *("claude", "--", "-p", "sing a shanty"),
            PATH=f"{programs}:{os.environ['PATH']}",
        )
    assert done.returncode == 7, done.stderr
    assert "Ahoy" in done.stdout
    assert player.requests[0].json()["messages"][0]["content"] == "-p sing a shanty"
    assert sorted(tmp_path.rglob("*")) == before


def test_run_tells_what_is_missing(tmp_path: Path) -> None:
    for arguments, said in (
        (("run", "boat"), "not an agent that Ullage knows"),
        (("run", "codex"), "npm install -g @openai/codex"),
    ):
        done = run(tmp_path, *arguments, PATH=str(tmp_path))
        assert done.returncode == 2
        assert said in done.stderr


def test_it_opens_as_many_connections_as_the_system_allows(tmp_path: Path) -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4_096))

    program = [sys.executable, "-c", "from ullage.cli import program; program()", "serve", "--port", "0"]
    with (
        playing(Script()) as player,
        subprocess.Popen(
            [*program, "--upstream", player.url, "--store", "sqlite://:memory:"],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(tmp_path),
            preexec_fn=lower,  # noqa: PLW1509 - this test has no other threads that could hold a lock
        ) as process,
    ):
        assert process.stderr is not None
        assert any("listening on" in line for line in process.stderr)
        soft, _ = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        process.terminate()
    assert soft == 4_096
