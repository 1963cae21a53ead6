"""A book that lasts as long as the process."""

from __future__ import annotations

import threading
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING

from ullage.cost.book import Account, Cap, Entry, Refusal, Reservation
from ullage.cost.sums import add
from ullage.usage import MONEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ZERO = Decimal(0)


class MemoryBook:
    """Keeps accounts in memory, exactly; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Account, Entry] = {}
        self._spent: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
        self._held: dict[str, Reservation] = {}
        self._late: set[str] = set()  # past their deadline: they hold nothing, but may still be settled

    def reserve(self, reservation: Reservation, caps: Sequence[Cap], now: float) -> Refusal | None:
        """Holds the amount unless a cap could be crossed by it: then the first such cap comes back."""
        with self._lock:
            self._let_go(now)
            for cap in caps if reservation.amount else ():
                spent, held = self._used(cap.scope, cap.name, now)
                if _sum(spent, held, reservation.amount) > cap.limit:
                    return Refusal(cap, spent, held)
            self._held[reservation.id] = reservation
            return None

    def settle(self, reservation: Reservation, entry: Entry) -> bool:
        """Books what a call used, once, whether its deadline is past or not."""
        with self._lock:
            if not self._end(reservation.id):
                return False
            account = reservation.account
            self._entries[account] = add(self._entries.get(account, Entry()), entry)
            for scope in _scopes(account):
                self._spent[scope] = _sum(self._spent[scope], entry.cost)
            return True

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made; False where it had ended before."""
        with self._lock:
            return self._end(reservation.id)

    def used(self, scope: str, name: str, now: float) -> tuple[Decimal, Decimal]:
        """What is spent in a scope, and what is held there by reservations whose deadline is not past."""
        with self._lock:
            return self._used(scope, name, now)

    def entries(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        session: str | None = None,
        project: str | None = None,
    ) -> Sequence[tuple[Account, Entry]]:
        """The sums by account, in the order of accounts."""
        with self._lock:
            kept = sorted(self._entries.items(), key=lambda each: each[0])
        return [
            (account, entry)
            for account, entry in kept
            if (since is None or account.day >= since)
            and (until is None or account.day <= until)
            and session in {None, account.session}
            and project in {None, account.project}
        ]

    def _let_go(self, now: float) -> None:
        for late in [each.id for each in self._held.values() if each.deadline < now]:
            del self._held[late]
            self._late.add(late)

    def _end(self, name: str) -> bool:
        if self._held.pop(name, None) is not None:
            return True
        if name in self._late:
            self._late.remove(name)
            return True
        return False

    def _used(self, scope: str, name: str, now: float) -> tuple[Decimal, Decimal]:
        held = (
            each.amount
            for each in self._held.values()
            if each.deadline >= now and (scope, name) in _scopes(each.account)
        )
        return self._spent.get((scope, name), ZERO), _sum(*held)


def _scopes(account: Account) -> Iterator[tuple[str, str]]:
    yield "session", account.session
    yield "day", account.day
    yield "project", account.project


def _sum(*amounts: Decimal | None) -> Decimal:
    total = ZERO
    for amount in amounts:
        if amount:
            total = MONEY.add(total, amount)
    return total
