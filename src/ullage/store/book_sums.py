"""The sums of a book inside one transaction: each is read once, changed in memory, and written once.

So a transaction that books many calls costs little more than one for a single call.
"""
# ruff: noqa: S608 - the names in these statements are our own

from __future__ import annotations

import functools
from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.cost.book import Account
from ullage.store.values import Damaged, column, dollars, fitting, picodollars, text_of
from ullage.usage import LedgerEntry, add_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.cost.book import CapUnit, Scope
    from ullage.store.connection import Connection

FIGURES = tuple(field.name for field in fields(LedgerEntry))
KEYS = Account._fields
_ENTRY = ", ".join((*KEYS, *FIGURES))
SUMS = f"SELECT {_ENTRY} FROM entries WHERE "
"""Reads entries, for `read_entry`."""
_SUM_OF_ACCOUNT = SUMS + " AND ".join(f"{name} = ?" for name in KEYS)
_SET_FIGURES = ", ".join(f"{name} = excluded.{name}" for name in FIGURES)
_ADD = (
    f"INSERT INTO entries ({_ENTRY}) VALUES ({', '.join('?' * (len(KEYS) + len(FIGURES)))}) "
    f"ON CONFLICT ({', '.join(KEYS)}) DO UPDATE SET {_SET_FIGURES}"
)
MOST_SCOPES = 100
"""Most scopes that one statement reads or writes."""


class ScopeTotals(NamedTuple):
    """The sums of one scope: dollars in 1e-12, tokens, and requests."""

    spent: int = 0
    held: int = 0
    tokens_spent: int = 0
    tokens_held: int = 0
    requests: int = 0

    def plus(self, other: ScopeTotals) -> ScopeTotals:
        """Returns the sums of both; in Python, because SQLite uses floats beyond 63 bits."""
        spent, held, tokens_spent, tokens_held, requests = self
        more = other
        sums = ScopeTotals(
            spent + more[0], held + more[1], tokens_spent + more[2], tokens_held + more[3], requests + more[4]
        )
        fitting(max(sums), "a sum of this scope")
        return sums

    def convert_sums(self, unit: CapUnit) -> tuple[Decimal, Decimal]:
        """Returns the sums spent and reserved in a unit."""
        spent, held = self._sums(unit)
        return _convert_number(spent, unit), _convert_number(held, unit)

    def with_more(self, more: int, unit: CapUnit) -> Decimal:
        """Returns the sums spent and reserved in a unit, and `more`, as one."""
        spent, held = self._sums(unit)
        return _convert_number(spent + held + more, unit)

    def _sums(self, unit: CapUnit) -> tuple[int, int]:
        if unit == "dollars":
            return self.spent, self.held
        return (self.tokens_spent, self.tokens_held) if unit == "tokens" else (self.requests, 0)


def _convert_number(number: int, unit: CapUnit) -> Decimal:
    return dollars(number) if unit == "dollars" else Decimal(number)


NOTHING = ScopeTotals()
_SET_TOTALS = ", ".join(f"{name} = excluded.{name}" for name in ScopeTotals._fields)


class BookSums:
    """The sums that a transaction has read or changed; `write` stores the changes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._totals: dict[Scope, ScopeTotals] = {}
        self._changed: dict[Scope, None] = {}
        self._entries: dict[Account, LedgerEntry] = {}

    def load(self, scopes: Iterable[Scope]) -> None:
        """Reads the sums of these scopes, those that are not known yet."""
        missing = [scope for scope in dict.fromkeys(scopes) if scope not in self._totals]
        for start in range(0, len(missing), MOST_SCOPES):
            self._totals |= _read_totals(self.connection, missing[start : start + MOST_SCOPES])

    def total(self, scope: Scope) -> ScopeTotals:
        """Returns the sums of a scope."""
        if scope not in self._totals:
            self.load((scope,))
        return self._totals[scope]

    def add(self, scopes: Sequence[Scope], more: ScopeTotals) -> None:
        """Adds to the sums of these scopes."""
        if not any(more):
            return
        self.load(scopes)
        for scope in scopes:
            self._totals[scope] = self._totals[scope].plus(more)
            self._changed[scope] = None

    def book(self, account: Account, entry: LedgerEntry) -> None:
        """Adds a call to its account."""
        before = self._entries.get(account)
        if before is None:
            row = self.connection.execute(_SUM_OF_ACCOUNT, tuple(map(column, account))).fetchone()
            before = None if row is None else read_entry(row)
        self._entries[account] = entry if before is None else add_entries(before, entry)

    def write(self) -> None:
        """Stores all changes."""
        changed = [*self._changed]
        for start in range(0, len(changed), MOST_SCOPES):
            _write_totals(
                self.connection,
                {scope: self._totals[scope] for scope in changed[start : start + MOST_SCOPES]},
            )
        for account, entry in self._entries.items():
            _write_entry(self.connection, account, entry)
        self._changed.clear()
        self._entries.clear()


@functools.cache
def _totals_query(scopes: int) -> str:
    wanted = " OR ".join(["scope = ? AND name = ?"] * scopes)
    return f"SELECT scope, name, {', '.join(ScopeTotals._fields)} FROM totals WHERE {wanted}"


@functools.cache
def _totals_change(scopes: int) -> str:
    row = f"({', '.join('?' * (2 + len(ScopeTotals._fields)))})"
    return (
        f"INSERT INTO totals (scope, name, {', '.join(ScopeTotals._fields)}) VALUES "
        f"{', '.join([row] * scopes)} ON CONFLICT (scope, name) DO UPDATE SET {_SET_TOTALS}"
    )


def _read_totals(connection: Connection, scopes: Sequence[Scope]) -> dict[Scope, ScopeTotals]:
    rows = connection.execute(
        _totals_query(len(scopes)),
        [value for scope, name in scopes for value in (scope, column(name))],
    )
    found = {}
    for scope, name, *sums in rows:
        if not all(isinstance(value, int) for value in sums):
            raise Damaged(f"the sums of {scope} {text_of(name)!r} were changed")
        found[scope, text_of(name)] = ScopeTotals(*sums)
    return {scope: found.get(scope, NOTHING) for scope in scopes}


def _write_totals(connection: Connection, totals: dict[Scope, ScopeTotals]) -> None:
    connection.execute(
        _totals_change(len(totals)),
        [value for (scope, name), sums in totals.items() for value in (scope, column(name), *sums)],
    )


def _write_entry(connection: Connection, account: Account, entry: LedgerEntry) -> None:
    figures: dict[str, Any] = {name: getattr(entry, name) for name in FIGURES}
    if entry.cost is not None:
        figures["cost"] = picodollars(entry.cost)
    for figure in filter(None, figures.values()):
        fitting(figure, "a sum of the account")
    connection.execute(_ADD, (*map(column, account), *figures.values()))


def read_entry(row: Sequence[Any]) -> LedgerEntry:
    """Returns the entry in a row of `SUMS`."""
    figures = dict(zip(FIGURES, row[len(KEYS) :], strict=True))
    known = [value for name, value in figures.items() if (name, value) != ("cost", None)]
    if not all(isinstance(value, int) for value in known):
        raise Damaged("the sums of an account were changed")
    if figures["cost"] is not None:
        figures["cost"] = dollars(figures["cost"])
    return LedgerEntry(**figures)
