"""Accounts in a database. The sums of each scope are stored, so a long history needs no more time."""
# ruff: noqa: S608 - the names in these statements are our own

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ullage.cost.book import Account, Refusal, Reserving, Settling, check_cap, check_scope, scopes_of
from ullage.errors import NotBooked, StoreError, StoreLost
from ullage.patience import GRACE, limit_waiting
from ullage.store.book_sums import KEYS, NOTHING, SUMS, BookSums, ScopeTotals, read_entry
from ullage.store.connection import BOOK
from ullage.store.unbooked import Unbooked, forget_aside, put_aside, read_aside
from ullage.store.values import TooLarge, column, fitting, picodollars, text_of
from ullage.usage import sum_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.cost.book import BookChange, BookOutcome, Cap, CapUnit, Reservation, Scope
    from ullage.store.connection import Connection, Database
    from ullage.usage import LedgerEntry

REMEMBERED = 30 * 24 * 3600.0
"""Seconds for which a reservation can still be settled after its process is gone."""

_ZERO = Decimal(0)
_HELD = "amount, tokens, session, day, project, key"
MOST_TOGETHER = 64
"""Most changes in one transaction, so that other processes need not wait long for the book."""


class _NeedsDisk(Exception):  # noqa: N818 - no error: the changes are made durably instead
    """The transaction has work that must not be lost."""


