"""Durable storage of conversations, pieces, accounts, calibration and gateway keys.

    with store.open() as kept:
        context = Context(journal=kept.journal, session="…")

A change is on the disk when its call returns. Any number of threads and processes may use the same store at
once: a file on one machine (SQLite), or a server for many (PostgreSQL).
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError
from ullage.extras import require
from ullage.store.sessions import Session, delete, event_rows, latest, salvage
from ullage.store.settings import PreferenceStore, StoredShelf
from ullage.store.sqlite.database import SqliteDatabase
from ullage.store.values import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ullage.context.journal import Journal
    from ullage.cost.book import Book
    from ullage.store.connection import Database
    from ullage.store.keys import KeyStore
    from ullage.tokens.calibration import Shelf

__all__ = ["Session", "Store", "locate_file", "open"]

_FORMS = (
    "a path, sqlite:///path (the path begins after the third slash), sqlite://:memory: "
    "or postgresql://user@host/database"
)
_MEMORY = {":memory:", "sqlite://", "sqlite://:memory:", "sqlite:///:memory:"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(?=://)")


class Store:
    """All durable data, in a file or on a server. Each part has a small interface of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._closing = ExitStack()
        self._closing.callback(database.close)
        self.preferences = PreferenceStore(database)
        """Settings that the user changed in the shell."""
        self.calibration: Shelf = StoredShelf(database)
        """Learned corrections of token counts, by endpoint and model."""

    @cached_property
    def journal(self) -> Journal:
        """Conversations, pieces and remembered items."""
        from ullage.store.journal import StoredJournal  # noqa: PLC0415 - the prompt does not need it

        return StoredJournal(self._database)

    @cached_property
    def book(self) -> Book:
        """Accounts, reservations and caps."""
        from ullage.store.book import StoredBook  # noqa: PLC0415 - the same

        book = StoredBook(self._database)
        self._closing.callback(book.close)
        return book

    @cached_property
    def keys(self) -> KeyStore:
        """Gateway keys."""
        from ullage.store.keys import KeyStore  # noqa: PLC0415 - the same

        return KeyStore(self._database)

    @property
    def path(self) -> Path | None:
        """Path of the file; None for a store in memory or on a server."""
        return self._database.path

    def sessions(self, most: int = 20) -> Sequence[Session]:
        """Returns the conversations, the most recently continued first."""
        return latest(self._database, most)

    def salvage(self, session: str) -> Sequence[tuple[str, Any] | None]:
        """Returns kind and data of each readable event; None for each damaged one."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT id, name FROM sessions WHERE name = ?", (column(session),)
            ).fetchone()
            return () if row is None else tuple(salvage(row[1], event_rows(connection, row[0])))

    def delete_session(self, session: str) -> bool:
        """Deletes a conversation and the pieces that no other one uses; its costs stay in the book.

        Returns False if there is no such session. Raises StoreError if another process has the session open.
        """
        return delete(self._database, session)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes all changes inside the block one transaction, which is written to the disk once."""
        with self._database.writing():
            yield

    def shrink(self) -> None:
        """Returns the space of deleted data to the disk. It takes time, and space for a second copy."""
        self._database.shrink()

    def close(self) -> None:
        """Closes the file. Without this call, only costs that could not be written yet are lost.

        Raises NotBooked if there are such costs and they still cannot be written.
        """
        self._closing.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open(url: str | Path | None = None) -> Store:  # noqa: A001 - it reads as `store.open`
    """Opens the store at a path or a URL; by default a file in the user's state directory.

    `sqlite:///path` is a file, and a missing one is created. `sqlite://:memory:` lasts until it is closed.
    `postgresql://user@host/database` is a schema on a server, and missing tables are created. If the store is
    damaged, belongs to another program or was made by a newer Ullage, this raises StoreError and does not
    change it.
    """
    if isinstance(url, str) and (open_server := _server_of(url)):
        return Store(open_server(url))
    return Store(SqliteDatabase(locate_file(url)))


def _open_postgres(url: str) -> Database:
    from ullage.store.postgres.database import PostgresDatabase  # noqa: PLC0415 - an extra

    return PostgresDatabase(url)


_SERVERS: Mapping[str, Callable[[str], Database]] = {
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
}
"""Opens a store on a server, by the scheme of its URL. Every other store is in SQLite."""


def _server_of(url: str) -> Callable[[str], Database] | None:
    """Returns the function that opens a store on a server; None if the URL names no server."""
    scheme = _SCHEME.match(url)
    return None if scheme is None else _SERVERS.get(scheme[0].lower())


def locate_file(url: str | Path | None) -> Path | None:
    """Returns the file that a URL names, or None for a store in memory or on a server."""
    if url is None:
        require("client", "platformdirs")
        import platformdirs  # noqa: PLC0415 - takes 10 ms, which a named file need not wait for

        return platformdirs.user_state_path("ullage") / "ullage.db"
    if isinstance(url, str):
        if url in _MEMORY or _server_of(url):
            return None
        scheme = _SCHEME.match(url)
        if scheme and scheme[0].lower() != "sqlite":  # the rest may contain a password
            raise ConfigurationError(f"cannot open a store by {scheme[0]}://; use {_FORMS}")
        if scheme and not url[len("sqlite://") :].startswith("/"):
            raise ConfigurationError(f"{url} names no file; use {_FORMS}")
        url = url[len("sqlite:///") :] if scheme else url
        if not url:
            raise ConfigurationError(f"the path of the store is empty; use {_FORMS}")
    try:
        return Path(url).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"{str(url)!r} cannot be the path of a store: {error}") from error
