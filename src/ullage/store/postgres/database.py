"""One PostgreSQL database, shared by the threads of a process: its connections and its transactions.

Each transaction has a connection to itself. A few connections stay open and are used again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from ullage.errors import StoreError, StoreLost
from ullage.patience import Busy, current_limit
from ullage.store.postgres.address import read_address
from ullage.store.postgres.driver import PostgresConnection, store_errors
from ullage.store.postgres.locks import PostgresLocks, keep_unclosed, lock_number
from ullage.store.postgres.migrations import MIGRATIONS, migrate, recognise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_CONNECTIONS = 8
"""Transactions of a process that run at the same time; others wait."""

_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NEEDED_ENCODING = "UTF8"


class PostgresDatabase:
    """A database on a server, which any thread may use, in transactions."""

    path = None

    def __init__(self, url: str) -> None:
        """Connects to the server, and makes missing tables."""
        self._address = read_address(url)
        self.name = self._address.name
        """Server, database and schema; never a password."""
        self.is_closed = False
        self.locks = PostgresLocks(self._address)
        """Locks that distinguish this process from others that have the store open."""
        self._local = threading.local()
        self._begin_process()
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    def _begin_process(self) -> None:
        """Starts without connections; a forked child must not use those of its parent."""
        self._process = os.getpid()
        self._idle: list[PostgresConnection] = []
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    @contextlib.contextmanager
    def reading(self) -> Iterator[PostgresConnection]:
        """Opens a transaction that sees one state of the database until the end of the block."""
        with self._transaction(_READ) as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, *locks: str, is_durable: bool = True) -> Iterator[PostgresConnection]:  # noqa: ARG002
        """Opens a transaction whose changes are durable at the end of the block, or undone if it raises.

        `locks` are taken in their order, and released at the end of the transaction. All changes are durable:
        the server may fail while its clients go on.
        """
        milliseconds = max(1, round(current_limit().seconds * 1_000))
        begin = ["BEGIN", f"SET LOCAL lock_timeout = {milliseconds}", *map(self._lock_statement, locks)]
        with self._transaction("; ".join(begin), locks) as connection:
            yield connection

    def _lock_statement(self, lock: str) -> str:
        return f"SELECT pg_advisory_xact_lock({lock_number(self._address.schema, lock)})"

    def store_errors(self) -> contextlib.AbstractContextManager[None]:
        """Turns each damaged row into a StoreError."""
        return store_errors(self.name)

    def shrink(self) -> None:
        """Lets the server use the space of deleted data again."""
        with self._borrowed() as connection, store_errors(self.name, connection):
            tables = connection.execute(
                "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = ?",
                (self._address.schema,),
            ).fetchall()
            for (table,) in tables:
                connection.execute(f"VACUUM {self._address.schema}.{table}")

    def close(self) -> None:
        """Closes the connections; the database cannot be used again."""
        self.is_closed = True
        self.locks.close()
        if self._process == os.getpid():
            while self._idle:
                self._idle.pop().close()

    @contextlib.contextmanager
    def _transaction(self, begin: str, locks: Sequence[str] = ()) -> Iterator[PostgresConnection]:
        outer: PostgresConnection | None = getattr(self._local, "connection", None)
        if outer is not None:  # a nested block is part of the outer transaction
            self._lock_more(outer, locks)
            yield outer
            return
        with self._borrowed() as borrowed:
            connection = self._begin_or_reconnect(borrowed, begin)
            self._local.connection, self._local.locks = connection, {*locks}
            try:
                with store_errors(self.name, connection):
                    yield connection
                with store_errors(self.name, connection, is_commit=True):
                    connection.execute("COMMIT")
            except BaseException:
                self._roll_back(connection)
                raise
            finally:
                self._local.connection = None
                if connection is not borrowed:
                    self._put_back(connection)

    def _lock_more(self, connection: PostgresConnection, locks: Sequence[str]) -> None:
        """Takes the locks of a nested block that the outer transaction has not taken."""
        for lock in locks:
            if lock not in self._local.locks:
                with store_errors(self.name, connection):
                    connection.execute(self._lock_statement(lock))
                self._local.locks.add(lock)

    def _begin_or_reconnect(self, connection: PostgresConnection, begin: str) -> PostgresConnection:
        """Begins a transaction; on a new connection if the server has ended this one since its last use."""
        try:
            self._begin(connection, begin)
        except StoreLost:
            while self._idle:  # the server has ended these too
                self._idle.pop().close()
            connection = PostgresConnection(self._address)
            try:
                self._begin(connection, begin)
            except BaseException:
                connection.close()
                raise
        return connection

    def _begin(self, connection: PostgresConnection, begin: str) -> None:
        try:
            with store_errors(self.name, connection):
                connection.execute(begin)
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: PostgresConnection) -> None:
        """Undoes a transaction; a connection that was lost needs no more than that."""
        with contextlib.suppress(StoreError), store_errors(self.name, connection):
            connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[PostgresConnection]:
        """Yields a connection that no other thread uses."""
        if self._process != os.getpid():
            for each in self._idle:
                keep_unclosed(each)
            self._begin_process()
        if self.is_closed:
            raise StoreError(f"the store {self.name} is closed: open it again")
        seconds, is_retried = current_limit()
        free = self._free
        if not free.acquire(timeout=seconds):
            if is_retried:
                raise Busy
            raise StoreError(f"the store {self.name} cannot be used: all connections are busy. Try again")
        try:
            connection = self._idle.pop() if self._idle else PostgresConnection(self._address)
            try:
                yield connection
            finally:
                self._put_back(connection)
        finally:
            free.release()

    def _put_back(self, connection: PostgresConnection) -> None:
        if connection.is_lost or not connection.is_idle or self.is_closed:
            connection.close()
        else:
            self._idle.append(connection)

    def _migrate(self) -> None:
        """Makes missing tables, once, however many processes open the store at the same time."""
        with self.reading() as connection:
            (encoding,) = connection.execute("SELECT current_setting('server_encoding')").fetchone()
            version = recognise(connection, self._address.schema, self.name)
        if encoding != _NEEDED_ENCODING:
            raise StoreError(
                f"the store {self.name} has the encoding {encoding}. Create a database with "
                f"`createdb --encoding {_NEEDED_ENCODING} --template template0 NAME`, and use it"
            )
        if version != len(MIGRATIONS):
            with self.writing("migrations") as connection:
                migrate(connection, self._address.schema, self.name)
