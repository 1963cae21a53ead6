"""Until the prompt can be typed at: CPU time of starting a shell for models, beside `llm` and `shell-gpt`.

    python -m bench.startup

Each program runs in a pseudo-terminal of its own. `CPU ms` is what the process and the children that it
has reaped had used, user and system, when the cursor stood in an empty prompt; `at rest` is the same as
soon as nothing is used any more, so that work put off until after the prompt is not hidden; `wall ms` is
an aside. Each is the least of several rounds in which all take turns. One start before them does not count:
it writes what a first start writes. All are left by Ctrl-D, so that a start finds what a clean end leaves.

Every program has a home, settings and a temporary folder of its own, empty at first, and an environment in
which the only server is an address on this machine at which nobody answers; ours finds the embedded model's
file. `remote` is gpt-4o at that address; `300 sessions` is the embedded model over a store with as many
conversations of ten turns.

ULLAGE_PEERS may name a folder with the peers' virtual environments, `v_shells` for llm and `v_sgpt` for
shell-gpt (two, as each wants an openai package that the other refuses); without them only ours run. Both
would ask for a key: they find a false one in OPENAI_API_KEY, and so ask nothing. `llm chat` has its default
model, `sgpt --repl temp` a conversation that is not kept; neither asks its server for anything before the
first question. llm's database and shell-gpt's settings and roles are those that the uncounted start made.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pexpect
import pyte

from bench.coldstart import cpu_seconds
from bench.shared import AbsentError
from ullage import store
from ullage.broker.embedded.weights import find, locate_download
from ullage.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
SESSIONS, TURNS = 300, 10
GOAL = 250
"""CPU milliseconds within which the prompt of the embedded model must be ready."""
PATIENCE = 30.0
"""Seconds after which a prompt that is not there is taken to be missing."""
REST = 0.1
"""A program that uses nothing for so many seconds is at rest."""
NOTHING = 0.0005
"""CPU seconds in such a while that are nothing: a timer's tick."""
COLUMNS, ROWS = 100, 40
CTRL_D = "\x04"
UNIT = "python -c pass"
KEY = "sk-no-key-at-all"
PEERS = {
    "llm chat": ("v_shells", "llm", ("llm", "chat"), "> ", "llm"),
    "sgpt --repl": ("v_sgpt", "shell-gpt", ("sgpt", "--repl", "temp"), ">>> ", "shell-gpt click"),
}
"""Row → environment, package, command, prompt, what to install: shell-gpt needs a click it does not name."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a program is started, and what its empty prompt looks like."""

    command: tuple[str, ...]
    prompt: str
    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """The whole environment: nothing of the user's own but the path and the language."""
        folders = {"HOME": "", "TMPDIR": "tmp"} | {
            f"XDG_{kind}_HOME": kind.lower() for kind in ("CONFIG", "DATA", "STATE", "CACHE")
        }
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        own = {name: str(self.home / folder) for name, folder in folders.items()}
        return {"LANG": "C.UTF-8", **kept, **own, "TERM": "xterm-256color", **self.variables}


class Taken(NamedTuple):
    """What a start took, in seconds."""

    cpu: float
    rest: float
    wall: float


class Answering(pyte.Screen):
    """A screen that tells where its cursor is when it is asked, as terminals do."""

    reply: Callable[[str], object]

    def write_process_input(self, data: str) -> None:
        """Answers the program."""
        self.reply(data)


def spent(process: int) -> float:
    """CPU seconds that a process, all its threads and its reaped children have used."""
    own = time.clock_gettime(~process << 3 | 2)  # Linux's clock of that process: /proc counts in 10 ms
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return own + sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def started(start: Start) -> Taken:
    """What one start took; the program has ended when this returns."""
    begun = time.monotonic()
    child: pexpect.spawn[bytes] = pexpect.spawn(
        start.command[0],
        list(start.command[1:]),
        env=start.environment(),
        cwd=str(start.home),
        dimensions=(ROWS, COLUMNS),
    )
    child.delaybeforesend = None
    screen = Answering(COLUMNS, ROWS)
    screen.reply = child.send
    stream = pyte.ByteStream(screen)
    cpu = wall = 0.0
    try:
        while not _prompts(screen, start.prompt):
            stream.feed(_read(child, begun + PATIENCE))
            cpu, wall = spent(child.pid), time.monotonic() - begun
        return Taken(cpu, _at_rest(child, stream), wall)
    except (pexpect.TIMEOUT, pexpect.EOF, OSError) as error:  # the last: it ended, and has no clock any more
        shown = [line.strip() for line in screen.display if line.strip()]
        raise AbsentError(f"no prompt, but {shown[-1] if shown else 'nothing at all'}") from error
    finally:
        _leave(child)


def _read(child: pexpect.spawn[bytes], until: float) -> bytes:
    """What it writes next; TIMEOUT at that moment, even where it never stops writing."""
    left = until - time.monotonic()
    if left <= 0:
        raise pexpect.TIMEOUT("it is time")
    data: bytes = child.read_nonblocking(65_536, left)
    return data


def _prompts(screen: pyte.Screen, prompt: str) -> bool:
    cursor = screen.cursor
    return screen.display[cursor.y].rstrip() == prompt.rstrip() and cursor.x == len(prompt)


def _at_rest(child: pexpect.spawn[bytes], stream: pyte.ByteStream) -> float:
    """What it has used as soon as it uses nothing more; what it asks the terminal meanwhile is answered."""
    before, end = spent(child.pid), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        quiet = time.monotonic() + REST
        with suppress(pexpect.TIMEOUT):
            while True:
                stream.feed(_read(child, quiet))
        now = spent(child.pid)
        if now - before < NOTHING:
            return now
        before = now
    raise AbsentError("a program that waits at its prompt goes on using the processor")


