"""The tables of a PostgreSQL store, as a list of migration steps. The schema stores how many it has had.

A released step is never changed. A later change of the tables is another step. Amounts of money are whole
numbers of 1e-12 dollars, and texts are compared byte by byte, as SQLite compares them.
"""
# ruff: noqa: S608 - the names in these statements are our own

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import StoreError
from ullage.store.postgres.words import WordTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.store.connection import Connection

_ID = "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
_TEXT = 'TEXT COLLATE "C"'


def recognise(connection: Connection, schema: str, name: str) -> int | None:
    """Returns the version of a store, None if there is none yet; refuses a foreign or newer schema."""
    tables = {
        table
        for (table,) in connection.execute(
            "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = ?", (schema,)
        )
    }
    if "ullage_version" not in tables:
        if tables:
            raise StoreError(
                f"the store {name} has tables of another program. Add ?schema=NAME to the URL to use another "
                "schema; this one was not changed"
            )
        return None
    (version,) = connection.execute(f"SELECT number FROM {schema}.ullage_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(
            f"the store {name} was made by a newer Ullage: it has version {version}, and this one knows "
            f"{len(MIGRATIONS)}. Update Ullage, or use another schema; this one was not changed"
        )
    return int(version)


def migrate(connection: Connection, schema: str, name: str) -> None:
    """Runs the steps that the schema has not had; the caller's transaction makes it all of them or none."""
    version = recognise(connection, schema, name)
    if version is None:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute("CREATE TABLE ullage_version (number INTEGER NOT NULL)")
        connection.execute("INSERT INTO ullage_version VALUES (0)")
    for step in MIGRATIONS[version or 0 :]:
        step(connection)
    connection.execute("UPDATE ullage_version SET number = ?", (len(MIGRATIONS),))


def conversations(connection: Connection) -> None:
    """Creates the tables of sessions, their events, and the saved states of their folds."""
    connection.execute(
        f"CREATE TABLE sessions ({_ID}, name {_TEXT} NOT NULL UNIQUE, created DOUBLE PRECISION NOT NULL, "
        "updated DOUBLE PRECISION NOT NULL, length BIGINT NOT NULL DEFAULT 0, last BYTEA, checksum BYTEA, "
        "indexed BIGINT NOT NULL DEFAULT 0)"
    )
    connection.execute("CREATE INDEX sessions_by_time ON sessions (updated)")
    connection.execute("CREATE INDEX sessions_behind ON sessions (id) WHERE indexed < length")
    connection.execute(
        f"CREATE TABLE events (session BIGINT NOT NULL REFERENCES sessions, number BIGINT NOT NULL, "
        f"kind {_TEXT} NOT NULL, data {_TEXT} NOT NULL, checksum BYTEA, PRIMARY KEY (session, number))"
    )
    connection.execute(
        f"CREATE TABLE folds ({_ID}, session BIGINT NOT NULL REFERENCES sessions, name {_TEXT} NOT NULL, "
        "history BYTEA NOT NULL, events BIGINT NOT NULL, state BYTEA NOT NULL, parts BIGINT NOT NULL, "
        "checksum BYTEA NOT NULL, UNIQUE (session, name))"
    )
    connection.execute(
        "CREATE TABLE fold_logs (fold BIGINT NOT NULL REFERENCES folds ON DELETE CASCADE, "
        "number BIGINT NOT NULL, data BYTEA NOT NULL, checksum BYTEA NOT NULL, PRIMARY KEY (fold, number))"
    )


def pieces(connection: Connection) -> None:
    """Creates the tables of texts by hash and of their users, and the index of their words."""
    connection.execute(f"CREATE TABLE pieces ({_ID}, hash {_TEXT} NOT NULL UNIQUE, text {_TEXT})")
    connection.execute(
        f"CREATE TABLE kept ({_ID}, piece BIGINT NOT NULL REFERENCES pieces, "
        "session BIGINT NOT NULL REFERENCES sessions, event BIGINT, UNIQUE (piece, session))"
    )
    connection.execute("CREATE INDEX kept_by_event ON kept (session, event)")
    WordTable().create(connection)


