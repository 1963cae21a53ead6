"""Prices, worst-case and actual costs of calls, caps and reports."""

from __future__ import annotations

from ullage.cost.book import Account, Book, Cap, MemoryBook, Refusal, Reservation
from ullage.cost.keys import GatewayKey, Limits
from ullage.cost.ledger import Ledger, day_of
from ullage.cost.prices import Prices, cost_of, prices_of, worst_case
from ullage.usage import LedgerEntry

__all__ = [
    "Account",
    "Book",
    "Cap",
    "GatewayKey",
    "Ledger",
    "LedgerEntry",
    "Limits",
    "MemoryBook",
    "Prices",
    "Refusal",
    "Reservation",
    "cost_of",
    "day_of",
    "prices_of",
    "worst_case",
]
