"""Runs one line in bash: passes keys and output on, until bash reports the result or ends.

The user's terminal is in raw mode during the run, and each key goes to the pseudo-terminal of bash. So
Ctrl-C, Ctrl-\\ and Ctrl-Z act on the running command as in every shell.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import threading
import time
from typing import TYPE_CHECKING

from ullage.terminal.protocol import Ack
from ullage.terminal.typeahead import MOST, TypeAhead
from ullage.terminal.user_terminal import raw, read, resize

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from types import FrameType

    from ullage.terminal.bash_process import BashProcess
    from ullage.terminal.protocol import Report

_TICK = 250  # milliseconds between two checks of bash and of the window's size
_SHORT = 20  # milliseconds between two checks whether bash has ended, if the system cannot tell at once
_LATE = 1.0  # seconds for which a mark or a last output may be late
_QUIET = 40  # milliseconds without output after the end of bash
_MOST_ON_ITS_WAY = 1_048_576  # bytes, the capacity of the largest pipe
_MOST_STOPS = 50  # of bash itself in one line; a bash that stops more often never ends
_MOST_TRIES = 20  # turns that bash may drop before it takes a line
_MOST_CHECKS = 4  # of a bash that seems to have left the protocol; after that it is ended
_MARK = re.compile(rb"\x1b\]133;D;([0-9a-f]{32})\x07")
_PART_OF_MARK = re.compile(rb"\x1b(?:\](?:1(?:3(?:3(?:;(?:D(?:;[0-9a-f]{0,32})?)?)?)?)?)?)?\Z")
_ENDING = (signal.SIGTERM, signal.SIGHUP)  # signals that end this process
_STOPPED = b"\r\n[bash itself was stopped, so it goes on. Ctrl-C ends a command.]\r\n"
INTERRUPTED = 130
"""The status of a line that Ctrl-C has ended."""


class _Ended(BaseException):
    """A signal that ends this process came while the terminal was in raw mode."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class OutputFilter:
    """Takes the marks of turns out of the output, and holds back what comes after the last mark."""

    def __init__(self, take: Callable[[bytes], None], issued: Container[str]) -> None:
        self._take = take
        self._issued = issued
        self._part = b""
        self._after = b""
        self.marked = ""
        """The nonce of the last mark; empty if none has come."""

    def feed(self, data: bytes) -> None:
        """Takes the next output; it may be split anywhere."""
        data = self._part + data
        self._part = b""
        at = 0
        for found in _MARK.finditer(data):
            if (nonce := found[1].decode()) in self._issued:
                self._pass(data[at : found.start()])
                self.go_on()
                self.marked, at = nonce, found.end()
        rest = data[at:]
        if part := _PART_OF_MARK.search(rest):
            self._part = part[0]
            rest = rest[: part.start()]
        self._pass(rest)

    def go_on(self) -> None:
        """Takes what was held back, because the mark was not the end of the line."""
        self.marked, after, self._after = "", self._after, b""
        if after:
            self._take(after)

    def forget(self) -> None:
        """Drops what was held back."""
        self._after = b""

    def end(self) -> bytes:
        """Ends the output of the line; returns the output of background jobs that came after it."""
        self._pass(self._part)
        return self._after

    def _pass(self, data: bytes) -> None:
        if self.marked:
            self._after += data
        elif data:
            self._take(data)


