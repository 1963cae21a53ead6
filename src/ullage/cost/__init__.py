"""What calls cost, what they may cost, and what they did."""

from __future__ import annotations

from ullage.cost.book import Account, Book, Cap, Entry, Refusal, Reservation
from ullage.cost.ledger import Ledger, day_of
from ullage.cost.memory import MemoryBook
from ullage.cost.prices import Prices, cost_of, prices_of, worst_case

__all__ = [
    "Account",
    "Book",
    "Cap",
    "Entry",
    "Ledger",
    "MemoryBook",
    "Prices",
    "Refusal",
    "Reservation",
    "cost_of",
    "day_of",
    "prices_of",
    "worst_case",
]
