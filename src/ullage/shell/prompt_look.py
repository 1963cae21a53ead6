"""The look of the prompt: the folder, and the mark and colour that show what Enter would do with the line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prompt_toolkit.lexers import Lexer

MARK = "> "
RUNS = "$ "
MARKS: Mapping[str, str] = {"shell": RUNS}
"""Kind of a line → its mark. It tells a command from a question without colour; other kinds have MARK."""
STYLES: Mapping[str, str] = {
    "folder": "ansiblue",
    "mark": "bold",
    "mark-shell": "bold ansigreen",
    "line-shell": "ansigreen",
    "line-meta": "ansimagenta",
    "gauge-used": "ansigreen",
    "gauge-waiting": "ansiyellow",
}
"""Part of the prompt → its style. The terminal's theme defines these colours, so they suit any background."""

GAUGE = {"█": "class:gauge-used", "▒": "class:gauge-waiting"}
"""Sign of the gauge → its style in the status line."""
_GAUGE = re.compile(f"([{''.join(GAUGE)}]+)")


def _no_folder() -> Path | None:
    return None


def _no_kind(_: str) -> str:
    return ""


class PromptLook(NamedTuple):
    """The functions that the prompt asks about its look. By default it shows no folder and no kind."""

    folder: Callable[[], Path | None] = _no_folder
    kind: Callable[[str], str] = _no_kind
    """Returns the kind of a line: `shell`, `ask`, `meta` or `nothing`; empty if it is not known."""


def folder_name(folder: Path | None, width: int) -> str:
    """Returns the last part of a folder's path in at most `width` cells; `~` for the home folder."""
    from ullage.window_chart import short  # noqa: PLC0415 - loads rich, which only a terminal needs

    if folder is None:
        return ""
    name = "~" if folder == _home() else folder.name or str(folder)
    return short(one_line(name), width)


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # a user without a home folder
        return None


def prefix(folder: str, kind: str) -> list[tuple[str, str]]:
    """Returns the text before the line, as fragments with styles."""
    style = f"class:mark-{kind}" if kind in MARKS else "class:mark"
    mark = (style, MARKS.get(kind, MARK))
    return [("class:folder", f"{folder} "), mark] if folder else [mark]


def status_fragments(text: str) -> Iterator[tuple[str, str]]:
    """Yields the status line as fragments; the signs of the gauge have colours of their own."""
    for part in _GAUGE.split(text):
        if part:
            yield GAUGE.get(part[0], ""), part


class RememberedKind:
    """Remembers the kind of the last text, because one drawing of the prompt asks several times."""

    def __init__(self, kind: Callable[[str], str]) -> None:
        self._kind = kind
        self._text, self._found = "", ""
        self.version = 0
        """Number of times that everything was forgotten."""

    def __call__(self, text: str) -> str:
        """Returns the kind of a text."""
        if text != self._text:
            self._text, self._found = text, self._kind(text)
        return self._found

    def forget(self) -> None:
        """Forgets the text: the shell has opened, or the last command has changed what can run."""
        self._text, self._found = "", ""
        self.version += 1


def lexer_of(kind: RememberedKind) -> Lexer:
    """Returns a lexer that gives the whole input the style of its kind."""
    from prompt_toolkit.lexers import Lexer  # noqa: PLC0415 - only a terminal pays for it

    class KindLexer(Lexer):
        """Styles an input by its kind."""

        def lex_document(self, document: Any) -> Callable[[int], Any]:
            found = kind(document.text)
            style, lines = (f"class:line-{found}" if found else ""), document.lines
            return lambda number: [(style, lines[number])] if number < len(lines) else []

        def invalidation_hash(self) -> object:
            return kind.version

    return KindLexer()
