"""The plain character rules, for those who ask for them by name.

They know nothing of a text but its length: on shell output, real vocabularies need 30–60 % more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class CharacterRule:
    """Tokens as a fraction of the characters."""

    name: str
    halves: int
    """Characters a token, times two: an integer, so that no rounding error can move a count."""
    up: bool
    """Whether a started token counts."""

    def count(self, text: str) -> int:
        """The tokens of `text` by this rule."""
        return (2 * len(text) + (self.halves - 1 if self.up else 0)) // self.halves


RULES: Mapping[str, CharacterRule] = {
    rule.name: rule
    for rule in (CharacterRule("chars/4", 8, up=False), CharacterRule("chars/3.5", 7, up=True))
}
