"""One SQLite database, shared by the threads of a process: its connection, its lock, its transactions.

One connection behind a lock is faster than one connection per thread: 64 writing threads wait for each other
here, and not in SQLite's own polling.

SQLite keeps the locks of a process in memory. A fork copies this memory, but the system gives the child none
of the locks. A child that opened the file again would write without being seen by others. So the file is
closed while a process forks, and both processes open it again at the next use.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.errors import StoreError
from ullage.patience import PATIENCE, Busy, current_limit
from ullage.store.sqlite.driver import SqliteConnection, is_busy, retry_while_busy, store_errors
from ullage.store.sqlite.file import check_length, ready
from ullage.store.sqlite.locks import StoreLocks, forget_all
from ullage.store.sqlite.migrations import migrate, recognise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SETTINGS = (
    "PRAGMA synchronous = FULL",  # a commit is on the disk when it returns
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA journal_size_limit = 67108864",
)

_LOG_HEAD, _PAGE_HEAD = 32, 24  # bytes at the start of the log, and before each page in it

_opened: weakref.WeakSet[SqliteDatabase] = weakref.WeakSet()
_forking = threading.local()
_inherited: set[tuple[int, int]] = set()
"""Files that were open in the parent when this process was forked."""


class SqliteDatabase:
    """A database that any thread may use, in transactions."""

    def __init__(self, path: Path | None) -> None:
        """Opens the file, creates a missing one, and migrates its tables to the current version."""
        self.path = path
        self._lock = threading.RLock()
        self._closed = False
        self._place: tuple[int, int] | None = None
        self._length = 0  # of the file, at the last check
        self._log_path = Path(f"{path}-wal")
        self._log: tuple[int, int] | None = None  # inode and length of the log file
        self.locks = StoreLocks(path)
        """Byte locks that tell this process from others that have the store open."""
        _hook_forks()
        self._connection: SqliteConnection | None = None
        with self._lock:  # a fork waits for this lock
            _opened.add(self)
            self._connection = self._connect()

    @property
    def name(self) -> str:
        """Name of the database in errors."""
        return str(self.path or ":memory:")

    @property
    def is_closed(self) -> bool:
        """True if the database was closed."""
        return self._closed

    @contextlib.contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        """Opens a transaction that sees one state of the database until the end of the block."""
        with self._transaction(_begin_reading) as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, *_: str, is_durable: bool = True) -> Iterator[SqliteConnection]:
        """Opens a transaction whose changes are durable at the end of the block, or undone if it raises.

        SQLite has one writer at a time, so no lock need be named. Other processes see the changes at once,
        also those that are not durable: these only get lost if the machine itself fails.
        """
        if is_durable:
            with self._transaction(self._begin_writing) as connection:
                yield connection
            return
        with self._locked():
            self._synchronise("NORMAL")
            try:
                with self._transaction(self._begin_writing) as connection:
                    yield connection
            finally:
                self._synchronise("FULL")

    def _synchronise(self, mode: str) -> None:
        """Sets when commits wait for the disk; not inside a transaction, whose mode is set already."""
        if self._connection is not None and not self._connection.in_transaction:
            with store_errors(self.name):
                self._connection.execute(f"PRAGMA synchronous = {mode}")

    def store_errors(self) -> contextlib.AbstractContextManager[None]:
        """Turns each SQLite exception, and each damaged row, into a StoreError."""
        return store_errors(self.name)

    def close(self) -> None:
        """Closes the database; it cannot be used again."""
        with self._lock:
            connection, self._connection, self._closed = self._connection, None, True
            if connection is not None:
                with store_errors(self.name):
                    connection.close()
            self.locks.close()

    @contextlib.contextmanager
    def _transaction(self, begin: Callable[[SqliteConnection], None]) -> Iterator[SqliteConnection]:
        with self._locked(), store_errors(self.name):
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
            if connection.in_transaction:  # a nested block is part of the outer transaction
                yield connection
                return
            self._check_place()
            try:
                begin(connection)
                yield connection
                connection.execute("COMMIT")
                self._check_place()
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _begin_writing(self, connection: SqliteConnection) -> None:
        with self.locks.queue_to_write(current_limit().seconds):
            _wait(lambda: connection.execute("BEGIN IMMEDIATE"))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Takes the lock of this process's threads; its owner may be waiting for another process."""
        seconds, is_retried = current_limit()
        # A caller with the full patience waits without a timeout, because no other caller holds the lock
        # longer.
        if not self._lock.acquire(timeout=-1 if seconds >= PATIENCE else seconds):
            if is_retried:
                raise Busy
            raise StoreError(
                f"the store {self.name} cannot be used: another thread has kept it locked for too long. "
                "Try again"
            )
        try:
            yield
        finally:
            self._lock.release()

    def _check_place(self) -> None:
        """Raises StoreError if the file, or the log beside it, was deleted, replaced or cut short.

        SQLite would continue to write to the file, but nobody could read these changes again.
        """
        if self.path is None:
            return
        place, length = _status_of(self.path)
        if place != self._place:
            raise StoreError(f"the store {self.name} was moved or deleted while it was open. Open it again")
        if length < self._length:  # cut short, or shrunk by another process
            check_length(self.path, length)
        self._length = length
        self._check_log()

    def _check_log(self) -> None:
        """Checks that the log is still the same file and contains all pages that SQLite knows of."""
        (_, inode), length = _status_of(self._log_path)
        log = (inode, length) if length >= 0 else None
        before, self._log = self._log, log
        if before is None or before == log or self._connection is None:
            return
        if log is None or log[0] != before[0]:
            raise StoreError(f"the log of the store {self.name} was deleted while it was open. Open it again")
        if log[1] < before[1]:
            self._log = before
            _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            (size,) = self._connection.execute("PRAGMA page_size").fetchone()
            if pages and log[1] < _LOG_HEAD + pages * (_PAGE_HEAD + size):
                raise StoreError(
                    f"the store {self.name} is damaged: its log was cut short while it was open, so the last "
                    "changes may be lost. Restore a backup, or open it again and check the last turns"
                )
            self._log = log

    def shrink(self) -> None:
        """Returns the space of deleted data to the disk."""
        with self._lock, store_errors(self.name):
            if self._connection is None:
                self._connection = self._connect()
            self._check_place()
            retry_while_busy(lambda: self._connection and self._connection.execute("VACUUM"), PATIENCE)
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._length, self._log = 0, None

    def _connect(self) -> SqliteConnection:
        if self._closed:
            raise StoreError(f"the store {self.name} is closed: open it again")
        if self.path is None:
            connect = functools.partial(SqliteConnection, ":memory:")
        else:
            ready(self.path)
            self._place, self._length = _status_of(self.path)
            self._log = None
            if self._place in _inherited:
                raise StoreError(
                    f"the store {self.name} was in use when this process was forked. Fork before you use it"
                )
            connect = functools.partial(SqliteConnection, f"{self.path.as_uri()}?mode=rw", uri=True)
        with store_errors(self.name):
            # SQLite must not wait by itself, because then Ctrl-C and the current time limit have no effect.
            connection = connect(timeout=0, isolation_level=None, check_same_thread=False)
        try:
            with store_errors(self.name):
                retry_while_busy(lambda: recognise(connection, self.name), PATIENCE)
                for setting in _SETTINGS:
                    connection.execute(setting)
                retry_while_busy(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone(), PATIENCE)
                if retry_while_busy(lambda: migrate(connection, self.name), PATIENCE):
                    _give_back_room(connection)
            self.locks.open()
        except BaseException:
            connection.close()
            raise
        return connection

    def before_fork(self) -> None:
        """Closes the file and takes the lock, so that no thread opens it until the fork is over."""
        self._lock.acquire()
        connection = self._connection
        if connection is not None and self.path is not None and not connection.in_transaction:
            connection.close()
            self._connection = None

    def after_fork(self) -> None:
        """Releases the lock in the parent."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Replaces the lock in the child; a database that could not be closed is unusable there."""
        self._lock = threading.RLock()
        self.locks.forget()
        if self._connection is None:
            return
        import ctypes  # noqa: PLC0415 - rarely needed

        # Closing could write, so the connection stays open: an additional reference keeps it until the
        # process ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._connection, self._closed = None, True
        if self._place is not None:
            _inherited.add(self._place)