class CommandExchange:
    """A line on its way through bash, and its result."""

    def __init__(self, bash: BashProcess, text: str, take: Callable[[bytes], None]) -> None:
        self.bash = bash
        self.report: Report | None = None
        """The result; None if bash has ended, or if the line was interrupted before bash has taken it."""
        self.pressed = False
        """True if an interrupt was sent to the line."""
        self.typed = ""
        """The keys that were typed but not read."""
        self.late = b""
        """The output of background jobs after the end of the line."""
        self._text = text
        self._take = take
        self._output = OutputFilter(take, bash.issued)
        self._ahead = TypeAhead(bash.terminal)
        self._is_taken = self._is_dropped = False
        self._tries = self._stops = 0
        self._checked = time.monotonic()
        self._lost = 0

    @property
    def typed_unseen(self) -> bool:
        """True if some of the typed keys were not echoed."""
        return bool(self.typed) and self._ahead.unseen

    @property
    def status(self) -> int:
        """The status of the line, or of the bash that has ended with it."""
        if self._is_dropped:
            return INTERRUPTED
        return self.report.status if self.report is not None else self.bash.poll_status() or 0

    def interrupt(self) -> None:
        """Sends the signal of Ctrl-C."""
        self.send(signal.SIGINT)

    def send(self, number: int) -> None:
        """Sends a signal that may end the line."""
        self.pressed = self.pressed or number == signal.SIGINT
        if not self.bash.idle:  # otherwise bash does not have the line yet, and will not get it
            self.bash.signal(number)

    def run(self) -> None:
        """Runs the line to its end.

        A signal that ends this process ends bash, restores the terminal, and then has its usual effect.
        """
        ended: int | None = None
        try:
            with _signals(self), raw(self.bash.on_terminal):
                try:
                    self._copy()
                except BaseException:
                    self.bash.hang_up()
                    raise
        except _Ended as signalled:
            ended = signalled.number
        if ended is not None:
            os.kill(os.getpid(), ended)

    # The way of the bytes ---------------------------------------------------------------------------

    def _copy(self) -> None:
        bash, keys = self.bash, self.bash.on_terminal
        poll = select.poll()
        poll.register(bash.notes_fd, select.POLLIN)
        with _end_of(bash) as over:
            if over is not None:
                poll.register(over, select.POLLIN)
            while not self._is_over():
                self._register(poll, keys)
                ready = dict(poll.poll(_SHORT if over is None else _TICK))
                if 0 in ready and keys:
                    keys = self._pass_keys()
                if self._ahead.waiting:
                    self._ahead.give(bash.output)
                if ready.get(bash.output, 0) & (select.POLLIN | select.POLLHUP):
                    self._output.feed(read(bash.output))
                if bash.notes_fd in ready:
                    for event in bash.events():
                        self._note(event)
                self._check()
        self._take_rest()
        self.late = self._output.end()
        if bash.on_terminal:
            self.typed = self._ahead.take_unread(bash.output)

    def _register(self, poll: select.poll, keys: bool) -> None:
        bash = self.bash
        poll.register(bash.output, select.POLLIN | (select.POLLOUT if self._ahead.waiting else 0))
        if not bash.on_terminal:
            return
        resize(bash.output)
        if keys and len(self._ahead.waiting) < MOST:
            poll.register(0, select.POLLIN)
        else:
            with contextlib.suppress(KeyError):
                poll.unregister(0)

    def _is_over(self) -> bool:
        """Returns True at the end of the line; sends the line if bash waits for it."""
        if self.report is not None or self.bash.poll_status() is not None:
            return True
        if self.bash.idle and not self.pressed:
            self._tries += 1
            self.bash.send(self._text)
        self._is_dropped = bool(self.bash.idle)
        return self._is_dropped

    def _note(self, event: Ack | Report) -> None:
        if isinstance(event, Ack):
            self._is_taken = True
        elif self._is_taken:
            self.report = event
        elif self._tries > _MOST_TRIES:
            self.bash.hang_up()
        else:
            self._output.go_on()

    def _check(self) -> None:
        """Continues a bash that was stopped, and ends a bash that does not follow the protocol."""
        now = time.monotonic()
        if now - self._checked < _TICK / 1000:
            return
        self._checked = now
        if self.bash.has_stopped():
            self._stops += 1
            self._take(_STOPPED)
            self.bash.signal(signal.SIGCONT if self._stops < _MOST_STOPS else signal.SIGKILL)
        # After a mark comes a report, unless the line has closed the channels of bash.
        is_lost = bool(self._output.marked) or self.bash.has_used_all_turns()
        self._lost = self._lost + 1 if is_lost else 0
        if self._lost > _MOST_CHECKS:
            self._output.forget()
            self.bash.hang_up()

    def _pass_keys(self) -> bool:
        """Passes typed keys on; returns True if more can come."""
        try:
            typed = os.read(0, 4096)
        except BlockingIOError:  # another process with the same terminal has read them
            return True
        except OSError:  # the terminal is gone
            return False
        self._ahead.waiting += typed
        with contextlib.suppress(OSError, termios.error):
            _, _, _, local, _, _, characters = termios.tcgetattr(self.bash.output)
            if local & termios.ISIG and characters[termios.VINTR] in typed:
                self.pressed = True
        return bool(typed)

    def _take_rest(self) -> None:
        """Takes the output that is still on its way: up to the mark, or until nothing comes any more."""
        end, taken = time.monotonic() + _LATE, 0
        wanted = self.report.nonce if self.report is not None else None
        while self._output.marked != wanted and time.monotonic() < end and taken < _MOST_ON_ITS_WAY:
            # An interrupt drops output that is on its way, the mark as well
            data = read(self.bash.output, within=_QUIET)
            if not data:
                break
            taken += len(data)
            self._output.feed(data)


@contextlib.contextmanager
def _end_of(bash: BashProcess) -> Iterator[int | None]:
    """Yields a descriptor that can be read when bash has ended; None if the system has none."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    try:
        fd = os.pidfd_open(bash.process.pid)
    except OSError:  # the system does not allow it, or bash has ended
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _signals(line: CommandExchange) -> Iterator[None]:
    """Handles signals to this process while a line runs; only the main thread can do this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)  # a second signal would interrupt the ending
        raise _Ended(number)

    def pass_on(number: int, _: FrameType | None) -> None:
        r"""Passes Ctrl-C and Ctrl-\ on to the line, also from a terminal that is not raw or not ours."""
        line.send(number)

    def nothing(_: int, __: FrameType | None) -> None:
        """Ignores the signal: a stop concerns only the line."""

    def resize_terminal(_: int, __: FrameType | None) -> None:
        if line.bash.on_terminal:
            resize(line.bash.output)

    handlers: Sequence[tuple[int, Callable[[int, FrameType | None], None]]] = (
        (signal.SIGTERM, end),
        (signal.SIGHUP, end),
        (signal.SIGQUIT, pass_on),
        (signal.SIGINT, pass_on),
        (signal.SIGTSTP, nothing),
        (signal.SIGWINCH, resize_terminal),
    )
    before = [(number, signal.signal(number, handler)) for number, handler in handlers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
