"""Accounts in a database. The sums of each scope are stored, so a long history needs no more time."""
# ruff: noqa: S608 - the names in these statements are our own

from __future__ import annotations

import functools
import operator
import time
from contextlib import contextmanager, suppress
from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.cost.book import SCOPES, Account, Refusal, scopes_of
from ullage.errors import ConfigurationError, NotBooked, StoreError, StoreLost
from ullage.patience import GRACE, limit_waiting
from ullage.store.connection import BOOK
from ullage.store.unbooked import Unbooked, forget_aside, put_aside, taken_up
from ullage.store.values import TooLarge, column, dollars, fitting, picodollars, text_of
from ullage.usage import LedgerEntry, add_entries, sum_entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ullage.cost.book import Cap, Reservation, Scope, Unit
    from ullage.store.connection import Connection, Database

REMEMBERED = 30 * 24 * 3600.0
"""Seconds for which a reservation can still be settled after its process is gone."""

_ZERO = Decimal(0)
_FIGURES = tuple(field.name for field in fields(LedgerEntry))
_KEYS = Account._fields
_ENTRY = ", ".join((*_KEYS, *_FIGURES))
_SUMS = f"SELECT {_ENTRY} FROM entries WHERE "
_SUM_OF_ACCOUNT = _SUMS + " AND ".join(f"{name} = ?" for name in _KEYS)
_SET_FIGURES = ", ".join(f"{name} = excluded.{name}" for name in _FIGURES)
_ADD = (
    f"INSERT INTO entries ({_ENTRY}) VALUES ({', '.join('?' * (len(_KEYS) + len(_FIGURES)))}) "
    f"ON CONFLICT ({', '.join(_KEYS)}) DO UPDATE SET {_SET_FIGURES}"
)
_HELD = "amount, tokens, session, day, project, key"


class ScopeTotals(NamedTuple):
    """The sums of one scope: dollars in 1e-12, tokens, and requests."""

    spent: int = 0
    held: int = 0
    tokens_spent: int = 0
    tokens_held: int = 0
    requests: int = 0

    def plus(self, other: ScopeTotals) -> ScopeTotals:
        """Returns the sums of both; in Python, because SQLite uses floats beyond 63 bits."""
        sums = ScopeTotals(*map(operator.add, self, other))
        fitting(max(sums), "a sum of this scope")
        return sums

    def used(self, unit: Unit) -> tuple[Decimal, Decimal]:
        """Returns the sums spent and reserved in a unit."""
        spent, held = self._sums(unit)
        return _shown(spent, unit), _shown(held, unit)

    def with_more(self, more: int, unit: Unit) -> Decimal:
        """Returns the sums spent and reserved in a unit, and `more`, as one."""
        spent, held = self._sums(unit)
        return _shown(spent + held + more, unit)

    def _sums(self, unit: Unit) -> tuple[int, int]:
        if unit == "dollars":
            return self.spent, self.held
        return (self.tokens_spent, self.tokens_held) if unit == "tokens" else (self.requests, 0)


def _shown(number: int, unit: Unit) -> Decimal:
    return dollars(number) if unit == "dollars" else Decimal(number)


_NOTHING = ScopeTotals()
_SET_TOTALS = ", ".join(f"{name} = excluded.{name}" for name in ScopeTotals._fields)


