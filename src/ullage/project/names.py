"""Makes file names safe to show in a prompt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.text import IN_SYSTEM, disarm

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_CHARS = 80
"""Longest name, in characters; a longer one is cut in the middle, so that it leaves room for others."""

# These names look like the tree's own lines and notes, or like a fence of the prompt.
_MISLEADING = re.compile(r'^[ …]|[ )]$|["\\]| -> |^\[.* .*\]$')


def show(name: str) -> str:
    """Returns the name on one line; quoted and escaped if it could be mistaken for other text."""
    is_fence = disarm(name, IN_SYSTEM) != name
    plain = name.isprintable() and not is_fence and not _MISLEADING.search(name)
    pieces = [*name] if plain else [_escape_character(character) for character in name]
    if is_fence:
        pieces = ["\\x5b" if piece == "[" else piece for piece in pieces]
    if sum(map(len, pieces)) > NAME_CHARS:
        tail = _within(reversed(pieces), NAME_CHARS // 4)
        pieces = [*_within(pieces, NAME_CHARS - NAME_CHARS // 4 - 1), "…", *reversed(tail)]
    text = "".join(pieces)
    return text if plain else f'"{text}"'


def _escape_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    # Control characters, line separators, invisible and bidirectional marks and lone surrogates are escaped.
    return character if character.isprintable() else ascii(character)[1:-1]


def _within(pieces: Iterable[str], most: int) -> list[str]:
    kept: list[str] = []
    for piece in pieces:
        most -= len(piece)
        if most < 0:
            break
        kept.append(piece)
    return kept
