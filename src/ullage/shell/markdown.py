"""Shows an answer as Markdown while it arrives: finished blocks stay, and the unfinished one is redrawn."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.text import Text

from ullage.shell.markup import STYLES, Code, block_lines, plain_lines
from ullage.shell.output import NARROWEST, WIDEST, size, write
from ullage.text import mark_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from rich.console import Console

MOST_ROWS: Final = 8
"""The most rows of the unfinished block that are shown; of a longer block, its end is shown."""
LEFT: Final = 2
"""Rows at the top of a low terminal that the unfinished block never uses."""
LIVELY: Final = 2_000
"""The most characters of an unfinished block that is formatted; of a longer one, the plain end is shown."""
INTERVAL: Final = 1 / 30
"""Shortest time in seconds between two drawings of the unfinished block."""

KINDS: Final[Mapping[str, re.Pattern[str]]] = {
    "fence": re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<language>[^\s`{]*)"),
    "command": re.compile(r"CMD: "),
    "heading": re.compile(r" {0,3}#{1,6}(?:[ \t]|$)"),
    "rule": re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|(?:\*[ \t]*){3,})$"),
    "item": re.compile(r"(?P<indent>[ \t]*)(?:[-*+]|(?P<number>\d{1,9})[.)])(?:[ \t]|$)"),
    "quote": re.compile(r" {0,3}>"),
    "text": re.compile(""),
}
"""Kind of block → pattern of its first line. The first pattern that matches decides."""
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_WHOLE = frozenset({"command", "heading", "rule"})
"""Kinds of blocks that have one line only."""


@dataclass(slots=True)
class _Block:
    """The unfinished block: its lines so far."""

    kind: str = ""
    """A key of KINDS; empty if there is no unfinished block."""
    indent: int = 0
    """Number of blanks before the marker of a list item."""
    lines: list[str] = field(default_factory=list)
    length: int = 0

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.length += len(line) + 1


class Streamed:
    """Draws an answer on the screen: `feed` takes its pieces, and `end` finishes it.

    The final text on the screen depends on the answer alone, not on how it was divided into pieces. Rows
    above the answer never change. Without a terminal, the text is written unchanged. A terminal that cannot
    move its cursor gets the plain text without control characters.

    The text that `below` returns is shown dim on the row under the answer, from `__enter__` or the first
    piece until `end`, and is then removed. `below` is called at each drawing, so it should be fast. An empty
    text takes no row. The cursor stays at the end of the answer.
    """

    def __init__(self, console: Console, *, below: Callable[[], str] | None = None) -> None:
        self._console = console
        self._below = below
        self._under_way = False
        """True while more of the answer may arrive; then the row below is shown."""
        self._below_text = ""
        """The last result of `below`."""
        self._file = console.file
        self._moves = console.is_terminal and not console.is_dumb_terminal
        self._partial: list[str] = []
        """The pieces of the unfinished line."""
        self._tail = ""
        """The last characters of the unfinished line, for the preview."""
        self._block = _Block()
        self._fence: tuple[str, int] | None = None
        """The fence that closes the open code block, and its indentation; None outside a code block."""
        self._code = Code("", coloured=False)
        self._gap = False
        """True if an empty line comes before the next block."""
        self._begun = False
        """True once a block of this answer was printed."""
        self._out: list[str] = []
        """Final text that is not written to the file yet."""
        self._drawn: list[str] = []
        """Rows of the unfinished block on the screen; the cursor is at the end of the last row."""
        self._drawn_below = ""
        """The row below them; the cursor is at its start if the unfinished block has no rows."""
        self._due = 0.0
        """Time of the next drawing."""

    def __enter__(self) -> Streamed:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def feed(self, text: str) -> None:
        """Takes the next piece of the answer, of any length; an empty piece shows the row below again."""
        if not text:
            self._begin()
            return
        if not self._moves:
            self._write_through(text)
            return
        self._under_way = True
        first, *others = text.split("\n")
        self._extend(first)
        for other in others:
            self._take_partial()
            self._extend(other)
        is_due = time.monotonic() >= self._due
        if is_due or self._out:
            self._draw(is_due=is_due)

    def refresh(self) -> None:
        """Draws all text that has arrived, and the row below; called while the stream pauses."""
        if self._moves:
            self._draw(is_due=True)

    def _begin(self) -> None:
        if self._below is not None and self._moves and not self._under_way:
            self._under_way = True
            self._draw(is_due=True)

    def _draw(self, *, is_due: bool) -> None:
        """Updates the screen. If a drawing is not due, code is not coloured and `below` is not called."""
        if is_due and self._under_way and self._below is not None:
            self._below_text = self._below()
        below = self._row_below()
        rows = self._preview(coloured=is_due, most=self._room(1 if below else 0))
        write(self._file, self._redrawn(rows, below))
        self._drawn, self._drawn_below = rows, below
        self._due = time.monotonic() + INTERVAL

    def end(self) -> None:
        """Ends the answer: prints its last block and leaves the cursor at the start of a line."""
        if not self._moves:
            if self._console.is_terminal and self._tail and not self._tail.endswith("\n"):
                self._write_through("\n")
            return
        if self._partial:
            self._take_partial()
        self._finish()
        self._fence, self._gap, self._begun = None, False, False
        self._under_way, self._below_text = False, ""
        self.refresh()

    def _write_through(self, text: str) -> None:
        if self._console.is_terminal:
            text = mark_unsafe(text.replace("\r", ""))
        self._tail = text or self._tail
        write(self._file, text)

    # Lines into blocks ------------------------------------------------------------------------------------

    def _extend(self, piece: str) -> None:
        if piece:
            self._partial.append(piece)
            self._tail = (self._tail + piece)[-LIVELY:]

    def _take_partial(self) -> None:
        line = mark_unsafe("".join(self._partial).removesuffix("\r"))
        self._partial, self._tail = [], ""
        self._take(line)

    def _take(self, line: str) -> None:
        """Adds a whole line to its block; prints the block that the line ends."""
        if self._fence is not None:
            self._take_code(line, *self._fence)
        elif not line.strip():
            if self._block.kind == "item":  # a list item may continue after an empty line
                self._block.add("")
            else:
                self._finish()
                self._gap = True
        else:
            self._take_text(line)

    def _take_text(self, line: str) -> None:
        kind, found = _kind(line)
        block = self._block
        if block.kind == "text" and _UNDERLINE.match(line):
            block.add(line)
            self._finish()
            return
        if kind == "fence":
            self._open_code(line, found)
            return
        if _goes_on(block, line, kind, found):
            block.add(line)
            return
        self._finish()
        self._block = _Block(kind, _indent(kind, found))
        self._block.add(line)
        if kind in _WHOLE:
            self._finish()

    def _open_code(self, line: str, found: re.Match[str]) -> None:
        self._finish()
        self._fence = (found["fence"], len(found["indent"]))
        self._code = Code(found["language"].lower(), coloured=self._console.color_system is not None)
        self._print([Text(line.rstrip(), style=STYLES["fence"])])

    def _take_code(self, line: str, fence: str, indent: int) -> None:
        bare = line.strip()
        if bare.startswith(fence) and not bare.strip(fence[0]):
            self._fence = None
            self._print([Text(line.rstrip(), style=STYLES["fence"])])
            return
        margin = line[:indent] if not line[:indent].strip() else ""
        self._print([Text(margin).append_text(self._code.line(line[len(margin) :]))])

    # Blocks onto the screen -------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Prints the unfinished block in its final form."""
        block, self._block = self._block, _Block()
        if not block.kind:
            return
        trailing = block.kind == "item" and not block.lines[-1]
        self._print(self._format_block(block.kind, "\n".join(block.lines), block.indent))
        self._gap = trailing

    def _format_block(self, kind: str, source: str, indent: int) -> list[Text]:
        width = max(NARROWEST, min(size(self._console).columns, WIDEST) - 1)
        if kind == "command":
            return [Text(source, style=STYLES["command"])]
        if not indent:
            return block_lines(self._console, source, width)
        margin = " " * min(indent, width // 2)
        source = re.sub(rf"^[ \t]{{1,{indent}}}", "", source, flags=re.MULTILINE)
        lines = block_lines(self._console, source, max(NARROWEST, width - len(margin)))
        return [Text(margin).append_text(line) for line in lines]

    def _print(self, lines: Sequence[Text]) -> None:
        if self._gap and self._begun:
            self._out.append("\n")
        self._gap, self._begun = False, True
        self._out.extend(f"{row}\n" for row in self._rows(lines))

    def _rows(self, lines: Sequence[Text]) -> list[str]:
        """Returns the lines as text with escape codes; the terminal itself breaks lines that are too long."""
        if not lines:
            return []
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, soft_wrap=True, end="\n")
        return captured.get().removesuffix("\n").split("\n")

    def _room(self, taken: int) -> int:
        """Returns the most rows that the unfinished block may have, if `taken` rows are used below it."""
        return min(MOST_ROWS, size(self._console).rows - LEFT - taken)

    def _row_below(self) -> str:
        """Returns the row under the answer; empty if the terminal has no room for it."""
        if not self._below_text or self._room(1) < 1:
            return ""
        row = Text(mark_unsafe(" ".join(self._below_text.expandtabs().splitlines())), style="dim")
        row.truncate(max(1, min(size(self._console).columns, WIDEST) - 1), overflow="ellipsis")
        return self._rows([row])[0]

    def _preview(self, *, coloured: bool, most: int) -> list[str]:
        """Returns the last rows of the unfinished block; `coloured` colours an unfinished line of code."""
        tail = mark_unsafe(self._tail.removesuffix("\r"))
        width = max(1, min(size(self._console).columns, WIDEST) - 1)
        if self._fence is not None:
            line = self._code.peek(tail) if coloured else Text(tail)
            line.expand_tabs(8)
            lines = [line[at : at + width] for at in range(0, len(line), width)]
        elif not tail.strip() and not self._block.kind:
            return []
        else:
            lines = self._format_unfinished(tail, width)
        most = max(1, most)
        for line in lines[-most:]:
            line.truncate(width)
        rows = self._rows(lines[-most:])
        return ["", *rows][-most:] if self._gap and self._begun and rows else rows

    def _format_unfinished(self, tail: str, width: int) -> list[Text]:
        """Formats the unfinished block and the unfinished line as if the answer ended here."""
        block = self._block
        if block.length + len(tail) >= LIVELY:
            end = [*(line[-LIVELY:] for line in block.lines[-MOST_ROWS:]), tail]
            return plain_lines(self._console, "\n".join(end)[-LIVELY:], max(NARROWEST, width))
        kind, found = _kind(tail)
        if not tail.strip() or (block.kind == "text" and _UNDERLINE.match(tail)):
            tail = ""  # a dash may begin a list item: it makes no heading until the line is whole
        goes_on = not tail or (kind != "fence" and _goes_on(block, tail, kind, found))
        source = "\n".join([*block.lines, tail] if goes_on else block.lines).rstrip("\n")
        lines = self._format_block(block.kind, source, block.indent) if block.kind else []
        if goes_on:
            return lines
        if lines and not block.lines[-1]:
            lines.append(Text())
        if kind == "fence":
            return [*lines, Text(tail, style=STYLES["fence"])]
        return lines + self._format_block(kind, tail, _indent(kind, found))

    def _redrawn(self, rows: list[str], below: str) -> str:
        """Returns the output that replaces the drawn rows by the final text, these rows and the row below."""
        printed, self._out = "".join(self._out), []
        if not printed and (rows, below) == (self._drawn, self._drawn_below):
            return ""
        same = 0 if printed else _alike(rows, self._drawn)
        up = len(self._drawn) - 1 - same
        is_clear = not self._drawn and not self._drawn_below
        start = ("" if is_clear else "\r") + (f"\x1b[{up}A" if up > 0 else "")
        if printed and not is_clear:
            start += "\x1b[J"
        if not rows and not below:
            return start + (printed or "\x1b[J")
        # Automatic wrapping is off, so that a character of unexpected width cannot add a row.
        return f"{start}{printed}\x1b[?7l{_laid(rows[same:], below)}\x1b[?7h"


