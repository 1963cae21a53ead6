"""Output to a terminal or a file: its size, and text without control or hidden characters."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import IO

    from rich.console import Console

WIDEST = 120
"""The most columns of a line; longer lines are hard to read."""
NARROWEST = 10
"""The least columns that text is wrapped to; the terminal breaks the lines if it is narrower."""

# Control characters, line separators, characters that reorder or hide text, and lone surrogates. The joiners
# that some scripts and emoji need (U+200C, U+200D) are allowed.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


class Size(NamedTuple):
    """The size of a terminal in character cells."""

    columns: int
    rows: int


def neutral(text: str) -> str:
    """Replaces each character that moves the cursor, rings the bell or hides text by a visible sign."""
    return _UNSAFE.sub(_sign, text)


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


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
