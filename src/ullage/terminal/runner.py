"""Runs command lines like the user's own shell, in one state that lasts from line to line.

The state has the directory and its stack, variables (exported or not), functions, aliases, `set -o` and
`shopt` options, the umask, and `$?`. These do not last: jobs (they go on, but `fg`, `wait` and `$!` do not
know them), traps, open descriptors (`exec 3>file`), limits (`ulimit`), and the terminal's settings
(`stty`). Every line begins with the settings of the user's terminal.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ullage.errors import ConfigurationError
from ullage.terminal import child as terminal
from ullage.terminal import shell_state as states
from ullage.terminal.background import BackgroundOutput
from ullage.terminal.capture import Capture
from ullage.terminal.programs import names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Set

# the oldest version of bash: `${name@a}`, and quoting in `declare -p` that preserves every byte
_OLDEST = (4, 4)
_INTERRUPTED = 130
_NEVER_FIRST = frozenset(("]]", "do", "done", "elif", "else", "esac", "fi", "in", "then", "}"))
"""Keywords that only continue a construct, so they cannot begin a command."""
_READS_ON = re.compile(r"unexpected (?:end of file|EOF|token `EOF')|here-document .*delimited by end-of-file")
_LONGEST_READ = 65_536  # most characters of a text that bash is asked about


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command line that has run, and its result."""

    line: str
    status: int
    """The status as bash reports it: 128 + n if signal n ended the command."""
    output: str
    """The text that the command left on the screen; only head and tail if it is long."""
    whole: str | None
    """The whole text if `output` is cut; itself cut in the middle beyond `most_whole` characters."""
    seconds: float
    interrupted: bool
    """True if Ctrl-C ended the command."""
    typed: str = ""
    """The keys typed during the run that the command did not read: whole lines, and the start of one."""


class Runner:
    """Runs command lines in bash, and keeps the shell's state from one to the next."""

    def __init__(
        self,
        *,
        cwd: Path,
        environ: Mapping[str, str],
        shell: str = "bash",
        most_chars: int = 16_000,
        most_whole: int = 10_000_000,
    ) -> None:
        self._bash, self._known = _found(shell, environ)
        self._state = states.first(cwd.absolute(), environ)
        self._status = 0
        self._most_chars = most_chars
        self._most_whole = most_whole
        self._lingering = BackgroundOutput()
        self._child: terminal.Child | None = None
        self._interrupting = threading.Lock()
        self._is_interrupted = False

    @property
    def cwd(self) -> Path:
        """The directory in which the commands so far have left the shell."""
        return self._state.cwd

    @property
    def environ(self) -> Mapping[str, str]:
        """The exported variables as the commands so far have left them."""
        return self._state.environ

    @property
    def names(self) -> Set[str]:
        """The names that bash itself knows: keywords, builtins, and the aliases and functions so far."""
        return self._known | self._state.names

    def run(self, line: str, *, show: bool = True) -> Ran:
        """Runs a line to its end; with `show` and a terminal on both sides, with keyboard and screen.

        Otherwise its input is empty. With `show`, its output is written to stdout as it comes.
        """
        self._is_interrupted = False
        on_terminal = show and terminal.has_terminal()
        capture = Capture(most_chars=self._most_chars, most_whole=self._most_whole)
        write = terminal.show if show else _nothing
        write(self._lingering.printed())

        def take(data: bytes) -> None:
            write(data)
            capture.feed(data)

        if (lost := self._leave_lost_directory()) is not None:
            take(f"ullage: {lost} no longer exists; the folder is now {self.cwd}\n".encode())
        began = time.monotonic()
        child, status = self._run(line, take, on_terminal=on_terminal)
        if on_terminal:
            if capture.plain.moved:
                terminal.calm(alternate=capture.plain.alternate)
            if capture.plain.column:
                terminal.show(b"\n")
        seconds = time.monotonic() - began
        output, whole = capture.text()
        self._status = status
        return Ran(
            line=line,
            status=status,
            output=output,
            whole=whole,
            seconds=seconds,
            interrupted=status == _INTERRUPTED or (child.pressed and status != 0),
            typed=child.typed,
        )

    def interrupt(self) -> None:
        """Sends Ctrl-C to the line that runs or is being started, if any; for use by other threads."""
        with self._interrupting:
            self._is_interrupted = True
            if self._child is not None:
                self._child.interrupt()

    def resolves(self, word: str) -> bool:
        """Returns True if bash finds a command with this name: keyword, builtin, alias, function or file."""
        if not word or "\0" in word:
            return False
        if word in self.names:
            return True
        home = self.environ.get("HOME")
        if word.startswith("~/") and home:
            word = home + word[1:]
        if "/" in word:
            return _is_program(self.cwd / word)
        return any(_is_program(folder / word) for folder in self._folders())

    def programs(self) -> Iterator[str]:
        """Returns the names in the folders of the PATH, some repeated; `resolves` shows which can be run."""
        return itertools.chain.from_iterable(map(names_in, self._folders()))

    def _folders(self) -> Iterator[Path]:
        return (self.cwd / folder for folder in self.environ.get("PATH", "").split(os.pathsep))

    def reads_on(self, text: str) -> bool:
        """Returns True if bash would go on reading after this incomplete text; runs nothing."""
        if len(text) > _LONGEST_READ:
            return False
        if (len(text) - len(text.rstrip("\\"))) % 2:
            return True
        checked = subprocess.run(  # noqa: S603 - bash only parses it
            [self._bash, "--norc", "--noprofile", "-n", "-O", "extglob"],
            input=states.encoded(text) + b"\n",
            capture_output=True,
            env={"LC_ALL": "C"},
            check=False,
        )
        return _READS_ON.search(checked.stderr.decode("utf-8", "replace")) is not None

    def close(self) -> None:
        """Stops reading from background jobs; they go on without a terminal."""
        self._lingering.close()

    def _run(
        self, line: str, take: Callable[[bytes], None], *, on_terminal: bool
    ) -> tuple[terminal.Child, int]:
        with tempfile.TemporaryFile(buffering=0) as given, _handing_back() as (back, to):
            text = states.taken_up(self._state, line, status=self._status, fd=given.fileno(), to=to)
            given.write(text)
            given.seek(0)
            try:
                child, status = terminal.run(
                    self._bash,
                    states.INNER.format(fd=given.fileno()),
                    fd=given.fileno(),
                    environ=self._state.inherited or {},
                    on_terminal=on_terminal,
                    take=take,
                    started=self._started,
                )
            finally:
                self._child = None
            self._lingering.add(child.output)
            back.seek(0)
            self._state = states.handed_back(back.read(), self._state)
        return child, status

    def _started(self, child: terminal.Child) -> None:
        with self._interrupting:
            self._child = child
            if self._is_interrupted:
                child.interrupt()

    def _leave_lost_directory(self) -> Path | None:
        """Goes up from a directory that no longer exists; returns the lost directory, or None."""
        lost = self.cwd
        if lost.is_dir():
            return None
        there = next((parent for parent in lost.parents if parent.is_dir()), Path("/"))
        self._state = states.moved(self._state, there)
        return lost


