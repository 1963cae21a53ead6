"""Terminal output, resolved to the plain text that it leaves on the screen.

A terminal's output is instructions as much as text: progress bars go back over their line, programs
colour, move and erase, editors paint a screen of their own. `Plain` follows the instructions that
change which text stands there (carriage return, backspace, cursor moves, erasing) within the last
screenful, and drops the others; what an alternate screen shows (vim, less, top) is dropped whole, as
it leaves nothing behind. Columns are counted in code points, so text that is painted by absolute
column behind wide characters may be off by a few.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ROWS = 60  # lines that a cursor may still go back to
_LONGEST_LINE = 1_000_000  # a longer line is handed on in parts
_LONGEST_HELD = 65_536  # of a sequence that has not ended yet

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m(?:\x1b\[K)?")
_NOISE = re.compile("[\x00-\x06\x0b\x0c\x0e-\x17\x19\x1c-\x1f\x7f-\x9f]+")
_CONTROL = re.compile("[\x07\x08\r\x18\x1a\x1b]")
_ALTERNATE = frozenset(("47", "1047", "1049"))
_ALTERNATE_END = re.compile(r"\x1b\[\?(?:47|1047|1049)l")
_STRING = r"\x1b[\]PX^_][^\x07\x18\x1a\x1b\n]*"
_TOKEN = re.compile(
    r"[^\x07\x08\n\r\x18\x1a\x1b]+"
    r"|\x1b\[(?P<given>[0-?]*)[ -/]*(?P<final>[@-~])"
    rf"|{_STRING}(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x1f]"
)
_UNENDED = re.compile(rf"\r|{_STRING}\x1b?|\x1b(?:\[[0-?]*[ -/]*|[ -/]*)")


class Screen:
    """The last lines of a terminal and the cursor in them; a line that scrolls out is handed to `emit`."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self.emit = emit
        self.lines = [""]
        self.row = 0
        self.column = 0

    def at_end(self) -> bool:
        """Whether what comes next only adds to the text."""
        return self.row == len(self.lines) - 1 and self.column == len(self.lines[-1])

    def append(self, text: str) -> None:
        """Add text at the end, which is the way of most output; line ends are in it, other moves are not."""
        self.lines[-1] += text
        if "\n" in text:
            done, *rest = "\n".join(self.lines).rsplit("\n", _ROWS - 1)
            if len(rest) < _ROWS - 1:
                rest = [done, *rest]
            else:
                self.emit(done + "\n")
            self.lines = rest
        if len(self.lines[-1]) > _LONGEST_LINE:
            self.emit("\n".join(self.lines))
            self.lines = [""]
        self.row = len(self.lines) - 1
        self.column = len(self.lines[-1])

    def put(self, text: str) -> None:
        """Write over what stands at the cursor."""
        self.replace(len(text), text)
        self.column += len(text)

    def replace(self, cut: int, put: str) -> None:
        """Take `cut` characters out at the cursor and put others there; the cursor stays."""
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + put + line[self.column + cut :]

    def newline(self) -> None:
        """Go to the start of the next line."""
        self.row += 1
        self.column = 0
        if self.row == len(self.lines):
            self.lines.append("")
        if len(self.lines) > _ROWS:
            self.emit(self.lines.pop(0) + "\n")
            self.row -= 1

    def go(self, row: int, column: int) -> None:
        """Put the cursor somewhere on the screen."""
        self.row = max(0, min(row, _ROWS - 1))
        self.column = max(0, column)
        self.lines.extend([""] * (self.row + 1 - len(self.lines)))

    def erase_line(self, how: int) -> None:
        """Empty the line from the cursor (0), up to it (1), or whole (2)."""
        line = self.lines[self.row]
        kept = {0: line[: self.column], 1: " " * self.column + line[self.column :], 2: ""}
        self.lines[self.row] = kept.get(how, line)

    def erase_screen(self, how: int) -> None:
        """Empty the screen from the cursor (0) or whole (2)."""
        if how == 0:
            self.erase_line(0)
            del self.lines[self.row + 1 :]
        elif how == 2:
            self.lines = [""]
            self.go(self.row, self.column)