def _laid(rows: Sequence[str], below: str) -> str:
    """Returns the output that draws these rows and clears the screen below; the cursor ends after them."""
    if not rows:
        return f"{below}\x1b[J\r"
    shown = "".join(f"{row}\x1b[K\n" for row in rows[:-1])
    if not below:
        return f"{shown}{rows[-1]}\x1b[J"
    # The last row is written last, so that the cursor is at its end, whatever its width on the terminal.
    return f"{shown}\n{below}\x1b[J\x1b[A\r{rows[-1]}\x1b[K"


def _alike(rows: Sequence[str], drawn: Sequence[str]) -> int:
    """Returns the number of equal rows at the top; the last row of either list never counts."""
    most = max(0, min(len(rows), len(drawn)) - 1)
    return next((at for at in range(most) if rows[at] != drawn[at]), most)


def _kind(line: str) -> tuple[str, re.Match[str]]:
    return next((kind, found) for kind, form in KINDS.items() if (found := form.match(line)) is not None)


def _indent(kind: str, found: re.Match[str]) -> int:
    """Returns the number of blanks before the marker of a list item."""
    return len(found["indent"].expandtabs(4)) if kind == "item" else 0


def _goes_on(block: _Block, line: str, kind: str, found: re.Match[str]) -> bool:
    """Returns True if a line that is not blank belongs to the unfinished block."""
    if not block.kind or kind == "command":
        return False
    if block.kind == "item":
        margin = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        return margin >= block.indent + 2 or (kind == "text" and bool(block.lines[-1]))
    if kind == "item" and block.kind == "text":
        return found["number"] not in {None, "1"}  # a year at the start of a line begins no list
    return kind == "text" or kind == block.kind == "quote"
