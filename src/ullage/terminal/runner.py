"""Runs command lines in one bash that lasts, like the user's own shell.

`protocol.py` says how bash gets a line and reports its result. If bash ends, by `exit`, `exec`, a crash or
`kill -9`, the next bash begins in the last known directory with the exported variables as last known.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError
from ullage.terminal import user_terminal
from ullage.terminal.answers import Answer, ask_variables, ask_words
from ullage.terminal.background import BackgroundOutput
from ullage.terminal.bash_process import start_bash
from ullage.terminal.capture import Capture
from ullage.terminal.exchange import INTERRUPTED, CommandExchange, OutputFilter
from ullage.terminal.programs import names_in
from ullage.terminal.protocol import Report, encode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Set

    from ullage.terminal.bash_process import BashProcess

_OLDEST = (4, 4)  # the oldest version of bash: `local -`, `${name@a}`
_NEVER_FIRST = frozenset(("]]", "do", "done", "elif", "else", "esac", "fi", "in", "then", "}"))
"""Keywords that only continue a construct, so they cannot begin a command."""
_READS_ON = re.compile(r"unexpected (?:end of file|EOF|token `EOF')|here-document .*delimited by end-of-file")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TICK = 20  # milliseconds between two checks of a bash that starts
_LONGEST_READ = 65_536  # most characters of a text that bash is asked about
STARTUP_LIMIT = 10.0
"""Seconds that the user's start-up files have; then bash starts without them."""


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
    typed_unseen: bool = False
    """True if some of these keys were not echoed, so the user has not seen what they say."""


