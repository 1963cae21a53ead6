"""`WindowCache`: a window for each prompt and model in use; each window reads only new turns.

If the state of a window was saved at a trim, the window continues from there and reads only the turns after
it. The name of a saved state is a hash of the rules, the options and the events that made it.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.context.blocks import shares, split, system_messages, with_blocks
from ullage.errors import ContextOverflowError, StoreError
from ullage.fitting.result import is_eviction
from ullage.fitting.state import Mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.context.blocks import Blocks
    from ullage.context.bounds import Bounds
    from ullage.context.journal import Journal, SavedFold
    from ullage.context.state import Compaction, Line, State
    from ullage.fitting import Fitted
    from ullage.fitting.series import SavedLog
    from ullage.fitting.state import FoldState
    from ullage.messages import Message
    from ullage.tokens import Count


MOST = 4
"""Most windows in the cache; for another one, the history is read again."""
EVERY = 64
"""Messages that a window reads before its state is saved again, so that saving costs little."""


class Renewal(NamedTuple):
    """A change of the blocks in the system message."""

    lines: int
    """The number of lines that the window had read."""
    compactions: int
    """The number of compactions that the window had made."""
    blocks: Blocks


class Trail(NamedTuple):
    """The blocks that a window began with, and their later changes."""

    first: Blocks
    renewals: tuple[Renewal, ...] = ()

    @property
    def blocks(self) -> Blocks:
        """The current blocks of the system message."""
        return self.renewals[-1].blocks if self.renewals else self.first


class Trimmed(NamedTuple):
    """The state of a window right after a trim became final."""

    state: FoldState
    trail: Trail
    compactions: tuple[Compaction, ...]
    length: int
    """The number of messages that the window had read."""


class CachedWindow:
    """A window, the blocks of its system message, and the lines that it has read."""

    def __init__(self, bounds: Bounds, first: Blocks, opened: int = 0) -> None:
        self.bounds = bounds
        self.trail = Trail(first)
        self.window = bounds.open_window()
        self._opened = opened
        self._counter = bounds.counter()
        self._shares = shares(self._counter, first)
        self._last: Message | None = None
        self._compactions: tuple[Compaction, ...] = ()
        self._reported = 0
        self._old = 0  # log entries that are older than the opening of the conversation
        self.trimmed: Trimmed | None = None
        """The state at the last trim, until it is saved."""
        self.restored: SavedLog | None = None
        """The log that the window began with, if it continues from a saved state."""
        self.saved = Saved()
        for message in system_messages(first):
            self.window.append(message)
        self._before = len(self.window)  # messages before the first line

    @property
    def blocks(self) -> Blocks:
        """The blocks of the system message."""
        return self.trail.blocks

    def read(self, trail: Trail, lines: Sequence[Line], compactions: Sequence[Compaction]) -> None:
        """Reads a conversation whose system message has changed on the way."""
        for renewal in trail.renewals[len(self.trail.renewals) :]:
            self.follow(lines[: renewal.lines], compactions[: renewal.compactions])
            self.renew(renewal.blocks)
        self.follow(lines, compactions)

    def follow(self, lines: Sequence[Line], compactions: Sequence[Compaction]) -> None:
        """Reads new lines, a last line that has grown, and compactions at their positions."""
        window = self.window
        read = len(window) - self._before
        if read and self._last is not lines[read - 1].turn.message:
            window.retract()
            read -= 1
        for compaction in compactions[len(self._compactions) :]:
            number = compaction.lines
            if read > number:
                window.retract()  # the question without an answer
            self._read(lines[read:number])
            read = number
            window.compact(compaction.share)
            self._compactions = (*self._compactions, compaction)
            self._note_trim()
        self._read(lines[read:])

    def _read(self, lines: Sequence[Line]) -> None:
        window, trims = self.window, self.window.trims
        for turn, _ in lines:
            window.append(turn.message, pin=turn.pin, priority=turn.priority)
            self._last = turn.message
            if window.trims != trims:
                trims = window.trims
                self._note_trim()

    def _note_trim(self) -> None:
        state = self.window.state
        self.trimmed = Trimmed(state, self.trail, self._compactions, len(self.window))
        if len(self.window) - self._before <= self._opened:
            self._old = len(state.trims.log)

    def restore(self, saved: SavedFold, trail: Trail, state: State) -> None:
        """Continues from a saved state. Raises ValueError if the state belongs to another conversation."""
        from ullage.fitting.snapshot import read, restore  # noqa: PLC0415 - most conversations are short

        plain = read(saved.state)
        about, length = plain["about"], plain["length"] - self._before
        trail = Trail(trail.first, trail.renewals[: about["renewals"]])
        made = tuple(state.compactions[: about["compactions"]])
        if not 0 < length <= len(state.lines) or about != describe(trail.renewals, made, state.rewound):
            raise ValueError("the saved state belongs to another conversation")
        history = system_messages(trail.blocks) + state.messages[:length]
        marks = [
            Mark(self._before + line, turn.pin, turn.priority)
            for line, turn in sorted(state.marked.items())
            if line < length
        ]
        restored = restore(self.window.state.options, plain, history, marks, saved.log)
        self.window.state = restored
        self.trail, self._compactions, self.restored = trail, made, restored.trims.log.saved
        self._last = state.messages[length - 1]
        self._shares = shares(self._counter, trail.blocks)
        logged = len(restored.trims.log)
        self._reported = self._old = logged
        self.saved = Saved(plain["length"], logged, len(saved.log))

    def renew(self, blocks: Blocks) -> bool:
        """Replaces the blocks of the system message; returns False if this adds or removes the message."""
        system = system_messages(blocks)
        if len(system) != self._before:
            return False
        for message in system:
            self.window.renew(message)
        renewal = Renewal(len(self.window) - self._before, len(self._compactions), blocks)
        self.trail = Trail(self.trail.first, (*self.trail.renewals, renewal))
        self._shares = shares(self._counter, blocks)
        return True

    def fitted(self) -> Fitted[Message]:
        """Returns the request to send; its breakdown names each block."""
        try:
            fitted = self.window.fitted()
        except ContextOverflowError as error:
            named = split(error.breakdown, self._shares)
            raise ContextOverflowError(
                error.tokens, error.limit, named, trimmed=self.bounds.rolling
            ) from error
        return replace(fitted, count=with_blocks(fitted.count, self._shares)) if self._shares else fitted

    def count(self) -> Count:
        """Returns the count before any trim; its breakdown names each block."""
        return with_blocks(self.window.count(), self._shares)

    def line_of(self, place: int) -> int:
        """Returns the line at an index of the window's history."""
        return place - self._before

    def list_evicted(self, fitted: Fitted[Message]) -> list[int]:
        """Returns the lines that this request is the first to evict."""
        return [self.line_of(place) for kind, place, *_ in fitted.record.pending if is_eviction(kind)]

    def take_changes(self, fitted: Fitted[Message]) -> Iterator[tuple[str, int, bool]]:
        """Yields the changes that were not reported yet: kind, line, and True if older than this process."""
        record, reported = fitted.record, self._reported
        for position, (kind, place, *_) in enumerate(record.since(reported), reported):
            yield kind, self.line_of(place), position < self._old
        self._reported = record.final

    def earlier(self) -> Iterator[tuple[str, int]]:
        """Yields the kind and line of each change before the saved state that this window began with."""
        for kind, place, *_ in () if self.restored is None else self.restored.read_entries():
            yield kind, self.line_of(place)