class StoredBook:
    """A book whose caps apply to all processes that use its store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unbooked: dict[str, Unbooked] = {}
        """Ended reservations that could not be written yet, in order."""

    def reserve(self, reservation: Reservation, caps: Sequence[Cap]) -> Refusal | None:
        """Reserves the worst case, or returns the cap that it could exceed."""
        amount = fitting(picodollars(reservation.amount or _ZERO), "the amount to reserve")
        tokens = fitting(reservation.tokens, "the number of tokens to reserve")
        asked = ScopeTotals(held=amount, tokens_held=tokens)
        try:
            return self._reserve(reservation, caps, asked)
        except StoreLost as lost:
            if lost.is_unknown and self._is_held(reservation):
                return None
            return self._reserve(reservation, caps, asked)

    def _reserve(self, reservation: Reservation, caps: Sequence[Cap], asked: ScopeTotals) -> Refusal | None:
        own = scopes_of(reservation.account)
        capped = [(_checked(cap.scope), cap.name) for cap in caps]
        with self._writing() as connection:
            totals = _totals(connection, dict.fromkeys((*own, *capped)))
            refusal = _exceeded_cap(totals, caps, asked)
            if refusal is None:
                _hold(connection, reservation, asked, self._database.locks.holder)
                _count_requests(connection, totals, caps)
                _set_totals(connection, {scope: totals[scope].plus(asked) for scope in own})
            return refusal

    def _is_held(self, reservation: Reservation) -> bool:
        """Tells if a transaction whose end nobody saw has stored a reservation."""
        with self._database.reading() as connection:
            query = "SELECT 1 FROM reservations WHERE id = ?"
            return connection.execute(query, (column(reservation.id),)).fetchone() is not None

    def settle(self, reservation: Reservation, entry: LedgerEntry, tokens: int | None = None) -> bool:
        """Books the usage of a call, once, even if its process is gone.

        If the file cannot be written, this raises NotBooked. The next change of the book then writes the
        usage too.
        """
        fitting(picodollars(entry.cost or _ZERO), "the cost")
        used = entry.prompt + entry.completion if tokens is None else tokens
        ending = Unbooked(reservation.id, reservation.account, entry, used)
        try:
            return self._end(ending)
        except TooLarge:
            raise
        except StoreError as error:
            if self._database.is_closed:
                raise
            self._unbooked[ending.id] = ending
            raise NotBooked(str(error), entry.cost) from error

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made: now, or as soon as the file can be written."""
        ending = Unbooked(reservation.id, reservation.account, None)
        try:
            return self._end(ending)
        except StoreError:
            if self._database.is_closed:
                raise
            self._unbooked[ending.id] = ending
            return True

    def _end(self, ending: Unbooked) -> bool:
        """Ends a reservation; returns False if it had ended before."""
        try:
            with self._writing() as connection:
                return _end_reservation(connection, ending)
        except StoreLost as lost:
            with self._writing() as connection:
                # Only this process ends it: if it is gone now, the lost transaction was committed.
                return _end_reservation(connection, ending) or lost.is_unknown

    def used(self, scope: str, name: str, unit: Unit = "dollars") -> tuple[Decimal, Decimal]:
        """Returns the sums spent and reserved in a scope."""
        self._catch_up()
        place = (_checked(scope), name)
        with self._database.reading() as connection:
            return _totals(connection, (place,))[place].used(unit)

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
        self._catch_up()
        asked = {
            "day >= ?": since,
            "day <= ?": until,
            "session = ?": session,
            "project = ?": project,
            "key = ?": key,
        }
        conditions = {condition: column(value) for condition, value in asked.items() if value is not None}
        where = " AND ".join(conditions) or "true"
        with self._database.reading() as connection:
            rows = connection.execute(_SUMS + where, tuple(conditions.values()))
            sums = {Account(*map(text_of, row[: len(_KEYS)])): _entry(row) for row in rows}
        return sorted(sums.items(), key=lambda each: each[0])

    def close(self) -> None:
        """Writes all pending usage into the file, or beside it for the next process to book.

        Raises NotBooked, with the sum, if neither can be written.
        """
        if not self._unbooked or self._database.is_closed:
            return
        try:
            with limit_waiting(GRACE), self._writing():
                return
        except StoreError as error:
            left = tuple(self._unbooked.values())
            if not put_aside(self._database.path, self._database.locks.holder, left):
                costs = sum_entries(each.entry for each in left if each.entry is not None)
                raise NotBooked(str(error), costs.cost, is_last=True) from error

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Opens a transaction that first writes pending usage and ends the reservations of dead processes."""
        gone: list[int] = []
        with self._database.writing(BOOK) as connection:
            overdue = tuple(self._unbooked.values())
            for each in overdue:
                _end_reservation(connection, each)
            gone = self._database.locks.gone(connection)
            for holder in gone:
                for each in taken_up(self._database.path, holder):
                    _end_reservation(connection, each)
            _free_reservations(connection, gone)
            self._database.locks.forget_holders(connection, gone)
            yield connection
        for each in overdue:
            self._unbooked.pop(each.id, None)
        for holder in gone:
            forget_aside(self._database.path, holder)

    def _catch_up(self) -> None:
        """Does the pending work if that is possible without waiting; reading does not depend on it."""
        with self._database.reading() as connection:
            is_due = bool(self._unbooked) or bool(self._database.locks.gone(connection))
        if is_due:
            with suppress(StoreError), limit_waiting(0), self._writing():
                pass


def _checked(scope: str) -> str:
    if scope not in SCOPES:
        raise ConfigurationError(f"unknown scope {scope!r}; use one of {', '.join(SCOPES)}")
    return scope


def _exceeded_cap(
    totals: Mapping[Scope, ScopeTotals], caps: Sequence[Cap], asked: ScopeTotals
) -> Refusal | None:
    """Returns the first cap that the call could exceed; a call that uses nothing of a unit exceeds no cap."""
    more = {"dollars": asked.held, "tokens": asked.tokens_held, "requests": 1}
    for cap in caps:
        sums = totals[cap.scope, cap.name]
        if more[cap.unit] and sums.with_more(more[cap.unit], cap.unit) > cap.limit:
            return Refusal(cap, *sums.used(cap.unit))
    return None


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


def _totals(connection: Connection, scopes: Collection[Scope]) -> dict[Scope, ScopeTotals]:
    """Returns the sums of these scopes."""
    rows = connection.execute(
        _totals_query(len(scopes)),
        [value for scope, name in scopes for value in (scope, column(name))],
    )
    found = {(scope, text_of(name)): ScopeTotals(*sums) for scope, name, *sums in rows}
    return {scope: found.get(scope, _NOTHING) for scope in scopes}


def _set_totals(connection: Connection, totals: Mapping[Scope, ScopeTotals]) -> None:
    connection.execute(
        _totals_change(len(totals)),
        [value for (scope, name), sums in totals.items() for value in (scope, column(name), *sums)],
    )


def _add_to_totals(connection: Connection, scopes: Sequence[Scope], more: ScopeTotals) -> None:
    if any(more):
        _set_totals(
            connection, {scope: sums.plus(more) for scope, sums in _totals(connection, scopes).items()}
        )


def _count_requests(connection: Connection, totals: Mapping[Scope, ScopeTotals], caps: Sequence[Cap]) -> None:
    """Counts a request in its minute, and deletes the minutes before it."""
    for cap in caps:
        if cap.unit == "requests":
            scope = (cap.scope, cap.name)
            _set_totals(connection, {scope: totals[scope].plus(ScopeTotals(requests=1))})
            key = cap.name.partition(" ")[0]
            connection.execute(
                "DELETE FROM totals WHERE scope = ? AND name > ? AND name < ?", (cap.scope, key, cap.name)
            )


def _hold(connection: Connection, reservation: Reservation, asked: ScopeTotals, holder: int) -> None:
    """Stores a reservation."""
    account = reservation.account
    names = map(column, (account.session, account.day, account.project, account.key))
    connection.execute(
        f"INSERT INTO reservations (id, state, lapsed, {_HELD}, holder) "
        "VALUES (?, 'held', 0, ?, ?, ?, ?, ?, ?, ?)",
        (column(reservation.id), asked.held, asked.tokens_held, *names, holder),
    )


def _scopes_held(session: Any, day: Any, project: Any, key: Any) -> tuple[Scope, ...]:
    """Returns the scopes of a reservation, from its columns."""
    names = {"session": session, "day": day, "project": project, "key": key}
    return scopes_of(Account(model="", category="", **{name: text_of(each) for name, each in names.items()}))


def _end_reservation(connection: Connection, ending: Unbooked) -> bool:
    """Deletes a reservation and books its actual cost; returns False if it had ended before."""
    row = connection.execute(
        f"DELETE FROM reservations WHERE id = ? RETURNING state, {_HELD}", (column(ending.id),)
    ).fetchone()
    if row is None:
        return False
    state, amount, tokens, *names = row
    freed = ScopeTotals(held=-amount, tokens_held=-tokens) if state == "held" else _NOTHING
    if ending.entry is not None:
        spent = picodollars(ending.entry.cost or _ZERO)
        freed = freed._replace(spent=spent, tokens_spent=fitting(ending.tokens, "the number of tokens"))
        _book(connection, ending.account, ending.entry)
    _add_to_totals(connection, _scopes_held(*names), freed)
    return True


def _free_reservations(connection: Connection, gone: Sequence[int]) -> None:
    """Frees the amounts that these processes reserved; the calls can still be settled."""
    now = time.time()
    for holder in gone:
        held = connection.execute(
            f"SELECT id, {_HELD} FROM reservations WHERE state = 'held' AND holder = ?", (holder,)
        ).fetchall()
        for key, amount, tokens, *names in held:
            _add_to_totals(connection, _scopes_held(*names), ScopeTotals(held=-amount, tokens_held=-tokens))
            connection.execute("UPDATE reservations SET state = 'late', lapsed = ? WHERE id = ?", (now, key))
    if gone:
        connection.execute(
            "DELETE FROM reservations WHERE state = 'late' AND lapsed < ?", (now - REMEMBERED,)
        )


def _book(connection: Connection, account: Account, entry: LedgerEntry) -> None:
    key = tuple(map(column, account))
    row = connection.execute(_SUM_OF_ACCOUNT, key).fetchone()
    booked = entry if row is None else add_entries(_entry(row), entry)
    figures = {name: getattr(booked, name) for name in _FIGURES}
    if booked.cost is not None:
        figures["cost"] = picodollars(booked.cost)
    for figure in filter(None, figures.values()):
        fitting(figure, "a sum of the account")
    connection.execute(_ADD, (*key, *figures.values()))


def _entry(row: Sequence[Any]) -> LedgerEntry:
    figures = dict(zip(_FIGURES, row[len(_KEYS) :], strict=True))
    if figures["cost"] is not None:
        figures["cost"] = dollars(figures["cost"])
    return LedgerEntry(**figures)
