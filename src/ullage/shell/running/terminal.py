"""A child on a pseudo-terminal of its own, with the user's terminal joined to it; or on a pipe.

Two processes run a line. The guard is a bash that leads the session and has the terminal; the line's
bash is its only job. So the keys' signals (Ctrl-C, Ctrl-\\, Ctrl-Z) reach the line and not the guard,
the guard always lives to tell how the line ended, and jobs that the line left in the background are
not hung up with it. A line that stops is continued at once, with a word about it: nothing could bring
it back later, as the shell that knows it is gone with its line. One that stops again and again is ended.

Without a terminal on both sides, or where nothing is to be shown, there is no pseudo-terminal: output
comes through a pipe, the input is empty, and there is no controlling terminal that a password could be
asked for on.
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

from ullage.shell.running.ahead import MOST, Ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

_PIECE = 65_536
_TICK = 250  # milliseconds between two looks at the window's size
_WAKE = 0.05  # seconds from an interrupt to the signal that continues what had stopped
_QUIET = 40  # milliseconds without output, after which what still has the terminal is a background job
_LONGEST_REST = 0.15  # seconds of waiting for what comes in drops
_MOST_ON_ITS_WAY = 1_048_576  # bytes, as much as the largest pipe holds
_MOST_STOPS = 50  # of one line; what stops more often does so for ever
_PATIENCE = 0.5  # seconds for each of these to end a child
_ENDINGS = (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGKILL)

# The first terminal that the leader of a session opens is its own. Only an interactive bash keeps hold of
# it, so that its remarks on how the line ended ("Killed") can be sent elsewhere.
_LEAD = """exec 0<>"$1" 1>&0 2>&0; exec "$BASH" --norc --noprofile -i -c "$3" bash "" "$2" """
# Each step of it stands alone: a bash takes an interrupt that ended a job in its loops and lists for its own.
_GUARD_TTY = (
    """\
exec 2>/dev/null; trap 'pressed=1' INT
"$BASH" --norc --noprofile -c "$2" bash 2>&1 {done}>&-
status=$?
"""
    + """\
if ! jobs %% >/dev/null; then exit $status; fi
printf '\\r\\n[stopped: lines are not kept stopped here, it goes on; Ctrl-C ends it]\\r\\n'
if [[ -n $pressed ]]; then kill -INT %%; fi
fg %% >/dev/null
status=$?
"""
    * _MOST_STOPS
    + """\
kill -KILL %%
fg %% >/dev/null
exit $?"""
)
_GUARD_PIPE = """\
trap : INT TERM QUIT; exec 2>/dev/null
"$BASH" --norc --noprofile -c "$2" bash 2>&1 {done}>&-
exit $?"""

# What a program may leave a terminal in, undone: an unended string, character sets, keypad and cursor
# keys, insert mode, wrapping, the hidden cursor, mouse and paste reports, the scrolled region, colours.
_CALM = (
    b"\x18\x0f\x1b(B\x1b>\x1b[?1l\x1b[4l\x1b[?7h\x1b[?25h"
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b7\x1b[r\x1b8\x1b[m"
)
_OUT_OF_ALTERNATE = b"\x1b[?1049l"


_Settings = list[Any]
"""A terminal's settings, as termios has them."""


class _Ended(BaseException):
    """A signal that ends this process came while the terminal was in another state."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(slots=True)
class Child:
    """A line that runs; `output` is the pseudo-terminal's master, or the pipe's read end."""

    process: subprocess.Popen[bytes]
    output: int
    done: int
    """The read end of a pipe that only the guard holds: it ends with it."""
    on_terminal: bool
    pressed: bool = False
    """Whether an interrupt was sent to it."""
    wake_at: float | None = None
    """When to continue it, as it may stand still and then could not take the interrupt."""
    ahead: Ahead = field(default_factory=lambda: Ahead(""))
    typed: str = ""
    """What was typed and not read, once the line has ended."""

    def group(self) -> int:
        """The process group that the keys' signals go to."""
        group = os.tcgetpgrp(self.output) if self.on_terminal else 0
        return group if group > 1 else self.process.pid  # 0 is a terminal that is not taken yet

    def interrupt(self) -> None:
        """Send what Ctrl-C sends, also to a child that stands still."""
        self.send(signal.SIGINT)

    def send(self, number: int) -> None:
        """Send a signal that its end may follow from, also to a child that stands still."""
        self.pressed = self.pressed or number == signal.SIGINT
        with contextlib.suppress(OSError):
            os.killpg(self.group(), number)
            os.killpg(self.group(), signal.SIGCONT)


