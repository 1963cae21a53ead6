"""The interface of the ledger's storage: entries, reservations, and caps that no calls exceed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from ullage.usage import LedgerEntry

Unit: TypeAlias = Literal["dollars", "tokens", "requests"]
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
    unit: Unit = "dollars"


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


class Book(Protocol):
    """Stores the accounts. Every method is one transaction, also if other processes use the same book."""

    def reserve(self, reservation: Reservation, caps: Sequence[Cap]) -> Refusal | None:
        """Reserves the worst case; if it could exceed a cap, returns the first such cap instead.

        Spent and reserved sums in a scope both count against its cap. A call without cost exceeds no cap in
        dollars, and a call without tokens none in tokens. A reservation lasts until it is settled or
        released, or until its process is gone. It never expires by time alone. A request counts in its minute
        when it is reserved, and stays counted.
        """

    def settle(self, reservation: Reservation, entry: LedgerEntry, tokens: int | None = None) -> bool:
        """Books the actual usage of a call and ends its reservation, even if its process is gone.

        `tokens` count against caps; None means those of the entry. Returns False and books nothing if the
        reservation was settled or released before, or does not exist.
        """

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made; returns False if it had ended before."""

    def used(self, scope: str, name: str, unit: Unit = "dollars") -> tuple[Decimal, Decimal]:
        """Returns the sums spent and reserved in a scope."""

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
