"""`ullage run AGENT`: each agent is pointed at the gateway for this run only, with its own means."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway import serving
from tests.player import Script, answered, playing
from tests.world import BIN, PATIENCE, environment, gone, until
from ullage.gateway.agents import AGENTS, CLAIMED_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.enable_socket

AGENT = """\
#!{python}
import json, os, sys
print(json.dumps({{"arguments": sys.argv[1:], "environ": dict(os.environ)}}))
"""
MODEL = "boat-7b"


def _of_codex(told: dict[str, Any]) -> dict[str, str]:
    words = told["arguments"]
    given = [words[place + 1] for place, word in enumerate(words) if word == "-c"]
    return dict(each.split("=", 1) for each in given)


def _of_opencode(told: dict[str, Any]) -> dict[str, Any]:
    config = json.loads(told["environ"]["OPENCODE_CONFIG_CONTENT"])
    (provider,) = config["provider"].values()
    (model,) = provider["models"].values()
    return {"url": provider["options"]["baseURL"], "model": config["model"], "limit": model["limit"]}


def _of_nanocoder(told: dict[str, Any]) -> dict[str, Any]:
    (provider,) = json.loads(told["environ"]["NANOCODER_PROVIDERS"])
    return dict(provider)


READERS: dict[str, Callable[[dict[str, Any]], tuple[str, str, int | None]]] = {
    "claude": lambda told: (told["environ"]["ANTHROPIC_BASE_URL"], told["arguments"][1], None),
    "codex": lambda told: (
        json.loads(_of_codex(told)["model_providers.ullage.base_url"]),
        json.loads(_of_codex(told)["model"]),
        int(_of_codex(told)["model_context_window"]),
    ),
    "opencode": lambda told: (
        _of_opencode(told)["url"],
        _of_opencode(told)["model"].removeprefix("ullage/"),
        _of_opencode(told)["limit"]["context"],
    ),
    "qwen": lambda told: (told["environ"]["OPENAI_BASE_URL"], told["arguments"][3], None),
    "nanocoder": lambda told: (
        _of_nanocoder(told)["baseUrl"],
        _of_nanocoder(told)["models"][0],
        _of_nanocoder(told)["contextWindow"],
    ),
    "aider": lambda told: (
        told["environ"]["OPENAI_API_BASE"],
        told["arguments"][1].removeprefix("openai/"),
        None,
    ),
}
"""How each agent reads its address, its model and, if it is told, its window."""


def start(home: Path, agent: str, *arguments: str) -> dict[str, Any]:
    """What an agent was started with; its files must be the same afterwards."""
    programs = home / "bin"
    programs.mkdir()
    program = programs / AGENTS[agent].program
    program.write_text(AGENT.format(python=sys.executable))
    program.chmod(0o755)
    before = sorted(home.rglob("*"))
    environ = environment(home) | {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        [BIN / "ullage", "run", "--store", "sqlite://:memory:", *arguments, agent, "--", "--flag", "do it"],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(home.rglob("*")) == before
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["arguments"][-2:] == ["--flag", "do it"]
    return told


def test_every_agent_is_tried_here() -> None:
    assert set(READERS) == set(AGENTS)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_pointed_at_a_gateway_of_its_own(agent: str, tmp_path: Path) -> None:
    with playing(Script(body=answered("Ahoy"))) as player:
        told = start(tmp_path, agent, "--upstream", player.url, "--window", "4096", "--name", MODEL)
    url, model, window = READERS[agent](told)
    assert url.removesuffix("/v1").startswith("http://127.0.0.1:")
    assert url.removesuffix("/v1") != player.url
    assert url.endswith("/v1") is (agent != "claude")
    assert model == MODEL
    assert window in {None, CLAIMED_WINDOW}


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_uses_a_gateway_that_runs_already(agent: str, tmp_path: Path) -> None:
    with playing(Script(body=answered("Ahoy"))) as player, serving(player.url) as gateway:
        told = start(tmp_path, agent, "--gateway", f"{gateway.url}/v1", "--name", MODEL)
    url, _, _ = READERS[agent](told)
    assert url.removesuffix("/v1") == gateway.url


WAITING = """\
#!{python}
import os, signal, sys, time
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
def leave(number, _):
    for each in ENDING:  # a terminal that closes and `ullage run` both send the signal
        signal.signal(each, signal.SIG_IGN)
    sys.exit(40 + number)
for number in ENDING:
    signal.signal(number, leave)
print(os.getpid(), flush=True)
time.sleep(600)
"""


def launch(home: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    """`ullage run claude`, with this text as the program of the agent, in a process group of its own."""
    (home / "claude").write_text(program)
    (home / "claude").chmod(0o755)
    return subprocess.Popen(
        [BIN / "ullage", "run", "--store", "sqlite://:memory:", *arguments, "claude"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home) | {"PATH": f"{home}:{os.environ['PATH']}"},
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGTERM, False),
        (signal.SIGHUP, False),
        (signal.SIGHUP, True),
        (signal.SIGINT, True),
        (signal.SIGQUIT, True),
    ],
)
def test_a_signal_ends_the_agent_first_and_nothing_stays(
    number: signal.Signals, tmp_path: Path, *, to_all: bool
) -> None:
    with playing(Script()) as player:
        running = launch(tmp_path, WAITING.format(python=sys.executable), "--upstream", player.url)
        assert running.stdout is not None
        agent = int(running.stdout.readline())
        (os.killpg if to_all else os.kill)(running.pid, number)
        _, complaints = running.communicate(timeout=PATIENCE)
    assert running.returncode == 40 + number, complaints
    with pytest.raises(ProcessLookupError):
        os.kill(agent, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
def test_an_agent_ends_if_ullage_is_killed(tmp_path: Path) -> None:
    with playing(Script()) as player:
        running = launch(tmp_path, WAITING.format(python=sys.executable), "--upstream", player.url)
        assert running.stdout is not None
        agent = int(running.stdout.readline())
        running.kill()
        running.communicate(timeout=PATIENCE)  # the agent has the other ends of these pipes
    assert until(lambda: gone(agent))


def test_a_signal_that_is_ignored_stays_ignored_for_the_agent(tmp_path: Path) -> None:
    shown = f"#!{sys.executable}\nimport signal\nprint(signal.getsignal(signal.SIGHUP))\n"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with playing(Script()) as player:
            running = launch(tmp_path, shown, "--upstream", player.url)
            said, _ = running.communicate(timeout=PATIENCE)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert said.strip() == "1"


def test_an_agent_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with playing(Script()) as player:
        running = launch(tmp_path, "#!/no/such/program\n", "--upstream", player.url)
        _, complaints = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2
    assert f"{tmp_path}/claude cannot be started: No such file" in complaints


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "ftp://127.0.0.1", "nonsense"])
def test_a_gateway_that_does_not_run_is_told_before_the_agent_starts(url: str, tmp_path: Path) -> None:
    running = launch(tmp_path, WAITING.format(python=sys.executable), "--gateway", url)
    said, complaints = running.communicate(timeout=PATIENCE)
    assert (running.returncode, said) == (2, "")
    assert "start one with `ullage serve`" in complaints
