"""The last requests: the size of each, and the lines of the conversation that they no longer send whole."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.fitting.pieces import piece_of
from ullage.fitting.result import EVICT, is_eviction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ullage.context.record import Record
    from ullage.context.summary import Summaries
    from ullage.context.window_cache import CachedWindow
    from ullage.fitting.result import Fitted
    from ullage.messages import Message
    from ullage.target import Target

LENGTH = 100
"""The number of requests that are remembered."""


class Sent(NamedTuple):
    """One request."""

    at: float
    """When, in seconds since the epoch."""
    tokens_before: int
    tokens_after: int
    maximum: int
    trimmed: bool
    dropped: int
    """Messages that were no longer there."""


class Statistics(NamedTuple):
    """Figures over the remembered requests."""

    requests: int
    trimmed: int
    utilization: float
    """The share of their limits that they filled on average, from 0 to 1; 0 if there was no request."""


class RequestLog:
    """The newest requests, the oldest first."""

    def __init__(self, length: int = LENGTH) -> None:
        self._sent: deque[Sent] = deque(maxlen=length)

    def note(self, fitted: Fitted[Any], at: float) -> None:
        """Remembers a request."""
        self._sent.append(
            Sent(at, fitted.tokens_before, fitted.tokens_after, fitted.limit, fitted.changed, fitted.dropped)
        )

    def __len__(self) -> int:
        return len(self._sent)

    def __iter__(self) -> Iterator[Sent]:
        return iter(tuple(self._sent))

    def statistics(self) -> Statistics:
        """Returns the number of requests, the number of trimmed ones, and how full they were on average."""
        sent = tuple(self._sent)
        filled = sum(each.tokens_after / each.maximum for each in sent)
        trimmed = sum(each.trimmed for each in sent)
        return Statistics(len(sent), trimmed, filled / len(sent) if sent else 0.0)


class Evictions:
    """Keeps the texts that are no longer sent whole, and reports each change once."""

    def __init__(self, record: Record, summaries: Summaries | None) -> None:
        self._record = record
        self._summaries = summaries
        self._changes: Counter[str] = Counter()
        # Texts that are no longer sent whole, and not kept yet
        self._texts: list[tuple[str, int | None]] = []
        self.clear()

    def clear(self) -> None:
        """Forgets the lines, after turns were removed."""
        self._evicted: set[int] = set()
        self._unreported: set[int] = set()  # evicted lines that `pop_turns` has not returned yet
        self._known: set[tuple[Target, int, str]] = set()  # changes that are in `_changes` or were reported
        self._short: set[int] = set()  # lines whose texts are kept because a short form leaves them out
        # Windows whose saved log is not in the sets above
        self._earlier: list[tuple[CachedWindow, bool]] = []

    def note(self, window: CachedWindow, fitted: Fitted[Message], *, is_own: bool) -> None:
        """Notes the changes of a request; `is_own` is True for the conversation's own model and prompt."""
        self._catch_up(window, is_own=is_own)
        lines, model = self._record.state.lines, window.bounds.target
        for kind, line, is_old in window.take_changes(fitted):
            turn = lines[line].turn
            self._texts.append((piece_of(turn.message), turn.event))
            is_evicted = self._mark(kind, line, is_own=is_own)
            if not is_old and (model, line, kind) not in self._known:
                self._changes[EVICT if is_eviction(kind) else kind] += 1
            if not is_old and is_evicted:
                self._unreported.add(line)
            self._known.add((model, line, kind))
        self._keep_texts()

    def note_lines(self, changed: set[int], left_out: Iterable[int] | None = None) -> None:
        """Notes the lines that a request outside the cache does not send whole.

        `left_out` has the lines that a short form leaves out or cuts; None if the request is not a short
        form.
        """
        taken = changed | (set(left_out or ()) - self._short)
        if left_out is not None:
            self._short |= taken
        turns = [self._record.state.lines[line].turn for line in sorted(taken)]
        self._texts += [(piece_of(turn.message), turn.event) for turn in turns]
        self._keep_texts()

    def pop_changes(self) -> Mapping[str, int]:
        """Returns the number of changes since the last call, by kind."""
        changes, self._changes = self._changes, Counter()
        return changes

    def pop_turns(self) -> list[Message]:
        """Returns the turns that the conversation's own requests have evicted since the last call."""
        lines, turns = self._record.state.lines, self._record.state.turns
        ends = [*(line.place for line in lines[1:]), len(turns)]
        new, self._unreported = sorted(self._unreported), set()
        return [turn.message for line in new for turn in turns[lines[line].place : ends[line]]]

    def _keep_texts(self) -> None:
        """Writes the texts to the journal; if that fails, the next render tries again."""
        if self._texts:
            texts, events = zip(*self._texts, strict=True)
            self._record.journal.keep(self._record.session, texts, events)
            self._texts.clear()

    def _mark(self, kind: str, line: int, *, is_own: bool) -> bool:
        """Marks a change; returns True if it is the first that evicts this line from the own requests."""
        if not is_eviction(kind) or not is_own or line in self._evicted:
            return False
        self._evicted.add(line)
        if self._summaries:
            self._summaries.owe(line)
        return True

    def _catch_up(self, window: CachedWindow, *, is_own: bool) -> None:
        """Reads the logs of saved states, if a new window could report them again or a summary needs them."""
        if window.restored is not None and (window, is_own) not in self._earlier:
            self._earlier.append((window, is_own))
        if window.restored is not None and self._summaries is None:
            return
        for restored, was_own in self._earlier:
            for kind, line in restored.earlier():
                self._known.add((restored.bounds.target, line, kind))
                self._mark(kind, line, is_own=was_own)
            restored.restored = None
        self._earlier = []
