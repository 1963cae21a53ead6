"""One SQLite database, shared by the threads of a process: its connection, its lock, its transactions.

One connection behind a lock is faster than one a thread: 64 threads that write wait for each other here,
not in SQLite's own polling.

SQLite keeps the locks of a process in its memory, which a fork copies, while the system gives the child none
of them: a child that opened the file again would write without being seen. So the file is closed while a
process forks, and both sides open it again when they next need it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading
import weakref
from typing import TYPE_CHECKING

from ullage.errors import StoreError
from ullage.store.files import ready, told, waited
from ullage.store.migrations import migrate, recognise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 30.0
"""Seconds that a transaction waits for other processes."""

_SETTINGS = (
    "PRAGMA synchronous = FULL",  # a commit is on the disk when it returns
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA journal_size_limit = 67108864",
)

_opened: weakref.WeakSet[Database] = weakref.WeakSet()
_forking = threading.local()
_inherited: set[tuple[int, int]] = set()
"""Files that this process was forked with while they were open."""


class Database:
    """A database that any thread may use, in transactions."""

    def __init__(self, path: Path | None) -> None:
        """Opens the file, makes it where there is none, and brings its tables up to date."""
        self.path = path
        self._lock = threading.RLock()
        self._closed = False
        self._place: tuple[int, int] | None = None
        _hook_forks()
        self._connection: sqlite3.Connection | None = None
        with self._lock:  # which a fork waits for
            _opened.add(self)
            self._connection = self._connect()

    @property
    def name(self) -> str:
        """What errors call it."""
        return str(self.path or ":memory:")

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the database until the end of the block."""
        with self._transaction(_begin_reading) as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are durable at the end of the block, or undone if it raises."""
        with self._transaction(_begin_writing) as connection:
            yield connection

    def close(self) -> None:
        """Closes it; it cannot be used again."""
        with self._lock:
            connection, self._connection, self._closed = self._connection, None, True
            if connection is not None:
                with told(self.name):
                    connection.close()

    @contextlib.contextmanager
    def _transaction(self, begin: Callable[[sqlite3.Connection], None]) -> Iterator[sqlite3.Connection]:
        with self._lock, told(self.name):
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
            self._check_place()
            if connection.in_transaction:  # a block within a block is a part of it
                yield connection
                return
            try:
                begin(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _check_place(self) -> None:
        """A file that was deleted or replaced can still be written to, but nobody will ever read that."""
        if self.path is not None and _place_of(self.path) != self._place:
            raise StoreError(f"the store {self.name} was moved or deleted while it was open. Open it again")

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"the store {self.name} is closed: open it again")
        if self.path is None:
            connect = functools.partial(sqlite3.connect, ":memory:")
        else:
            ready(self.path)
            self._place = _place_of(self.path)
            if self._place in _inherited:
                raise StoreError(
                    f"the store {self.name} was in use when this process was forked. Fork before it is"
                )
            connect = functools.partial(sqlite3.connect, f"{self.path.as_uri()}?mode=rw", uri=True)
        with told(self.name):
            connection = connect(timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            with told(self.name):
                recognise(connection, self.name)
                for setting in _SETTINGS:
                    connection.execute(setting)
                waited(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone(), PATIENCE)
                migrate(connection, self.name)
        except BaseException:
            connection.close()
            raise
        return connection

    def before_fork(self) -> None:
        """Closes the file, and lets nobody open it until the fork is over."""
        self._lock.acquire()
        connection = self._connection
        if connection is not None and self.path is not None and not connection.in_transaction:
            connection.close()
            self._connection = None

    def after_fork(self) -> None:
        """Lets the parent go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Lets the child go on; with a file that could not be closed it must not."""
        self._lock = threading.RLock()
        if self._connection is None:
            return
        import ctypes  # noqa: PLC0415 - hardly ever needed

        # Not even closed: that could write. One reference too many keeps it open to the end of the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._connection, self._closed = None, True
        if self._place is not None:
            _inherited.add(self._place)


def _place_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _begin_reading(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")


def _begin_writing(connection: sqlite3.Connection) -> None:
    """Waits until no other process writes, asking every millisecond.

    SQLite by itself comes to ask ten times a second, and then hardly ever finds the moment between two
    transactions of a process that has many to make.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        waited(lambda: connection.execute("BEGIN IMMEDIATE"), PATIENCE)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000:.0f}")


@functools.cache
def _hook_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


def _before() -> None:
    _forking.databases = sorted(_opened, key=id)  # one order, or two threads that fork wait for each other
    for database in _forking.databases:
        database.before_fork()


def _after() -> None:
    for database in _forking.databases:
        database.after_fork()


def _after_in_child() -> None:
    for database in tuple(_opened):
        database.after_fork_in_child()
