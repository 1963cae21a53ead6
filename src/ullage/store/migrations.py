"""The tables of the store, as the steps that make them; a file tells how many of the steps it has had.

A step that has been released is never changed: what is different later is another step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

APPLICATION = 0x756C6C67
"""Stands in the header of each of our files: 'ullg'."""


def recognise(connection: sqlite3.Connection, name: str) -> int:
    """The version of a store, 0 for an empty file; refuses what is not ours and what is newer than we are."""
    # In this order: whoever makes the tables just now makes them together with the id that is read last.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION and (application or version or tables):
        raise StoreError(
            f"the store {name} is an SQLite file of another program. Name another file; "
            "this one was left as it is"
        )
    if version > len(MIGRATIONS):
        raise StoreError(
            f"the store {name} was made by a newer Ullage: it has version {version}, and this one knows "
            f"{len(MIGRATIONS)}. Update Ullage, or name another file; this one was left as it is"
        )
    return int(version)


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Takes the steps that the file has not had: all of them, or none."""
    if recognise(connection, name) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[recognise(connection, name) :]:  # again: another process may have been faster
            step(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def conversations(connection: sqlite3.Connection) -> None:
    """Sessions and their events."""
    connection.execute(
        "CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL, "
        "updated REAL NOT NULL, length INTEGER NOT NULL DEFAULT 0)"
    )
    connection.execute("CREATE INDEX sessions_by_time ON sessions (updated)")
    connection.execute(
        "CREATE TABLE events (session INTEGER NOT NULL REFERENCES sessions, number INTEGER NOT NULL, "
        "kind TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (session, number))"
    )


def pieces(connection: sqlite3.Connection) -> None:
    """Texts by their hash, who kept them, and the index of their words, which holds no text."""
    connection.execute(
        "CREATE TABLE pieces (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, text NOT NULL)"
    )
    connection.execute(
        "CREATE TABLE kept (id INTEGER PRIMARY KEY, piece INTEGER NOT NULL REFERENCES pieces, "
        "session INTEGER NOT NULL REFERENCES sessions, UNIQUE (piece, session))"
    )
    connection.execute(
        "CREATE VIRTUAL TABLE words "
        "USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 2')"
    )


def memory(connection: sqlite3.Connection) -> None:
    """What is remembered across sessions; a number is never given twice."""
    connection.execute(
        "CREATE TABLE items "
        "(number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, content TEXT NOT NULL)"
    )


def accounts(connection: sqlite3.Connection) -> None:
    """Reservations, what is spent and held in each scope, and the sums by account; in 1e-12 dollars."""
    connection.execute(
        "CREATE TABLE reservations (id TEXT PRIMARY KEY, state TEXT NOT NULL, deadline REAL NOT NULL, "
        "amount INTEGER NOT NULL, session TEXT NOT NULL, day TEXT NOT NULL, project TEXT NOT NULL)"
    )
    connection.execute("CREATE INDEX reservations_by_deadline ON reservations (state, deadline)")
    connection.execute(
        "CREATE TABLE totals (scope TEXT NOT NULL, name TEXT NOT NULL, spent INTEGER NOT NULL DEFAULT 0, "
        "held INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (scope, name)) WITHOUT ROWID"
    )
    connection.execute(
        "CREATE TABLE entries (session TEXT NOT NULL, model TEXT NOT NULL, category TEXT NOT NULL, "
        "project TEXT NOT NULL, day TEXT NOT NULL, calls INTEGER NOT NULL, prompt INTEGER NOT NULL, "
        "completion INTEGER NOT NULL, cached_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, "
        "reasoning INTEGER NOT NULL, estimate INTEGER NOT NULL, cost INTEGER, unpriced INTEGER NOT NULL, "
        "PRIMARY KEY (session, model, category, project, day))"
    )
    connection.execute("CREATE INDEX entries_by_day ON entries (day)")


def settings(connection: sqlite3.Connection) -> None:
    """What was learned about endpoints, and what the user prefers."""
    connection.execute(
        "CREATE TABLE calibration (endpoint TEXT NOT NULL, model TEXT NOT NULL, learned TEXT NOT NULL, "
        "PRIMARY KEY (endpoint, model))"
    )
    connection.execute("CREATE TABLE preferences (name TEXT PRIMARY KEY, value TEXT NOT NULL)")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    conversations,
    pieces,
    memory,
    accounts,
    settings,
)
