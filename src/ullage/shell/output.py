"""Output to a terminal or a file: its size, and writing in its encoding."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import IO

    from rich.console import Console

WIDEST = 120
"""The most columns of a line; longer lines are hard to read."""
NARROWEST = 10
"""The fewest columns that text is wrapped to; a narrower terminal breaks the lines itself."""


class Size(NamedTuple):
    """The size of a terminal in character cells."""

    columns: int
    rows: int


def size(console: Console) -> Size:
    """Returns the current size of the terminal; without a terminal, the size that the console assumes."""
    if console.is_terminal:
        try:
            now = os.get_terminal_size(console.file.fileno())
        except (OSError, ValueError):  # the file has no descriptor or is closed
            now = os.terminal_size((0, 0))
        if now.columns > 0 and now.lines > 0:
            return Size(now.columns, now.lines)
    return Size(*console.size)


def write(file: IO[str], text: str) -> None:
    """Writes a text and flushes; a character that the file's encoding lacks becomes a question mark."""
    try:
        file.write(text)
    except UnicodeEncodeError:
        encoding = getattr(file, "encoding", None) or "ascii"
        file.write(text.encode(encoding, "replace").decode(encoding))
    file.flush()
