"""Conversations: their events, their pieces, and items remembered across sessions."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from ullage.context.journal import Item, JournalEvent, Piece, SavedFold
from ullage.errors import Conflict, StoreError, StoreLost
from ullage.fitting.pieces import letters_of
from ullage.store import folds, pieces, sessions
from ullage.store.connection import PIECES, retry_lost, session_lock
from ullage.store.values import LARGEST, Damaged, column, encode_value, seal, text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ullage.context.search import Hit
    from ullage.store.connection import Database
    from ullage.store.values import Column


INDEXED = 64
"""Events after which the texts of turns are indexed; a search indexes those that came since."""


LOCKED = 256
"""Most sessions that are indexed in one transaction."""


class StoredJournal:
    """A journal whose every change is on the disk when the call returns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, session: str, number: int, *events: JournalEvent) -> None:
        """Stores the events if `number` is the session's next number, else raises Conflict."""
        rows = [(column(event.kind), encode_value(dict(event.data))) for event in events]
        try:
            self._append(session, number, rows)
        except StoreLost as lost:
            if not (lost.is_unknown and self._ends_with(session, number, rows)):
                self._append(session, number, rows)

    def _append(self, session: str, number: int, rows: Sequence[tuple[Column, Column]]) -> None:
        is_indexed = (number + len(rows)) // INDEXED != number // INDEXED
        locks = (PIECES,) if is_indexed else ()
        with self._database.writing(*locks, session_lock(session)) as connection:
            row = sessions.begin(connection, session)
            if number != row.length:
                raise Conflict(session, number, row.length)
            for kind, data in rows:
                row = sessions.add_event(connection, row, kind, data)
            if is_indexed:
                pieces.index_turns(connection, row.key)
            self._database.locks.hold_session(row.key)

    def _ends_with(self, session: str, number: int, rows: Sequence[tuple[Column, Column]]) -> bool:
        """Returns True if a transaction whose end nobody saw has stored these events."""
        with self._database.reading() as connection:
            row = sessions.find(connection, session)
            stored = () if row is None else sessions.event_rows(connection, row.key)[number:]
        return [(kind, data) for _, kind, data, _ in stored] == list(rows)

    def events(self, session: str) -> Sequence[JournalEvent]:
        """Returns all events of a session in order; raises StoreError if one is damaged."""
        with self._database.reading() as connection:
            row = sessions.find(connection, session)
            if row is None:
                return ()
            self._database.locks.hold_session(row.key)
            rows = sessions.event_rows(connection, row.key)
        with self._database.store_errors():  # outside the lock, which a long conversation would hold for long
            return tuple([JournalEvent(kind, data) for kind, data in sessions.events_of(row, rows)])

    def keep(self, session: str, texts: Iterable[str], events: Sequence[int | None] = ()) -> None:
        """Stores texts by their full hash; writes nothing if the session has them all."""
        given = list(texts)
        hashed = pieces.hash_texts(given)
        with self._database.reading() as connection:
            missing = pieces.missing(connection, session, hashed)
        if missing:
            named = {
                letters_of(text): event
                for text, event in zip(given, events, strict=False)
                if event is not None
            }
            retry_lost(lambda: self._keep(session, missing, named), is_idempotent=True)

    def _keep(self, session: str, texts: Mapping[str, str], events: Mapping[str, int]) -> None:
        with self._database.writing(PIECES, session_lock(session)) as connection:
            row = sessions.begin(connection, session)
            pieces.index_turns(connection, row.key)
            pieces.keep(connection, row.key, texts, events)

    def save_fold(self, session: str, name: str, state: bytes, part: bytes, number: int, events: int) -> bool:  # noqa: PLR0917
        """Stores the state of a fold, unless the session was continued since."""
        with self._database.writing(session_lock(session)) as connection:
            row = sessions.find(connection, session)
            if row is None or row.length != events:
                return False
            return folds.save(connection, row, name, state, part, number)

    def load_fold(self, session: str, name: str) -> SavedFold | None:
        """Returns the state of a fold if the session still has the history that it was saved for."""
        with self._database.reading() as connection:
            row = sessions.find(connection, session)
            return None if row is None else folds.load(connection, row, name)

    def recall(self, handle: str, session: str | None = None) -> Piece | None:
        """Returns the earliest piece whose hash begins with the handle; pieces of `session` come first."""
        with self._database.reading() as connection:
            return pieces.recall(connection, handle, session)

    def search(
        self, words: str, session: str | None = None, most: int = 20, without: Collection[str] = ()
    ) -> Sequence[Hit]:
        """Returns the pieces that bear on the words, the best first."""
        self._index_turns(session)
        with self._database.reading() as connection:
            return tuple(pieces.find(connection, words, session, most, without))

    def _index_turns(self, session: str | None) -> None:
        """Indexes the newest turns, of one session or of all.

        If the store cannot be written, for instance because the disk is full, earlier turns are found still.
        """
        with self._database.reading() as connection:
            found = pieces.behind(connection, session)
        if found:
            with suppress(StoreError):
                for some in _portions(found):
                    locks = map(session_lock, some.values())
                    with self._database.writing(PIECES, *locks) as connection:
                        for key in some:
                            pieces.index_turns(connection, key)

    def remember(self, content: str, kind: str = "") -> Item:
        """Stores an item under the next number."""
        with self._database.writing() as connection:
            row = (column(kind), column(content))
            (number,) = connection.execute(
                "INSERT INTO items (kind, content) VALUES (?, ?) RETURNING number", row
            ).fetchone()
            checksum = seal(number, *row)
            connection.execute("UPDATE items SET checksum = ? WHERE number = ?", (checksum, number))
        return Item(number, kind, content)

    def items(self) -> Sequence[Item]:
        """Returns the remembered items in the order in which they were stored."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT number, kind, content, checksum FROM items ORDER BY number")
            return tuple([_item(*row) for row in rows])

    def forget(self, number: int) -> bool:
        """Deletes an item; returns False if no item has this number."""
        if not 0 < number <= LARGEST:
            return False
        with self._database.writing() as connection:
            return connection.execute("DELETE FROM items WHERE number = ?", (number,)).rowcount > 0


def _portions(found: Mapping[int, str]) -> Iterator[Mapping[int, str]]:
    """Yields sessions in portions: a server has room for a limited number of locks."""
    left = iter(found.items())
    while some := dict(islice(left, LOCKED)):
        yield some


def _item(number: int, kind: str | bytes, content: str | bytes, checksum: bytes) -> Item:
    if seal(number, kind, content) != checksum:
        raise Damaged(f"item {number} of the memory was changed")
    return Item(number, text_of(kind), text_of(content))
