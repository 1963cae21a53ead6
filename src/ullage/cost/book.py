"""The ledger's storage: its interface `Book`, the sums and caps that calls share, and a book in memory."""

from __future__ import annotations

import threading
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from ullage.errors import ConfigurationError
from ullage.usage import MONEY, LedgerEntry, add_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.errors import StoreError


CapUnit: TypeAlias = Literal["dollars", "tokens", "requests"]
"""Unit of a cap."""
SCOPES = ("session", "day", "project", "key", "key-day", "key-month", "key-minute")
"""Scopes that have sums, and so can have a cap. A minute has the number of its requests and nothing else."""


class Account(NamedTuple):
    """The keys under which a call is booked."""

    session: str
    model: str
    category: str
    project: str
    day: str
    """Date such as 2026-11-16."""
    key: str = ""
    """Id of the gateway key that made the call; empty without one."""


class Cap(NamedTuple):
    """The most dollars, tokens or requests in one scope."""

    scope: str
    """One of SCOPES."""
    name: str
    """Name of the session, day or project; id of the key, with the day, month or minute of its scope."""
    limit: Decimal
    unit: CapUnit = "dollars"
    """A cap in requests has the scope key-minute, and no other cap has it."""


class Reservation(NamedTuple):
    """The worst case of a call that is about to be made."""

    id: str
    account: Account
    amount: Decimal | None
    """In dollars; None if the call has no known cost (a local model)."""
    tokens: int = 0
    """Most tokens of the prompt and the answer together."""


class Refusal(NamedTuple):
    """The cap that a reservation could exceed, and the sums already spent and reserved in its scope."""

    cap: Cap
    spent: Decimal
    reserved: Decimal


class Reserving(NamedTuple):
    """A change of a book: a reservation, if it exceeds no cap."""

    reservation: Reservation
    caps: Sequence[Cap] = ()


class Settling(NamedTuple):
    """A change of a book: the end of a reservation, with the usage of its call."""

    reservation: Reservation
    entry: LedgerEntry
    tokens: int | None = None
    """Tokens that count against caps; None means those of the entry."""


BookChange: TypeAlias = Reserving | Settling
BookOutcome: TypeAlias = "Refusal | bool | StoreError | None"
"""The result of a change: that of `Book.reserve` or of `Book.settle`, or the error that it would raise."""
Scope: TypeAlias = tuple[str, str]
"""A scope and its name."""


def scopes_of(account: Account) -> tuple[Scope, ...]:
    """Returns the scopes in whose sums a call counts."""
    scopes: tuple[Scope, ...] = (
        ("session", account.session),
        ("day", account.day),
        ("project", account.project),
    )
    if account.key:
        scopes += (
            ("key", account.key),
            ("key-day", f"{account.key} {account.day}"),
            ("key-month", f"{account.key} {account.day[:7]}"),
        )
    return scopes


def check_scope(scope: str) -> str:
    """Returns the scope if it has sums, else raises ConfigurationError."""
    if scope not in SCOPES:
        raise ConfigurationError(f"unknown scope {scope!r}; use one of {', '.join(SCOPES)}")
    return scope


def check_cap(cap: Cap) -> Scope:
    """Returns the scope of a cap and its name; raises ConfigurationError if the scope lacks the unit."""
    if (cap.unit == "requests") != (check_scope(cap.scope) == "key-minute"):
        raise ConfigurationError(
            f"there can be no cap in {cap.unit} for the scope {cap.scope}; use requests with key-minute, "
            "and dollars or tokens with the other scopes"
        )
    return cap.scope, cap.name


def check_amount(amount: Decimal) -> Decimal:
    """Returns the amount if it can be booked, else raises ConfigurationError."""
    if not amount.is_finite() or amount < 0:
        raise ConfigurationError(
            f"cannot book an amount of {amount} dollars; use a finite amount of 0 or more"
        )
    return amount


