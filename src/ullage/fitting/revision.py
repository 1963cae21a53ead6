"""Changes to messages that a fold has read: removes the last question, or replaces the system message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import InvalidConversation
from ullage.fitting.options import end_of
from ullage.fitting.series import Series
from ullage.fitting.state import Mark, Position, SystemPrompt, Totals
from ullage.fitting.trim import with_block
from ullage.messages import SYSTEM_ROLES, split_content

if TYPE_CHECKING:
    from ullage.fitting.state import FoldState
    from ullage.fitting.units import Entry, Unit
    from ullage.messages import Message


def retract(state: FoldState) -> FoldState:
    """Returns the state without its last message, which must be an unanswered user message."""
    history, newest, totals = state.history, state.newest, state.totals
    if not history or newest is None or history[-1]["role"] != "user":
        raise InvalidConversation("only the last message can be taken back, and only if it is a user's")
    if newest.role == "step":
        return _without_observation(state, newest)
    place, entry = len(history) - 1, newest.entries[0]
    exchange, steps, _, task = state.position
    started = (each for each in range(place - 1, -1, -1) if history[each]["role"] in {"user", "assistant"})
    return state._replace(
        history=history.without_last(),
        marks=_marks_before(state, place),
        units=state.units.without_last(),
        newest=state.units[-1] if state.units else None,
        totals=_totals_without(totals, entry, talk=entry.tokens),
        position=Position(exchange - 1, steps, next(started, -1), None if task == place else task),
        is_trimmed=False,
    )


def _without_observation(state: FoldState, step: Unit) -> FoldState:
    """Returns the state without the observation that ends it; the action before it is an answer again."""
    place, position = len(state.history) - 1, state.position
    marks = _marks_before(state, place)
    mark = marks[-1] if marks and marks[-1].place == step.start else Mark(step.start, False, 0)
    policy = state.options.policy
    action = step._replace(
        role="assistant",
        entries=step.entries[:-1],
        step=0,
        pinned=mark.pin or step.start in policy.pins,
        priority=mark.priority or policy.priorities.get(step.start, 0),
        loose=0,
    )
    return state._replace(
        history=state.history.without_last(),
        marks=marks,
        newest=action,
        totals=_totals_without(state.totals, step.entries[-1], talk=0),
        position=position._replace(steps=position.steps - 1),
        is_trimmed=False,
    )


def _marks_before(state: FoldState, place: int) -> Series[Mark]:
    marks = state.marks
    return marks.without_last() if marks and marks[-1].place == place else marks


def _totals_without(totals: Totals, entry: Entry, *, talk: int) -> Totals:
    """Returns the totals without the last message, of which `talk` tokens were talk."""
    return Totals(
        totals.given - entry.tokens,
        totals.ceiling - entry.ceiling,
        totals.turns - 1,
        totals.turn_tokens - entry.tokens,
        totals.talk - talk,
        totals.said - entry.tokens,
    )


def renew(state: FoldState, message: Message) -> FoldState:
    """Returns the state with another system message in place of the first message.

    Trims that were made before stay as they are.
    """
    units = list(state.live)
    position = next((number for number, unit in enumerate(units) if unit.start == 0), None)
    if position is None or not {state.history[0]["role"], message["role"]} <= SYSTEM_ROLES:
        raise InvalidConversation(
            "only a system message can be replaced, and only by another system message", index=0
        )
    counter, entry = state.options.counter, units[position].entries[0]
    _, block = split_content(entry.message["content"])
    # A prompt that brings this very block stays as it was given.
    shown = message if split_content(message["content"])[1] == block else with_block(message, block)
    before, own = (counter.message(with_block(each, "")) for each in (entry.given, message))
    cost, prompt, totals = counter.message(shown), state.prompt, state.totals
    given = counter.message(message).tokens - counter.message(entry.given).tokens
    renewed = entry._replace(message=shown, tokens=cost.tokens, ceiling=cost.ceiling, given=message)
    units[position] = units[position]._replace(entries=(renewed,))
    return state._replace(
        history=Series([message, *state.history[1:]]),
        units=Series(units[:-1]),
        newest=units[-1],
        totals=totals._replace(
            given=totals.given + given, ceiling=totals.ceiling + cost.ceiling - entry.ceiling
        ),
        prompt=SystemPrompt(
            prompt.tokens + own.tokens - before.tokens,
            prompt.ceiling + own.ceiling - before.ceiling,
            cost.tokens - own.tokens,
            end_of(message["content"]),
            end_of(shown["content"]),
        ),
        is_trimmed=False,
    )
