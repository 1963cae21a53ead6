"""Locks that end with their process, on a connection of their own: PostgreSQL's advisory locks.

The server drops the locks of a connection when it ends, and it ends when its process does, by `kill -9` too.
A server that restarts, or a network that fails for a moment, drops them as well, although the process lives.
So a thread also writes every few seconds that the process is there, and takes lost locks again. A holder of
money is gone if its lock is free *and* it has not been seen for a while.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from ullage.errors import StoreError
from ullage.patience import PATIENCE
from ullage.store.postgres.driver import PostgresConnection, store_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ullage.store.connection import Connection
    from ullage.store.postgres.address import Address

BEAT = 3.0
"""Seconds between two signs of life."""
SILENCE = 15.0
"""Seconds without a sign of life after which a holder whose lock is free is gone."""
CHECKED = 1.0
"""Seconds between two looks for holders that are gone."""
MOST_SESSIONS = 64
"""Sessions that a process protects from deletion: those used last. All locks of a server share a table."""

_HOLDERS = 1 << 61
_PAUSE = 0.01  # seconds between two attempts

_inherited: list[PostgresConnection] = []
"""Connections of the parent in a forked child: to close one would end it in the parent too."""


def lock_number(schema: str, name: str) -> int:
    """Returns the number of an advisory lock, from its name."""
    digest = hashlib.blake2b(f"{schema} {name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def keep_unclosed(connection: PostgresConnection) -> None:
    """Keeps a connection of the parent in a forked child, so that nothing closes it."""
    _inherited.append(connection)


class PostgresLocks:
    """The locks of one open store."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._guard = threading.RLock()
        self._process = os.getpid()
        self._connection: PostgresConnection | None = None
        self._sessions: OrderedDict[int, None] = OrderedDict()
        self._holder: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._checked = float("-inf")
        self._closed = False

    # Holders of money

    @property
    def holder(self) -> int:
        """The number under which this process reserves money, until it closes the store."""
        if self._holder is not None and self._process == os.getpid():
            return self._holder
        with self._guarded():
            if self._holder is None:
                number = _HOLDERS | secrets.randbits(61)
                with self._connected() as connection:
                    self._register(connection, number)
                    connection.execute(
                        "DELETE FROM holders WHERE seen < now() - interval '1 day' "
                        "AND NOT EXISTS (SELECT FROM reservations WHERE holder = number)"
                    )
                self._holder = number
                self._stop.clear()
                self._thread = threading.Thread(
                    target=self._show_life, args=(self._stop,), name="ullage-holder", daemon=True
                )
                self._thread.start()
            return self._holder

    def gone(self, connection: Connection) -> list[int]:
        """Returns the holders of reservations whose processes have ended or closed the store.

        Between two looks this returns nothing: looking takes longer than reserving.
        """
        if time.monotonic() - self._checked < CHECKED:
            return []
        silent = connection.execute(
            "SELECT DISTINCT holder FROM reservations LEFT JOIN holders ON number = holder "
            "WHERE state = 'held' AND holder <> ? "
            "AND (seen IS NULL OR seen < clock_timestamp() - make_interval(secs => ?))",
            (self._holder or 0, SILENCE),
        ).fetchall()
        gone = [holder for (holder,) in silent if self._is_free(connection, holder)]
        if not gone:
            self._checked = time.monotonic()
        return gone

    def forget_holders(self, connection: Connection, holders: Sequence[int]) -> None:
        """Forgets holders that are gone."""
        if holders:
            connection.execute("DELETE FROM holders WHERE number = ANY(?)", (list(holders),))

    def _is_free(self, connection: Connection, holder: int) -> bool:
        # Shared, so that two processes that look at the same time do not take each other for the holder.
        query = "SELECT pg_try_advisory_xact_lock_shared(?)"
        (free,) = connection.execute(query, (self._number(f"holder {holder}"),)).fetchone()
        return bool(free)

    def _register(self, connection: PostgresConnection, holder: int) -> None:
        """Takes the lock of a holder, and shows that it lives."""
        connection.execute("SELECT pg_advisory_lock(?)", (self._number(f"holder {holder}"),))
        self._show(connection, holder)

    def _show(self, connection: PostgresConnection, holder: int) -> None:
        connection.execute(
            "INSERT INTO holders VALUES (?, clock_timestamp()) "
            "ON CONFLICT (number) DO UPDATE SET seen = excluded.seen",
            (holder,),
        )

    def _show_life(self, stop: threading.Event) -> None:
        while not stop.wait(BEAT):
            # If the server is away, the next beat connects again and takes the locks.
            with contextlib.suppress(StoreError), self._guarded():
                if self._holder is not None and not stop.is_set():
                    with self._connected() as connection:
                        self._show(connection, self._holder)

    # Sessions

    def hold_session(self, key: int) -> None:
        """Keeps other processes from deleting this session, while it is among the last that were used."""
        if not _poll(lambda: self._try_to_hold(key), PATIENCE):
            raise StoreError(
                f"another process is deleting this session (store {self._address.name}). Try again"
            )

    def _try_to_hold(self, key: int) -> bool:
        with self._guarded():
            if key in self._sessions:
                self._sessions.move_to_end(key)
                return True
            with self._connected() as connection:
                if not self._try(connection, "pg_try_advisory_lock_shared", key):
                    return False
                self._sessions[key] = None
                while len(self._sessions) > MOST_SESSIONS:
                    oldest, _ = self._sessions.popitem(last=False)
                    self._try(connection, "pg_advisory_unlock_shared", oldest)
                return True

    @contextlib.contextmanager
    def exclude_others(self, key: int) -> Iterator[bool]:
        """Yields False if another process has this session open. If True, none can open it in the block."""
        with self._guarded(), self._connected() as connection:
            alone = self._try(connection, "pg_try_advisory_lock", key)
        try:
            yield alone
        finally:
            if alone:
                with self._guarded(), self._connected() as connection:
                    self._try(connection, "pg_advisory_unlock", key)
                    if self._sessions.pop(key, False) is None:
                        self._try(connection, "pg_advisory_unlock_shared", key)

    def _try(self, connection: PostgresConnection, function: str, session: int) -> bool:
        (done,) = connection.execute(
            f"SELECT {function}(?)", (self._number(f"open session {session}"),)
        ).fetchone()
        return bool(done)

    # The connection

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Gives one thread the connection. A forked child begins anew: the locks stay with the parent."""
        if self._process != os.getpid():
            self._guard, self._process = threading.RLock(), os.getpid()
            if self._connection is not None:
                keep_unclosed(self._connection)
            self._connection = self._holder = self._thread = None
            self._sessions.clear()
        with self._guard:
            yield

    @contextlib.contextmanager
    def _connected(self) -> Iterator[PostgresConnection]:
        """Yields the connection; if it was lost, a new one with all locks taken again."""
        if self._closed:
            raise StoreError(f"the store {self._address.name} is closed: open it again")
        if self._connection is None or self._connection.is_lost or not self._answers(self._connection):
            self._connection = PostgresConnection(self._address)
            with store_errors(self._address.name, self._connection):
                if self._holder is not None:
                    self._register(self._connection, self._holder)
                for session in tuple(self._sessions):
                    self._try(self._connection, "pg_try_advisory_lock_shared", session)
        with store_errors(self._address.name, self._connection):
            yield self._connection

    def _answers(self, connection: PostgresConnection) -> bool:
        try:
            with store_errors(self._address.name, connection):
                connection.execute("SELECT")
        except StoreError:
            connection.close()
            return False
        return True

    def _number(self, name: str) -> int:
        return lock_number(self._address.schema, name)

    def close(self) -> None:
        """Drops the locks and ends the thread."""
        with self._guarded():
            thread, self._thread = self._thread, None
            self._stop.set()
            connection, self._connection, self._closed = self._connection, None, True
            if connection is not None and not connection.is_lost:
                with contextlib.suppress(StoreError), store_errors(self._address.name, connection):
                    connection.execute("DELETE FROM holders WHERE number = ?", (self._holder or 0,))
            if connection is not None:
                connection.close()
        if thread is not None:
            thread.join()


def _poll(attempt: Callable[[], bool], seconds: float) -> bool:
    """Attempts until it succeeds; returns False if it never did within these seconds."""
    end = time.monotonic() + seconds
    while not attempt():
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)
    return True
