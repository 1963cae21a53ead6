"""Fakes for programs that use Ullage, and for its own tests: real interfaces, predictable figures."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class FixedTokenizer:
    """A tokenizer for which every text, the empty one aside, counts the same."""

    tokens: int
    name: str = "fixed"
    asked: list[str] = field(default_factory=list)
    """The texts that were counted, in order."""

    def count(self, text: str) -> int:
        """The fixed figure, and a note of what was asked."""
        self.asked.append(text)
        return self.tokens if text else 0
