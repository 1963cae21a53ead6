"""Runs a command line in a child process: on a pseudo-terminal joined to the user's terminal, or on a pipe.

Two processes run a line. The guard is a bash that leads the session and has the terminal. The line's
bash is its only job. So the signals of the keys (Ctrl-C, Ctrl-\\, Ctrl-Z) reach the line and not the
guard, the guard always survives to report how the line ended, and jobs that the line left in the
background are not hung up with it. A line that stops is continued at once, with a message: no later
command could continue it, because the shell that knows the job ends with the line. A line that stops
again and again is ended.

Without a terminal on both sides, or if nothing is shown, there is no pseudo-terminal. Output then comes
through a pipe, the input is empty, and there is no controlling terminal to ask for a password.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import tty
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ullage.terminal.typeahead import MOST, TypeAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

_PIECE = 65_536
_TICK = 250  # milliseconds between two checks of the window's size
_WAKE = 0.05  # seconds from an interrupt to the signal that continues a stopped command
_QUIET = 40  # milliseconds without output after which only background jobs still have the terminal
_LONGEST_REST = 0.15  # longest time, in seconds, to wait for output that comes slowly
_MOST_ON_ITS_WAY = 1_048_576  # bytes, the capacity of the largest pipe
_MOST_STOPS = 50  # of one line; a command that stops more often never ends
_PATIENCE = 0.5  # seconds to wait for the child's end after each of these signals
_ENDINGS = (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGKILL)
_ENDING = (signal.SIGTERM, signal.SIGHUP)  # signals that end this process

# The first terminal that a session leader opens becomes its own. Only an interactive bash keeps hold of it,
# and its remarks on the end of the line ("Killed") can then be sent elsewhere.
_LEAD = """exec 0<>"$1" 1>&0 2>&0; exec "$BASH" --norc --noprofile -i -c "$3" bash "" "$2" """
# Each step stands alone: inside a loop or a list, bash takes an interrupt that ended a job as its own. An
# interrupt before the line's bash exists reaches only the guard, which then does not start the line.
_UNLESS_PRESSED = """if [[ -n $ullage_pressed ]]; then exit 130; fi
"""
_GUARD_TTY = (
    """\
exec 2>/dev/null; ullage_pressed=; trap 'ullage_pressed=1' INT
"""
    + _UNLESS_PRESSED
    + """\
"$BASH" --norc --noprofile -c "$2" bash 2>&1 {done}>&-
status=$?
"""
    + """\
if ! jobs %% >/dev/null; then exit $status; fi
printf '\\r\\n[A command cannot stay stopped here, so it goes on. Ctrl-C ends it.]\\r\\n'
if [[ -n $ullage_pressed ]]; then kill -INT %%; fi
fg %% >/dev/null
status=$?
"""
    * _MOST_STOPS
    + """\
kill -KILL %%
fg %% >/dev/null
exit $?"""
)
_GUARD_PIPE = (
    """\
ullage_pressed=; trap 'ullage_pressed=1' INT; trap : TERM QUIT; exec 2>/dev/null
"""
    + _UNLESS_PRESSED
    + """\
"$BASH" --norc --noprofile -c "$2" bash 2>&1 {done}>&-
exit $?"""
)

# Resets the modes in which a program may leave a terminal: an unended string, character sets, keypad and
# cursor keys, insert mode, wrapping, the hidden cursor, mouse and paste reports, the scrolling region and
# colours.
_CALM = (
    b"\x18\x0f\x1b(B\x1b>\x1b[?1l\x1b[4l\x1b[?7h\x1b[?25h"
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b7\x1b[r\x1b8\x1b[m"
)
_OUT_OF_ALTERNATE = b"\x1b[?1049l"


_Settings = list[Any]
"""The settings of a terminal, as termios returns them."""


class _Ended(BaseException):
    """A signal that ends this process came while the terminal was in raw mode."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(slots=True)
