"""The request at one point of the fold: its messages, the passages that are recalled for it, and its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.call_pairs import make_unanswered_error
from ullage.errors import ContextOverflowError
from ullage.fitting.fold import commit, room_to_recall
from ullage.fitting.recall import with_quotation
from ullage.fitting.result import FitRecord, Fitted
from ullage.fitting.series import Series
from ullage.fitting.units import first_system
from ullage.messages import is_plain, without_recalled
from ullage.tokens import Cost, Count
from ullage.tokens.request_count import BLOCKS

if TYPE_CHECKING:
    from ullage.fitting.recall import Recall
    from ullage.fitting.state import FoldState
    from ullage.fitting.units import Entry, Unit


class _Recalled(NamedTuple):
    """The cost and the places of recalled passages."""

    tokens: int
    ceiling: int
    places: tuple[int, ...]


_NOTHING = _Recalled(0, 0, ())


class LastRequest:
    """The messages of the last request, so that the next request of a window only adds what is new."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._units: Series[Unit] = Series()
        self._places: list[int | None] = []
        self._messages: list[Any] = []
        self._plain = True

    def take(self, state: FoldState) -> tuple[list[int | None], list[Any], bool]:
        """Returns the places of the messages at a state, None for one that fitting made, and the messages.

        The bool is True if all messages are plain text.
        """
        units = state.units
        if not units.grew_from(self._units):
            self._forget()  # a trim made other units
        for unit in units[len(self._units) :]:
            self._plain = self._plain and _is_plain(unit)
            for entry in unit.entries:
                self._places.append(entry.place if entry.place >= 0 else None)
                self._messages.append(entry.message)
        self._units = units
        newest = state.newest
        if newest is None:
            return [], [], True
        places = [entry.place if entry.place >= 0 else None for entry in newest.entries]
        messages = [entry.message for entry in newest.entries]
        return [*self._places, *places], [*self._messages, *messages], self._plain and _is_plain(newest)


def make_request(
    state: FoldState, recall: Recall, last: LastRequest, trimmed: FoldState | None = None
) -> Fitted[Any]:
    """Returns the request at this point. Raises ContextOverflowError if its mandatory part does not fit.

    `trimmed` is `commit(state)`, if the caller has it already.
    """
    if state.waiting:
        raise make_unanswered_error(state.waiting)
    trimmed = commit(state) if trimmed is None else trimmed
    options = state.options
    if trimmed.is_trimmed and trimmed.ceiling > options.limit:
        count = count_request(trimmed)
        raise ContextOverflowError(count.ceiling, options.given_limit, count.ceilings)
    sources, messages, plain = last.take(trimmed)
    recalled = _put_recalled(trimmed, recall, messages)
    own = _count(trimmed, plain, recalled)
    count = options.factor.count(own)
    before = state.totals.given + options.framing(state.prompt.given_end).tokens
    log = trimmed.trims.log
    return Fitted(
        messages=messages,
        sources=sources,
        count=count,
        limit=options.given_limit,
        changed=bool(log) or _is_rewritten(trimmed),
        dropped=trimmed.trims.dropped,
        truncated=trimmed.trims.shortened,
        tokens_before=options.factor.tokens(before),
        tokens_after=count.tokens,
        estimate=Cost(own.tokens, own.ceiling),
        record=FitRecord(trimmed.history, log, len(state.trims.log), recalled.places),
    )


def count_request(state: FoldState) -> Count:
    """Returns the count of the request at this point, without a trim and without recalled passages.

    Calls may still wait for their results.
    """
    return state.options.factor.count(_count(state, all(map(_is_plain, state.live)), _NOTHING))


def _count(state: FoldState, plain: bool, recalled: _Recalled) -> Count:
    """Returns the cost by our own count, by block; `plain` is True if all messages are plain text."""
    options, prompt = state.options, state.prompt
    counter = options.counter
    framing = counter.request(system=prompt.end).tokens
    blocks = dict.fromkeys(BLOCKS, 0)
    blocks["system"] = prompt.tokens
    blocks["tools"] = options.framing(prompt.end).tokens - framing
    blocks["summary"] = prompt.digest_tokens
    blocks["recalled"] = recalled.tokens
    blocks["turns"] = state.totals.turn_tokens + framing
    exact = plain and counter.exact and not any(options.extras)
    return Count(sum(blocks.values()), state.ceiling + recalled.ceiling, exact, blocks)


def _put_recalled(state: FoldState, recall: Recall, messages: list[Any]) -> _Recalled:
    """Puts recalled passages in front of the newest question, if any bear on it and they fit."""
    options, log = state.options, state.trims.log
    if not log or not options.policy.recall_share:
        return _NOTHING
    position, entry = _newest_question(state)
    if entry is None:
        return _NOTHING
    content = entry.message["content"]
    if without_recalled(content) is not content:  # the caller sends a fitted request again
        return _NOTHING
    # Passages are chosen for a question, and again after a trim; in between a tool loop keeps their room.
    is_fresh = state.is_trimmed or state.is_question
    room = room_to_recall(state) if is_fresh else state.recall_room
    task = state.trims.digest.task or ""
    quotation = recall.quotation(state.history, entry.place, options.counter, log, room, task)
    if quotation is None:
        return _NOTHING
    asking = with_quotation(entry.message, quotation.text)
    cost = options.counter.message(asking)
    if state.totals.ceiling + options.once + cost.ceiling - entry.ceiling > options.limit:
        return _NOTHING
    messages[position] = asking
    return _Recalled(cost.tokens - entry.tokens, cost.ceiling - entry.ceiling, quotation.places)


def _newest_question(state: FoldState) -> tuple[int, Entry | None]:
    """Returns the last user message, and its position counted from the end of the messages."""
    unit, position, before = state.newest, 0, len(state.units)
    while unit is not None:
        position -= len(unit.entries)
        if unit.role == "user":
            return position, unit.entries[0]
        before -= 1
        unit = state.units[before] if before >= 0 else None
    return position, None


def _is_rewritten(state: FoldState) -> bool:
    """Returns True if fitting changed or made the first system message."""
    first = first_system(state.live)
    return first is not None and first.form != ""


def _is_plain(unit: Unit) -> bool:
    return all(is_plain(entry.message) for entry in unit.entries)