class Book(Protocol):
    """Stores the accounts. Every method is one transaction, also if other processes use the same book.

    Sums of dollars are exact: `usage.MONEY` adds them, or whole numbers do. A book that has a smallest amount
    rounds up to it, and one that has a largest raises StoreError above it. If the book waits for another
    process, `patience.current_limit` limits the wait: then it raises Busy if the caller tries again, else
    StoreError.
    """

    def reserve(self, reservation: Reservation, caps: Sequence[Cap]) -> Refusal | None:
        """Reserves the worst case; if it could exceed a cap, returns the first such cap instead.

        Spent and reserved sums in a scope both count against its cap. A call without cost exceeds no cap in
        dollars, and a call without tokens none in tokens. A reservation lasts until it is settled or
        released, or until its process is gone or has closed the store. It never expires by time alone. It
        counts in the `scopes_of` its account, with a cap or without. A request counts in the minute of its
        cap in requests when it is reserved, and stays counted.

        Raises ConfigurationError, by `check_amount` and `check_cap`, if the amount is negative or not finite,
        or a cap has an unknown scope or a unit that its scope does not have.
        """

    def settle(self, reservation: Reservation, entry: LedgerEntry, tokens: int | None = None) -> bool:
        """Books the actual usage of a call and ends its reservation, even if its process is gone.

        `tokens` count against caps; None means those of the entry. The entry is added to the sums of the
        account (`usage.add_entries`). Returns False and books nothing if the reservation was settled or
        released before, or does not exist. Raises NotBooked if the usage cannot be written now; the book then
        keeps it, and writes it with its next change.
        """

    def change(self, changes: Sequence[BookChange]) -> list[BookOutcome]:
        """Makes changes in their order, many of them in one transaction; returns the outcome of each.

        A change that raises StoreError has that error as its outcome, and does not affect the others.
        """

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made; returns False if it had ended before."""

    def used(self, scope: str, name: str, unit: CapUnit = "dollars") -> tuple[Decimal, Decimal]:
        """Returns the sums spent and reserved in a scope; raises ConfigurationError if it is unknown."""

    def entries(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        session: str | None = None,
        project: str | None = None,
        key: str | None = None,
    ) -> Sequence[tuple[Account, LedgerEntry]]:
        """Returns the sums by account, sorted by account, from day `since` to day `until` inclusive."""


ZERO = Decimal(0)


class MemoryBook:
    """Stores the accounts in memory, exactly; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Account, LedgerEntry] = {}
        self._spent: defaultdict[tuple[str, str, CapUnit], Decimal] = defaultdict(Decimal)
        self._held: dict[str, Reservation] = {}

    def reserve(self, reservation: Reservation, caps: Sequence[Cap]) -> Refusal | None:
        """Reserves the worst case; if it could exceed a cap, returns the first such cap instead."""
        if reservation.amount is not None:
            check_amount(reservation.amount)
        for cap in caps:
            check_cap(cap)
        with self._lock:
            for cap in caps:
                asked = _worst(reservation, cap.unit)
                spent, held = self._sum_scope(cap.scope, cap.name, cap.unit)
                if asked and _sum(spent, held, asked) > cap.limit:
                    return Refusal(cap, spent, held)
            for cap in caps:
                if cap.unit == "requests":
                    self._add(cap.scope, cap.name, cap.unit, Decimal(1))
            self._held[reservation.id] = reservation
            return None

    def settle(self, reservation: Reservation, entry: LedgerEntry, tokens: int | None = None) -> bool:
        """Books the usage of a call, once."""
        with self._lock:
            if reservation.id not in self._held:
                return False
            if entry.cost is not None:
                check_amount(entry.cost)
            del self._held[reservation.id]
            account = reservation.account
            self._entries[account] = add_entries(self._entries.get(account, LedgerEntry()), entry)
            used = entry.prompt + entry.completion if tokens is None else tokens
            for scope in scopes_of(account):
                self._add(*scope, "dollars", entry.cost)
                self._add(*scope, "tokens", Decimal(used))
            return True

    def change(self, changes: Sequence[BookChange]) -> list[BookOutcome]:
        """Does changes in their order; returns the outcome of each."""
        return [
            self.reserve(*each) if isinstance(each, Reserving) else self.settle(*each) for each in changes
        ]

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made; returns False if it had ended before."""
        with self._lock:
            return self._held.pop(reservation.id, None) is not None

    def used(self, scope: str, name: str, unit: CapUnit = "dollars") -> tuple[Decimal, Decimal]:
        """Returns the sums spent and reserved in a scope."""
        with self._lock:
            return self._sum_scope(scope, name, unit)

    def entries(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        session: str | None = None,
        project: str | None = None,
        key: str | None = None,
    ) -> Sequence[tuple[Account, LedgerEntry]]:
        """Returns the sums by account, sorted by account."""
        with self._lock:
            kept = sorted(self._entries.items(), key=lambda each: each[0])
        return [
            (account, entry)
            for account, entry in kept
            if (since is None or account.day >= since)
            and (until is None or account.day <= until)
            and session in {None, account.session}
            and project in {None, account.project}
            and key in {None, account.key}
        ]

    def _add(self, scope: str, name: str, unit: CapUnit, more: Decimal | None) -> None:
        self._spent[scope, name, unit] = _sum(self._spent[scope, name, unit], more)

    def _sum_scope(self, scope: str, name: str, unit: CapUnit) -> tuple[Decimal, Decimal]:
        check_scope(scope)
        held = (
            _worst(each, unit) for each in self._held.values() if (scope, name) in scopes_of(each.account)
        )
        return self._spent.get((scope, name, unit), ZERO), _sum(*held)


def _worst(reservation: Reservation, unit: CapUnit) -> Decimal | None:
    """Returns what a call may use of a unit."""
    if unit == "dollars":
        return reservation.amount
    return Decimal(reservation.tokens if unit == "tokens" else 1)


def _sum(*amounts: Decimal | None) -> Decimal:
    total = ZERO
    for amount in amounts:
        if amount:
            total = MONEY.add(total, amount)
    return total
