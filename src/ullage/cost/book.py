"""What the ledger asks of the place that keeps it: entries, reservations and caps that hold exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal


class Account(NamedTuple):
    """Where a call is booked."""

    session: str
    model: str
    category: str
    project: str
    day: str
    """The date, as 2026-11-16."""


class Cap(NamedTuple):
    """The most that may be spent in one scope."""

    scope: str
    """session, day or project."""
    name: str
    """Which session, day or project."""
    limit: Decimal


class Reservation(NamedTuple):
    """The worst case of a call that is about to be made."""

    id: str
    account: Account
    amount: Decimal | None
    """In dollars; None where the call costs nothing that could be known (a local model)."""
    deadline: float
    """When its process must be taken for dead, in seconds since the epoch."""


class Refusal(NamedTuple):
    """The cap that a reservation could cross, and how far it was used."""

    cap: Cap
    spent: Decimal
    reserved: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One call, or the sum of many: what was used and what it cost."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    cached_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimate: int = 0
    """The prompt tokens as they were estimated before sending."""
    cost: Decimal | None = None
    """The known costs, in dollars; None where none of the calls had one."""
    unpriced: int = 0
    """The calls whose cost is not known; local ones among them."""


class Book(Protocol):
    """Keeps the accounts; every method is one transaction, whoever else uses the same book."""

    def reserve(self, reservation: Reservation, caps: Sequence[Cap], now: float) -> Refusal | None:
        """Holds the amount unless a cap could be crossed by it: then the first such cap comes back.

        What is spent in a scope and what is held there by reservations whose deadline is not past count
        against its cap. Reservations whose deadline is past are released.
        """

    def settle(self, reservation: Reservation, entry: Entry) -> bool:
        """Books what a call really used and ends its reservation, released in between or not.

        False, and nothing is booked, where the reservation was settled or withdrawn before, or never made.
        """

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made; False where it had ended before."""

    def used(self, scope: str, name: str, now: float) -> tuple[Decimal, Decimal]:
        """What is spent in a scope, and what is held there by reservations whose deadline is not past."""

    def entries(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        session: str | None = None,
        project: str | None = None,
    ) -> Sequence[tuple[Account, Entry]]:
        """The sums by account, from day `since` to day `until`, both included, in the order of accounts."""