class Child:
    """A running command line; `output` is the pseudo-terminal's master, or the pipe's read end."""

    process: subprocess.Popen[bytes]
    output: int
    done: int
    """The read end of a pipe that only the guard holds open, so it ends with the guard."""
    on_terminal: bool
    pressed: bool = False
    """True if an interrupt was sent to the line."""
    wake_at: float | None = None
    """The time at which to continue the line, because a stopped line cannot take the interrupt."""
    ahead: TypeAhead = field(default_factory=lambda: TypeAhead(""))
    typed: str = ""
    """The keys that were typed but not read, set when the line has ended."""

    def group(self) -> int:
        """Returns the process group that gets the signals of the keys."""
        group = os.tcgetpgrp(self.output) if self.on_terminal else 0
        return group if group > 1 else self.process.pid  # 0: no process has taken the terminal yet

    def interrupt(self) -> None:
        """Sends the signal of Ctrl-C, also to a stopped child."""
        self.send(signal.SIGINT)

    def send(self, number: int) -> None:
        """Sends a signal that may end the child, also to a stopped child."""
        self.pressed = self.pressed or number == signal.SIGINT
        with contextlib.suppress(OSError):
            os.killpg(self.group(), number)
            os.killpg(self.group(), signal.SIGCONT)


def has_terminal() -> bool:
    """Returns True if both input and output are a terminal."""
    return os.isatty(0) and os.isatty(1)


def _start(
    bash: str, inner: str, *, fd: int, environ: Mapping[str, str], settings: _Settings | None
) -> Child:
    """Starts the bash of a line under a guard, with its state in `fd`; with `settings`, on a terminal."""
    on_terminal = settings is not None
    done, held = os.pipe()
    output, theirs = os.openpty() if on_terminal else os.pipe()
    try:
        name = os.ttyname(theirs) if on_terminal else ""
        script = [_GUARD_PIPE.format(done=held), "bash", "", inner]
        if settings is not None:
            script = [_LEAD, "bash", name, inner, _GUARD_TTY.format(done=held)]
            termios.tcsetattr(theirs, termios.TCSANOW, settings)
            resize(output)
            os.set_blocking(output, False)
        process = subprocess.Popen(  # noqa: S603 - it runs the user's commands
            [bash, "--norc", "--noprofile", "-c", *script],
            stdin=theirs if on_terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            cwd="/",
            pass_fds=(held, fd),
            start_new_session=True,
        )
    except BaseException:
        os.close(output)
        os.close(done)
        raise
    finally:
        os.close(theirs)
        os.close(held)
    return Child(process, output, done, on_terminal, ahead=TypeAhead(name))


def resize(master: int) -> None:
    """Gives a pseudo-terminal the size of the user's terminal; the kernel informs the programs there."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
        if size != fcntl.ioctl(master, termios.TIOCGWINSZ, bytes(8)) and any(struct.unpack("4H", size)):
            fcntl.ioctl(master, termios.TIOCSWINSZ, size)


def run(
    bash: str,
    inner: str,
    *,
    fd: int,
    environ: Mapping[str, str],
    on_terminal: bool,
    take: Callable[[bytes], None],
    started: Callable[[Child], None],
) -> tuple[Child, int]:
    """Runs the bash of a line to its end, and returns the child and the status as bash reports it.

    Bytes are passed both ways. The user's terminal is in raw mode during the run and is restored afterwards
    in any case. A signal that ends this process hangs up the child, restores the terminal, and then has its
    usual effect.
    """
    child: Child | None = None
    ended: int | None = None
    early: list[int] = []
    try:
        with _signals(lambda: child, early), _raw(on_terminal) as settings:
            try:
                child = _start(bash, inner, fd=fd, environ=environ, settings=settings)
                _obey(child, early)
                started(child)
                _copy(child, take)
            except BaseException as error:
                if child is not None:
                    _hang_up(child)
                    if not isinstance(error, _Ended):
                        os.close(child.output)
                raise
    except _Ended as signalled:
        ended = signalled.number
    finally:
        if child is not None:
            os.close(child.done)
    if ended is not None:
        os.kill(os.getpid(), ended)
    if child is None:  # and the handler of the signal did not end this process
        raise InterruptedError("a signal came before the command started: run it again")
    status = child.process.wait()
    return child, 128 - status if status < 0 else status


def show(data: bytes) -> None:
    """Writes all of the data to the user's terminal or pipe."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:
            select.select([], [1], [])


def calm(*, alternate: bool) -> None:
    """Resets the modes in which a program may have left the terminal; text and cursor stay."""
    show((_OUT_OF_ALTERNATE if alternate else b"") + _CALM)


