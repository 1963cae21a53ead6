"""The fold: functions from one state to the next, and `FoldPath`, which keeps the newest states.

A conversation is read from its start, and trimmed at each point where a request was over the limit. The
result depends on the history and the options alone. So a program that keeps a `Window` and one that calls
`fit` on the whole history each time send the same messages, and between two trims every request is a prefix
of the next. Only the passages that are recalled for a question go with the next question.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ullage.call_pairs import Waiting, follow, make_unanswered_error
from ullage.fitting.digest import EMPTY, parse
from ullage.fitting.draft import recount_draft
from ullage.fitting.options import end_of
from ullage.fitting.result import is_eviction
from ullage.fitting.series import Series
from ullage.fitting.shorten import is_error
from ullage.fitting.state import FoldState, Mark, Position, SystemPrompt, Totals, Trims, empty_state
from ullage.fitting.trim import trim, with_block
from ullage.fitting.units import Entry, Unit, first_system
from ullage.intake import whole_number
from ullage.messages import RESULT_ROLES, SYSTEM_ROLES, is_plain, split_content, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ullage.fitting.draft import Draft
    from ullage.fitting.options import Options, SystemEnd
    from ullage.messages import Message
    from ullage.tokens import Cost, Counter

_new = tuple.__new__
"""Makes a named tuple of all its fields, in half the time of a call of its class. A message makes five."""


def price(state: FoldState, message: Message) -> tuple[Waiting, Cost]:
    """Returns the calls without a result after this message, and the cost of the message.

    Raises InvalidConversation if the message cannot come next.
    """
    return _price(state, message, len(state.history))


def _price(state: FoldState, message: Message, place: int) -> tuple[Waiting, Cost]:
    waiting = follow(state.waiting, message, place)
    parallel = message["role"] in RESULT_ROLES and state.newest is not None and state.newest.parallel
    return waiting, state.options.counter.message(message, parallel=parallel)


def append(
    state: FoldState, message: Message, *, pin: bool = False, priority: int = 0, joins: bool = False
) -> FoldState:
    """Returns the state after one more message.

    An assistant's message answers the request that stood here, so the trim of that request becomes final.
    `joins` is True for words of the system or the user that stay or go with the message before them.
    """
    place, policy = len(state.history), state.options.policy
    waiting, cost = _price(state, message, place)
    if pin or priority != 0:
        mark = Mark(place, bool(pin), whole_number(priority, "priority", None))
        state = state._replace(marks=state.marks.with_item(mark))
    role = message["role"]
    if joins and state.newest is not None and state.newest.role != "system":
        return _append_to_newest(state, Entry(place, message, *cost, message), state.newest, waiting)
    if role in SYSTEM_ROLES:
        return _append_system(state, message, cost)
    pinned = pin or place in policy.pins
    priority = priority or policy.priorities.get(place, 0)
    if role in RESULT_ROLES:
        entry = _result_entry(state.options, place, message, cost)
        return _append_result(state, entry, waiting, pinned, priority)
    if policy.cut_user and role == "user" and state.newest is not None and state.newest.role == "assistant":
        entry = _result_entry(state.options, place, message, cost)
        return _append_result(_as_step(state, state.newest), entry, waiting, pinned, priority)
    return _append_turn(state, Entry(place, message, *cost, message), waiting, pinned, priority)


def read(options: Options, history: Iterable[Message], marks: Mapping[int, Mark]) -> FoldState:
    """Returns the state after a whole history; `marks` has the pins and priorities by place."""
    state = empty_state(options)
    for place, message in enumerate(history):
        _, pin, priority = marks.get(place, (place, False, 0))
        state = append(state, message, pin=pin, priority=priority)
    return state


def commit(state: FoldState) -> FoldState:
    """Returns the state after the trim that the request needs now; the same state if it needs none."""
    if state.is_trimmed or not state.is_over:
        return state
    return _take_over(state, trim(state.draft()), is_trimmed=True)


def compact(state: FoldState, share: float) -> FoldState:
    """Returns the state after a trim down to this share of the room, even if no trim is needed."""
    if state.waiting:
        raise make_unanswered_error(state.waiting)
    draft, options = state.draft(), state.options
    lower = replace(options, policy=replace(options.policy, low_water=share))
    return _take_over(state, trim(draft._replace(options=lower)), is_trimmed=False)


def reprice(state: FoldState, counter: Counter) -> FoldState:
    """Returns the state with new counts for the messages that passes have changed."""
    return _keep(state, recount_draft(state.draft(), counter))


def forecast(state: FoldState) -> tuple[int, ...]:
    """Returns the places of the messages that the next trim will probably evict."""
    draft, most = state.draft(), state.options.policy.max_turns
    if most is not None and draft.turns / most * draft.options.limit > draft.ceiling:
        draft = draft._replace(turns=max(draft.turns, most + 1))
    else:  # as if the next messages had filled the window
        draft = draft._replace(ceiling=max(draft.ceiling, draft.options.limit + 1))
    return tuple([place for kind, place, *_ in trim(draft).log if is_eviction(kind)])


def room_to_recall(state: FoldState) -> int:
    """Returns the most tokens that recalled passages may cost; a tool loop needs the rest for its steps."""
    free = state.options.limit - state.totals.ceiling - state.options.once
    return free // 2 if state.position.steps else free


# One more message -------------------------------------------------------------------------------------


def _append_turn(
    state: FoldState,
    entry: Entry,
    waiting: Waiting,
    pinned: bool,
    priority: int,
) -> FoldState:
    """Returns the state after a user or assistant message, which begins a new unit."""
    message, place, recall_room = entry.given, entry.place, state.recall_room
    role, number = message["role"], 0
    if role == "assistant":
        is_answer, state = state.is_question, commit(state)
        if is_answer or state.is_trimmed:
            recall_room = room_to_recall(state)
    exchange, steps, _, task = state.position
    if role == "user":
        exchange += 1
        if exchange == 1 and state.options.policy.keep_first_user and state.trims.digest.task is None:
            task = place
    elif waiting:  # the message makes calls
        role = "step"
        steps = number = steps + 1
    fields = (
        state.options,
        state.history.with_item(message),
        state.marks,
        state.units if state.newest is None else state.units.with_item(state.newest),
        _new(Unit, (role, (entry,), exchange, number, pinned, priority, 0)),
        waiting,
        _with_turn(state.totals, entry, 0 if waiting else entry.tokens),
        _new(Position, (exchange, steps, place, task)),
        state.prompt,
        state.trims,
        recall_room,
        False,
    )
    return _new(FoldState, fields)


def _result_entry(options: Options, place: int, message: Message, cost: Cost) -> Entry:
    """Returns the entry of a tool result, or of an observation; one with an image is never shortened."""
    policy = options.policy
    size = max(0, cost.tokens - options.empty_output)
    if message["role"] == "user" and not is_plain(message):
        size = 0
    error = (
        size >= policy.small_output_threshold
        and policy.preserve_errors
        and is_error(text_of(message["content"]), policy.error_marks)
    )
    return _new(Entry, (place, message, *cost, message, size, error, ""))


def _append_result(
    state: FoldState,
    entry: Entry,
    waiting: Waiting,
    pinned: bool,
    priority: int,
) -> FoldState:
    """Returns the state after a tool result, which joins the step of its call."""
    assert state.newest is not None  # noqa: S101 - `price` has found the call that this answers
    _, entries, exchange, step, was_pinned, before, loose = state.newest
    fields = (
        "step",
        (*entries, entry),
        exchange,
        step,
        was_pinned or pinned,
        max(before, priority),
        max(loose, entry.size),
    )
    return _with_newest(state, entry, _new(Unit, fields), waiting)


def _as_step(state: FoldState, action: Unit) -> FoldState:
    """Returns the state with its newest unit, an answer without calls, turned into a step."""
    number = state.position.steps + 1
    return state._replace(
        newest=action._replace(role="step", step=number), position=state.position._replace(steps=number)
    )


def _append_to_newest(state: FoldState, entry: Entry, newest: Unit, waiting: Waiting) -> FoldState:
    """Returns the state after a message that stays or goes with the unit before it."""
    return _with_newest(state, entry, newest._replace(entries=(*newest.entries, entry)), waiting)


def _with_newest(state: FoldState, entry: Entry, unit: Unit, waiting: Waiting) -> FoldState:
    """Returns the state after a message that became the last entry of the newest unit."""
    fields = (
        state.options,
        state.history.with_item(entry.given),
        state.marks,
        state.units,
        unit,
        waiting,
        _with_turn(state.totals, entry, 0),
        state.position,
        state.prompt,
        state.trims,
        state.recall_room,
        False,
    )
    return _new(FoldState, fields)


def _with_turn(totals: Totals, entry: Entry, talk: int) -> Totals:
    """Returns the totals with one more message; `talk` is the number of its tokens that are talk."""
    given, ceiling, turns, turn_tokens, talked, said = totals
    tokens = entry.tokens
    fields = (
        given + tokens,
        ceiling + entry.ceiling,
        turns + 1,
        turn_tokens + tokens,
        talked + talk,
        said + tokens,
    )
    return _new(Totals, fields)


def _append_system(state: FoldState, message: Message, cost: Cost) -> FoldState:
    """Returns the state after a system message. The first one may contain the digest of an earlier fit."""
    own, totals, trims = cost, state.totals, state.trims
    tokens, ceiling, digest_tokens, given_end, end = state.prompt
    if given_end is False:
        content = message["content"]
        given_end = end = end_of(content)
        _, block = split_content(content)
        if block and trims.digest is EMPTY:
            trims = trims._replace(digest=parse(block))
            own = state.options.counter.message(with_block(message, ""))
            digest_tokens = cost.tokens - own.tokens
    entry = Entry(len(state.history), message, *cost, message)
    return state._replace(
        history=state.history.with_item(message),
        units=state.units if state.newest is None else state.units.with_item(state.newest),
        newest=Unit("system", (entry,), state.position.exchange, 0, pinned=False, priority=0),
        waiting=(),
        totals=totals._replace(given=totals.given + cost.tokens, ceiling=totals.ceiling + cost.ceiling),
        prompt=SystemPrompt(tokens + own.tokens, ceiling + own.ceiling, digest_tokens, given_end, end),
        trims=trims,
        is_trimmed=False,
    )


# One more trim ----------------------------------------------------------------------------------------


def _take_over(state: FoldState, draft: Draft, *, is_trimmed: bool) -> FoldState:
    """Returns the state after the trim that made this draft."""
    handles, trims = state.trims.handles, state.trims
    for added in draft.handles.maps[:-1]:
        handles = handles.with_handles(added)
    trimmed = state._replace(
        trims=trims._replace(
            number=trims.number + 1,
            log=trims.log.with_entries(draft.log),
            handles=handles,
            dropped=trims.dropped + sum(1 for kind, *_ in draft.log if is_eviction(kind)),
        ),
        is_trimmed=is_trimmed,
    )
    return _keep(trimmed, draft)


def _keep(state: FoldState, draft: Draft) -> FoldState:
    """Returns the state with the units and the figures of a draft."""
    units = draft.units
    return state._replace(
        units=Series(units[:-1]),
        newest=units[-1] if units else None,
        totals=state.totals._replace(
            ceiling=draft.ceiling - state.options.once, turns=draft.turns, turn_tokens=draft.turn_tokens
        ),
        position=state.position._replace(task=draft.task),
        prompt=state.prompt._replace(digest_tokens=draft.summary_tokens, end=_system_end(units)),
        trims=state.trims._replace(digest=draft.digest, shortened=draft.shortened),
    )


def _system_end(units: Sequence[Unit]) -> SystemEnd:
    first = first_system(units)
    return False if first is None else end_of(first.message["content"])


# The newest states --------------------------------------------------------------------------------------

KEPT = 32
"""Most states that a path keeps. Clients change at most the last few messages of what they sent."""


class FoldPath:
    """The state of a fold now, and after each of the newest messages."""

    def __init__(self, state: FoldState) -> None:
        self.state = state
        self._by_length = {len(state.history): state}
        self._trimmed: FoldState | None = None

    def trim_state(self) -> FoldState:
        """Returns the state with the trim that a request at this point needs; computed once a point."""
        if self._trimmed is None:
            self._trimmed = commit(self.state)
        return self._trimmed

    def reprice(self, trimmed: FoldState) -> None:
        """Takes the trim of this point with other prices."""
        self._trimmed = trimmed

    def add(self, message: Message, *, pin: bool = False, priority: int = 0, joins: bool = False) -> None:
        """Reads one more message. An assistant's message makes the trim before it final."""
        state = self.trim_state() if message["role"] == "assistant" else self.state
        self._go_to(append(state, message, pin=pin, priority=priority, joins=joins))

    def back_to(self, length: int) -> None:
        """Goes back to the state after the first `length` messages."""
        state, now = self.state, len(self.state.history)
        if length == now:
            return
        for later in range(length + 1, now + 1):
            self._by_length.pop(later, None)
        found = self._by_length.get(length)
        if found is None:
            marks = {mark.place: mark for mark in state.marks}
            found = read(state.options, state.history[:length], marks)
        self._go_to(found)

    def _go_to(self, state: FoldState) -> None:
        if state.trims is not self.state.trims:  # each trim has its own units and digest, which are large
            self._forget_all_but(self.state.trims)
        self.state, self._trimmed = state, None
        length = len(state.history)
        self._by_length[length] = state
        self._by_length.pop(length - KEPT, None)

    def _forget_all_but(self, trims: Trims) -> None:
        """Forgets the states that had other trims."""
        self._by_length = {at: state for at, state in self._by_length.items() if state.trims is trims}
