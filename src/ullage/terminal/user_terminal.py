"""The user's terminal: its size and settings, writing to it, and putting it in order after a program."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import termios
import tty
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TerminalSettings = list[Any]
"""The settings of a terminal, as termios returns them."""

_PIECE = 65_536
# Resets the modes in which a program may leave a terminal: an unended string, character sets, keypad and
# cursor keys, insert mode, wrapping, the hidden cursor, mouse and paste reports, the scrolling region and
# colours.
_CALM = (
    b"\x18\x0f\x1b(B\x1b>\x1b[?1l\x1b[4l\x1b[?7h\x1b[?25h"
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b7\x1b[r\x1b8\x1b[m"
)
_OUT_OF_ALTERNATE = b"\x1b[?1049l"


def has_terminal() -> bool:
    """Returns True if both input and output are a terminal."""
    return os.isatty(0) and os.isatty(1)


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


def resize(master: int) -> None:
    """Gives a pseudo-terminal the size of the user's terminal; the kernel informs the programs there."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
        if size != fcntl.ioctl(master, termios.TIOCGWINSZ, bytes(8)) and any(struct.unpack("4H", size)):
            fcntl.ioctl(master, termios.TIOCSWINSZ, size)


def pty_settings(fd: int) -> TerminalSettings:
    """Returns the settings of a new pseudo-terminal: usual modes, and the user's special keys.

    The modes of the user's terminal do not count, because a prompt may have changed them just now.
    """
    settings = termios.tcgetattr(fd)
    with contextlib.suppress(termios.error):
        mine = termios.tcgetattr(0)
        settings[0] |= mine[0] & getattr(termios, "IUTF8", 0o40000)
        settings[4:6] = mine[4:6]
        keep = {termios.VMIN, termios.VTIME}
        settings[6] = [
            old if place in keep else new
            for place, (old, new) in enumerate(zip(settings[6], mine[6], strict=True))
        ]
    return settings


def restore_lines(fd: int, before: TerminalSettings | None) -> TerminalSettings | None:
    """Takes a terminal out of raw mode, in which a program has left it; returns its settings."""
    with contextlib.suppress(termios.error):
        now: TerminalSettings = termios.tcgetattr(fd)
        if before is None or now[3] & termios.ICANON:
            return now
        termios.tcsetattr(fd, termios.TCSANOW, before)
    return before


@contextlib.contextmanager
def raw(on_terminal: bool) -> Iterator[None]:
    """Puts the user's terminal, if there is one, into raw mode."""
    if not on_terminal:
        yield
        return
    sys.stdout.flush()
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone, which has ended the line
            termios.tcsetattr(0, termios.TCSADRAIN, before)
