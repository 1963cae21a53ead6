"""How `ullage` ends when it is told to: nothing that it started stays, and the terminal is as it was."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import world
from tests.player import Request, Script, playing, sent_json
from tests.terminal import PROGRAM, Terminal, opened
from tests.world import PATIENCE, environment
from ullage.cli.shell import leaving_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.enable_socket

ROOT = Path(__file__).resolve().parent.parent
CONFIG = """\
[models.scripted]
endpoint = "{url}/v1"
model = "gpt-4o"

[mcp.harbour]
command = "sh"
args = ["-c", "echo $$ > server.pid; exec {python} -m tests.harbour_server patient"]
env = {{ PYTHONPATH = "{root}" }}
"""
SLEEP = "sh -c 'echo $$ > sleep.pid; exec sleep 1000'"


def answered(text: str) -> bytes:
    events = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}]
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


DONE = b"data: [DONE]\n\n"
SCRIPTS = {
    "Quay 1": Script(body=answered("Seven boats\n\n") + DONE, stall_at=len(answered("Seven boats\n\n"))),
    "Quay 2": Script(body=answered("CMD: rm -rf boats\n") + DONE),
    "Quay 3": Script(body=answered(f"CMD: {SLEEP}\n") + DONE),
}
"""A word of the question → what is played."""


def play(request: Request) -> Script:
    if not request.path.endswith("/chat/completions"):
        return sent_json({"error": {"message": "not found"}}, 404)
    asked = str(request.json()["messages"])
    return next(script for word, script in SCRIPTS.items() if word in asked)


@contextlib.contextmanager
def shell(folder: Path) -> Iterator[Terminal]:
    """A shell whose first prompt is there."""
    with playing(play) as player:
        config = folder / "config.toml"
        config.write_text(CONFIG.format(url=player.url, python=sys.executable, root=ROOT))
        config.chmod(0o600)
        env = environment(folder, NO_PROXY="*")
        given = ("--config", str(config), "--store", str(folder / "kept.db"), "--model", "scripted")
        with opened(*given, env=env, cwd=folder) as terminal:
            terminal.ready()
            yield terminal


def started(path: Path) -> int:
    """The process that writes its id there."""
    until = time.monotonic() + PATIENCE
    while not path.exists() or not path.read_text().strip():
        assert time.monotonic() < until, f"nothing wrote {path}"
        time.sleep(0.01)
    return int(path.read_text())


def gone(pid: int) -> bool:
    """Whether the process ends; none of ours would end by itself as soon."""
    return world.until(lambda: world.gone(pid))


def killed(terminal: Terminal) -> int | None:
    """The status that the program ends with when it is asked to end."""
    os.kill(terminal.child.pid, signal.SIGTERM)
    status = ended(terminal, terminal._take)
    world.until(lambda: not terminal._take())  # what it has written last
    return status


def hung_up(terminal: Terminal) -> int | None:
    """The status that the program ends with when its terminal is closed."""
    terminal.child.ptyproc.fileobj.close()
    return ended(terminal, lambda: time.sleep(0.02))


def ended(terminal: Terminal, meanwhile: Callable[[], object]) -> int | None:
    until = time.monotonic() + PATIENCE
    while terminal.child.isalive():
        assert time.monotonic() < until, f"it does not end:\n{terminal.text}"
        meanwhile()
    status: int | None = terminal.child.exitstatus
    return status


# Each goes to a place in which the signal may come, and tells the last line that is on the screen then.


def at_the_prompt(terminal: Terminal, _: Path) -> str:
    terminal.press("half a line")
    terminal.wait("half a line")
    return "~ > half a line"


def begin_goal(terminal: Terminal, text: str) -> None:
    terminal.press(f":goal {text}\r")
    terminal.wait("[s] ask about each")
    terminal.press("s")


def in_an_answer(terminal: Terminal, _: Path) -> str:
    terminal.press("?Quay 1\r")
    terminal.wait("Seven boats")
    return "Seven boats"


def in_a_question(terminal: Terminal, _: Path) -> str:
    terminal.press("?Quay 2\r")
    return terminal.wait("[s] skip").rstrip().splitlines()[-1]


def in_a_command(terminal: Terminal, folder: Path) -> str:
    terminal.press(f"!{SLEEP}\r")
    started(folder / "sleep.pid")
    return terminal.wait(f"!{SLEEP}").rstrip().splitlines()[-1]


def in_an_answer_to_a_goal(terminal: Terminal, _: Path) -> str:
    begin_goal(terminal, "Quay 1")
    terminal.wait("Seven boats")
    return "Seven boats"


def in_a_question_of_a_goal(terminal: Terminal, _: Path) -> str:
    begin_goal(terminal, "Quay 2")
    return terminal.wait("[s] skip").rstrip().splitlines()[-1]


def in_a_command_of_a_goal(terminal: Terminal, folder: Path) -> str:
    begin_goal(terminal, "Quay 3")
    terminal.wait("[p] pause")
    terminal.press("r")
    started(folder / "sleep.pid")
    return terminal.wait("→ run").rstrip().splitlines()[-1]


def at_a_later_prompt(terminal: Terminal, _: Path) -> str:
    terminal.do("true")
    return terminal.lines[terminal.row]


QUIET = [
    at_the_prompt,
    at_a_later_prompt,
    in_an_answer,
    in_a_question,
    in_an_answer_to_a_goal,
    in_a_question_of_a_goal,
]
COMMANDS = [in_a_command, in_a_command_of_a_goal]


@pytest.mark.parametrize("place", [*QUIET, *COMMANDS])
def test_asked_to_end_it_leaves_the_terminal_as_it_was_and_says_nothing(
    tmp_path: Path, place: Callable[[Terminal, Path], str]
) -> None:
    with shell(tmp_path) as terminal:
        last = place(terminal, tmp_path)
        assert killed(terminal) == 128 + signal.SIGTERM
        wanted = termios.ECHO | termios.ICANON | termios.ISIG
        assert termios.tcgetattr(terminal.child.child_fd)[3] & wanted == wanted
        assert terminal.text.rstrip().splitlines()[-1] == last
    if place in COMMANDS:
        assert gone(started(tmp_path / "sleep.pid"))


@pytest.mark.parametrize("place", QUIET)
def test_without_its_terminal_it_ends(tmp_path: Path, place: Callable[[Terminal, Path], str]) -> None:
    with shell(tmp_path) as terminal:
        place(terminal, tmp_path)
        assert hung_up(terminal) == 128 + signal.SIGHUP


def connected(terminal: Terminal, folder: Path) -> int:
    """The process of a server that the shell is connected to, and which does not end by itself."""
    terminal.press(":mcp connect harbour\r")
    server = started(folder / "server.pid")
    terminal.ready()
    assert "harbour: ready" in terminal.do(":mcp list")
    return server


@pytest.mark.parametrize("end", [killed, hung_up])
def test_told_to_end_it_ends_its_servers_and_what_runs(
    tmp_path: Path, end: Callable[[Terminal], int | None]
) -> None:
    with shell(tmp_path) as terminal:
        server = connected(terminal, tmp_path)
        in_a_command(terminal, tmp_path)
        assert end(terminal) != 0
        assert gone(server)
        assert gone(started(tmp_path / "sleep.pid"))


def test_asked_to_end_without_a_terminal_it_ends_what_runs(tmp_path: Path) -> None:
    env = environment(tmp_path, OPENAI_API_KEY="sk-harbour", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    model = ("--model", "openai/gpt-4o")
    given = [PROGRAM, *model, "--store", str(tmp_path / "kept.db"), "-c", f"!{SLEEP}"]
    with subprocess.Popen(given, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL) as program:
        command = started(tmp_path / "sleep.pid")
        program.terminate()
        assert program.wait(PATIENCE) == 128 + signal.SIGTERM
    assert gone(command)


def test_a_signal_that_is_ignored_stays_so_and_the_others_are_given_back() -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with leaving_in_order():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])