class Saved(NamedTuple):
    """The part of a window that is in the journal."""

    length: int = 0
    """The number of messages that the saved state has read."""
    logged: int = 0
    """The length of the saved log."""
    parts: int = 0
    """The number of parts of the saved log."""


class WindowCache:
    """The windows in use, by their bounds and blocks; the last used one is last."""

    def __init__(self, bounds: Bounds, journal: Journal, session: str) -> None:
        self.bounds = bounds
        """The current bounds. If no window has them, the history is read again."""
        self.opened = 0
        """The number of lines that the conversation had when it was opened."""
        self._journal = journal
        self._session = session
        self._windows: list[CachedWindow] = []
        self._trail: Trail | None = None  # of the kept conversation, until a window has read it

    @property
    def newest(self) -> CachedWindow:
        """The window that was used last."""
        return self._windows[-1]

    def clear(self) -> None:
        """Forgets all windows, so that the history is read again."""
        self._windows.clear()
        self._trail = None
        self.opened = 0

    def recount(self) -> None:
        """Counts the texts that the last trim made again."""
        for cached in self._windows:
            cached.window.recount()

    def get(self, blocks: Blocks, state: State) -> CachedWindow:
        """Returns the window with these blocks, up to date."""
        place = self._place(blocks)
        if place is None:
            trail = Trail(blocks)
            if self._trail is not None and self._trail.blocks == blocks:
                trail, self._trail = self._trail, None
            cached = self._make_window(trail, state)
        else:
            cached = self._windows.pop(place)
            cached.follow(state.lines, state.compactions)
        self._windows = [*self._windows[1 - MOST :], cached]
        return cached

    def _place(self, blocks: Blocks) -> int | None:
        found = (at for at, cached in enumerate(self._windows) if self._is_for(cached, blocks))
        return next(found, None)

    def _is_for(self, cached: CachedWindow, blocks: Blocks) -> bool:
        return cached.blocks == blocks and (cached.bounds is self.bounds or cached.bounds == self.bounds)

    def _make_window(self, trail: Trail, state: State) -> CachedWindow:
        """Returns a window that continues from its saved state, or that has read the whole conversation."""
        cached = self._restore_window(trail, state) or CachedWindow(self.bounds, trail.first, self.opened)
        cached.read(trail, state.lines, state.compactions)
        return cached

    def _restore_window(self, trail: Trail, state: State) -> CachedWindow | None:
        if len(state.lines) < EVERY or (name := name_of(self.bounds, trail.first)) is None:
            return None
        saved = self._journal.load_fold(self._session, name)
        if saved is None:
            return None
        cached = CachedWindow(self.bounds, trail.first, self.opened)
        try:
            cached.restore(saved, trail, state)
        except (ValueError, TypeError, KeyError, IndexError):  # the state is of another version or history
            return None
        return cached

    def save(self, cached: CachedWindow, fitted: Fitted[Message], state: State) -> None:
        """Saves the state of a window at its last trim, if it has read enough since the last save."""
        trimmed, saved = cached.trimmed, cached.saved
        if trimmed is None or trimmed.length - saved.length < EVERY:
            return
        from ullage.fitting.snapshot import write, write_log  # noqa: PLC0415 - most conversations are short

        name, at = name_of(self.bounds, trimmed.trail.first), trimmed.state
        about = describe(trimmed.trail.renewals, trimmed.compactions, state.rewound)
        try:
            data = None if name is None else write(at, about)
        except TypeError:  # JSON cannot hold the content
            data = None
        cached.trimmed = None
        if name is None or data is None:
            return
        log, logged, events = fitted.record.log, len(at.trims.log), state.events
        # If another Context has saved its own log in the meantime, the whole log is written again.
        for start, number in dict.fromkeys(((saved.logged, saved.parts), (0, 0))):
            part = write_log(log[start:logged])
            with suppress(StoreError):  # the next turn reports the error; an unsaved state is no loss
                if self._journal.save_fold(self._session, name, data, part, number, events):
                    cached.saved = Saved(trimmed.length, logged, number + 1)
                    return

    def renew(self, before: Blocks, blocks: Blocks, state: State) -> None:
        """Replaces the blocks of the window that has the blocks `before`."""
        if self._place(before) is not None:
            cached = self.get(before, state)
            self._windows = [cached] if cached.renew(blocks) else []
            return
        # No window has read the conversation yet; the first one will change the blocks on the way.
        trail = self._trail if self._trail is not None and self._trail.blocks == before else Trail(before)
        renewal = Renewal(len(state.lines), len(state.compactions), blocks)
        same = len(system_messages(before)) == len(system_messages(blocks))
        self._trail = Trail(trail.first, (*trail.renewals, renewal)) if same else None
        self._windows = []


