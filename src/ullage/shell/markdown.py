"""An answer streams as Markdown: finished blocks are printed for good, only the one under way is redrawn."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.text import Text

from ullage.shell.markup import STYLES, Code, block_lines, plain_lines
from ullage.shell.screen import NARROWEST, WIDEST, neutral, size, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from rich.console import Console

MOST_ROWS: Final = 8
"""Rows of the unfinished block that are shown; the end of it, where it is longer."""
LEFT: Final = 2
"""Rows at the top of a low terminal that stay as they are, whatever is unfinished below them."""
LIVELY: Final = 2_000
"""Characters up to which the unfinished block is formatted; the end of a longer one is shown as written."""
INTERVAL: Final = 1 / 30
"""Seconds between two drawings of the unfinished block: eyes see no more."""

KINDS: Final[Mapping[str, re.Pattern[str]]] = {
    "fence": re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<language>[^\s`{]*)"),
    "command": re.compile(r"CMD: "),
    "heading": re.compile(r" {0,3}#{1,6}(?:[ \t]|$)"),
    "rule": re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|(?:\*[ \t]*){3,})$"),
    "item": re.compile(r"(?P<indent>[ \t]*)(?:[-*+]|(?P<number>\d{1,9})[.)])(?:[ \t]|$)"),
    "quote": re.compile(r" {0,3}>"),
    "text": re.compile(""),
}
"""How a block's first line begins; the first that fits counts."""
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_WHOLE = frozenset({"command", "heading", "rule"})
"""Kinds of one line."""


@dataclass(slots=True)
class _Block:
    """The block under way: its lines so far."""

    kind: str = ""
    """Empty where there is none."""
    indent: int = 0
    """The blanks before a list's marker."""
    lines: list[str] = field(default_factory=list)
    length: int = 0

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.length += len(line) + 1


