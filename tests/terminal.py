"""The real program in a pseudo-terminal: type into it, wait for what its screen shows, read that.

with opened("shell", env=environment, cwd=folder) as terminal:
    terminal.ready()                     # its prompt is there
    shown = terminal.do("echo hello")    # the lines between this input and the next prompt
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pexpect
import pyte

from tests.world import BIN, PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

PROGRAM = str(BIN / "ullage")
PROMPT = ">"
"""The mark of an empty prompt; the name of the folder stands before it."""
ENTER, CTRL_C, CTRL_D, CTRL_L = "\r", "\x03", "\x04", "\x0c"


class Answering(pyte.Screen):
    """A screen that tells where its cursor is when it is asked, as terminals do."""

    reply: Callable[[str], object]

    def write_process_input(self, data: str) -> None:
        self.reply(data)


class Terminal:
    """A program, and what its terminal shows."""

    def __init__(self, child: pexpect.spawn[bytes], columns: int, rows: int) -> None:
        self.child = child
        self.raw = b""
        """Every byte that the program has written."""
        self.seen = ""
        """The screen at a moment that a test has remembered."""
        self._screen = Answering(columns, rows)
        self._screen.reply = child.send
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        """The screen, without the blanks at the ends of its lines."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines)

    @property
    def row(self) -> int:
        """The row of the cursor."""
        return int(self._screen.cursor.y)

    def cell(self, row: int, column: int) -> pyte.screens.Char:
        """A character on the screen, with its colours."""
        return self._screen.buffer[row][column]

    def press(self, keys: str) -> None:
        """Presses keys, without Enter after them."""
        self.child.send(keys)

    def wait(self, text: str) -> str:
        """The screen, as soon as it shows this."""
        return self.wait_until(lambda: text in self.text, repr(text))

    def wait_until(self, holds: Callable[[], bool], what: str) -> str:
        """The screen, as soon as this holds of it."""
        end = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > end or not self._take():
                raise AssertionError(f"{what} is not to be seen on:\n{self.text}")
        return self.text

    def ready(self) -> str:
        """The screen, as soon as the cursor stands in an empty prompt."""
        return self.wait_until(self._prompts, "the prompt")

    def type(self, line: str) -> None:
        """Enters a line at the top of an empty screen, and does not wait for what becomes of it."""
        self.press(CTRL_L)
        self.wait_until(lambda: self._prompts() and self._screen.cursor.y == 0, "an empty screen")
        self.press(line + ENTER)

    def do(self, line: str) -> str:
        """What is shown for a line, up to the next prompt."""
        self.type(line)
        return self.done()

    def done(self) -> str:
        """What is shown below the line that was typed, as soon as the next prompt is there."""
        self.wait_until(self.is_done, "the next prompt")
        return "\n".join(self.lines[1 : self._screen.cursor.y])

    def is_done(self) -> bool:
        """Whether the next prompt is there."""
        return self._prompts() and self.has_taken_line()

    def has_taken_line(self) -> bool:
        """Whether the cursor has left the line that was typed."""
        return self._screen.cursor.y > 0

    def leave(self, keys: str = CTRL_D) -> int | None:
        """The exit status of the program that these keys end."""
        self.press(keys)
        end = time.monotonic() + PATIENCE
        while self._take():
            assert time.monotonic() < end, f"it does not leave:\n{self.text}"
        close(self.child)
        return self.child.exitstatus

    def _prompts(self) -> bool:
        cursor = self._screen.cursor
        line = self.lines[cursor.y]
        return line.split(" ")[-1] == PROMPT and cursor.x == len(line) + 1

    def _take(self) -> bool:
        """Takes what is written within a moment; False where the program has ended."""
        try:
            data = self.child.read_nonblocking(65_536, 0.05)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        return True


@contextmanager
def opened(
    *arguments: str, env: Mapping[str, str], cwd: Path, columns: int = 100, rows: int = 90
) -> Iterator[Terminal]:
    """The program in a terminal of its own; it is ended with the test."""
    child: pexpect.spawn[bytes] = pexpect.spawn(
        PROGRAM,
        list(arguments),
        env={**env},
        cwd=str(cwd),
        dimensions=(rows, columns),
        timeout=PATIENCE,
    )
    child.delaybeforesend = None
    try:
        yield Terminal(child, columns, rows)
    finally:
        close(child)


def close(child: pexpect.spawn[Any]) -> None:
    """Hangs up, and waits until the program has ended.

    `child.close` alone kills a program that takes longer than a tenth of a second to end.
    """
    child.ptyproc.fileobj.close()
    if not until(lambda: not child.isalive(), PATIENCE / 4):
        child.kill(signal.SIGKILL)
        child.ptyproc.wait()
    child.close()
