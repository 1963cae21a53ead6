"""What a conversation asks of the place that keeps it, and the version of it that lives in memory.

A conversation is the fold of its events: whoever reads them again in order has it as it was. Pieces are
the texts that fitting took out, under their handles; items are what is remembered across conversations.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ullage.errors import Conflict
from ullage.fitting.shorten import letters_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Event(NamedTuple):
    """One thing that happened to a conversation."""

    kind: str
    data: Mapping[str, Any]
    """JSON values."""


class Piece(NamedTuple):
    """A text that is no longer sent, kept whole."""

    handle: str
    text: str
    session: str


class Item(NamedTuple):
    """Something to remember in every conversation."""

    number: int
    kind: str
    """What kind of thing it is, in the user's own word; empty where none was given."""
    content: str


class Journal(Protocol):
    """Keeps what a conversation must not lose; safe to use from several threads."""

    def append(self, session: str, number: int, event: Event) -> None:
        """Keeps the session's event of this number, counted from 0: durable when it returns.

        Raises Conflict where the session already has an event of this number, or none before it.
        """

    def events(self, session: str) -> Sequence[Event]:
        """All events of a session in order; none for a session that is not known."""

    def keep(self, session: str, texts: Iterable[str]) -> None:
        """Keeps texts so that their handles find them again; a text that is kept already is kept once."""

    def recall(self, handle: str, session: str | None = None) -> Piece | None:
        """The piece whose handle this is, or begins so: that session's own, if it has one, and the
        earliest kept where several fit."""

    def search(self, words: str, session: str | None = None, most: int = 20) -> Sequence[Piece]:
        """The pieces in which all the words stand, or words that begin so, the best first; of one session
        or of all, where a text that several kept comes once."""

    def remember(self, content: str, kind: str = "") -> Item:
        """Keeps something for every conversation."""

    def items(self) -> Sequence[Item]:
        """What is remembered, in the order in which it was."""

    def forget(self, number: int) -> bool:
        """Forgets an item; False where there is none of this number."""


class MemoryJournal:
    """A journal that lasts as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: defaultdict[str, list[Event]] = defaultdict(list)
        self._pieces: dict[str, dict[str, Piece]] = {}
        self._items: dict[int, Item] = {}
        self._numbered = 0

    def append(self, session: str, number: int, event: Event) -> None:
        """Keeps the event, if it is the session's next."""
        with self._lock:
            events = self._events[session]
            if number != len(events):
                raise Conflict(session, number, len(events))
            events.append(event)

    def events(self, session: str) -> Sequence[Event]:
        """All events of a session in order."""
        with self._lock:
            return tuple(self._events.get(session, ()))

    def keep(self, session: str, texts: Iterable[str]) -> None:
        """Keeps texts by their full hash."""
        with self._lock:
            pieces = self._pieces.setdefault(session, {})
            for text in texts:
                letters = letters_of(text)
                pieces.setdefault(letters, Piece(letters, text, session))

    def recall(self, handle: str, session: str | None = None) -> Piece | None:
        """The earliest piece whose hash begins with the handle, that session's own first."""
        sought = handle.strip().lower()
        if not sought:
            return None
        for piece in self._all(session):
            if piece.handle.startswith(sought):
                return piece
        return None

    def search(self, words: str, session: str | None = None, most: int = 20) -> Sequence[Piece]:
        """The pieces in which all the words stand, the newest first."""
        wanted = words.lower().split()
        pieces = [piece for piece in self._all(session) if session in {None, piece.session}]
        found = {
            piece.handle: piece
            for piece in reversed(pieces)
            if wanted and all(word in piece.text.lower() for word in wanted)
        }
        return list(found.values())[:most]

    def _all(self, first: str | None) -> list[Piece]:
        with self._lock:
            sessions = sorted(self._pieces, key=lambda session: session != first)
            return [piece for session in sessions for piece in self._pieces[session].values()]

    def remember(self, content: str, kind: str = "") -> Item:
        """Keeps an item under the next number."""
        with self._lock:
            self._numbered += 1
            item = self._items[self._numbered] = Item(self._numbered, kind, content)
            return item

    def items(self) -> Sequence[Item]:
        """What is remembered, in the order in which it was."""
        with self._lock:
            return tuple(self._items.values())

    def forget(self, number: int) -> bool:
        """Forgets an item."""
        with self._lock:
            return self._items.pop(number, None) is not None