def _give_back_room(connection: SqliteConnection) -> None:
    """Shrinks the file if that is possible now; the store also works without."""
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _status_of(path: Path) -> tuple[tuple[int, int], int]:
    """Returns the device and inode of a file, and its length; -1 if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - twice as fast, and asked four times in each transaction
    except OSError:
        return (-1, -1), -1
    return (status.st_dev, status.st_ino), status.st_size


def _begin_reading(connection: SqliteConnection) -> None:
    def begin() -> None:
        connection.execute("BEGIN")
        try:
            # the first statement that can meet a lock
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.Error:
            connection.execute("ROLLBACK")
            raise

    _wait(begin)


def _wait(begin: Callable[[], object]) -> None:
    """Begins a transaction; retries about every millisecond within the current limit if it is blocked.

    SQLite's own wait soon polls only ten times a second, and then rarely finds the moment between two
    transactions of a busy process.
    """
    limit = current_limit()
    try:
        retry_while_busy(begin, limit.seconds)
    except sqlite3.OperationalError as error:
        if limit.is_retried and is_busy(error):
            raise Busy from error
        raise


@functools.cache
def _hook_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


def _before() -> None:
    _forking.databases = sorted(_opened, key=id)  # a fixed order, or two forking threads could deadlock
    for database in _forking.databases:
        database.before_fork()


def _after() -> None:
    for database in _forking.databases:
        database.after_fork()


def _after_in_child() -> None:
    forget_all()
    for database in tuple(_opened):
        database.after_fork_in_child()
