"""A file's name as it may stand in a prompt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_CHARS = 80
"""A longer name is cut in the middle, so that no name takes the room of many."""

# Like the tree's own lines and notes, or like the lines between which a prompt quotes something.
_MISLEADING = re.compile(r'^[ …]|[ )]$|["\\]| -> |^\[.* .*\]$')


def show(name: str) -> str:
    """The name on one line; quoted and escaped where it is not plainly a name."""
    plain = name.isprintable() and not _MISLEADING.search(name)
    pieces = [*name] if plain else [_escaped(character) for character in name]
    if sum(map(len, pieces)) > NAME_CHARS:
        tail = _within(reversed(pieces), NAME_CHARS // 4)
        pieces = [*_within(pieces, NAME_CHARS - NAME_CHARS // 4 - 1), "…", *reversed(tail)]
    text = "".join(pieces)
    return text if plain else f'"{text}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    # Not printable are controls, line separators, invisible and bidirectional marks, lone surrogates.
    return character if character.isprintable() else ascii(character)[1:-1]


def _within(pieces: Iterable[str], most: int) -> list[str]:
    kept: list[str] = []
    for piece in pieces:
        most -= len(piece)
        if most < 0:
            break
        kept.append(piece)
    return kept
