"""The tables of the store, as a list of migration steps. A file stores the number of steps that it has had.

A released step is never changed. A later change of the tables is another step.
"""
# ruff: noqa: S608 - the names in these statements are our own

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from ullage.store.sqlite.driver import SqliteConnection

APPLICATION = 0x756C6C67
"""Application id in the header of each store file: 'ullg'."""


def recognise(connection: sqlite3.Connection, name: str) -> int:
    """Returns the version of a store, 0 for an empty file; refuses a foreign or newer file."""
    # The order matters: another process that creates the tables now writes them together with the id, which
    # is read last.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION and (application or version or tables):
        raise StoreError(
            f"the store {name} is an SQLite file of another program. Use another file; "
            "this one was not changed"
        )
    if version > len(MIGRATIONS):
        raise StoreError(
            f"the store {name} was made by a newer Ullage: it has version {version}, and this one knows "
            f"{len(MIGRATIONS)}. Update Ullage, or use another file; this one was not changed"
        )
    return int(version)


def migrate(connection: SqliteConnection, name: str) -> bool:
    """Runs the steps that the file has not had: all of them, or none.

    Returns True if a step removed texts from an old file, so that the file can be shrunk.
    """
    if recognise(connection, name) == len(MIGRATIONS):
        return False
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = recognise(connection, name)  # again: another process may have been faster
        for step in MIGRATIONS[version:]:
            step(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return version > 0 and texts_once in MIGRATIONS[version:]


def conversations(connection: SqliteConnection) -> None:
    """Creates the tables of sessions and their events."""
    connection.execute(
        "CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL, "
        "updated REAL NOT NULL, length INTEGER NOT NULL DEFAULT 0)"
    )
    connection.execute("CREATE INDEX sessions_by_time ON sessions (updated)")
    connection.execute(
        "CREATE TABLE events (session INTEGER NOT NULL REFERENCES sessions, number INTEGER NOT NULL, "
        "kind TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (session, number))"
    )


def pieces(connection: SqliteConnection) -> None:
    """Creates the tables of texts by hash and of their users, and an index of words that contains no text."""
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


def memory(connection: SqliteConnection) -> None:
    """Creates the table of items that are remembered across sessions; a number is never used twice."""
    connection.execute(
        "CREATE TABLE items "
        "(number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, content TEXT NOT NULL)"
    )


def accounts(connection: SqliteConnection) -> None:
    """Creates the tables of reservations, of sums by scope and of sums by account, in 1e-12 dollars."""
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


def settings(connection: SqliteConnection) -> None:
    """Creates the tables of calibration and of the user's preferences."""
    connection.execute(
        "CREATE TABLE calibration (endpoint TEXT NOT NULL, model TEXT NOT NULL, learned TEXT NOT NULL, "
        "PRIMARY KEY (endpoint, model))"
    )
    connection.execute("CREATE TABLE preferences (name TEXT PRIMARY KEY, value TEXT NOT NULL)")


def calibration_by_api(connection: SqliteConnection) -> None:
    """Separates calibration by API; values learned for two APIs together are dropped."""
    connection.execute("DROP TABLE calibration")
    connection.execute(
        "CREATE TABLE calibration (endpoint TEXT NOT NULL, model TEXT NOT NULL, api TEXT NOT NULL, "
        "learned TEXT NOT NULL, PRIMARY KEY (endpoint, model, api))"
    )


def holders(connection: SqliteConnection) -> None:
    """Adds the process that holds a reservation, and removes the deadline.

    The holders of earlier reservations are unknown: the next call frees their amounts. Such reservations can
    still be settled.
    """
    connection.execute("DROP INDEX reservations_by_deadline")
    connection.execute("ALTER TABLE reservations RENAME COLUMN deadline TO lapsed")
    connection.execute("ALTER TABLE reservations ADD COLUMN holder INTEGER NOT NULL DEFAULT 0")
    connection.execute("CREATE INDEX reservations_by_holder ON reservations (state, holder)")


def checksums(connection: SqliteConnection) -> None:
    """Adds a checksum to each event, session and remembered item."""
    from ullage.store.sqlite.revision import add_checksums  # noqa: PLC0415 - only an old file needs it, once

    add_checksums(connection)


def texts_once(connection: SqliteConnection) -> None:
    """Makes each piece whose text is in an event of its session refer to the event, and removes its text."""
    from ullage.store.sqlite.revision import name_events  # noqa: PLC0415 - the same

    name_events(connection)


def saved_folds(connection: SqliteConnection) -> None:
    """Creates the tables of saved fold states and the parts of their logs."""
    connection.execute(
        "CREATE TABLE folds (id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, "
        "name TEXT NOT NULL, history BLOB NOT NULL, events INTEGER NOT NULL, state BLOB NOT NULL, "
        "parts INTEGER NOT NULL, checksum BLOB NOT NULL, UNIQUE (session, name))"
    )
    connection.execute(
        "CREATE TABLE fold_logs (fold INTEGER NOT NULL REFERENCES folds ON DELETE CASCADE, "
        "number INTEGER NOT NULL, data BLOB NOT NULL, checksum BLOB NOT NULL, PRIMARY KEY (fold, number)) "
        "WITHOUT ROWID"
    )


def estimated_calls(connection: SqliteConnection) -> None:
    """Adds the number of calls of an account that have a figure of our own."""
    connection.execute("ALTER TABLE entries ADD COLUMN estimated_calls INTEGER NOT NULL DEFAULT 0")


def searchable_turns(connection: SqliteConnection) -> None:
    """Fills the index of words with stems by passage, and with the text of every turn."""
    from ullage.store.sqlite.revision import index_all_turns  # noqa: PLC0415 - an old file needs it, once

    index_all_turns(connection)


def gateway_keys(connection: SqliteConnection) -> None:
    """Adds gateway keys, the key of each account, and sums of tokens and requests."""
    connection.execute("ALTER TABLE reservations ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE reservations ADD COLUMN key TEXT NOT NULL DEFAULT ''")
    for name in ("tokens_spent", "tokens_held", "requests"):
        connection.execute(f"ALTER TABLE totals ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE entries RENAME TO earlier")
    connection.execute("DROP INDEX entries_by_day")
    names = "session, model, category, project, day"
    figures = (
        "calls, prompt, completion, cached_read, cache_write, reasoning, estimate, unpriced, estimated_calls"
    )
    columns = [f"{name} TEXT NOT NULL" for name in f"{names}, key".split(", ")]
    columns += [f"{name} INTEGER NOT NULL" for name in figures.split(", ")]
    connection.execute(
        f"CREATE TABLE entries ({', '.join(columns)}, cost INTEGER, PRIMARY KEY ({names}, key))"
    )
    connection.execute(
        f"INSERT INTO entries ({names}, key, {figures}, cost) "
        f"SELECT {names}, '', {figures}, cost FROM earlier"
    )
    connection.execute("DROP TABLE earlier")
    connection.execute("CREATE INDEX entries_by_day ON entries (day)")
    connection.execute(
        "CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, rules TEXT NOT NULL, "
        "created REAL NOT NULL, expires REAL, revoked REAL)"
    )
    connection.execute(
        "CREATE TABLE key_secrets (key TEXT NOT NULL REFERENCES keys, hash BLOB NOT NULL, until REAL, "
        "PRIMARY KEY (key, hash))"
    )


def key_headers(connection: SqliteConnection) -> None:
    """Adds to each gateway key what the headers of its requests may ask for."""
    from ullage.store.key_rules import add_header_rules  # noqa: PLC0415 - an old store needs it, once

    add_header_rules(connection)


MIGRATIONS: tuple[Callable[[SqliteConnection], None], ...] = (
    conversations,
    pieces,
    memory,
    accounts,
    settings,
    calibration_by_api,
    holders,
    checksums,
    texts_once,
    saved_folds,
    estimated_calls,
    searchable_turns,
    gateway_keys,
    key_headers,
)
