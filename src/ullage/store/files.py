"""The store's file: its path, its permissions, and the error messages if it cannot be used."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ullage.errors import ConfigurationError, StoreError
from ullage.extras import require
from ullage.store.migrations import recognise
from ullage.store.values import Damaged, Unreadable, remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

FORMS = (
    "a path, sqlite:///path (the path begins after the third slash), sqlite://:memory: "
    "or postgresql://user@host/database"
)
_MEMORY = {":memory:", "sqlite://", "sqlite://:memory:", "sqlite:///:memory:"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(?=://)")

# Messages for SQLite's result codes, by the beginning of the code's name.
MEANINGS: Mapping[str, str] = {
    "SQLITE_BUSY": "another process has kept it locked for too long. Try again, or end that process",
    "SQLITE_LOCKED": "another process has kept it locked for too long. Try again, or end that process",
    "SQLITE_CORRUPT": "it is damaged. Restore a backup, or move it away to start with an empty one; "
    "`sqlite3 FILE .recover` reads the undamaged rows",
    "SQLITE_NOTADB": "it is damaged, or not an SQLite file. Move it away, or use another file",
    "SQLITE_FULL": "there is no room left on its disk. Free some space, and try again",
    "SQLITE_READONLY": "it cannot be written. Allow writing to the file and its directory, or use another",
    "SQLITE_PERM": "it may not be opened. Allow reading and writing, or name another file",
    "SQLITE_AUTH": "it may not be opened. Allow reading and writing, or name another file",
    "SQLITE_CANTOPEN": "it cannot be opened. Check that its directory is there, and can be read and written",
    "SQLITE_IOERR": "its disk failed to read or write. Check the disk and its free space",
    "SQLITE_TOOBIG": "a text is longer than SQLite's limit of a billion bytes. Split the text",
    "SQLITE_NOMEM": "there is not enough memory. Free some memory, and try again",
}

# When a process closes any descriptor of a file, it loses all its locks on that file. SQLite takes care of
# this, so only SQLite opens the file. The exception is its creation, when no lock can exist yet.
_creation = threading.Lock()


def is_postgres(url: str | Path | None) -> bool:
    """Tells if a URL names a store in PostgreSQL."""
    scheme = _SCHEME.match(url) if isinstance(url, str) else None
    return scheme is not None and scheme[0].lower() in {"postgresql", "postgres"}


def located(url: str | Path | None) -> Path | None:
    """Returns the file that a URL names, or None for a store in memory or on a server."""
    if url is None:
        require("client", "platformdirs")
        import platformdirs  # noqa: PLC0415 - takes 10 ms, which a named file need not wait for

        return platformdirs.user_state_path("ullage") / "ullage.db"
    if isinstance(url, str):
        if url in _MEMORY or is_postgres(url):
            return None
        scheme = _SCHEME.match(url)
        if scheme and scheme[0].lower() != "sqlite":  # the rest may contain a password
            raise ConfigurationError(f"cannot open a store by {scheme[0]}://; use {FORMS}")
        if scheme and not url[len("sqlite://") :].startswith("/"):
            raise ConfigurationError(f"{url} names no file; use {FORMS}")
        url = url[len("sqlite:///") :] if scheme else url
        if not url:
            raise ConfigurationError(f"the path of the store is empty; use {FORMS}")
    try:
        return Path(url).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"{str(url)!r} cannot be the path of a store: {error}") from error


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

    _retried(check)


def _retried(look: Callable[[], T]) -> T:
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
        whole = 0 < _retried(lambda: _peek(path, "immutable=1")) <= length
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


@contextlib.contextmanager
def store_errors(name: str) -> Iterator[None]:
    """Turns each SQLite exception into a StoreError that states the cause and the remedy."""
    try:
        yield
    except Damaged as error:
        raise StoreError(f"the store {name} is damaged: {error.what}. {remedy(error.session)}") from error
    except (sqlite3.Error, Unreadable, UnicodeDecodeError, MemoryError) as error:
        code = _code_of(error)
        known = (meaning for begin, meaning in MEANINGS.items() if code.startswith(begin))
        reason = next(known, "SQLite reported an error")
        raise StoreError(
            f"the store {name} cannot be used: {reason}. [{code or 'SQLite'}: {error}]"
        ) from error


def _code_of(error: Exception) -> str:
    """Returns SQLite's name of the error; errors that Python's module finds itself have none."""
    if isinstance(error, MemoryError):
        return "SQLITE_NOMEM"
    # SQLite's message may contain a damaged name, which Python then cannot decode.
    if isinstance(error, Unreadable | UnicodeDecodeError) or "decode" in str(error):
        return "SQLITE_CORRUPT"
    if "too big" in str(error):
        return "SQLITE_TOOBIG"
    return getattr(error, "sqlite_errorname", None) or ""


def waited(step: Callable[[], T], seconds: float) -> T:
    """Repeats a step for up to `seconds` if another process blocks it; SQLite itself does not wait."""
    end = time.monotonic() + seconds
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > end:
                raise
        time.sleep(0.002 * random.random())  # noqa: S311 - so that processes do not retry in step


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Returns True if the step failed only because another process holds a lock."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith("SQLITE_BUSY")
