"""`Journal`: the protocol of the place that keeps a conversation, and an implementation in memory.

A conversation is the sum of its events: reading them again in order restores it. Pieces are the texts of its
turns, and whole texts of which a turn has only a part, under their handles. Items are remembered in all
conversations.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ullage.context.search import (
    AFTER,
    BEFORE,
    SESSION_PLACES,
    MemoryWords,
    Said,
    hit_of,
    rank,
    read_handle,
    read_query,
)
from ullage.errors import Conflict
from ullage.fitting.pieces import letters_of, piece_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ullage.context.search import Hit


class JournalEvent(NamedTuple):
    """One change of a conversation."""

    kind: str
    data: Mapping[str, Any]
    """The values of the event, as JSON values. A number may also be NaN, infinite or longer than 64 bits."""


class Piece(NamedTuple):
    """A text of a conversation, kept whole even if it is no longer sent."""

    handle: str
    """The whole hash of the text: `fitting.pieces.letters_of`."""
    text: str
    session: str


class Item(NamedTuple):
    """A text that is remembered in every conversation."""

    number: int
    kind: str
    """The user's word for the kind of the item; empty if the user gave none."""
    content: str


class SavedFold(NamedTuple):
    """The state of a fold at a trim, as `fitting.snapshot` writes it."""

    state: bytes
    log: tuple[bytes, ...]
    """The parts of the fold's log, in order."""


class Journal(Protocol):
    """Keeps everything that a conversation must not lose; safe to use from several threads.

    Each text and each value is read back exactly as it was given, also NUL, lone surrogates, -0.0 and NaN.
    If the journal waits for another process, `patience.current_limit` limits the wait: then it raises Busy if
    the caller tries again, else StoreError. A call that raises has changed nothing, unless it raises a
    StoreLost that `is_unknown`.
    """

    def append(self, session: str, number: int, *events: JournalEvent) -> None:
        """Keeps the session's events from this number on, counted from 0: all of them, or none.

        The events are durable when this returns, and the texts of turns can be recalled and searched: each
        text that `said_of` finds and that is not blank is kept as a piece of its event. Raises Conflict, with
        the number of the session's events, if that is not `number`.
        """

    def events(self, session: str) -> Sequence[JournalEvent]:
        """Returns all events of a session in order; an empty sequence if the session is unknown."""

    def keep(self, session: str, texts: Iterable[str], events: Sequence[int | None] = ()) -> None:
        """Keeps texts so that their handles find them; each text is kept once.

        `events` has, for each text, the number of the session's event whose whole text it is; None if there
        is no such event. A store then need not keep the text a second time.
        """

    def save_fold(self, session: str, name: str, state: bytes, part: bytes, number: int, events: int) -> bool:  # noqa: PLR0917
        """Keeps the state of a fold that has read the first `events` events, and part `number` of its log.

        Part 0 replaces the state and log with this name. Returns False, and keeps nothing, if the session has
        another number of events or the part does not follow the last one. A journal may drop old states.
        """

    def load_fold(self, session: str, name: str) -> SavedFold | None:
        """Returns the last saved state; None if nothing was saved or the session's history has changed."""

    def recall(self, handle: str, session: str | None = None) -> Piece | None:
        """Returns the piece whose handle begins with this text; None if there is none.

        Blanks around the text and the case of its letters do not matter; an empty text finds nothing. A piece
        of that session comes first; then the piece that was kept first.
        """

    def search(
        self, words: str, session: str | None = None, most: int = 20, without: Collection[str] = ()
    ) -> Sequence[Hit]:
        """Returns the pieces of a session, or of all, that match the words, ordered by `context.search.rank`.

        `read_query` and `read_handle` read the words. If they are a handle, its piece comes first. Then come
        the ranked pieces that `SearchQuery.matches`. A text that several sessions kept comes once, as a piece
        of the session that began first. Pieces whose whole hash is in `without` are left out. `hit_of` makes
        a hit from a piece and the turns from `BEFORE` events before it to `AFTER` events after it.
        """

    def remember(self, content: str, kind: str = "") -> Item:
        """Keeps an item for every conversation, under a number above those of all earlier items."""

    def items(self) -> Sequence[Item]:
        """Returns all items, the oldest first."""

    def forget(self, number: int) -> bool:
        """Forgets an item; returns False if there is no item with this number."""


def said_of(event: JournalEvent) -> Said | None:
    """Returns the turn of an event, whose text a journal keeps; None if the event is not a turn."""
    message = event.data.get("message")
    if event.kind != "turn" or not isinstance(message, Mapping):
        return None
    try:
        return Said(str(message.get("role")), piece_of(message))
    except (AttributeError, KeyError, TypeError):  # a journal also keeps invalid messages
        return None


class _SearchedWords(MemoryWords):
    """The words of the pieces that were indexed for searching."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self.handles: set[str] = set()


class _Kept(NamedTuple):
    """A text that a session kept."""

    piece: Piece
    event: int | None
    """The number of the session's event that has the text, or None."""


