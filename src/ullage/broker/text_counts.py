"""The counts of texts that one server has made in this session."""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.tokens.surplus import Surplus

SLACK = 2
"""Tokens that a server may count in addition for any text, even a short one."""
MEMORY = 200_000
"""Most texts whose counts are remembered."""

Key = tuple[int, int]
"""The hash and the length of a text."""


@dataclass(slots=True)
class TextCounts:
    """The counts of one server for one model in this session."""

    counts: dict[Key, int] = field(default_factory=dict)
    estimated: set[Key] = field(default_factory=set)
    """The texts for which an estimate was returned."""
    ratio: float = 1.0
    """The largest ratio of a count to our own ceiling; at least 1."""
    surplus: Surplus = field(default_factory=Surplus)
    """The tokens that framing and template add to a request, learned from usage."""

    def add(self, key: Key, count: int, ceiling: int) -> None:
        """Remembers a count."""
        if len(self.counts) >= MEMORY:
            for oldest in list(self.counts)[: MEMORY // 2]:
                self.counts.pop(oldest, None)  # another thread may have removed it
        self.counts[key] = count
        if ceiling > 0:
            self.ratio = max(self.ratio, (count - SLACK) / ceiling)

    def note_estimate(self, key: Key) -> None:
        """Remembers that an estimate was returned for a text."""
        if len(self.estimated) >= MEMORY:
            self.estimated.clear()
        self.estimated.add(key)
