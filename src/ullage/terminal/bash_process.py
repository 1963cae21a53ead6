"""A running bash with its channels: starts it, sends lines to it, reads its reports, and ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.terminal import protocol
from ullage.terminal.protocol import Notes
from ullage.terminal.user_terminal import pty_settings, read, resize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ullage.terminal.protocol import Ack, Report

_AHEAD = 40  # turns that wait for bash; it reads a few of them at once
_PATIENCE = 0.5  # seconds to wait for the end of bash after each of these signals
_ENDINGS = (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGKILL)
_LEAVING = 1.0  # seconds that bash has to end by itself
_HIGH = 199  # the least descriptor of the output pipe in bash; no user chooses so high a number

# The first terminal that a session leader opens becomes its own.
_LEAD = """exec {tty}<>"$1"; exec {tty}<&-; exec -a bash "$BASH" "${@:2}" """


@dataclass(slots=True)
class BashProcess:
    """A bash that runs one line after the other."""

    process: subprocess.Popen[bytes]
    output: int
    """The pseudo-terminal's master, or the read end of the output pipe."""
    turns: socket.socket
    lines: socket.socket
    notes_fd: int
    inside: int
    """The other side of the output, which is held open: a terminal without it counts as hung up."""
    terminal: str
    """The name of the pseudo-terminal; empty without one."""
    given: int | None = None
    """The descriptor that lines read without a terminal; None if their input is empty."""
    notes: Notes = field(default_factory=Notes)
    writing: threading.Lock = field(default_factory=threading.Lock)
    issued: deque[str] = field(default_factory=lambda: deque(maxlen=4 * _AHEAD))
    """The nonces of the latest turns."""
    idle: str = ""
    """The nonce of the turn that waits for a line; empty while none does."""

    @property
    def on_terminal(self) -> bool:
        """True if the lines have a terminal."""
        return bool(self.terminal)

    def top_up(self) -> None:
        """Sends turns until enough of them wait."""
        output, streams = _streams(self.terminal, self.inside, self.given)
        while len(self.notes.expected) < _AHEAD:
            nonce = protocol.new_nonce()
            self.notes.expected.append(nonce)
            self.issued.append(nonce)
            with contextlib.suppress(OSError):  # bash has ended, which the caller sees by itself
                self.turns.sendall(protocol.turn(nonce, output, streams))

    def send(self, text: str) -> None:
        """Sends a line to the turn that waits for it; bash reads it while this writes."""
        with self.writing, contextlib.suppress(OSError):  # see top_up
            nonce, self.idle = self.idle, ""
            self.lines.sendall(protocol.line_of(nonce, text))

    def ask(self, fields: Sequence[bytes]) -> bool:
        """Sends a question to the turn that waits for a line; returns False if none waits."""
        with self.writing, contextlib.suppress(OSError):  # see top_up
            if self.idle and self.process.poll() is None:
                self.lines.sendall(protocol.question_of(self.idle, fields))
                return True
        return False

    def events(self, *, within: int = 0) -> Iterator[Ack | Report]:
        """Yields the acknowledgements and reports that come within so many milliseconds."""
        for event in self.notes.feed(read(self.notes_fd, within=within)):
            if isinstance(event, protocol.Report):
                self.idle = event.nonce
                self.top_up()
            yield event

    def stray(self) -> bytes:
        """Returns the output of PROMPT_COMMAND and of traps between two lines."""
        data = b""
        while piece := read(self.lines.fileno()):
            data += piece
        return data

    def has_used_all_turns(self) -> bool:
        """Returns True if bash has read all turns; then it no longer follows the protocol.

        A program that has replaced bash by `exec` has closed the channel, and reads no turns.
        """
        poll = select.poll()
        poll.register(self.turns, 0)
        if poll.poll(0):
            return False
        with contextlib.suppress(OSError):
            (count,) = struct.unpack("i", fcntl.ioctl(self.turns, termios.TIOCOUTQ, bytes(4)))
            return not count
        return False

    def poll_status(self) -> int | None:
        """Returns the status of a bash that has ended, as bash itself would report it; None if it runs."""
        status = self.process.poll()
        return 128 - status if status is not None and status < 0 else status

    def has_stopped(self) -> bool:
        """Returns True if bash itself was stopped since the last call, as by `suspend`."""
        with contextlib.suppress(ChildProcessError):
            how = os.WSTOPPED | os.WNOHANG
            return os.waitid(os.P_PID, self.process.pid, how) is not None
        return False

    def group(self) -> int:
        """Returns the process group that gets the signals of the keys."""
        group = 0
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self.output) if self.on_terminal else 0
        return group if group > 1 else self.process.pid

    def signal(self, number: int) -> None:
        """Sends the signal of a key to the running line."""
        with contextlib.suppress(OSError):
            os.killpg(self.group(), number)
            os.killpg(self.group(), signal.SIGCONT)

    def leave(self) -> None:
        """Lets bash end by itself, and ends it otherwise; its background jobs go on."""
        with contextlib.suppress(OSError):  # bash has ended
            self.lines.shutdown(socket.SHUT_RDWR)
        if not self._wait(_LEAVING):
            self.hang_up()
        self._close()

    def kill(self) -> None:
        """Ends bash and the running line at once."""
        self.hang_up()
        self._close()

    def hang_up(self) -> None:
        """Ends bash and the running line as the end of a terminal does; with force if they do not end."""
        for number in _ENDINGS:
            self.signal(number)
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, number)
                os.killpg(self.process.pid, signal.SIGCONT)
            if self._wait(_PATIENCE):
                return
        self.process.kill()
        self.process.wait()

    def _wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > end:
                return False
            read(self.output, within=5)  # some programs wait until their last output is read
        return True

    def _close(self) -> None:
        """Closes everything but the output, which background jobs may still write to."""
        self.turns.close()
        self.lines.close()
        os.close(self.notes_fd)
        os.close(self.inside)
        if self.given is not None:
            os.close(self.given)