class Runner:
    """Runs command lines in bash, which starts with `open` or with the first line."""

    def __init__(
        self,
        *,
        cwd: Path,
        environ: Mapping[str, str],
        shell: str = "bash",
        startup: str | None = None,
        reads_input: bool = False,
        limit: float = STARTUP_LIMIT,
        most_chars: int = 16_000,
        most_whole: int = 10_000_000,
    ) -> None:
        self._bash, self._known = _find_bash(shell, environ)
        self._cwd = cwd.absolute()
        self._environ: Mapping[str, str] = dict(environ)
        self._functions: Set[str] = frozenset()
        self._aliases: Mapping[str, str] = {}
        self._stopped: Sequence[str] = ()
        self._running: Sequence[str] = ()
        self._startup = None if startup is None else Path(startup).expanduser()
        self._reads_input = reads_input
        self._limit = limit
        self._most_chars = most_chars
        self._most_whole = most_whole
        self._background = BackgroundOutput()
        self._process: BashProcess | None = None
        self._settings: user_terminal.TerminalSettings | None = None
        self._starting = threading.RLock()
        self._completing = threading.Lock()
        self._line: CommandExchange | None = None
        self._interrupting = threading.Lock()
        self._is_interrupted = False
        self._is_closed = False
        self._lost = ""
        """Says that bash has ended between two lines, until the next line tells it."""

    @property
    def cwd(self) -> Path:
        """The directory in which the commands so far have left the shell."""
        return self._cwd

    @property
    def environ(self) -> Mapping[str, str]:
        """The exported variables as the commands so far have left them."""
        return self._environ

    @property
    def names(self) -> Set[str]:
        """The names that bash itself knows: keywords, builtins, and the aliases and functions so far."""
        return self._known | self._functions | self._aliases.keys()

    @property
    def stopped(self) -> Sequence[str]:
        """The programs of the jobs that were stopped when the last line ended; the end of bash ends them."""
        return self._stopped

    @property
    def jobs(self) -> Sequence[str]:
        """The programs of the jobs that ran or were stopped when the last line ended."""
        return [*self._running, *self._stopped]

    @property
    def shadows(self) -> Mapping[str, str | None]:
        """The names that bash runs instead of a program: an alias has its text, and a function has None."""
        return {**dict.fromkeys(self._functions), **self._aliases}

    def on_jobs_output(self, tell: Callable[[], None] | None) -> None:
        """Calls `tell` in another thread whenever a background job has printed and no line runs."""
        self._background.tell = tell

    def show_jobs_output(self) -> None:
        """Writes the whole lines to stdout that background jobs have printed while no line ran."""
        user_terminal.show(self._background.take_lines())

    def open(self) -> None:
        """Starts bash and waits until it is ready; does nothing if it runs. Any thread can call this."""
        with self._starting:
            status = None if self._process is None else self._process.poll_status()
            if self._process is not None and status is not None:
                self._drop(self._process)
                self._lost = self._tell_ended(status)
            if self._process is None and not self._is_closed:
                self._start()

    def run(self, line: str, *, show: bool = True) -> Ran:
        """Runs a line to its end; with `show`, its output is written to stdout as it comes.

        If bash has a terminal, the line has the keyboard and the screen. Otherwise its input is empty, or the
        standard input of this process if the runner was made with `reads_input`.
        """
        self._is_interrupted = False
        write = user_terminal.show if show else _nothing
        capture = Capture(most_chars=self._most_chars, most_whole=self._most_whole)

        def take(data: bytes) -> None:
            write(data)
            capture.feed(data)

        self.open()
        self._background.pause()
        write(self._background.take_output())
        ended, self._lost = self._lost, ""
        take(ended.encode())
        if (lost := self._leave_lost_directory()) is not None:
            take(f"ullage: {lost} no longer exists; the folder is now {self._cwd}\n".encode())
        began = time.monotonic()
        done = self._exchange(line, take)
        seconds = time.monotonic() - began
        status = done.status
        self._end(done, capture, take, write)
        output, whole = capture.text()
        return Ran(
            line=line,
            status=status,
            output=output,
            whole=whole,
            seconds=seconds,
            interrupted=status == INTERRUPTED or (done.pressed and status != 0),
            typed=done.typed,
            typed_unseen=done.typed_unseen,
        )

    def interrupt(self) -> None:
        """Sends Ctrl-C to the line that runs or is being started, if any; for use by other threads."""
        with self._interrupting:
            self._is_interrupted = True
            if self._line is not None:
                self._line.interrupt()

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
            input=encode_text(text) + b"\n",
            capture_output=True,
            env={"LC_ALL": "C"},
            check=False,
        )
        return _READS_ON.search(checked.stderr.decode("utf-8", "replace")) is not None

    def complete(self, line: str, words: Sequence[str]) -> tuple[Answer, str]:
        """Returns what bash offers for the last word of a command, and the part of it to be replaced."""
        with self._completing:
            process = self._process
            return (Answer(), "") if process is None else ask_words(process, line, words)

    def variables(self, prefix: str) -> Sequence[str]:
        """Returns the names of the variables in bash that begin with a text."""
        with self._completing:
            process = self._process
            texts = () if process is None else ask_variables(process, prefix).texts
        return [each for each in texts if not each.startswith("__ullage")]

    def close(self) -> None:
        """Ends bash; background jobs go on without a terminal."""
        self._is_closed = True
        with self._starting:
            self._background.pause()
            if self._process is not None:
                self._process.leave()
                self._background.leave(self._process.output)
                self._process = None
            self._background.close()

    # Lines ------------------------------------------------------------------------------------------

    def _exchange(self, line: str, take: Callable[[bytes], None]) -> CommandExchange:
        if self._process is None:
            raise InterruptedError("the shell is closed: no command can run")
        done = CommandExchange(self._process, line, take)
        with self._interrupting:
            self._line = done
            done.pressed = self._is_interrupted
        try:
            done.run()
        finally:
            self._line = None
        if done.report is not None:
            self._learn(done.report)
        return done

    def _end(
        self,
        done: CommandExchange,
        capture: Capture,
        take: Callable[[bytes], None],
        write: Callable[[bytes], None],
    ) -> None:
        """Puts the terminal in order, tells what bash has to say, and goes on reading from jobs."""
        process = done.bash
        shows = process.on_terminal and write is user_terminal.show
        if shows and capture.plain.moved:
            user_terminal.calm(alternate=capture.plain.alternate)
        status = process.poll_status()
        if capture.plain.column and (shows or status is not None):
            (write if status is None else take)(b"\n")
        self._background.keep(done.late)
        if status is not None:
            self._drop(process)
            self.open()
            take(self._tell_ended(status).encode())
            return
        if process.on_terminal:
            self._settings = user_terminal.restore_lines(process.inside, self._settings)
        for text in (process.stray(), process.notes.notices()):
            write(text + b"\n" if _leaves_line_open(text) else text)
        self._background.begin(process.output)

    def _tell_ended(self, status: int) -> str:
        return f"ullage: bash has ended (status {status}); a new one runs in {self._cwd}\n"

    def _learn(self, report: Report) -> None:
        self._cwd = report.cwd or self._cwd
        self._functions, self._aliases = report.functions, report.aliases
        self._stopped, self._running = report.stopped, report.running
        odd = {name: value for name, value in self._environ.items() if not _NAME.fullmatch(name)}
        self._environ = {**odd, **report.environ}

    # Bash -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Starts a bash with the user's files; without them if they end it or do not end in time."""
        there = self._nearest()
        bashrc = Path(self._environ.get("HOME", Path.home())) / ".bashrc"
        files = tuple(
            str(each) if each is not None and each.is_file() else "" for each in (bashrc, self._startup)
        )
        why = self._start_process(there, (files[0], files[1]))
        if why and not self._is_closed:
            failed = self._start_process(there, None)
            if failed:
                raise ConfigurationError(f"bash does not start ({failed}): check {self._bash}")
            self._background.keep(
                f"ullage: bash runs without your start-up files, because {why}\r\n".encode()
            )
        if self._startup is not None and not files[1]:
            self._background.keep(f"ullage: there is no file {self._startup} (shell.startup)\r\n".encode())
        if self._process is not None:
            self._settings = user_terminal.restore_lines(self._process.inside, None)
            self._background.begin(self._process.output)

    def _start_process(self, there: Path, files: tuple[str, str] | None) -> str:
        """Starts a bash and waits for its first report; returns the reason if none comes, otherwise empty."""
        process = start_bash(
            self._bash,
            cwd=there,
            environ={**self._environ, "PWD": str(there)},
            on_terminal=user_terminal.has_terminal(),
            files=files,
            own=_own_folder(),
            reads_input=self._reads_input,
        )
        output = OutputFilter(self._background.keep, process.issued)
        end = time.monotonic() + self._limit
        while process.poll_status() is None and time.monotonic() < end and not self._is_closed:
            output.feed(user_terminal.read(process.output))
            for event in process.events(within=_TICK):
                if isinstance(event, Report):
                    output.feed(user_terminal.read(process.output))
                    self._background.keep(output.end())
                    process.notes.notices()  # bash says that it has no job control, which is no news
                    self._process = process
                    self._learn(event)
                    return ""
        output.feed(user_terminal.read(process.output, within=_TICK))
        self._background.keep(output.end())
        status = process.poll_status()
        process.kill()
        os.close(process.output)
        if status is not None:
            return f"they ended it (status {status})"
        return f"they did not end within {self._limit:g} seconds"

    def _nearest(self) -> Path:
        """Returns the directory, or the nearest one above it that exists."""
        return next((each for each in (self._cwd, *self._cwd.parents) if each.is_dir()), Path("/"))

    def _leave_lost_directory(self) -> Path | None:
        """Goes up from a directory that no longer exists; returns the lost directory, or None."""
        lost, there = self._cwd, self._nearest()
        if there == lost:
            return None
        self._exchange(f"\\builtin cd -- {shlex.quote(str(there))}", _nothing)
        return lost

    def _drop(self, process: BashProcess) -> None:
        """Forgets a bash that has ended; its background jobs may still print."""
        self._background.pause()
        process.kill()
        self._background.leave(process.output)
        self._process = None


def _leaves_line_open(text: bytes) -> bool:
    """Returns True if a text ends in the middle of a line; a title of the window is on no line."""
    capture = Capture(most_chars=len(text), most_whole=len(text))
    capture.feed(text)
    return capture.plain.column > 0


def _own_folder() -> str:
    """Returns the folder of the program `ullage`; empty if it cannot be found."""
    places = (Path(sys.argv[0]).parent, Path(sys.executable).parent)
    return next((str(each.absolute()) for each in places if _is_program(each / "ullage")), "")


def _find_bash(shell: str, environ: Mapping[str, str]) -> tuple[str, frozenset[str]]:
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