def memory(connection: Connection) -> None:
    """Creates the table of items that are remembered across sessions; a number is never used twice."""
    connection.execute(
        "CREATE TABLE items (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        f"kind {_TEXT} NOT NULL, content {_TEXT} NOT NULL, checksum BYTEA)"
    )


def accounts(connection: Connection) -> None:
    """Creates the tables of reservations, of their holders, of sums by scope and of sums by account."""
    connection.execute(
        f"CREATE TABLE reservations (id {_TEXT} PRIMARY KEY, state TEXT NOT NULL, "
        "lapsed DOUBLE PRECISION NOT NULL, amount BIGINT NOT NULL, tokens BIGINT NOT NULL, "
        f"session {_TEXT} NOT NULL, day {_TEXT} NOT NULL, project {_TEXT} NOT NULL, key {_TEXT} NOT NULL, "
        "holder BIGINT NOT NULL)"
    )
    connection.execute("CREATE INDEX reservations_by_holder ON reservations (state, holder)")
    connection.execute("CREATE TABLE holders (number BIGINT PRIMARY KEY, seen TIMESTAMPTZ NOT NULL)")
    sums = ("spent", "held", "tokens_spent", "tokens_held", "requests")
    columns = ", ".join(f"{name} BIGINT NOT NULL" for name in sums)
    connection.execute(
        f"CREATE TABLE totals (scope TEXT NOT NULL, name {_TEXT} NOT NULL, {columns}, "
        "PRIMARY KEY (scope, name))"
    )
    names = ("session", "model", "category", "project", "day", "key")
    figures = (
        *("calls", "prompt", "completion", "cached_read", "cache_write", "reasoning", "estimate"),
        *("unpriced", "estimated_calls"),
    )
    columns = ", ".join(
        (*(f"{name} {_TEXT} NOT NULL" for name in names), *(f"{name} BIGINT NOT NULL" for name in figures))
    )
    connection.execute(f"CREATE TABLE entries ({columns}, cost BIGINT, PRIMARY KEY ({', '.join(names)}))")
    connection.execute("CREATE INDEX entries_by_day ON entries (day)")


def settings(connection: Connection) -> None:
    """Creates the tables of calibration and of the user's preferences."""
    connection.execute(
        f"CREATE TABLE calibration (endpoint {_TEXT} NOT NULL, model {_TEXT} NOT NULL, "
        f"api {_TEXT} NOT NULL, learned {_TEXT} NOT NULL, PRIMARY KEY (endpoint, model, api))"
    )
    connection.execute(f"CREATE TABLE preferences (name {_TEXT} PRIMARY KEY, value {_TEXT} NOT NULL)")


def gateway_keys(connection: Connection) -> None:
    """Creates the tables of gateway keys and of the hashes of their secrets."""
    connection.execute(
        f"CREATE TABLE keys (id {_TEXT} PRIMARY KEY, name {_TEXT} NOT NULL, rules {_TEXT} NOT NULL, "
        "created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION, revoked DOUBLE PRECISION)"
    )
    connection.execute(
        f"CREATE TABLE key_secrets (key {_TEXT} NOT NULL REFERENCES keys, hash BYTEA NOT NULL, "
        "until DOUBLE PRECISION, PRIMARY KEY (key, hash))"
    )


def key_headers(connection: Connection) -> None:
    """Adds to each gateway key what the headers of its requests may ask for."""
    from ullage.store.key_rules import add_header_rules  # noqa: PLC0415 - an old store needs it, once

    add_header_rules(connection)


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    conversations,
    pieces,
    memory,
    accounts,
    settings,
    gateway_keys,
    key_headers,
)
