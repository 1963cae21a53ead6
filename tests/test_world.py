"""The world of the tests: a machine adds nothing to it, and what a test leaves behind is named."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import world
from tests.world import environment, left_behind, observe

ROOT = Path(__file__).resolve().parent.parent
LOOKING = """
import json, locale, os, signal, subprocess, sys, tempfile, time
from pathlib import Path
from tests.world import make_world
with tempfile.TemporaryDirectory() as home:
    make_world(Path(home))
    child = "import signal; print([int(signal.getsignal(n) == signal.SIG_IGN) for n in (1, 2, 15)])"
    print(json.dumps({
        "names": sorted(os.environ),
        "zone": time.strftime("%Z", time.localtime(0)),
        "terminal": os.environ["TERM"],
        "private": os.environ["HOME"] == home and os.environ["XDG_STATE_HOME"].startswith(home),
        "interrupts": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "ignored": json.loads(subprocess.check_output([sys.executable, "-c", child])),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    }))
"""
HOSTILE = {
    "COLUMNS": "17",
    "FORCE_COLOR": "1",
    "HOME": "/nowhere",
    "LANG": "C",
    "LC_ALL": "C",
    "NO_COLOR": "1",
    "OPENAI_API_KEY": "sk-somebody",
    "PYTHONUNBUFFERED": "1",
    "TERM": "dumb",
    "TZ": "Pacific/Auckland",
    "ULLAGE_CONFIG": "/nowhere/config.toml",
    "XDG_STATE_HOME": "/nowhere",
}
lists_processes = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="there is no /proc that lists child processes"
)


def test_nothing_is_inherited_but_where_programs_and_data_are() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    ignoring = "trap '' INT HUP TERM; exec \"$@\""
    done = subprocess.run(
        [bash, "-c", ignoring, "-", sys.executable, "-c", LOOKING],
        cwd=ROOT,
        env={**HOSTILE, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert set(seen.pop("names")) == {"PATH", "HOME", *world.FIXED, *world.PLACES}
    assert seen == {
        "zone": "UTC",
        "terminal": "xterm-256color",
        "private": True,
        "interrupts": True,
        "ignored": [0, 0, 0],
        "mask": [],
    }


def test_a_program_gets_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    made = environment(tmp_path, COLUMNS="80")
    assert made["HOME"] == str(tmp_path)
    assert made["COLUMNS"] == "80"
    assert {name for name in made if made[name] == HOSTILE.get(name)} == set()
    assert made.keys() <= {"COLUMNS", "HOME", "PATH", "TMPDIR", *world.FIXED}
    assert shutil.which("ullage", path=made["PATH"]) == str(world.BIN / "ullage")


@lists_processes
def test_what_a_test_leaves_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "GRACE", 0.0)
    before = observe()
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="left")
    handler = signal.getsignal(signal.SIGUSR1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            thread.start()
            monkeypatch.setenv("LEFT", "1")
            monkeypatch.chdir(tmp_path)
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            told = left_behind(before)
        finally:
            signal.signal(signal.SIGUSR1, handler)
            over.set()
            thread.join()
            child.communicate(b"\n")
    monkeypatch.undo()
    assert [each.split(" ")[0] for each in told] == ["process", "thread", "variable", "working", "handler"]
    assert [str(child.pid) in told[0], "left" in told[1], "LEFT='1'" in told[2]] == [True] * 3
    assert "SIGUSR1" in told[4]
    assert left_behind(before) == []


@lists_processes
def test_a_process_that_has_ended_and_was_not_waited_for_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "GRACE", 0.0)
    before = observe()
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read()  # its end
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert "nobody waited for it" in left_behind(before)[0]


def test_what_ends_a_little_later_is_not_left() -> None:
    before = observe()
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    ending = threading.Timer(0.05, over.set)
    ending.start()
    assert left_behind(before) == []


# A test that waits for ever ----------------------------------------------------------------------------

STUCK = """
import asyncio, ctypes, pytest, threading