def _copy(child: Child, take: Callable[[bytes], None]) -> None:
    poll = select.poll()
    poll.register(child.output, select.POLLIN)
    poll.register(child.done, select.POLLIN)
    keys = child.on_terminal
    while True:
        if child.on_terminal:
            resize(child.output)
            wanted = select.POLLIN | (select.POLLOUT if child.ahead.waiting else 0)
            poll.modify(child.output, wanted)
            if keys and len(child.ahead.waiting) < MOST:
                poll.register(0, select.POLLIN)
            else:
                with contextlib.suppress(KeyError):
                    poll.unregister(0)
        ready = dict(poll.poll(_TICK if child.wake_at is None else _TICK // 5))
        if child.wake_at is not None and time.monotonic() >= child.wake_at:
            child.wake_at = None
            with contextlib.suppress(OSError):
                os.killpg(child.group(), signal.SIGCONT)
        if 0 in ready:
            keys = _keys(child)
        if child.ahead.waiting:
            child.ahead.give(child.output)
        if ready.get(child.output, 0) & (select.POLLIN | select.POLLHUP):
            take(read(child.output))  # it does not end before the guard, which has it open too
        if child.done in ready:
            break
    child.typed = child.ahead.left(child.output)
    _take_rest(child, take)


def _take_rest(child: Child, take: Callable[[bytes], None]) -> None:
    """Takes output that is still on its way after the line's end, but not endless output of jobs."""
    waited, taken = 0.0, 0
    while waited < _LONGEST_REST and taken < _MOST_ON_ITS_WAY:
        began = time.monotonic()
        data = read(child.output, within=_QUIET)
        if not data:
            break
        waited += time.monotonic() - began
        taken += len(data)
        take(data)


def _keys(child: Child) -> bool:
    """Passes typed keys on to the child; returns True if more can come."""
    try:
        typed = os.read(0, 4096)
    except BlockingIOError:  # another process with the same terminal has read them
        return True
    except OSError:  # the terminal is gone
        return False
    child.ahead.waiting += typed
    with contextlib.suppress(OSError, termios.error):
        _, _, _, local, _, _, characters = termios.tcgetattr(child.output)
        if local & termios.ISIG and characters[termios.VINTR] in typed:
            child.pressed = True
            child.wake_at = time.monotonic() + _WAKE  # the kernel handles the key a moment later
    return bool(typed)


def read(fd: int, *, within: int = 0) -> bytes:
    """Returns the next output, if any comes within `within` milliseconds; empty at its end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(within):
        return b""
    try:
        return os.read(fd, _PIECE)
    except OSError:  # no program has the pseudo-terminal open any more
        return b""


def _hang_up(child: Child) -> None:
    """Ends a child that no one waits for any more."""
    for number in _ENDINGS:
        child.send(number)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            read(child.output, within=10)  # some programs wait until their last output is read
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(0.01)
                return
    child.process.kill()
    child.process.wait()


@contextlib.contextmanager
def _raw(on_terminal: bool) -> Iterator[_Settings | None]:
    """Puts the user's terminal, if there is one, into raw mode; yields its former settings."""
    if not on_terminal:
        yield None
        return
    sys.stdout.flush()
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)
        yield before
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone, which has ended the line
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _obey(child: Child, early: Sequence[int]) -> None:
    """Acts on the signals that came before the child existed."""
    for number in early:
        if number in _ENDING:
            raise _Ended(number)
        child.send(number)


@contextlib.contextmanager
def _signals(running: Callable[[], Child | None], early: list[int]) -> Iterator[None]:
    """Handles signals to this process while a line runs; only the main thread can do this.

    A signal that comes before the child exists is put into `early`. Otherwise a child that is just being
    started would be left behind, or would not get its interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)  # a second signal would interrupt the ending
        if running() is None:
            early.append(number)
        else:
            raise _Ended(number)

    def pass_on(number: int, _: FrameType | None) -> None:
        r"""Passes Ctrl-C and Ctrl-\ on to the line, also from a terminal that is not raw or not ours."""
        if (child := running()) is None:
            early.append(number)
        else:
            child.send(number)

    def nothing(_: int, __: FrameType | None) -> None:
        """Ignores the signal: a stop concerns only the line, and each round checks the window's size."""

    def sized(_: int, __: FrameType | None) -> None:
        if (child := running()) is not None and child.on_terminal:
            resize(child.output)

    handlers: Sequence[tuple[int, Callable[[int, FrameType | None], None]]] = (
        (signal.SIGTERM, end),
        (signal.SIGHUP, end),
        (signal.SIGQUIT, pass_on),
        (signal.SIGINT, pass_on),
        (signal.SIGTSTP, nothing),
        (signal.SIGWINCH, sized),
    )
    before = [(number, signal.signal(number, handler)) for number, handler in handlers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