def _leave(child: pexpect.spawn[bytes]) -> None:
    """Ends a program as its user would; one that stays is killed."""
    end = time.monotonic() + PATIENCE / 10
    with suppress(pexpect.TIMEOUT, pexpect.EOF, OSError):
        child.send(CTRL_D)
        while True:
            _read(child, end)
    child.close(force=True)


# What is started -----------------------------------------------------------------------------------------


def fill(file: Path, sessions: int = SESSIONS, turns: int = TURNS) -> None:
    """A store with so many conversations."""
    file.parent.mkdir(parents=True)
    with store.open(file) as opened:
        for number in range(sessions):
            context = Context(journal=opened.journal, session=f"{number:08x}", model="gpt-4o")
            for turn in range(turns // 2):
                context.append({"role": "user", "content": f"How deep is harbour {number} at tide {turn}?"})
                context.append({"role": "assistant", "content": f"It is {number % 30} metres deep there."})


def starts(folder: Path, nobody: str) -> dict[str, Start]:
    """Every program that is here to be started, each with a home of its own."""
    ullage = str(Path(sys.executable).with_name("ullage"))
    remote = {"OPENAI_BASE_URL": nobody, "OPENAI_API_KEY": KEY}
    found = {
        "bash -i": Start(("bash", "--norc", "--noprofile", "-i"), "$ ", folder / "bash", {"PS1": "$ "}),
        "ullage, embedded": Start((ullage,), "~ > ", folder / "embedded"),
        f"ullage, {SESSIONS} sessions": Start((ullage,), "~ > ", folder / "sessions"),
        "ullage, remote": Start((ullage, "--model", "openai/gpt-4o"), "~ > ", folder / "remote", remote),
    }
    keys = remote | {"API_BASE_URL": nobody}  # the second is shell-gpt's name for it
    for name, (environment, package, command, prompt, _) in PEERS.items():
        place = Path(os.environ.get("ULLAGE_PEERS") or ".", environment).absolute()
        if (place / "bin" / command[0]).exists():
            program = (str(place / "bin" / command[0]), *command[1:])
            row = f"{name} ({_version(place, package)})"
            found[row] = Start(program, prompt, folder / package, keys)
    weights = find()
    for start in found.values():
        (start.home / "tmp").mkdir(parents=True)
        if weights is not None and start.command[0] == ullage:
            models = start.home / "data" / "ullage" / "models"
            models.mkdir(parents=True)
            locate_download(folder=models).symlink_to(weights)
    return found


def _version(place: Path, package: str) -> str:
    path = [str(each) for each in place.glob("lib/python*/site-packages")]
    return next(iter(distributions(name=package, path=path))).version


def setup(rows: dict[str, Start]) -> list[str]:
    """For each peer that is not here, how it would be."""
    return [
        f"{name} is left out: ULLAGE_PEERS names no folder with its environment. To make one:\n"
        f"  python -m venv $ULLAGE_PEERS/{environment} && "
        f"$ULLAGE_PEERS/{environment}/bin/pip install {packages}"
        for name, (environment, _, _, _, packages) in PEERS.items()
        if not any(row.startswith(name) for row in rows)
    ]


# The table -----------------------------------------------------------------------------------------------


def measure(rows: dict[str, Start], rounds: int = ROUNDS) -> tuple[float, dict[str, Taken | str]]:
    """CPU seconds of a bare Python, and the least of each start or why there is none; they take turns."""
    bare: list[float] = []
    taken: dict[str, list[Taken]] = {name: [] for name in rows}
    failed: dict[str, str] = {}
    for _ in range(1 + rounds):
        bare.append(cpu_seconds([sys.executable, "-c", "pass"]))
        for name in [each for each in rows if each not in failed]:
            try:
                taken[name].append(started(rows[name]))
            except AbsentError as error:
                failed[name] = str(error)
    least = {name: Taken(*map(min, zip(*each[1:], strict=True))) for name, each in taken.items() if each[1:]}
    return min(bare), {name: failed.get(name) or least[name] for name in rows}


def main() -> None:
    """Prints the table."""
    if not Path("/proc/self/stat").exists():
        raise AbsentError("what another process has used is read from /proc, which this system does not have")
    with tempfile.TemporaryDirectory() as folder, closing(socket.socket()) as unheard:
        unheard.bind(("127.0.0.1", 0))  # held and never listened at: nobody answers, and nobody else can
        rows = starts(Path(folder), f"http://127.0.0.1:{unheard.getsockname()[1]}/v1")
        fill(rows[f"ullage, {SESSIONS} sessions"].home / "state" / "ullage" / "ullage.db")
        bare, least = measure(rows)
    print(f"{'until the prompt':<28} {'CPU ms':>8} {'× python':>9} {'at rest':>8} {'wall ms':>8}   goal")
    print(f"{UNIT:<28} {bare * 1000:>8.1f} {1:>9.2f}")
    for name, taken in least.items():
        if isinstance(taken, str):
            print(f"{name:<28} did not start: {taken}")
            continue
        cpu, rest, wall = (seconds * 1000 for seconds in taken)
        goal = f"at most {GOAL} ms" if name == "ullage, embedded" else ""
        print(f"{name:<28} {cpu:>8.1f} {cpu / 1000 / bare:>9.2f} {rest:>8.1f} {wall:>8.0f}   {goal}".rstrip())
    for line in setup(rows):
        print(line)


if __name__ == "__main__":
    main()
