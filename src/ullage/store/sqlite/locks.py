"""Byte locks in a file beside the store, which tell the processes that use it from each other.

The file stays empty: its bytes are locked, never written. The system drops a lock when its process ends, by
`kill -9` too. No clock takes part: a process that is stopped, slow or asleep keeps its locks.

| byte | lock | taken by |
|---|---|---|
| 0 | exclusive | the process that writes next |
| the key of a session | shared | each process that has the session open; exclusive to delete it |
| the number of a holder | exclusive | the process that reserved money under this number |

The locks are those of POSIX (`fcntl`), as SQLite's own are. The system drops all locks that a process has on
a file when the process closes any descriptor of that file. So a process has one descriptor for each file,
shared by all who open the store there. A forked child inherits no lock and opens the file again.

SQLite's write-ahead log works on one machine only, and so do these locks. A store on a server has the same
for any number of machines: in PostgreSQL an advisory lock, which the server gives up when the connection of
that process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import secrets
import threading
import time
from typing import TYPE_CHECKING

from ullage.errors import StoreError
from ullage.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ullage.store.connection import Connection

SUFFIX = "-locks"
"""Appended to the name of the store."""
LONGEST_QUEUE = 0.5
"""Seconds that a process waits for its turn. Then it writes without: the one before it may be stopped."""

_TURN = 0
_HOLDERS = 1 << 61  # the numbers of holders begin here; the keys of sessions are below
_PAUSE = 0.002  # seconds between two attempts

_files: dict[Path, _LockFile] = {}
_guard = threading.Lock()


class _LockFile:
    """The one descriptor that this process has of a file, and the locks that it took."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self.sessions: set[int] = set()
        self.holder: int | None = None
        with _explained(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_lock(self, byte: int, kind: int) -> bool:
        """Takes a lock; returns False if another process has one that excludes it."""
        with _explained(self.path):
            try:
                fcntl.lockf(self._descriptor, kind | fcntl.LOCK_NB, 1, byte)
            except (BlockingIOError, PermissionError):  # POSIX allows either
                return False
        return True

    def unlock(self, byte: int) -> None:
        """Drops a lock."""
        with _explained(self.path):
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)

    def close(self) -> None:
        """Drops all locks."""
        os.close(self._descriptor)


class StoreLocks:
    """The locks of one open store. A store in memory has no other processes, and needs none."""

    def __init__(self, store: Path | None) -> None:
        self._path = None if store is None else store.with_name(store.name + SUFFIX)
        self._file: _LockFile | None = None
        self._own_holder: int | None = None  # of a store in memory
        self._closed = False

    # The file

    def open(self) -> _LockFile | None:
        """Opens the file of the locks, once, and returns it; None for a store in memory."""
        if self._path is None or self._file is not None:
            return self._file
        with _guard:
            if self._closed:
                raise StoreError("the store is closed: open it again")
            if self._file is None:
                file = _files.get(self._path) or _LockFile(self._path)
                file.users += 1
                self._file = _files[self._path] = file
            return self._file

    def close(self) -> None:
        """Drops the locks, unless this process has the store open a second time."""
        with _guard:
            file, self._file, self._closed = self._file, None, True
            if file is not None:
                file.users -= 1
                if not file.users:
                    del _files[file.path]
                    file.close()

    def forget(self) -> None:
        """Forgets the file in a forked child: its locks stay with the parent."""
        self._file = self._own_holder = None

    # Holders of money

    @property
    def holder(self) -> int:
        """The number under which this process reserves money, until it closes the store."""
        file = self.open()
        if file is None:
            self._own_holder = self._own_holder or _new_holder()
            return self._own_holder
        with _guard:
            if file.holder is None:
                number = _new_holder()
                if not file.try_lock(number, fcntl.LOCK_EX):
                    raise StoreError(f"another process has locked all of {file.path}. End it, then try again")
                file.holder = number
            return file.holder

    def gone(self, connection: Connection) -> list[int]:
        """Returns the holders of reservations whose processes have ended or closed the store."""
        rows = connection.execute("SELECT DISTINCT holder FROM reservations WHERE state = 'held'").fetchall()
        return [holder for (holder,) in rows if self._is_gone(holder)]

    def forget_holders(self, connection: Connection, holders: Sequence[int]) -> None:
        """Does nothing: the system itself forgets the locks of a process that is gone."""

    def _is_gone(self, holder: int) -> bool:
        """Returns True if the process with this number has ended or has closed the store."""
        file = self.open()
        if holder == self.holder:
            return False
        # Shared, so that two processes that look at the same time do not take each other for the holder.
        if file is None or not file.try_lock(holder, fcntl.LOCK_SH):
            return file is None
        file.unlock(holder)
        return True

    # Sessions

    def hold_session(self, key: int) -> None:
        """Keeps other processes from deleting this session until the store is closed."""
        file = self.open()
        if file is None or key in file.sessions:
            return
        if not _poll(lambda: file.try_lock(key, fcntl.LOCK_SH), PATIENCE):
            raise StoreError(f"another process is deleting this session ({file.path}). Try again")
        file.sessions.add(key)

    @contextlib.contextmanager
    def exclude_others(self, key: int) -> Iterator[bool]:
        """Yields False if another process has this session open. If True, none can open it in the block."""
        file = self.open()
        alone = file is None or file.try_lock(key, fcntl.LOCK_EX)
        try:
            yield alone
        finally:
            if file is not None and alone:
                file.sessions.discard(key)
                file.unlock(key)

    # Writing

    @contextlib.contextmanager
    def queue_to_write(self, seconds: float) -> Iterator[None]:
        """Waits for this process's turn to write; the turn lasts until the end of the block.

        SQLite's own lock keeps no queue: a process that writes all the time gets it again and again. On a
        busy machine the others would wait for half a minute and longer.
        """
        file = self.open()
        longest = min(seconds / 2, LONGEST_QUEUE)
        if file is None or not _poll(lambda: file.try_lock(_TURN, fcntl.LOCK_EX), longest):
            yield
            return
        try:
            yield
        finally:
            file.unlock(_TURN)


def forget_all() -> None:
    """Closes the descriptors of the parent in a forked child; the locks stay with the parent."""
    global _guard  # noqa: PLW0603 - another thread of the parent may have had it
    _guard = threading.Lock()
    for file in _files.values():
        file.close()
    _files.clear()


def _new_holder() -> int:
    return _HOLDERS | secrets.randbits(61)


def _poll(attempt: Callable[[], bool], seconds: float) -> bool:
    """Attempts until it succeeds; returns False if it never did within these seconds."""
    end = time.monotonic() + seconds
    while not attempt():
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE * random.random())  # noqa: S311 - so that those who wait do not ask in step
    return True


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the store cannot be used: {path} cannot be locked: {error.strerror}. Allow reading and writing "
            "that file, and put the store on a disk that supports file locks"
        ) from error
