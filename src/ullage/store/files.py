"""The file of a store: where it is, who may read it, and what is said when it cannot be used."""

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
from ullage.store.migrations import recognise
from ullage.store.values import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

FORMS = "a path, sqlite:///path (what follows the third slash is the path) or sqlite://:memory:"
_MEMORY = {":memory:", "sqlite://", "sqlite://:memory:", "sqlite:///:memory:"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(?=://)")

# What SQLite's result codes mean to the person who waits, by the beginning of their names.
MEANINGS: Mapping[str, str] = {
    "SQLITE_BUSY": "another process has kept it locked for too long. Try again, or end that process",
    "SQLITE_LOCKED": "another process has kept it locked for too long. Try again, or end that process",
    "SQLITE_CORRUPT": "it is damaged. Move it away to start with an empty one, or put a copy back; "
    "`sqlite3 FILE .recover` reads what can still be read",
    "SQLITE_NOTADB": "it is damaged, or no SQLite file at all. Move it away, or name another file",
    "SQLITE_FULL": "there is no room left on its disk. Free some, and try again",
    "SQLITE_READONLY": "it cannot be written. Allow writing to the file and its directory, or name another",
    "SQLITE_PERM": "it may not be opened. Allow reading and writing, or name another file",
    "SQLITE_AUTH": "it may not be opened. Allow reading and writing, or name another file",
    "SQLITE_CANTOPEN": "it cannot be opened. Check that its directory is there, and can be read and written",
    "SQLITE_IOERR": "its disk failed to read or write. Check that it is there, whole, and has room",
    "SQLITE_TOOBIG": "a text is longer than the billion bytes that SQLite can keep. Keep it in parts",
    "SQLITE_NOMEM": "there is not enough memory. Free some, and try again",
}

# Closing any descriptor of a file gives up every lock that the process has on it. So a file is only ever
# opened by SQLite, which knows; but for its creation, when nobody can have a lock on it yet.
_creation = threading.Lock()


def located(url: str | Path | None) -> Path | None:
    """The file that a URL names; None where it names the memory of this process."""
    if url is None:
        import platformdirs  # noqa: PLC0415 - 10 ms that a named file need not pay

        return platformdirs.user_state_path("ullage") / "ullage.db"
    if isinstance(url, str):
        if url in _MEMORY:
            return None
        scheme = _SCHEME.match(url)
        if scheme and scheme[0].lower() != "sqlite":  # the rest may have a password in it
            raise ConfigurationError(f"no store can be opened by {scheme[0]}://: there is {FORMS}")
        if scheme and not url[len("sqlite://") :].startswith("/"):
            raise ConfigurationError(f"{url} names no file: there is {FORMS}")
        url = url[len("sqlite:///") :] if scheme else url
        if not url:
            raise ConfigurationError(f"an empty path names no store: there is {FORMS}")
    try:
        return Path(url).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"{str(url)!r} cannot be the path of a store: {error}") from error


def ready(path: Path) -> None:
    """Makes the file, closed to all others from its first byte, where it is missing; looks at it where not.

    A file that is no store of ours, or of a later version, is refused here, before anything touches it.
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
            f"the store {path} cannot be opened: {error.strerror}. Name another file, or change what may be "
            "read and written there"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"the store {path} is no file. Name a file, which is made if it is missing")
    if status.st_size:
        _look(path)


def _make_directory(path: Path) -> None:
    if not path.is_dir():
        _make_directory(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)


def _look(path: Path) -> None:
    """Refuses a file that is not ours, by a look that writes nothing, neither into it nor beside it.

    Without a log beside it the file is read without any lock, and so it can change under our eyes when
    somebody else opens it just then: what looks wrong is looked at again.
    """
    for attempt in range(3):
        quiet = not Path(f"{path}-wal").exists()
        try:
            _peek(path, "immutable=1" if quiet else "mode=ro")
        except StoreError:
            if attempt == 2:
                raise
            time.sleep(0.03)
        else:
            return


def _peek(path: Path, mode: str) -> None:
    with told(str(path)):
        connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=10, isolation_level=None)
        try:
            recognise(connection, str(path))
        finally:
            connection.close()


@contextlib.contextmanager
def told(name: str) -> Iterator[None]:
    """Lets no exception of SQLite out: each becomes a StoreError that says what is wrong and what to do."""
    try:
        yield
    except (sqlite3.Error, Unreadable) as error:
        code = _code_of(error)
        known = (meaning for begin, meaning in MEANINGS.items() if code.startswith(begin))
        reason = next(known, "SQLite refused what was asked of it")
        raise StoreError(
            f"the store {name} cannot be used: {reason}. [{code or 'SQLite'}: {error}]"
        ) from error


def _code_of(error: Exception) -> str:
    """SQLite's name for what is wrong; Python's own module gives none for what it finds itself."""
    if isinstance(error, Unreadable) or "decode" in str(error):
        return "SQLITE_CORRUPT"
    if "too big" in str(error):
        return "SQLITE_TOOBIG"
    return getattr(error, "sqlite_errorname", None) or ""


def waited(step: Callable[[], T], seconds: float) -> T:
    """Does a step that SQLite gives up without waiting where another process is in its way."""
    end = time.monotonic() + seconds
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
        time.sleep(0.002 * random.random())  # noqa: S311 - so that those who wait do not ask in step
