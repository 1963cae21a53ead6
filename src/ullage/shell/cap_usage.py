"""Money that is spent against the caps: a short text for the status line, and a bar for each cap."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ullage.shell.status import dollars as shown_dollars
from ullage.shell.status import draw_gauge, share_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from decimal import Decimal

    from ullage.cost import Ledger

SCOPES: Mapping[str, str] = {"session": "", "day": " today", "project": " in this project"}
"""Scope of a cap → the words behind its figures."""
NAMES: Mapping[str, str] = {"session": "this session", "day": "today (UTC)", "project": "this project"}
"""Scope of a cap → its name at the start of a line."""
BAR = 20
"""Cells of the bar of a cap."""


class Spent(NamedTuple):
    """The dollars spent and reserved in the scope of a cap, and the cap."""

    scope: str
    used: Decimal
    limit: Decimal

    @property
    def share(self) -> float:
        """The used share of the cap; 1 if the cap is 0."""
        return share_of(self.used, self.limit)


def list_spending(ledger: Ledger) -> list[Spent]:
    """Returns the spending against each cap in dollars, the fullest first; reads the store."""
    found = [
        Spent(cap.scope, sum(ledger.used(cap.scope), start=cap.limit * 0), cap.limit)
        for cap in ledger.caps()
        if cap.unit == "dollars" and cap.scope in SCOPES
    ]
    return sorted(found, key=lambda each: each.share, reverse=True)


def describe_cap(spent: Spent) -> str:
    """Returns the spending against a cap in a few words: `$0.12 of $0.50 today`."""
    return f"{shown_dollars(spent.used)} of {shown_dollars(spent.limit)}{SCOPES[spent.scope]}"


def cap_lines(ledger: Ledger) -> Iterator[str]:
    """Yields a line with a bar for each cap."""
    for spent in list_spending(ledger):
        bar = draw_gauge(spent.share, 0, BAR)
        figures = f"{shown_dollars(spent.used)} of {shown_dollars(spent.limit)}"
        yield f"{NAMES[spent.scope]:<14}{bar}  {figures}"