# Names of saved states ----------------------------------------------------------------------------------

PROBE = "Where did we put the parser? src/parser.py:17 0x7f3a 東京 \N{SNOWMAN}\n"
"""A text that different tokenizers are very unlikely to count alike."""


def name_of(bounds: Bounds, first: Blocks) -> str | None:
    """Returns a name made of everything that decides the fold's result; None if JSON cannot hold it."""
    from ullage.fitting.snapshot import rules  # noqa: PLC0415 - most conversations are never trimmed

    counter, tokenizer = bounds.counter(), bounds.tokenizer
    options = {
        "rules": rules(),
        "target": asdict(bounds.target),
        "limit": bounds.limit,
        "policy": asdict(bounds.applied),
        "tools": bounds.tools,
        "factor": asdict(bounds.factor),
        "tokenizer": None if tokenizer is None else [type(tokenizer).__qualname__, tokenizer.name],
        "probe": [counter.text(PROBE), counter.message({"role": "user", "content": PROBE}), counter.exact],
        "blocks": first,
    }
    try:
        return _hash(options)
    except (TypeError, ValueError):
        return None


def describe(renewals: Sequence[Any], compactions: Sequence[Compaction], rewound: int) -> dict[str, Any]:
    """Returns the renewals, compactions and rewinds of a fold as a few numbers."""
    return {
        "renewals": len(renewals),
        "blocks": _hash(renewals),
        "compactions": len(compactions),
        "shares": _hash(list(compactions)),
        "rewound": rewound,
    }


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Returns a set in sorted order; raises TypeError for any other value."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
