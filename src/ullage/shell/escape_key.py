"""The Esc key while an answer arrives: it acts like Ctrl-C. All other keys wait for the next prompt."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ullage.shell.screen import Screen

ESCAPE = b"\x1b"
FOLLOWS = 0.1
"""Seconds in which the rest of a key code that begins with Esc must arrive, such as an arrow key's."""

_KEY_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|O.|.)?", re.DOTALL)
_ERASE, _KILL = frozenset("\x7f\x08"), "\x15"


@contextmanager
def escape_stops(screen: Screen, typed: Callable[[str], None]) -> Iterator[None]:
    """Inside the with block, Esc alone sends the signal of Ctrl-C.

    At the end, `typed` is called with the text of all other keys. The screen must be a terminal.
    """
    loop = asyncio.get_running_loop()
    with screen.unbuffered() as handle:
        keys = _Keys(loop, handle)
        loop.add_reader(handle, keys.read)
        try:
            yield
        finally:
            loop.remove_reader(handle)
            keys.end()
            if text := decode_keys(bytes(keys.taken)):
                typed(text)


class _Keys:
    """The keys that arrive, and the Esc that waits for the rest of a key's code."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handle: int) -> None:
        self._loop = loop
        self._handle = handle
        self._waiting: asyncio.TimerHandle | None = None
        self.taken = bytearray()

    def read(self) -> None:
        """Takes the keys that can be read now."""
        try:
            data = os.read(self._handle, 1_024)
        except OSError:  # the terminal is gone; SIGHUP ends the shell
            data = b""
        if not data:
            self._loop.remove_reader(self._handle)
            return
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting, data = None, ESCAPE + data
        if data.endswith(ESCAPE):
            self._waiting = self._loop.call_later(FOLLOWS, self._press)
        self.taken += data.removesuffix(ESCAPE)

    def _press(self) -> None:
        self._waiting = None
        signal.raise_signal(signal.SIGINT)

    def end(self) -> None:
        """Forgets an Esc that came at the very end."""
        if self._waiting is not None:
            self._waiting.cancel()


def decode_keys(keys: bytes) -> str:
    """Returns the text of keys as a terminal would: Backspace and Ctrl-U erase; it has no control keys."""
    lines = [""]
    text = _KEY_CODE.sub("", keys.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
    for key in text:
        if key == "\n":
            lines.append("")
        elif key in _ERASE:
            lines[-1] = lines[-1][:-1]
        elif key == _KILL:
            lines[-1] = ""
        elif key.isprintable() or key == "\t":
            lines[-1] += key
    return "\n".join(lines)