def start_bash(
    bash: str,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    on_terminal: bool,
    files: tuple[str, str] | None,
    own: str,
    reads_input: bool = False,
) -> BashProcess:
    """Starts a bash, on a pseudo-terminal or on a pipe; its first report says that it is ready.

    `files` are the user's start-up file and the file of `shell.startup`, empty if there is none. If `files`
    is None, bash reads no start-up file, not even the system's. `own` is the folder of the program `ullage`.
    With `reads_input`, lines without a terminal read the standard input of this process.
    """
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        output, inside = os.openpty() if on_terminal else _high_pipe()
        terminal = os.ttyname(inside) if on_terminal else ""
        stdin = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _HIGH) if reads_input and not on_terminal else None
        text, given = os.pipe()
        notes, noted = os.pipe()
        turns, turned = socket.socketpair()
        lines, lined = socket.socketpair()
        for each in (text, given, noted):
            theirs.callback(os.close, each)
        for each in (output, inside, notes, *(() if stdin is None else (stdin,))):
            ours.callback(os.close, each)
        for one, other in ((turns, turned), (lines, lined)):
            ours.callback(one.close)
            theirs.callback(other.close)
        if on_terminal:
            termios.tcsetattr(inside, termios.TCSANOW, pty_settings(inside))
            resize(output)
            os.set_blocking(output, False)
        os.set_blocking(given, False)
        os.write(
            given, protocol.start_text(text, *_streams(terminal, inside), files=files or ("", ""), own=own)
        )
        options = ["--noediting", *(("--norc",) if files is None else ("--rcfile", f"/dev/fd/{text}")), "-i"]
        lead = ["--norc", "--noprofile", "-c", _LEAD, "bash", terminal] if on_terminal else []
        process = subprocess.Popen(  # noqa: S603 - it runs the user's commands
            ["bash", *lead, *options],  # noqa: S607 - the first word is only its name
            executable=bash,
            stdin=turned.fileno(),
            stdout=lined.fileno(),
            stderr=noted,
            env=dict(environ),
            cwd=cwd,
            pass_fds=(text,) if on_terminal else (text, inside, *(() if stdin is None else (stdin,))),
            start_new_session=True,
        )
        ours.pop_all()
        if files is None:
            turns.sendall(b"\\builtin . /dev/fd/%d\n" % text)
    made = BashProcess(process, output, turns, lines, notes, inside, terminal, stdin)
    made.top_up()
    return made


def _high_pipe() -> tuple[int, int]:
    """Returns a pipe whose write end has a number that no user chooses for a descriptor."""
    output, low = os.pipe()
    inside = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(low)
    return output, inside


def _streams(terminal: str, inside: int, given: int | None = None) -> tuple[str, str]:
    """Returns the place of a line's output, and the redirections of a line."""
    if terminal:
        return terminal, f"<>{terminal} >&0 2>&0"
    source = "</dev/null" if given is None else f"<&{given} {given}<&-"
    return f"/dev/fd/{inside}", f"{source} >&{inside} 2>&1 {inside}>&-"
