"""Character rules, which can be chosen by name instead of a vocabulary.

A character rule only uses the length of a text. For shell output, real vocabularies need 30–60 % more tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class CharacterRule:
    """Counts tokens as a fraction of the characters."""

    name: str
    halves: int
    """Characters per token, times two. It is an integer, so that no rounding error can change a count."""
    up: bool
    """True to round up."""

    def count(self, text: str) -> int:
        """Returns the tokens of `text` by this rule."""
        return (2 * len(text) + (self.halves - 1 if self.up else 0)) // self.halves


RULES: Mapping[str, CharacterRule] = {
    rule.name: rule
    for rule in (CharacterRule("chars/4", 8, up=False), CharacterRule("chars/3.5", 7, up=True))
}