class StoredBook:
    """A book whose caps apply to all processes that use its store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unbooked: dict[str, Unbooked] = {}
        """Ended reservations that could not be written yet, in order."""

    def reserve(self, reservation: Reservation, caps: Sequence[Cap]) -> Refusal | None:
        """Reserves the worst case, or returns the cap that it could exceed."""
        try:
            with self._writing() as sums:
                return self._reserve(sums, reservation, caps)
        except StoreLost as lost:
            if lost.is_unknown and self._is_held(reservation):
                return None
            with self._writing() as sums:
                return self._reserve(sums, reservation, caps)

    def _reserve(self, sums: BookSums, reservation: Reservation, caps: Sequence[Cap]) -> Refusal | None:
        amount = fitting(picodollars(reservation.amount or _ZERO), "the amount to reserve")
        tokens = fitting(reservation.tokens, "the number of tokens to reserve")
        asked = ScopeTotals(held=amount, tokens_held=tokens)
        own = scopes_of(reservation.account)
        sums.load((*own, *map(check_cap, caps)))
        refusal = _find_exceeded_cap(sums, caps, asked)
        if refusal is None:
            _hold(sums.connection, reservation, asked, self._database.locks.holder)
            _count_requests(sums, caps)
            sums.add(own, asked)
        return refusal

    def _is_held(self, reservation: Reservation) -> bool:
        """Returns True if a transaction whose end was not seen has stored a reservation."""
        with self._database.reading() as connection:
            query = "SELECT 1 FROM reservations WHERE id = ?"
            return connection.execute(query, (column(reservation.id),)).fetchone() is not None

    def settle(self, reservation: Reservation, entry: LedgerEntry, tokens: int | None = None) -> bool:
        """Books the usage of a call, once, even if its process is gone.

        If the file cannot be written, this raises NotBooked. The next change of the book then writes the
        usage too.
        """
        ending = _make_ending(Settling(reservation, entry, tokens))
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
            with self._writing() as sums:
                return _end_reservation(sums, ending)
        except StoreLost as lost:
            with self._writing() as sums:
                # Only this process ends it: if it is gone now, the lost transaction was committed.
                return _end_reservation(sums, ending) or lost.is_unknown

    def change(self, changes: Sequence[BookChange]) -> list[BookOutcome]:
        """Does several changes in few transactions; returns the outcome of each.

        That is the result of `reserve` or `settle`, or the StoreError that it would raise. If a transaction
        fails, each of its changes is done alone, so one that cannot be done does not affect the others.
        """
        outcomes: list[BookOutcome] = []
        for start in range(0, len(changes), MOST_TOGETHER):
            outcomes += self._change_together(changes[start : start + MOST_TOGETHER])
        return outcomes

    def _change_together(self, changes: Sequence[BookChange]) -> list[BookOutcome]:
        # A machine that fails ends its processes, and with them their reservations. These need no disk.
        is_durable = bool(self._unbooked) or any(isinstance(each, Settling) for each in changes)
        try:
            with self._writing(is_durable=is_durable) as sums:
                sums.load(scope for each in changes for scope in _scopes_changed(each))
                return [
                    self._reserve(sums, *each)
                    if isinstance(each, Reserving)
                    else _end_reservation(sums, _make_ending(each))
                    for each in changes
                ]
        except StoreLost as lost:
            is_unknown = lost.is_unknown
        except (StoreError, _NeedsDisk):
            is_unknown = False
        return [self._change_alone(each, is_unknown=is_unknown) for each in changes]

    def _change_alone(self, change: BookChange, *, is_unknown: bool) -> BookOutcome:
        """Does one change; `is_unknown` says that it may be done already."""
        try:
            if isinstance(change, Reserving):
                is_done = is_unknown and self._is_held(change.reservation)
                return None if is_done else self.reserve(*change)
            return self.settle(*change) or is_unknown
        except StoreError as error:
            return error

    def used(self, scope: str, name: str, unit: CapUnit = "dollars") -> tuple[Decimal, Decimal]:
        """Returns the sums spent and reserved in a scope."""
        self._catch_up()
        place = (check_scope(scope), name)
        with self._database.reading() as connection:
            return BookSums(connection).total(place).convert_sums(unit)

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
            rows = connection.execute(SUMS + where, tuple(conditions.values()))
            sums = {Account(*map(text_of, row[: len(KEYS)])): read_entry(row) for row in rows}
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
    def _writing(self, *, is_durable: bool = True) -> Iterator[BookSums]:
        """Opens a transaction that first writes pending usage and ends the reservations of dead processes.

        If there is such work, a transaction that is not durable raises _NeedsDisk and does nothing.
        """
        gone: list[int] = []
        with self._database.writing(BOOK, is_durable=is_durable) as connection:
            sums = BookSums(connection)
            overdue = tuple(self._unbooked.values())
            gone = self._database.locks.gone(connection)
            if not is_durable and (overdue or gone):
                raise _NeedsDisk
            for each in overdue:
                _end_reservation(sums, each)
            for holder in gone:
                for each in read_aside(self._database.path, holder):
                    _end_reservation(sums, each)
            _free_reservations(sums, gone)
            self._database.locks.forget_holders(connection, gone)
            yield sums
            sums.write()
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


def _scopes_changed(change: BookChange) -> Iterator[Scope]:
    """Yields the scopes whose sums a change reads."""
    yield from scopes_of(change.reservation.account)
    if isinstance(change, Reserving):
        yield from ((check_scope(cap.scope), cap.name) for cap in change.caps)


def _find_exceeded_cap(sums: BookSums, caps: Sequence[Cap], asked: ScopeTotals) -> Refusal | None:
    """Returns the first cap that the call could exceed; a call that uses nothing of a unit exceeds no cap."""
    more = {"dollars": asked.held, "tokens": asked.tokens_held, "requests": 1}
    for cap in caps:
        totals = sums.total((cap.scope, cap.name))
        if more[cap.unit] and totals.with_more(more[cap.unit], cap.unit) > cap.limit:
            return Refusal(cap, *totals.convert_sums(cap.unit))
    return None


def _count_requests(sums: BookSums, caps: Sequence[Cap]) -> None:
    """Counts a request in its minute; the first one deletes the minutes before it."""
    for cap in caps:
        if cap.unit != "requests":
            continue
        if not sums.total((cap.scope, cap.name)).requests:
            key = cap.name.partition(" ")[0]
            sums.connection.execute(
                "DELETE FROM totals WHERE scope = ? AND name > ? AND name < ?", (cap.scope, key, cap.name)
            )
        sums.add([(cap.scope, cap.name)], ScopeTotals(requests=1))


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


def _make_ending(settling: Settling) -> Unbooked:
    """Returns the end of a reservation with the usage of its call."""
    reservation, entry, tokens = settling
    fitting(picodollars(entry.cost or _ZERO), "the cost")
    used = entry.prompt + entry.completion if tokens is None else tokens
    return Unbooked(reservation.id, reservation.account, entry, used)


def _end_reservation(sums: BookSums, ending: Unbooked) -> bool:
    """Deletes a reservation and books its actual cost; returns False if it had ended before."""
    row = sums.connection.execute(
        f"DELETE FROM reservations WHERE id = ? RETURNING state, {_HELD}", (column(ending.id),)
    ).fetchone()
    if row is None:
        return False
    state, amount, tokens, *names = row
    freed = ScopeTotals(held=-amount, tokens_held=-tokens) if state == "held" else NOTHING
    if ending.entry is not None:
        spent = picodollars(ending.entry.cost or _ZERO)
        freed = freed._replace(spent=spent, tokens_spent=fitting(ending.tokens, "the number of tokens"))
        sums.book(ending.account, ending.entry)
    sums.add(_scopes_held(*names), freed)
    return True


def _free_reservations(sums: BookSums, gone: Sequence[int]) -> None:
    """Frees the amounts that these processes reserved; the calls can still be settled."""
    now, connection = time.time(), sums.connection
    for holder in gone:
        held = connection.execute(
            f"SELECT id, {_HELD} FROM reservations WHERE state = 'held' AND holder = ?", (holder,)
        ).fetchall()
        for key, amount, tokens, *names in held:
            sums.add(_scopes_held(*names), ScopeTotals(held=-amount, tokens_held=-tokens))
            connection.execute("UPDATE reservations SET state = 'late', lapsed = ? WHERE id = ?", (now, key))
    if gone:
        connection.execute(
            "DELETE FROM reservations WHERE state = 'late' AND lapsed < ?", (now - REMEMBERED,)
        )
