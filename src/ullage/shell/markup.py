"""Formats a block of Markdown or a line of code as lines of styled text that fit a width."""

from __future__ import annotations

import functools
import re
import textwrap
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from ullage.shell.output import NARROWEST
from ullage.text import mark_unsafe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from rich.console import Console, JustifyMethod
    from rich.syntax import SyntaxTheme

LONGEST_BLOCK = 10_000
"""The most characters of a block that is formatted; a longer one is shown as plain text."""
_DEEP = re.compile(r"^[ \t>*+\-\d.)]{40}", re.MULTILINE)
"""Start of a line that is nested so deeply that the parser would drop its content."""

STYLES: Mapping[str, str] = {
    "h1": "bold underline",
    "h2": "bold",
    "h3": "bold italic",
    "strong": "bold",
    "em": "italic",
    "s": "strike",
    "code": "cyan",
    "marker": "dim",
    "link": "underline",
    "fence": "dim",
    "command": "bold",
}

_LANGUAGES = """
ada asm awk bash bat c c# c++ clojure cmake cobol console cpp cs csharp css d dart diff docker dockerfile
elixir elm erlang f# fortran fsharp go golang graphql groovy haskell hcl html http ini java javascript
jinja js json jsx julia kotlin latex less lisp lua make makefile markdown matlab md mysql nginx nim nix
objective-c ocaml pascal perl php postgres postgresql powershell prolog proto protobuf ps1 py pycon
python python3 r rb rs rst ruby rust sass scala scheme scss sh shell shell-session sql swift tcl
terraform tex toml ts tsx typescript udiff vim vue xml yaml yml zig zsh
"""
LANGUAGES = frozenset(_LANGUAGES.split())
"""Languages whose code is coloured. Others are not, because some lexers are extremely slow."""

JUSTIFY: Mapping[str, JustifyMethod] = {"right": "right", "center": "center"}
LEAVES = frozenset({"inline", "fence", "code_block", "hr"})
"""Types of tokens that have text of their own."""


def block_lines(console: Console, source: str, width: int) -> list[Text]:
    """Formats a whole block of Markdown; returns its plain source if it cannot be formatted."""
    if len(source) > LONGEST_BLOCK or _DEEP.search(source):
        return plain_lines(console, source, width)
    marked = console.color_system is None
    lines = list(_Walk(console, width, marked=marked).lines(_parser().parse(source)))
    return lines if any(line.plain.strip() for line in lines) else plain_lines(console, source, width)


def plain_lines(console: Console, source: str, width: int, style: str = "") -> list[Text]:
    """Wraps a text without reading markup in it."""
    return list(_wrap_text(console, Text(source.rstrip("\n"), style=style), _Margin(), width))


