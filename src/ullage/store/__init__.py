"""Where conversations, pieces, accounts and what was learned are kept.

    with store.open() as kept:
        context = Context(journal=kept.journal, session="…")

A change is on the disk when the call that makes it returns. Any number of threads and processes may use the
same file at once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ullage.store.database import Database
from ullage.store.files import located
from ullage.store.sessions import Session, latest
from ullage.store.settings import Preferences, SqliteShelf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ullage.context.journal import Journal
    from ullage.cost.book import Book
    from ullage.tokens.calibration import Shelf

__all__ = ["Session", "Store", "open"]


class Store:
    """One place for everything that must last; each part is a small interface of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.preferences = Preferences(database)
        """What the user set."""
        self.calibration: Shelf = SqliteShelf(database)
        """What was learned about the counts of each endpoint and model."""

    @cached_property
    def journal(self) -> Journal:
        """Conversations, pieces, and what is remembered."""
        from ullage.store.journal import SqliteJournal  # noqa: PLC0415 - a prompt comes before a conversation

        return SqliteJournal(self._database)

    @cached_property
    def book(self) -> Book:
        """Accounts, reservations and caps."""
        from ullage.store.book import SqliteBook  # noqa: PLC0415 - the same

        return SqliteBook(self._database)

    @property
    def path(self) -> Path | None:
        """Its file; None where it lives in the memory of this process."""
        return self._database.path

    def sessions(self, most: int = 20) -> Sequence[Session]:
        """The conversations, the one that went on last first."""
        return latest(self._database, most)

    def close(self) -> None:
        """Closes the file; nothing is lost by not doing so."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open(url: str | Path | None = None) -> Store:  # noqa: A001 - it reads as `store.open`
    """The store at a path or `sqlite:///path`, made where there is none; by default in the user's state.

    `sqlite://:memory:` lasts as long as it is open. Raises StoreError where the file is damaged, of another
    program or of a newer Ullage, and leaves it as it is.
    """
    return Store(Database(located(url)))
