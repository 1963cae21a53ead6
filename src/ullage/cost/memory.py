"""A book in memory, which ends with the process."""

from __future__ import annotations

import threading
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING

from ullage.cost.book import Account, Cap, Refusal, Reservation, scopes_of
from ullage.usage import MONEY, LedgerEntry, add_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.cost.book import Unit

ZERO = Decimal(0)


class MemoryBook:
    """Stores the accounts in memory, exactly; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Account, LedgerEntry] = {}
        self._spent: defaultdict[tuple[str, str, Unit], Decimal] = defaultdict(Decimal)
        self._held: dict[str, Reservation] = {}

    def reserve(self, reservation: Reservation, caps: Sequence[Cap]) -> Refusal | None:
        """Reserves the worst case; if it could exceed a cap, returns the first such cap instead."""
        with self._lock:
            for cap in caps:
                asked = _worst(reservation, cap.unit)
                spent, held = self._used(cap.scope, cap.name, cap.unit)
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
            if self._held.pop(reservation.id, None) is None:
                return False
            account = reservation.account
            self._entries[account] = add_entries(self._entries.get(account, LedgerEntry()), entry)
            used = entry.prompt + entry.completion if tokens is None else tokens
            for scope in scopes_of(account):
                self._add(*scope, "dollars", entry.cost)
                self._add(*scope, "tokens", Decimal(used))
            return True

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made; returns False if it had ended before."""
        with self._lock:
            return self._held.pop(reservation.id, None) is not None

    def used(self, scope: str, name: str, unit: Unit = "dollars") -> tuple[Decimal, Decimal]:
        """Returns the sums spent and reserved in a scope."""
        with self._lock:
            return self._used(scope, name, unit)

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

    def _add(self, scope: str, name: str, unit: Unit, more: Decimal | None) -> None:
        self._spent[scope, name, unit] = _sum(self._spent[scope, name, unit], more)

    def _used(self, scope: str, name: str, unit: Unit) -> tuple[Decimal, Decimal]:
        held = (
            _worst(each, unit) for each in self._held.values() if (scope, name) in scopes_of(each.account)
        )
        return self._spent.get((scope, name, unit), ZERO), _sum(*held)


def _worst(reservation: Reservation, unit: Unit) -> Decimal | None:
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