def _many(numbers: list[int]) -> int:
    return min(max(1, numbers[0]), 1_000)


def _at(numbers: list[int], index: int) -> int:
    return min(max(1, numbers[index] if index < len(numbers) else 1), 1_000) - 1


_MOVES: Mapping[str, Callable[[Screen], None]] = {
    "\n": Screen.newline,
    "\r": lambda on: on.go(on.row, 0),
    "\b": lambda on: on.go(on.row, on.column - 1),
}
# The final letter of a control sequence, and what it does to the text.
_CONTROLS: Mapping[str, Callable[[Screen, list[int]], None]] = {
    "A": lambda on, n: on.go(on.row - _many(n), on.column),
    "B": lambda on, n: on.go(on.row + _many(n), on.column),
    "C": lambda on, n: on.go(on.row, on.column + _many(n)),
    "D": lambda on, n: on.go(on.row, on.column - _many(n)),
    "E": lambda on, n: on.go(on.row + _many(n), 0),
    "F": lambda on, n: on.go(on.row - _many(n), 0),
    "G": lambda on, n: on.go(on.row, _at(n, 0)),
    "H": lambda on, n: on.go(_at(n, 0), _at(n, 1)),
    "f": lambda on, n: on.go(_at(n, 0), _at(n, 1)),
    "d": lambda on, n: on.go(_at(n, 0), on.column),
    "J": lambda on, n: on.erase_screen(n[0]),
    "K": lambda on, n: on.erase_line(n[0]),
    "P": lambda on, n: on.replace(_many(n), ""),
    "X": lambda on, n: on.replace(_many(n), " " * _many(n)),
    "@": lambda on, n: on.replace(0, " " * _many(n)),
}


class Plain:
    """A stream of terminal output that becomes text; what will not change any more goes to `emit`."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._screen = Screen(emit)
        self._held = ""
        self.alternate = False
        """Whether an alternate screen is up."""
        self.moved = False
        """Whether anything but text, colours and plain line ends has come."""

    @property
    def column(self) -> int:
        """Where the cursor stands in its line."""
        return self._screen.column

    def feed(self, text: str) -> None:
        """Take the next piece of output, however it was cut."""
        text = self._ended(self._held + text)
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        text = _NOISE.sub("", text.replace("\r\n", "\n"))
        if not self.alternate and self._screen.at_end() and not _CONTROL.search(text):
            self._screen.append(text)
        else:
            self.moved = True
            self._follow(text)

    def end(self) -> None:
        """Hand on what is left of the screen."""
        self._screen.emit("\n".join(self._screen.lines))
        self._screen = Screen(self._screen.emit)

    def _ended(self, text: str) -> str:
        """The text up to a sequence that is cut through at the end, which is held back."""
        self._held = ""
        at = max(text.rfind("\x1b"), len(text) - 1 if text.endswith("\r") else -1)
        if at < 0 or not _UNENDED.fullmatch(text, at):
            return text
        held = text[at:]
        self._held = held if len(held) < _LONGEST_HELD else held[:2]
        return text[:at]

    def _follow(self, text: str) -> None:
        at = 0
        while at < len(text):
            if self.alternate:
                back = _ALTERNATE_END.search(text, at)
                if back is None:
                    return
                self.alternate, at = False, back.end()
                continue
            token = _TOKEN.match(text, at)
            if token is None:  # an escape that begins nothing
                at += 1
                continue
            at = token.end()
            if token["final"]:
                self._control(token["given"], token["final"])
            elif (move := _MOVES.get(token[0])) is not None:
                move(self._screen)
            elif token[0][0] >= " " or token[0][0] == "\t":
                self._screen.put(token[0])

    def _control(self, given: str, final: str) -> None:
        if final == "h" and given.startswith("?"):
            self.alternate = not _ALTERNATE.isdisjoint(given[1:].split(";"))
        elif final in _CONTROLS and not given.startswith(("?", ">", "<", "=")):
            numbers = [int(number[:4]) if number.isdecimal() else 0 for number in given.split(";")]
            _CONTROLS[final](self._screen, numbers)
