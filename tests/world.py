"""The surroundings of every test: environment variables, signals, locale, time zone, home folder.

`make_world` replaces what the process inherited. `environment()` is for the programs that a test starts.
`left_behind` tells what a test did not put back or end.
"""

from __future__ import annotations

import contextlib
import locale
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PATIENCE = 60.0
"""Seconds until something that does not happen is taken to be missing. A test goes on as soon as it happens:
a long time costs nothing, and a busy machine has enough of it."""
BIN = Path(sys.executable).parent
"""The folder of the interpreter that runs the tests; `ullage` is installed there."""
KEPT = frozenset(
    {
        "PATH",
        "TMPDIR",
        "HYPOTHESIS_PROFILE",
        "ULLAGE_DATA",
        "ULLAGE_BENCH",
        "ULLAGE_EXITS",
        "ULLAGE_KILLS",
        "ULLAGE_REQUESTS",
        "ULLAGE_SOAK_MINUTES",
        "ULLAGE_STREAMS",
    }
)
"""The inherited variables that tests may see: where programs, temporary files and recorded data are, and how
long a soak lasts."""
OF_THE_RUNNER = ("PYTEST_", "COV_CORE_", "PIP_")
"""Prefixes of the variables by which pytest talks to its own processes, and by which pip finds its index."""
FIXED = {"GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8", "TERM": "xterm-256color", "TZ": "UTC"}
PLACES = {
    "XDG_CACHE_HOME": "cache",
    "XDG_CONFIG_HOME": "config",
    "XDG_DATA_HOME": "data",
    "XDG_RUNTIME_DIR": "runtime",
    "XDG_STATE_HOME": "state",
}
"""Variable → folder in the home of the tests."""
DEFAULT_SIGNALS = (
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGCONT,
    signal.SIGWINCH,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
GRACE = 20.0
"""Seconds that a process or thread has to end after its test."""


def make_world(home: Path) -> None:
    """Replaces the environment, signal dispositions, locale, time zone and file mode mask of this process."""
    os.environ.update(PATH=os.environ.get("PATH", os.defpath))
    for name in [name for name in os.environ if name not in KEPT and not name.startswith(OF_THE_RUNNER)]:
        del os.environ[name]
    os.environ.update(FIXED, HOME=str(home))
    for name, folder in PLACES.items():
        place = home / folder
        place.mkdir(mode=0o700)
        os.environ[name] = str(place)
    time.tzset()
    with contextlib.suppress(locale.Error):  # not every system has this one
        locale.setlocale(locale.LC_ALL, FIXED["LANG"])
    os.umask(0o022)
    _take_signals()


def _take_signals() -> None:
    """Gives every signal its default effect, here and in the programs that tests start."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def environment(home: Path | None = None, **more: str) -> dict[str, str]:
    """All variables for a program that a test starts, made from nothing.

    `ullage` and `python` are found by their names. With a home, all folders of the user are in it.
    """
    path = os.pathsep.join((str(BIN), os.environ.get("PATH", os.defpath)))
    places = (
        {"HOME": str(home)} if home is not None else {name: os.environ[name] for name in ("HOME", *PLACES)}
    )
    temporary = {"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}
    return {**FIXED, **temporary, **places, "PATH": path, **more}


def until(true: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether it becomes true within the time; returns as soon as it does."""
    end = time.monotonic() + seconds
    while not (now := true()) and time.monotonic() < end:
        time.sleep(0.01)
    return now


def gone(process: int) -> bool:
    """Whether a process has ended, also if nobody has asked for its exit status yet."""
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        pass
    else:
        return state.rpartition(")")[2].split()[0] == "Z"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


class State(NamedTuple):
    """The state of the process that a test must not change for the next one."""

    variables: Mapping[str, str]
    folder: str
    signals: Mapping[signal.Signals, object]
    children: frozenset[int]
    threads: frozenset[threading.Thread]


def observe() -> State:
    """The current state."""
    return State(
        # pytest itself changes a variable for each phase of a test.
        {name: value for name, value in os.environ.items() if not name.startswith(OF_THE_RUNNER)},
        os.getcwd(),  # noqa: PTH109 - it is compared, not used
        {number: signal.getsignal(number) for number in (signal.SIGINT, *DEFAULT_SIGNALS)},
        frozenset(_children()),
        frozenset(threading.enumerate()),
    )


def left_behind(before: State) -> list[str]:
    """What a test changed or left; its processes and threads have a grace to end in."""
    now = observe()
    end = time.monotonic() + GRACE
    while now.children - before.children or _threads(now.threads - before.threads):
        if time.monotonic() > end:
            break
        time.sleep(0.005)
        now = observe()
    told = [f"process {_describe(child)}" for child in sorted(now.children - before.children)]
    told += [f"thread {each.name}" for each in _threads(now.threads - before.threads)]
    for name in sorted(now.variables.keys() | before.variables.keys()):
        if now.variables.get(name) != before.variables.get(name):
            told.append(f"variable {name}={now.variables.get(name)!r}")
    if now.folder != before.folder:
        told.append(f"working directory {now.folder}")
    told += [f"handler of {each.name}" for each, one in now.signals.items() if one != before.signals[each]]
    return told


def _threads(threads: frozenset[threading.Thread]) -> list[threading.Thread]:
    return [each for each in threads if each.is_alive()]


def _children() -> set[int]:
    """The processes whose parent is this one; none if the system does not list them."""
    found: set[int] = set()
    for tasks in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, tasks.read_text().split()))
    return found - {_tracker()}


def _tracker() -> int | None:
    """The helper that multiprocessing keeps as long as its process lives."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    tracked: int | None = module._resource_tracker._pid if module else None
    return tracked


def _describe(child: int) -> str:
    try:
        words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = ""
    return f"{child} {words.strip()[:200] or '(ended, and nobody waited for it)'}"
