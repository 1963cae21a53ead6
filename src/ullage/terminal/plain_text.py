"""Turns terminal output into the plain text that it leaves on the screen.

Terminal output has instructions as well as text: progress bars rewrite their line, programs set colours,
move the cursor and erase, and editors draw a screen of their own. `Plain` follows the instructions that
change the text (carriage return, backspace, cursor moves, erasing) within the last screenful, and drops
the others. The content of an alternate screen (vim, less, top) is dropped, because it leaves nothing
behind. Columns are counted in code points, so text at an absolute column after wide characters may be
off by a few columns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ROWS = 60  # lines that the cursor can still go back to
# characters; a longer line is handed on in parts, because each move over it costs time in proportion
_LONGEST_LINE = 20_000
_WIDEST = 2_000  # columns that moves and insertions can reach; no terminal is wider
_LONGEST_HELD = 65_536  # characters of a sequence that has not ended yet

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


class PlainScreen:
    """The last lines of a terminal, and the cursor; a line that scrolls out goes to `emit`."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self.emit = emit
        self.lines = [""]
        self.row = 0
        self.column = 0

    def at_end(self) -> bool:
        """Returns True if the next output only adds to the text."""
        return self.row == len(self.lines) - 1 and self.column == len(self.lines[-1])

    def append(self, text: str) -> None:
        """Adds text at the end, as most output does; it may have line ends, but no other moves."""
        self.lines[-1] += text
        if "\n" in text:
            done, *rest = "\n".join(self.lines).rsplit("\n", _ROWS - 1)
            if len(rest) < _ROWS - 1:
                rest = [done, *rest]
            else:
                self.emit(done + "\n")
            self.lines = rest
        self.row = len(self.lines) - 1
        self.column = len(self.lines[-1])
        self._hand_on_long_line()

    def _hand_on_long_line(self) -> None:
        """Hands on all lines if the last one is too long for further moves over it."""
        if len(self.lines[-1]) > _LONGEST_LINE:
            self.emit("\n".join(self.lines))
            self.lines, self.row, self.column = [""], 0, 0

    def put(self, text: str) -> None:
        """Writes over the text at the cursor."""
        self.replace(len(text), text)
        self.column += len(text)
        self._hand_on_long_line()

    def replace(self, cut: int, put: str) -> None:
        """Replaces `cut` characters at the cursor by others; the cursor stays."""
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + put + line[self.column + cut :]

    def insert(self, count: int) -> None:
        """Moves the text after the cursor to the right; text beyond the edge is lost, as on a terminal."""
        line = self.lines[self.row]
        self.replace(0, " " * count)
        self.lines[self.row] = self.lines[self.row][: max(len(line), _WIDEST)]

    def newline(self) -> None:
        """Moves the cursor to the start of the next line."""
        self.row += 1
        self.column = 0
        if self.row == len(self.lines):
            self.lines.append("")
        if len(self.lines) > _ROWS:
            self.emit(self.lines.pop(0) + "\n")
            self.row -= 1

    def go(self, row: int, column: int) -> None:
        """Moves the cursor to a position on the screen."""
        self.row = max(0, min(row, _ROWS - 1))
        self.lines.extend([""] * (self.row + 1 - len(self.lines)))
        self.column = max(0, min(column, max(_WIDEST, len(self.lines[self.row]))))

    def erase_line(self, how: int) -> None:
        """Clears the line from the cursor (0), up to it (1), or whole (2)."""
        line = self.lines[self.row]
        kept = {0: line[: self.column], 1: " " * self.column + line[self.column :], 2: ""}
        self.lines[self.row] = kept.get(how, line)

    def erase_screen(self, how: int) -> None:
        """Clears the screen from the cursor (0) or whole (2)."""
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


_MOVES: Mapping[str, Callable[[PlainScreen], None]] = {
    "\n": PlainScreen.newline,
    "\r": lambda on: on.go(on.row, 0),
    "\b": lambda on: on.go(on.row, on.column - 1),
}
# The final letter of a control sequence, and its effect on the text.
_CONTROLS: Mapping[str, Callable[[PlainScreen, list[int]], None]] = {
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
    "@": lambda on, n: on.insert(_many(n)),
}


class Plain:
    """Turns a stream of terminal output into text; text that cannot change any more goes to `emit`."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._screen = PlainScreen(emit)
        self._held = ""
        self.alternate = False
        """True while an alternate screen is shown."""
        self.moved = False
        """True if anything but text, colours and plain line ends has come."""

    @property
    def column(self) -> int:
        """The column of the cursor."""
        return self._screen.column

    def feed(self, text: str) -> None:
        """Takes the next piece of output; it may be split anywhere."""
        text = self._hold_unfinished(self._held + text)
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        text = _NOISE.sub("", text.replace("\r\n", "\n"))
        if not self.alternate and self._screen.at_end() and not _CONTROL.search(text):
            self._screen.append(text)
        else:
            self.moved = True
            self._follow(text)

    def end(self) -> None:
        """Emits the rest of the screen."""
        self._screen.emit("\n".join(self._screen.lines))
        self._screen = PlainScreen(self._screen.emit)

    def _hold_unfinished(self, text: str) -> str:
        """Returns the text up to an unfinished sequence at its end, which waits for the next piece."""
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
            if token is None:  # an escape that begins no sequence
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