@contextlib.contextmanager
def _handing_back() -> Iterator[tuple[IO[bytes], Path]]:
    """Yields a private file for the state that bash hands back, and the path by which bash opens it.

    With /proc, the file has no name and the path leads through this process, so nothing of the state stays
    behind if this process is killed. Without /proc, it is a named file of mode 0600.
    """
    with tempfile.TemporaryFile(buffering=0) as unnamed:
        path = Path(f"/proc/{os.getpid()}/fd/{unnamed.fileno()}")
        if path.exists():
            yield unnamed, path
            return
    with tempfile.NamedTemporaryFile(prefix="ullage-", buffering=0) as named:
        yield named, Path(named.name)


def _found(shell: str, environ: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    """Returns the path of bash, and the words that bash itself knows."""
    bash = shutil.which(shell, path=environ.get("PATH", os.defpath))
    ask = 'echo "${BASH_VERSINFO[@]:0:2}"; compgen -b; compgen -k'
    words: list[str] = []
    if bash is not None:
        asked = subprocess.run(  # noqa: S603 - the user's own bash
            [bash, "--norc", "--noprofile", "-c", ask],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            env={},
            check=False,
        )
        words = asked.stdout.split()
    if bash is None or len(words) < 3 or not words[0].isdecimal():
        raise ConfigurationError(
            f"commands need bash, but {shell!r} is not on the PATH or is not bash: install bash "
            f"{_OLDEST[0]}.{_OLDEST[1]} or newer, or put it on the PATH"
        )
    if (int(words[0]), int(words[1])) < _OLDEST:
        raise ConfigurationError(
            f"{bash} is bash {words[0]}.{words[1]}: install {_OLDEST[0]}.{_OLDEST[1]} or newer, and put it "
            "first on the PATH"
        )
    return bash, frozenset(words[2:]) - _NEVER_FIRST


def _is_program(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except OSError:  # the name is too long for a file
        return False


def _nothing(_: bytes) -> None:
    """Shows nothing."""
