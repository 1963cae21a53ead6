"""SQLite's connection and dialect, and error messages that say what to do."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from typing import TYPE_CHECKING, TypeVar

from ullage.errors import StoreError
from ullage.store.connection import SqlDialect
from ullage.store.sqlite.words import FtsIndex
from ullage.store.values import Damaged, Unreadable, remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

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

IN_AN_EVENT = 0
"""Value in the column of a piece's text if the text is in an event of a session that uses the piece."""

SQLITE = SqlDialect(unindexed=" NOT INDEXED", in_an_event=IN_AN_EVENT, words=FtsIndex())


class SqliteConnection(sqlite3.Connection):
    """A connection to an SQLite file."""

    dialect = SQLITE


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


def retry_while_busy(step: Callable[[], T], seconds: float) -> T:
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