@functools.cache
def _parser() -> MarkdownIt:
    """Returns a parser that drops no text: HTML, link definitions and images are shown as written."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - saves 20 ms before the first prompt

    rules = ["html_block", "html_inline", "reference", "image"]
    return MarkdownIt("commonmark", {"maxNesting": 100}).enable(["strikethrough", "table"]).disable(rules)


class _Margin(NamedTuple):
    """The text at the left of a block, such as a list marker: before its first line and before the others."""

    first: str = ""
    rest: str = ""

    @property
    def is_shown(self) -> bool:
        """True if the first line of the block has been printed."""
        return self.first == self.rest


def _wrap_text(console: Console, text: Text, margin: _Margin, width: int) -> Iterator[Text]:
    """Yields a text as lines that fit the width, with the margin before each."""
    room = max(NARROWEST, width - len(margin.rest))
    before = margin.first
    for line in text.wrap(console, room, tab_size=4):
        line.rstrip()
        yield Text.assemble((before, STYLES["marker"]), line)
        before = margin.rest


class _Walk:
    """Formats the tokens of a block; `marked` keeps the marks of the markup, for output without styles."""

    def __init__(self, console: Console, width: int, *, marked: bool) -> None:
        self._console = console
        self._width = width
        self._marked = marked
        self._margins = [_Margin()]
        self._numbers: list[int | None] = []
        """The next number of each open list; None for a list with bullets."""
        self._style = ""
        self._begun = False

    def lines(self, tokens: Sequence[Token]) -> Iterator[Text]:
        """Yields the lines of all blocks in these tokens."""
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.type == "table_open":
                start, index = index, _closing(tokens, index)
                yield from self._show(self._table(tokens[start:index]))
            elif token.type in LEAVES:
                if self._begun and not tokens[index - 1].hidden and self._margins[-1].is_shown:
                    yield Text(self._margins[-1].rest.rstrip(), style=STYLES["marker"])
                text = _leaf(token, self._style, marked=self._marked)
                yield from self._show(_wrap_text(self._console, text, self._margins[-1], self._width))
            elif token.type == "list_item_close" and tokens[index - 1].type == "list_item_open":
                yield from self._show([Text(self._margins[-1].first.rstrip(), style=STYLES["marker"])])
                self._margins.pop()
            else:
                self._move(token)
            index += 1

    def _show(self, lines: Iterable[Text]) -> Iterator[Text]:
        yield from lines
        self._margins = [_Margin(each.rest, each.rest) for each in self._margins]
        self._style, self._begun = "", True

    def _move(self, token: Token) -> None:
        """Sets the margin and style where a list, an item, a quotation or a heading begins or ends."""
        first, rest = self._margins[-1]
        match token.type:
            case "bullet_list_open":
                self._numbers.append(None)
            case "ordered_list_open":
                self._numbers.append(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
            case "list_item_open":
                marker = self._marker()
                self._margins.append(_Margin(first + marker, rest + " " * len(marker)))
            case "blockquote_open":
                self._margins.append(_Margin(first + "▌ ", rest + "▌ "))
            case "list_item_close" | "blockquote_close":
                self._margins.pop()
            case "heading_open":
                self._style = token.tag if token.tag in STYLES else "h3"

    def _marker(self) -> str:
        number = self._numbers[-1]
        if number is None:
            return " • "
        self._numbers[-1] = number + 1
        return f"{number:>2}. "

    def _table(self, tokens: Sequence[Token]) -> Iterator[Text]:
        """Yields the lines of a table; if its columns do not fit, each row as a line of text."""
        rows: list[list[Text]] = []
        sides: list[str] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                sides.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
            elif token.type == "inline":
                rows[-1].append(_inline(token.children or [], marked=self._marked))
        margin = self._margins[-1]
        room = max(NARROWEST, self._width - len(margin.rest))
        if len(rows[0]) * 6 > room:
            for row in rows:
                yield from _wrap_text(self._console, Text(" | ").join(row), margin, self._width)
            return
        for line in _grid(self._console, rows, sides, room):
            yield Text.assemble((margin.rest, STYLES["marker"]), line)


def _grid(
    console: Console, rows: Sequence[Sequence[Text]], sides: Sequence[str], width: int
) -> Iterator[Text]:
    from rich import box  # noqa: PLC0415 - only answers with tables need it
    from rich.table import Table  # noqa: PLC0415 - see above

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for cell, side in zip(rows[0], sides, strict=True):
        table.add_column(cell, overflow="fold", justify=JUSTIFY.get(side, "left"))
    for row in rows[1:]:
        table.add_row(*row)
    for segments in console.render_lines(table, console.options.update(width=width), pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        yield line


def _closing(tokens: Sequence[Token], start: int) -> int:
    level = tokens[start].level
    return next(i for i in range(start + 1, len(tokens)) if tokens[i].level == level)


def _leaf(token: Token, style: str, *, marked: bool) -> Text:
    """Returns the text of a block, without its margin."""
    if token.type == "hr":
        return Text("───", style=STYLES["marker"])
    if token.type == "inline":
        text = _inline(token.children or [], marked=marked)
        if style and marked:
            return Text(f"{'#' * int(style[1])} ").append_text(text)
        text.stylize(STYLES.get(style, ""))
        return text
    code = mark_unsafe(token.content.rstrip("\n"))
    if token.type == "code_block":
        code = textwrap.indent(code, "    ")  # the parser removed the blanks that make it a code block
    return Text(code, style="" if marked else STYLES["code"])


def _inline(children: Sequence[Token], *, marked: bool) -> Text:
    text, styles, links = Text(), [], []
    for token in children:
        kind, _, move = token.type.rpartition("_")
        if token.type == "link_open":
            links.append((str(token.attrs.get("href", "")), len(text.plain)))
            styles.append(STYLES["link"])
        elif token.type == "link_close":
            styles.pop()
            address, start = links.pop()
            if text.plain[start:] != address.removeprefix("mailto:"):
                text.append(f" ({mark_unsafe(address)})", style=STYLES["marker"])
        elif move in {"open", "close"} and kind in STYLES:
            if marked:
                text.append(token.markup)
            styles = [*styles, STYLES[kind]] if move == "open" else styles[:-1]
        elif token.type in {"softbreak", "hardbreak"}:
            text.append("\n")
        elif token.type == "code_inline":
            code = f"{token.markup}{token.content}{token.markup}" if marked else token.content
            text.append(mark_unsafe(code), style=" ".join([*styles, STYLES["code"]]))
        else:
            text.append(mark_unsafe(token.content), style=" ".join(styles))
    return text


class Code:
    """Colours a block of code line by line; the lexer reads a few lines before each line again.

    The colours of a line depend only on the lines before it, so each line can be printed at once.
    """

    CONTEXT = 8
    """The most lines before the current one that the lexer reads again; at least half of them."""
    LONGEST_CONTEXT = 120
    """The most lines that the lexer reads again inside a string or comment of many lines."""
    LONGEST_LINE = 500
    """The most characters of a line that is coloured."""
    LONGEST_RUN = 80
    """The number of blanks in a row from which a line is not coloured, because lexers are slow with them."""
    SECONDS = 0.25
    """If colouring a line takes longer than this, the rest of the block is not coloured."""

    def __init__(self, language: str, *, coloured: bool) -> None:
        self._lexer = _lexer(language) if coloured else None
        self._before: list[str] = []

    def line(self, line: str) -> Text:
        """Returns the next line in colour, and remembers it for the lines after it."""
        shown, inside = self._colour_line(line)
        if not self._is_readable(line):
            self._before = []
            return shown
        self._before.append(line)
        if len(self._before) > self.CONTEXT:
            keep = len(self._before) - self.CONTEXT // 2
            start = next((at for at in range(keep, 0, -1) if at not in inside), None)
            if start is not None:
                del self._before[:start]
            elif len(self._before) > self.LONGEST_CONTEXT:
                del self._before[:keep]
        return shown

    def peek(self, line: str) -> Text:
        """Returns an unfinished line in colour, without remembering it."""
        return self._colour_line(line)[0]

    def _is_readable(self, line: str) -> bool:
        """Returns True if the line is short enough to be coloured."""
        return len(line) <= self.LONGEST_LINE and not _LONG_RUN.search(line)

    def _colour_line(self, line: str) -> tuple[Text, set[int]]:
        """Returns the line in colour, and the numbers of lines that begin inside a string or a comment."""
        shown, inside = Text(line, no_wrap=True, end=""), set[int]()
        if self._lexer is None or not self._is_readable(line):
            return shown, inside
        from pygments.token import Comment, String  # type: ignore[import-untyped]  # noqa: PLC0415 - only code

        source = "\n".join([*self._before, line, ""])
        start, number = len(source) - len(line) - 1, 0
        theme = _theme()
        since = time.thread_time()
        for at, kind, value in self._lexer.get_tokens_unprocessed(source):
            breaks = value.count("\n")
            if breaks and (kind in String or kind in Comment.Multiline):
                inside.update(range(number + 1, number + breaks + 1))
            number += breaks
            if at + len(value) > start:
                shown.stylize(theme.get_style_for_token(kind), max(0, at - start), at + len(value) - start)
        if time.thread_time() - since > self.SECONDS:
            self._lexer = None
        return shown, inside


_LONG_RUN = re.compile(rf"\s{{{Code.LONGEST_RUN},}}")


@functools.cache
def _theme() -> SyntaxTheme:
    from rich.syntax import Syntax  # noqa: PLC0415 - takes 40 ms, and only coloured code needs it

    return Syntax.get_theme("ansi_dark")


@functools.cache
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # noqa: PLC0415 - only code
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]  # noqa: PLC0415 - only code

    if language not in LANGUAGES:
        return None
    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None
