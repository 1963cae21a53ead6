"""The file of a store in SQLite: its creation, its permissions, and what is checked before it is opened."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ullage.errors import StoreError
from ullage.store.sqlite.driver import store_errors
from ullage.store.sqlite.migrations import recognise

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# When a process closes any descriptor of a file, it loses all its locks on that file. SQLite takes care of
# this, so only SQLite opens the file. The exception is its creation, when no lock can exist yet.
_creation = threading.Lock()


def ready(path: Path) -> None:
    """Creates a missing file, readable only by its owner; checks an existing one.

    A file of another program or of a newer version is refused here, before anything changes it.
    """
    try:
        with _creation:
            _make_directory(path.parent)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            status = path.stat()
        if not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be opened: {error.strerror}. Allow reading and writing there, "
            "or use another file"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"the store {path} is not a file. Use the path of a file; a missing file is created")
    if status.st_size:
        _check_file(path)


def _make_directory(path: Path) -> None:
    if not path.is_dir():
        _make_directory(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)


def _check_file(path: Path) -> None:
    """Refuses a file that is not ours or whose end is missing; the check writes nothing.

    If there is no log beside the file, it is read without a lock. Another process may open it at that moment
    and change it, so a failed check is repeated.
    """
    log = Path(f"{path}-wal")

    def check() -> None:
        had_log = log.exists()
        length = _peek(path, "mode=ro" if had_log else "immutable=1")
        # If there is a log, the last pages may be in it.
        if path.stat().st_size < length and not (had_log or log.exists()):
            raise StoreError(
                f"the store {path} is damaged: its end is missing. Restore a backup; "
                "`sqlite3 FILE .recover` reads the undamaged rows"
            )

    _retry(check)


def _retry(look: Callable[[], T]) -> T:
    for _ in range(2):
        with contextlib.suppress(StoreError):
            return look()
        time.sleep(0.03)
    return look()


def check_length(path: Path, length: int) -> None:
    """Raises StoreError if a file that became shorter has lost pages.

    A file that another process has shrunk has as many pages as its first page says.
    """
    try:
        whole = 0 < _retry(lambda: _peek(path, "immutable=1")) <= length
    except StoreError:
        whole = False
    if not whole:
        raise StoreError(
            f"the store {path} is damaged: it was cut short while it was open. Restore a backup; "
            "`sqlite3 FILE .recover` reads the undamaged rows"
        )


def _peek(path: Path, mode: str) -> int:
    """Returns the length that the file should have, 0 if it is empty; refuses a file that is not ours."""
    with store_errors(str(path)):
        connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=10, isolation_level=None)
        try:
            if not recognise(connection, str(path)):
                return 0
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (size,) = connection.execute("PRAGMA page_size").fetchone()
            return int(pages * size)
        finally:
            connection.close()
