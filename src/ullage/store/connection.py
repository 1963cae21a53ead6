"""The interface of a store's database, SQLite or PostgreSQL, so that SQL for both is written once.

Statements use only SQL that both databases know. The few differences are in an `SqlDialect`. A transaction
that changes data names its locks: PostgreSQL lets other transactions run beside it, and SQLite, which has one
writer at a time, needs none of them.

A third database needs, beside common SQL: `RETURNING` after `INSERT` and `DELETE`, `ON CONFLICT … DO UPDATE`
with `excluded`, `ON CONFLICT DO NOTHING`, an `INSERT` of several rows, `LIMIT ?`, the word `true` and a
`bool` as conditions, and the columns `key`, `last`, `name`, `number`, `text` and `until` without quotation
marks. No statement relies on foreign keys. The tables, their columns and types are in
`postgres/migrations.py`:

| a column of | must take and return |
|---|---|
| text | every `str`, also with NUL, as `str`; every `RawText` as `bytes`; compared by code points |
| bytes | `bytes`, not a `memoryview` |
| whole numbers | 64 bits with a sign |
| numbers of new rows | rising; no number of `items` is used twice; `sessions.id` is below 2**31 |

`tests/test_databases.py` tests most of this, and what the protocols below promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ullage.errors import StoreLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ullage.context.search import IndexedWords

T = TypeVar("T")

PIECES = "pieces"
"""Lock of the transactions that add or remove pieces. It comes before the locks of sessions: a transaction
that takes several locks of sessions has this one, so no two of them can wait for each other."""
BOOK = "book"
"""Lock of the transactions that change accounts."""
CALIBRATION = "calibration"
PREFERENCES = "preferences"
KEYS = "keys"


def session_lock(session: str) -> str:
    """Returns the lock of the transactions that continue a session."""
    return f"session {session}"


def retry_lost(work: Callable[[], T], *, is_idempotent: bool) -> T:
    """Does a transaction again, once, if its connection was lost and a second time does no harm."""
    try:
        return work()
    except StoreLost as lost:
        if lost.is_unknown and not is_idempotent:
            raise
        return work()


class Cursor(Protocol):
    """The rows that a statement returned, as tuples. They can still be read while other statements run."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed."""

    def fetchone(self) -> Any:
        """Returns the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Returns all remaining rows."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Returns the next rows, at most `size`; an empty list at the end."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection inside a transaction."""

    @property
    def dialect(self) -> SqlDialect:
        """Differences between SQLite and PostgreSQL."""

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> Cursor:
        """Runs a statement whose values stand as `?` or as `:name`; `?` and `:name` occur nowhere else in it.

        A mapping may have names that the statement does not use.
        """


class WordIndex(Protocol):
    """The index of the words of pieces: the stems of each passage that `context.search.index_forms` yields.

    `store.words.SessionWords` searches it. It needs a table `passages` with the columns id, piece and size
    (the number of stems); `postgres/words.py` is an example in plain SQL.
    """

    def create(self, connection: Connection) -> None:
        """Makes the tables of the index."""

    def add(self, connection: Connection, piece: int, text: str) -> None:
        """Indexes the text of a piece."""

    def remove(self, connection: Connection, piece: int, text: str) -> None:
        """Takes the words of a piece out of the index."""

    def clear(self, connection: Connection) -> None:
        """Takes everything out of the index."""

    def of(self, connection: Connection, session: int | None) -> IndexedWords:
        """Returns the words of a session, or of all if the session is None."""


class SqlDialect(NamedTuple):
    """Differences between SQLite and PostgreSQL."""

    unindexed: str
    """Follows the name of a table that must be read without its indexes, because one may be damaged."""
    in_an_event: int | None
    """Value in the column of a piece's text if the text is in an event of a session that uses the piece.

    None, unless the column can take a number."""
    words: WordIndex


class Locks(Protocol):
    """Locks that last longer than a transaction, and end with their process.

    A database that only one process can open at a time needs none: all other holders are gone, and nobody
    else has a session open.
    """

    @property
    def holder(self) -> int:
        """The number under which this process reserves money, until it closes the store.

        No other process has it, neither now nor later, and it fits into a column.
        """

    def gone(self, connection: Connection) -> list[int]:
        """Returns the holders of reservations whose processes have ended or closed the store.

        The table `reservations` has them: `holder` in the rows with the state 'held'.
        """

    def forget_holders(self, connection: Connection, holders: Sequence[int]) -> None:
        """Forgets holders that are gone and have no reservation any more."""

    def hold_session(self, key: int) -> None:
        """Keeps other processes from deleting this session until the store is closed."""

    def exclude_others(self, key: int) -> AbstractContextManager[bool]:
        """Yields False if another process has this session open. If True, none can open it in the block."""


class Database(Protocol):
    """A database that any thread may use, in transactions. It makes missing tables when it is opened.

    A block inside a block of the same thread is part of the outer transaction, and takes its own locks too.
    Each block turns errors as `store_errors` does, and raises StoreError if the database was closed. A block
    that must wait, for another thread or process, waits as long as `patience.current_limit` says. Then it
    raises Busy if the caller tries again, else StoreError, and has done nothing. A database on a server
    raises StoreLost if the connection is lost in a block.
    """

    @property
    def path(self) -> Path | None:
        """Path of the file; None if the store is not a file.

        Costs that cannot be written before a process exits go into a file beside it.
        """

    @property
    def name(self) -> str:
        """Name of the database in errors; never a password."""

    @property
    def is_closed(self) -> bool:
        """True if the database was closed."""

    @property
    def locks(self) -> Locks:
        """Locks that tell this process from others that have the store open."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Opens a transaction that sees one state of the database until the end of the block."""

    def writing(self, *locks: str, is_durable: bool = True) -> AbstractContextManager[Connection]:
        """Opens a transaction whose changes are durable at the end of the block, or undone if it raises.

        No other transaction with one of these locks runs at the same time. Changes that need not be durable
        may get lost if the machine fails that all users of the database run on.
        """

    def store_errors(self) -> AbstractContextManager[None]:
        """Turns each error of the database, and each damaged row (`values.Unreadable`), into a StoreError.

        Its message names the database, the problem and the remedy: `values.remedy` for a `values.Damaged`.
        """

    def shrink(self) -> None:
        """Returns the space of deleted data to the disk."""

    def close(self) -> None:
        """Closes the database; it cannot be used again. A second call does nothing."""