class Streamed:
    """An answer on its way to the screen: `feed` it as it comes, and `end` it.

    What stays on the screen depends on the text alone, not on the pieces in which it came. Nothing above the
    answer is touched. Where there is no terminal, the text is written through as it is; a terminal that
    cannot move its cursor gets it so too, made harmless.

    The text of `below` stands dim on a row of its own under the answer, from `__enter__` or the first piece
    until `end`, and leaves nothing behind. It is asked for at each drawing, so it should be cheap; an empty
    one takes no row. The cursor stays where the answer goes on.
    """

    def __init__(self, console: Console, *, below: Callable[[], str] | None = None) -> None:
        self._console = console
        self._below = below
        self._under_way = False
        """Whether the row below is wanted: more of the answer may come."""
        self._told = ""
        """What `below` said last."""
        self._file = console.file
        self._moves = console.is_terminal and not console.is_dumb_terminal
        self._partial: list[str] = []
        """The pieces of the line that is not whole yet."""
        self._tail = ""
        """The last of them, for the eye."""
        self._block = _Block()
        self._fence: tuple[str, int] | None = None
        """What closes the code that is open, and the blanks before it."""
        self._code = Code("", coloured=False)
        self._gap = False
        self._begun = False
        self._out: list[str] = []
        """What is printed for good and not written yet."""
        self._drawn: list[str] = []
        """The rows of the unfinished block on the screen; the cursor is at the end of the last."""
        self._drawn_below = ""
        """The row below them; the cursor is at its start where there are none."""
        self._due = 0.0

    def __enter__(self) -> Streamed:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def feed(self, text: str) -> None:
        """Takes the next piece of the answer, of any length; an empty one after `end` shows the row below."""
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
        """Draws what has come and is not on the screen yet, and the row below; for a pause in the stream."""
        if self._moves:
            self._draw(is_due=True)

    def _begin(self) -> None:
        if self._below is not None and self._moves and not self._under_way:
            self._under_way = True
            self._draw(is_due=True)

    def _draw(self, *, is_due: bool) -> None:
        """Brings the screen up to date; before it is due, code stays uncoloured and `below` is not asked."""
        if is_due and self._under_way and self._below is not None:
            self._told = self._below()
        below = self._row_below()
        rows = self._preview(coloured=is_due, most=self._room(1 if below else 0))
        write(self._file, self._redrawn(rows, below))
        self._drawn, self._drawn_below = rows, below
        self._due = time.monotonic() + INTERVAL

    def end(self) -> None:
        """The answer is over: its last block is printed for good, and the cursor is on a line of its own."""
        if not self._moves:
            if self._console.is_terminal and self._tail and not self._tail.endswith("\n"):
                self._write_through("\n")
            return
        if self._partial:
            self._take_partial()
        self._finish()
        self._fence, self._gap, self._begun = None, False, False
        self._under_way, self._told = False, ""
        self.refresh()

    def _write_through(self, text: str) -> None:
        if self._console.is_terminal:
            text = neutral(text.replace("\r", ""))
        self._tail = text or self._tail
        write(self._file, text)

    # Lines into blocks ------------------------------------------------------------------------------------

    def _extend(self, piece: str) -> None:
        if piece:
            self._partial.append(piece)
            self._tail = (self._tail + piece)[-LIVELY:]

    def _take_partial(self) -> None:
        line = neutral("".join(self._partial).removesuffix("\r"))
        self._partial, self._tail = [], ""
        self._take(line)

    def _take(self, line: str) -> None:
        """Puts a whole line where it belongs; prints what it completes."""
        if self._fence is not None:
            self._take_code(line, *self._fence)
        elif not line.strip():
            if self._block.kind == "item":  # the item may go on after it
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
        """Prints the block under way for good."""
        block, self._block = self._block, _Block()
        if not block.kind:
            return
        trailing = block.kind == "item" and not block.lines[-1]
        self._print(self._formatted(block.kind, "\n".join(block.lines), block.indent))
        self._gap = trailing

    def _formatted(self, kind: str, source: str, indent: int) -> list[Text]:
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
        """The lines as a terminal takes them; longer ones than it is wide are its own to break."""
        if not lines:
            return []
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, soft_wrap=True, end="\n")
        return captured.get().removesuffix("\n").split("\n")

    def _room(self, taken: int) -> int:
        """How many rows the unfinished block may have."""
        return min(MOST_ROWS, size(self._console).rows - LEFT - taken)

    def _row_below(self) -> str:
        """What stands under the answer; nothing where it would take the place of the answer."""
        if not self._told or self._room(1) < 1:
            return ""
        row = Text(neutral(" ".join(self._told.expandtabs().splitlines())), style="dim")
        row.truncate(max(1, min(size(self._console).columns, WIDEST) - 1), overflow="ellipsis")
        return self._rows([row])[0]

    def _preview(self, *, coloured: bool, most: int) -> list[str]:
        """The rows that show the unfinished block; code that rushes by is not coloured before it is whole."""
        tail = neutral(self._tail.removesuffix("\r"))
        width = max(1, min(size(self._console).columns, WIDEST) - 1)
        if self._fence is not None:
            line = self._code.peek(tail) if coloured else Text(tail)
            line.expand_tabs(8)
            lines = [line[at : at + width] for at in range(0, len(line), width)]
        elif not tail.strip() and not self._block.kind:
            return []
        else:
            lines = self._unfinished(tail, width)
        most = max(1, most)
        for line in lines[-most:]:
            line.truncate(width)
        rows = self._rows(lines[-most:])
        return ["", *rows][-most:] if self._gap and self._begun and rows else rows

    def _unfinished(self, tail: str, width: int) -> list[Text]:
        """The block under way with the line under way, each as it will look if nothing more comes."""
        block = self._block
        if block.length + len(tail) >= LIVELY:
            end = [*(line[-LIVELY:] for line in block.lines[-MOST_ROWS:]), tail]
            return plain_lines(self._console, "\n".join(end)[-LIVELY:], max(NARROWEST, width))
        kind, found = _kind(tail)
        if not tail.strip() or (block.kind == "text" and _UNDERLINE.match(tail)):
            tail = ""  # a dash after a paragraph may be a list's: it makes no heading before it is whole
        goes_on = not tail or (kind != "fence" and _goes_on(block, tail, kind, found))
        source = "\n".join([*block.lines, tail] if goes_on else block.lines).rstrip("\n")
        lines = self._formatted(block.kind, source, block.indent) if block.kind else []
        if goes_on:
            return lines
        if lines and not block.lines[-1]:
            lines.append(Text())
        if kind == "fence":
            return [*lines, Text(tail, style=STYLES["fence"])]
        return lines + self._formatted(kind, tail, _indent(kind, found))

    def _redrawn(self, rows: list[str], below: str) -> str:
        """What turns the screen as it is into what is printed for good, with these rows below it."""
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
        # Without automatic wrapping, a character that is wider than we think cannot push the rows apart.
        return f"{start}{printed}\x1b[?7l{_laid(rows[same:], below)}\x1b[?7h"


def _laid(rows: Sequence[str], below: str) -> str:
    """Draws these rows over what is there, down to the end of the screen; the cursor ends after the last."""
    if not rows:
        return f"{below}\x1b[J\r"
    shown = "".join(f"{row}\x1b[K\n" for row in rows[:-1])
    if not below:
        return f"{shown}{rows[-1]}\x1b[J"
    # The last row comes last, which leaves the cursor at its end, however wide the terminal takes it to be.
    return f"{shown}\n{below}\x1b[J\x1b[A\r{rows[-1]}\x1b[K"


def _alike(rows: Sequence[str], drawn: Sequence[str]) -> int:
    """How many rows from the top can stay, of those that both have before their last."""
    most = max(0, min(len(rows), len(drawn)) - 1)
    return next((at for at in range(most) if rows[at] != drawn[at]), most)


def _kind(line: str) -> tuple[str, re.Match[str]]:
    return next((kind, found) for kind, form in KINDS.items() if (found := form.match(line)) is not None)


def _indent(kind: str, found: re.Match[str]) -> int:
    """The blanks before a list's marker."""
    return len(found["indent"].expandtabs(4)) if kind == "item" else 0


def _goes_on(block: _Block, line: str, kind: str, found: re.Match[str]) -> bool:
    """Whether a line that is not blank belongs to the block under way."""
    if not block.kind or kind == "command":
        return False
    if block.kind == "item":
        margin = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        return margin >= block.indent + 2 or (kind == "text" and bool(block.lines[-1]))
    if kind == "item" and block.kind == "text":
        return found["number"] not in {None, "1"}  # a year at the start of a line is no list
    return kind == "text" or kind == block.kind == "quote"
