"""Accounts in SQLite: the sums of each scope are kept, not worked out, so a long history costs nothing."""
# ruff: noqa: S608 - the names in these statements are our own

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ullage.cost.book import Account, Entry, Refusal
from ullage.cost.sums import add
from ullage.errors import ConfigurationError
from ullage.store.values import column, dollars, fitting, picodollars, text_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from ullage.cost.book import Cap, Reservation
    from ullage.store.database import Database
    from ullage.store.values import Column

SCOPES = ("session", "day", "project")
REMEMBERED = 30 * 24 * 3600.0
"""Seconds after its deadline for which a reservation that holds nothing any more can still be settled."""

_ZERO = Decimal(0)
_FIGURES = tuple(field.name for field in fields(Entry))
_SUMS = f"SELECT session, model, category, project, day, {', '.join(_FIGURES)} FROM entries WHERE "
_ADD = f"INSERT OR REPLACE INTO entries VALUES ({', '.join('?' * (5 + len(_FIGURES)))})"


class SqliteBook:
    """A book whose caps hold for all processes that use its file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(self, reservation: Reservation, caps: Sequence[Cap], now: float) -> Refusal | None:
        """Holds the amount, or tells which cap it could cross."""
        amount = fitting(picodollars(reservation.amount or _ZERO), "the amount to reserve")
        with self._database.writing() as connection:
            _let_go(connection, now)
            refusal = _refused(connection, caps, amount) if amount else None
            if refusal is None:
                names = tuple(column(getattr(reservation.account, scope)) for scope in SCOPES)
                connection.execute(
                    "INSERT INTO reservations VALUES (?, 'held', ?, ?, ?, ?, ?)",
                    (column(reservation.id), float(reservation.deadline), amount, *names),
                )
                _move(connection, names, held=amount)
            return refusal

    def settle(self, reservation: Reservation, entry: Entry) -> bool:
        """Books what a call used, once, whether its deadline is past or not."""
        cost = fitting(picodollars(entry.cost or _ZERO), "the cost")
        with self._database.writing() as connection:
            ended = _end(connection, reservation, spent=cost)
            if ended:
                _book(connection, reservation.account, entry)
            return ended

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made."""
        with self._database.writing() as connection:
            return _end(connection, reservation)

    def used(self, scope: str, name: str, now: float) -> tuple[Decimal, Decimal]:
        """What is spent in a scope and what is held there, without what is held for the dead."""
        with self._database.reading() as connection:
            spent, held = _totals(connection, _checked(scope), column(name))
            (dead,) = connection.execute(
                "SELECT coalesce(sum(amount), 0) FROM reservations "
                f"WHERE state = 'held' AND deadline < ? AND {scope} = ?",
                (now, column(name)),
            ).fetchone()
        return dollars(spent), dollars(held - dead)

    def entries(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        session: str | None = None,
        project: str | None = None,
    ) -> Sequence[tuple[Account, Entry]]:
        """The sums by account, in the order of accounts."""
        asked = {"day >= ?": since, "day <= ?": until, "session = ?": session, "project = ?": project}
        conditions = {condition: column(value) for condition, value in asked.items() if value is not None}
        where = " AND ".join(conditions) or "true"
        with self._database.reading() as connection:
            rows = connection.execute(_SUMS + where, tuple(conditions.values()))
            sums = {Account(*map(text_of, row[:5])): _entry(row[5:]) for row in rows}
        return sorted(sums.items(), key=lambda each: each[0])


def _checked(scope: str) -> str:
    if scope not in SCOPES:
        raise ConfigurationError(f"no sums are kept for the scope {scope!r}, only for {', '.join(SCOPES)}")
    return scope


def _refused(connection: sqlite3.Connection, caps: Sequence[Cap], amount: int) -> Refusal | None:
    for cap in caps:
        spent, held = _totals(connection, _checked(cap.scope), column(cap.name))
        if dollars(spent + held + amount) > cap.limit:
            return Refusal(cap, dollars(spent), dollars(held))
    return None


def _totals(connection: sqlite3.Connection, scope: str, name: Column) -> tuple[int, int]:
    rows = connection.execute("SELECT spent, held FROM totals WHERE scope = ? AND name = ?", (scope, name))
    spent, held = rows.fetchone() or (0, 0)
    return int(spent), int(held)


def _move(connection: sqlite3.Connection, names: Iterable[Column], *, spent: int = 0, held: int = 0) -> None:
    """Adds to the sums of the scopes; in Python, because SQLite goes on in floats beyond 63 bits."""
    for scope, name in zip(SCOPES, names, strict=True) if spent or held else ():
        before = _totals(connection, scope, name)
        after = fitting(before[0] + spent, "the sum spent"), fitting(before[1] + held, "the sum held")
        connection.execute("INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?)", (scope, name, *after))


def _end(connection: sqlite3.Connection, reservation: Reservation, spent: int = 0) -> bool:
    """Deletes a reservation, and what it holds becomes what was spent; False where it had ended before."""
    key = (column(reservation.id),)
    row = connection.execute(
        "SELECT state, amount, session, day, project FROM reservations WHERE id = ?", key
    ).fetchone()
    if row is None:
        return False
    state, amount, *names = row
    connection.execute("DELETE FROM reservations WHERE id = ?", key)
    _move(connection, names, spent=spent, held=-amount if state == "held" else 0)
    return True


def _let_go(connection: sqlite3.Connection, now: float) -> None:
    """Lets go of what is held for processes that must be dead; one that is not can still settle."""
    dead = connection.execute(
        "SELECT id, amount, session, day, project FROM reservations WHERE state = 'held' AND deadline < ?",
        (now,),
    ).fetchall()
    for key, amount, *names in dead:
        _move(connection, names, held=-amount)
        connection.execute("UPDATE reservations SET state = 'late' WHERE id = ?", (key,))
    if dead:
        connection.execute(
            "DELETE FROM reservations WHERE state = 'late' AND deadline < ?", (now - REMEMBERED,)
        )


def _book(connection: sqlite3.Connection, account: Account, entry: Entry) -> None:
    key = tuple(map(column, account))
    where = "session = ? AND model = ? AND category = ? AND project = ? AND day = ?"
    row = connection.execute(_SUMS + where, key).fetchone()
    total = entry if row is None else add(_entry(row[5:]), entry)
    figures = {name: getattr(total, name) for name in _FIGURES}
    if total.cost is not None:
        figures["cost"] = picodollars(total.cost)
    for figure in filter(None, figures.values()):
        fitting(figure, "a sum of the account")
    connection.execute(_ADD, (*key, *figures.values()))


def _entry(row: Sequence[Any]) -> Entry:
    figures = dict(zip(_FIGURES, row, strict=True))
    if figures["cost"] is not None:
        figures["cost"] = dollars(figures["cost"])
    return Entry(**figures)