class MemoryJournal:
    """A journal that lasts as long as the process.

    Handles and words are computed at the first recall or search, so other conversations do not pay for them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: defaultdict[str, list[JournalEvent]] = defaultdict(list)
        self._unread: list[tuple[str, int]] = []  # turns without a handle yet: session, event
        self._kept: list[_Kept] = []  # in the order of keeping
        self._pieces: defaultdict[str, dict[str, int]] = defaultdict(
            dict
        )  # session → handle → index in _kept
        self._words: dict[str | None, _SearchedWords] = {}
        self._sessions: dict[str, int] = {}  # in the order of their beginning
        self._items: dict[int, Item] = {}
        self._numbered = 0
        self._folds: dict[tuple[str, str], SavedFold] = {}

    def append(self, session: str, number: int, *events: JournalEvent) -> None:
        """Keeps the events, if they are the session's next."""
        with self._lock:
            known = self._events[session]
            if number != len(known):
                raise Conflict(session, number, len(known))
            known.extend(events)
            self._sessions.setdefault(session, len(self._sessions))
            turns = [place for place, event in enumerate(events, number) if event.kind == "turn"]
            self._unread += [(session, place) for place in turns]

    def events(self, session: str) -> Sequence[JournalEvent]:
        """Returns all events of a session in order."""
        with self._lock:
            return tuple(self._events.get(session, ()))

    def keep(self, session: str, texts: Iterable[str], events: Sequence[int | None] = ()) -> None:
        """Keeps texts by their full hash."""
        with self._lock:
            self._sessions.setdefault(session, len(self._sessions))
            self._read_turns()
            for text, event in zip_longest(list(texts), events):
                self._keep(session, text, event)

    def _read_turns(self) -> None:
        """Keeps the texts of the turns that were appended since the last call."""
        unread, self._unread = self._unread, []
        for session, event in unread:
            said = said_of(self._events[session][event])
            if said is not None and said.text.strip():
                self._keep(session, said.text, event)

    def _keep(self, session: str, text: str, event: int | None) -> None:
        pieces, letters = self._pieces[session], letters_of(text)
        if letters not in pieces:
            pieces[letters] = len(self._kept)
            self._kept.append(_Kept(Piece(letters, text, session), event))

    def save_fold(self, session: str, name: str, state: bytes, part: bytes, number: int, events: int) -> bool:  # noqa: PLR0917
        """Keeps the state of a fold."""
        with self._lock:
            before = self._folds.get((session, name), SavedFold(b"", ()))
            log = before.log if number else ()
            if len(log) != number or events != len(self._events.get(session, ())):
                return False
            self._folds[session, name] = SavedFold(state, (*log, part))
            return True

    def load_fold(self, session: str, name: str) -> SavedFold | None:
        """Returns the last saved state; events never change here."""
        with self._lock:
            return self._folds.get((session, name))

    def recall(self, handle: str, session: str | None = None) -> Piece | None:
        """Returns the first piece whose hash begins with the handle; a piece of that session comes first."""
        with self._lock:
            place = self._find(handle, session)
            return None if place is None else self._kept[place].piece

    def _find(self, handle: str, session: str | None) -> int | None:
        sought = handle.strip().lower()
        self._read_turns()
        own = [] if session is None else list(self._pieces.get(session, {}).values())
        places = [*own, *range(len(self._kept))] if sought else own[:0]
        for place in places:
            if self._kept[place].piece.handle.startswith(sought):
                return place
        return None

    def search(
        self, words: str, session: str | None = None, most: int = 20, without: Collection[str] = ()
    ) -> Sequence[Hit]:
        """Returns the pieces that match the words, the best first."""
        query, handle = read_query(words), read_handle(words)
        with self._lock:
            exact = None if handle is None else self._find(handle, session)
            ranked = rank(self._update_words(session), query)
            places = [*ranked] if exact is None else [exact, *(each for each in ranked if each != exact)]
            found = (
                place
                for place in places
                if self._kept[place].piece.handle not in without
                and (place == exact or query.matches(self._kept[place].piece.text))
            )
            return tuple([self._hit(place) for place in islice(found, max(0, most))])

    def _update_words(self, session: str | None) -> MemoryWords:
        """Returns the words of a session, or of all, including those of newly kept pieces."""
        self._read_turns()
        words = self._words.setdefault(session, _SearchedWords())
        if session is None and words.read < len(self._kept):
            words = self._words[None] = _SearchedWords()  # a text belongs to the first session that has it
        new = range(words.read, len(self._kept))
        for place in new if session is not None else sorted(new, key=self._number):
            (letters, text, owner), event = self._kept[place]
            if session in {None, owner} and letters not in words.handles:
                words.handles.add(letters)
                words.add(
                    place, text, None if event is None else self._number(place) * SESSION_PLACES + event
                )
        words.read = len(self._kept)
        return words

    def _number(self, place: int) -> int:
        """Returns the number of the session that kept the text at this index of `_kept`."""
        return self._sessions[self._kept[place].piece.session]

    def _hit(self, place: int) -> Hit:
        piece, event = self._kept[place]
        return hit_of(*piece, event, self._around(piece.session, event))

    def _around(self, session: str, event: int | None) -> Iterator[tuple[int, Said]]:
        if event is None:
            return
        first = max(0, event - BEFORE)
        for number, each in enumerate(self._events[session][first : event + AFTER + 1], first):
            said = said_of(each)
            if said is not None:
                yield number, said

    def remember(self, content: str, kind: str = "") -> Item:
        """Keeps an item under the next number."""
        with self._lock:
            self._numbered += 1
            item = self._items[self._numbered] = Item(self._numbered, kind, content)
            return item

    def items(self) -> Sequence[Item]:
        """Returns all items, the oldest first."""
        with self._lock:
            return tuple(self._items.values())

    def forget(self, number: int) -> bool:
        """Forgets an item; returns False if there is no item with this number."""
        with self._lock:
            return self._items.pop(number, None) is not None