def test_it_holds_the_interpreter():
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

def test_its_loop_waits_for_a_thread():
    never = threading.Event()
    asyncio.run(asyncio.to_thread(never.wait))

@pytest.mark.timeout(60)
def test_it_has_a_time_limit_of_its_own():
    threading.Event().wait(3)

def test_it_ends():
    pass
"""


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("test_it_holds_the_interpreter", 1),
        ("test_its_loop_waits_for_a_thread", 1),
        ("test_it_has_a_time_limit_of_its_own", 0),
        ("test_it_ends", 0),
    ],
)
def test_the_watchdog_ends_a_test_that_its_time_limit_cannot_end(
    name: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "test_stuck.py").write_text(STUCK)
    (tmp_path / "conftest.py").write_text("import tests.watchdog\ntests.watchdog.GRACE = 1.0\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\n")
    plugins = ("-p", "tests.watchdog", "-p", "no:xdist", "-p", "no:randomly")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, f"test_stuck.py::{name}"],
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
    )
    assert done.returncode == code, done.stdout + done.stderr
    stuck = [line for line in done.stderr.splitlines() if line.startswith("Timeout (")]
    assert len(stuck) == code
    assert (f"in {name}" in done.stderr) == bool(code)


# The scripts that run the tests ------------------------------------------------------------------------


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_ci_runs_the_command_of_the_readme_in_a_clean_environment(tmp_path: Path) -> None:
    program(tmp_path / "make", 'echo "make $*"; env')
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    needed = {"HOME": str(tmp_path), "PATH": path, "LANG": "C.UTF-8", "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    given = {**HOSTILE, **needed, "MAKEFLAGS": "-n", "SSL_CERT_FILE": "/nowhere/two\nlines"}
    done = subprocess.run([ROOT / ".ci/run"], env=given, capture_output=True, text=True, check=True)
    said, *variables = done.stdout.splitlines()
    assert said == "make test"
    assert {f"{name}={value}" for name, value in needed.items()} <= set(variables)
    # The shell of the stand-in adds the rest.
    names = {each.partition("=")[0] for each in variables} - {"PWD", "OLDPWD", "SHLVL", "_"}
    assert names == {*needed, "SSL_CERT_FILE", "lines"}


def test_a_hostile_run_ignores_signals_is_busy_and_ends_what_it_began(tmp_path: Path) -> None:
    stand_in = program(
        tmp_path / "python",
        f"""
        if [ "$1" = -c ]; then echo $$ >> {tmp_path}/busy; exec sleep 600; fi
        echo "$@"; trap - INT HUP; env | grep -E '^(TERM|LANG|TZ|PYTHON.*|LC_.*)='
        kill -INT $$; kill -HUP $$
        until [ "$(wc -l < {tmp_path}/busy)" = 2 ]; do sleep 0.01; done
        echo lives
        """,
    )
    done = subprocess.run(
        [ROOT / "scripts/hostile.sh", "tests/test_world.py"],
        env=environment(tmp_path, PYTHON=str(stand_in), PYTHONUNBUFFERED="1", SEEDS="7 8"),
        capture_output=True,
        text=True,
        check=True,
        timeout=world.PATIENCE,
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("hostile")] == [
        "hostile: --randomly-seed=7",
        "hostile: --randomly-seed=8",
    ]
    assert sum("-m pytest" in line and line.endswith("tests/test_world.py") for line in lines) == 2
    assert sorted({line for line in lines if "=" in line and " " not in line}) == [
        "LANG=C",
        "TERM=dumb",
        "TZ=Pacific/Auckland",
    ]
    assert lines.count("lives") == 2
    busy = [int(pid) for pid in (tmp_path / "busy").read_text().split()]
    assert len(busy) == 2
    assert all(world.until(lambda: world.gone(pid)) for pid in busy)  # noqa: B023 - it is called at once
