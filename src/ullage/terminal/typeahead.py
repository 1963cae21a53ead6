"""Type-ahead: keys that the command did not read go to the next prompt, as in every shell.

A pseudo-terminal keeps the keys that no program has read, and would give them to the next program.
Lines typed without echo, as at a password prompt, may be a secret and are dropped. Later keys count again
only when the program has read all of these. Single keys typed without echo, as in an editor or a pager, are
kept, but the user has not seen them: they wait for Enter. The kernel itself drops the keys that a program
flushes (as sudo does) or an interrupt discards.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 65_536
"""Most bytes that wait for a program; more wait in the user's terminal."""

_MOST_HELD = 1_048_576  # bytes, more than any pseudo-terminal holds
_SOON = 5  # milliseconds in which the kernel passes on a key
# Keys without a character, reports of the terminal, and the marks around a paste: none of them is text.
_NO_TEXT = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b(?:\[[0-?]*[ -/]*[@-~]?|O.|.)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


class TypeAhead:
    """The keys that are typed while a line runs on a pseudo-terminal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._given = False
        self._hidden = False
        self.unseen = False
        """True if keys of `take_unread` were typed into a program that takes single keys without echo."""
        self._whole = True
        """True if every line that was begun without echo is finished."""
        self.waiting = bytearray()
        """Keys that the pseudo-terminal has not taken yet."""

    def give(self, master: int) -> None:
        """Writes waiting keys to the pseudo-terminal, as many as it takes."""
        with contextlib.suppress(OSError, termios.error):  # full, or gone
            local = termios.tcgetattr(master)[3]
            has_lines = bool(local & termios.ICANON)
            if (self._hidden or self.unseen) and self._whole and local & termios.ECHO and not self._unread():
                self._hidden = self.unseen = False
            count = os.write(master, self.waiting)
            if not local & termios.ECHO:
                self._hidden = self._hidden or has_lines
                self.unseen = True
                self._whole = not has_lines or self.waiting[:count].endswith((b"\r", b"\n"))
            self._given = True
            del self.waiting[:count]

    def take_unread(self, master: int) -> str:
        """Returns the text that no program has read, after the line's end; to be called once."""
        if not (self._given or self.waiting):
            return ""
        with contextlib.suppress(OSError, termios.error):  # gone, or in exclusive use by a program
            local = termios.tcgetattr(master)[3]
            secret = self._hidden or local & (termios.ECHO | termios.ICANON) == termios.ICANON
            unread = self._read_pending() + bytes(self.waiting)
            if secret:
                return ""
            text = unread.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
            return _NO_TEXT.sub("", text)
        return ""

    def _unread(self) -> int:
        """Returns the number of bytes that a program could read now; an unfinished line does not count."""
        with self._opened() as fd:
            (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
        return int(count)

    def _read_pending(self) -> bytes:
        """Returns all bytes in the pseudo-terminal, including an unfinished line."""
        taken = bytearray()
        poll = select.poll()
        with self._opened() as fd:
            before, loose = termios.tcgetattr(fd), termios.tcgetattr(fd)
            loose[3] &= ~termios.ICANON
            loose[6][termios.VMIN], loose[6][termios.VTIME] = 1, 0
            termios.tcsetattr(fd, termios.TCSANOW, loose)
            poll.register(fd, select.POLLIN)
            while len(taken) < _MOST_HELD and poll.poll(_SOON):
                taken += os.read(fd, MOST)
            termios.tcsetattr(fd, termios.TCSANOW, before)
        return bytes(taken)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        fd = os.open(self._name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            yield fd
        finally:
            os.close(fd)