def has_terminal() -> bool:
    """Whether a person sits there: both input and output are a terminal."""
    return os.isatty(0) and os.isatty(1)


def _start(
    bash: str, inner: str, *, fd: int, environ: Mapping[str, str], settings: _Settings | None
) -> Child:
    """Start a line's bash, which reads its state from `fd`, under a guard; with settings, on a terminal."""
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
        process = subprocess.Popen(  # noqa: S603 - running what the user types is what it is for
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
    return Child(process, output, done, on_terminal, ahead=Ahead(name))


def resize(master: int) -> None:
    """Give a pseudo-terminal the size of the user's; the kernel tells the programs there."""
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
    """Run a line's bash to its end, passing bytes both ways: the child, and the status as bash gives it.

    The user's terminal is raw meanwhile and is as before afterwards, whatever happens. A signal that
    ends this process hangs up the child, restores the terminal, and then does what it would have done.
    """
    child: Child | None = None
    ended: int | None = None
    early: list[int] = []
    try:
        with _signals(lambda: child, early), _raw(on_terminal) as settings:
            try:
                child = _start(bash, inner, fd=fd, environ=environ, settings=settings)
                _obey(early)
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
    if child is None:  # and whoever handles that signal did not end us
        raise InterruptedError("a signal came before the command began: run it again")
    status = child.process.wait()
    return child, 128 - status if status < 0 else status


def show(data: bytes) -> None:
    """Write to the user's terminal or pipe, all of it."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:
            select.select([], [1], [])


def calm(*, alternate: bool) -> None:
    """Undo what a program may have left the terminal in; text and cursor stay."""
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
            take(read(child.output))  # not at its end before the guard is, which has it open too
        if child.done in ready:
            break
    child.typed = child.ahead.left(child.output)
    _take_rest(child, take)


def _take_rest(child: Child, take: Callable[[bytes], None]) -> None:
    """Take what was still on its way when the line ended, but not all that a background job goes on with."""
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
    """Pass on what was typed; whether more can come."""
    try:
        typed = os.read(0, 4096)
    except BlockingIOError:  # another process with the same terminal was faster
        return True
    except OSError:  # the terminal is gone
        return False
    child.ahead.waiting += typed
    with contextlib.suppress(OSError, termios.error):
        _, _, _, local, _, _, characters = termios.tcgetattr(child.output)
        if local & termios.ISIG and characters[termios.VINTR] in typed:
            child.pressed = True
            child.wake_at = time.monotonic() + _WAKE  # the kernel takes the key a moment later
    return bool(typed)


def read(fd: int, *, within: int = 0) -> bytes:
    """The next output, if any comes within so many milliseconds; nothing at its end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(within):
        return b""
    try:
        return os.read(fd, _PIECE)
    except OSError:  # a pseudo-terminal that no program has open any more
        return b""


def _hang_up(child: Child) -> None:
    """End a child whose line nobody waits for any more."""
    for number in _ENDINGS:
        child.send(number)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            read(child.output, within=10)  # some wait for their last output to be taken
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(0.01)
                return
    child.process.kill()
    child.process.wait()


@contextlib.contextmanager
def _raw(on_terminal: bool) -> Iterator[_Settings | None]:
    """The user's terminal in raw mode, where there is one; gives the settings that it had."""
    if not on_terminal:
        yield None
        return
    sys.stdout.flush()
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)
        yield before
    finally:
        with contextlib.suppress(termios.error):  # it may be gone, which is what ended the line
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _obey(early: Sequence[int]) -> None:
    if early:
        raise _Ended(early[0])


@contextlib.contextmanager
def _signals(running: Callable[[], Child | None], early: list[int]) -> Iterator[None]:
    """Signals to this process while a line runs; only the main thread can take them.

    One that ends us and comes before there is a child is put into `early`: a child that is just being started
    would be left behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # a second one would break off what the first one ends
        if running() is None:
            early.append(number)
        else:
            raise _Ended(number)

    def pass_on(number: int, _: FrameType | None) -> None:
        """Ctrl-C and Ctrl-\\ are the line's, also from a terminal that is not raw yet, or is not ours."""
        if (child := running()) is not None:
            child.send(number)

    def nothing(_: int, __: FrameType | None) -> None:
        """A stop from the keyboard is the line's; the window's size is looked at in each round."""

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
