"""What a conversation is at a moment: the fold of the events that happened to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ullage.context.rendering import Line, Turn, add_line
from ullage.errors import InvalidConversation
from ullage.pairing import Waiting, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.context.journal import Event


@dataclass(slots=True)
class State:
    """Turns as they were appended, what waits to be said with the next one, and what is known of the rest."""

    turns: list[Turn] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    """The turns as they are rendered."""
    waiting: Waiting = ()
    """The calls that have no result yet."""
    outputs: list[str] = field(default_factory=list)
    """What commands printed since the last user turn."""
    summary: str = ""
    shown: bool = True
    """Whether the summary is sent: False while there is no room for it."""
    covered: set[int] = field(default_factory=set)
    """The places of the turns that the summary stands for."""
    goal: str = ""


def apply(state: State, event: Event) -> None:
    """Makes the event part of the state."""
    happen = HAPPENINGS.get(event.kind)
    if happen is None:
        raise InvalidConversation(
            f"an event of kind {event.kind!r} is not known; this session was kept by a newer version"
        )
    happen(state, event.data)


def _turn(state: State, data: Mapping[str, Any]) -> None:
    place = len(state.turns)
    turn = Turn(data["message"], data.get("pin", False), data.get("priority", 0))
    state.waiting = follow(state.waiting, turn.message, place)
    state.turns.append(turn)
    add_line(state.lines, place, turn)
    if turn.message["role"] == "user":
        state.outputs.clear()


def _output(state: State, data: Mapping[str, Any]) -> None:
    state.outputs.append(data["text"])


def _summary(state: State, data: Mapping[str, Any]) -> None:
    state.summary = data["text"]
    state.covered.update(data["covered"])
    state.shown = data.get("shown", True)


def _goal(state: State, data: Mapping[str, Any]) -> None:
    state.goal = data["text"]


def _compact(_: State, __: Mapping[str, Any]) -> None:
    """Nothing is different but what is sent, which is the folds' to know."""


def _undo(state: State, _: Mapping[str, Any]) -> None:
    """Takes back the last exchange: the last user turn and all that came of it."""
    while state.lines:
        turn, place = state.lines.pop()
        del state.turns[place:]
        if turn.message["role"] == "user":
            break
    state.waiting = ()
    state.covered = {place for place in state.covered if place < len(state.turns)}


def _reset(state: State, _: Mapping[str, Any]) -> None:
    goal = state.goal
    state.__init__()  # type: ignore[misc] # every field at its default
    state.goal = goal


HAPPENINGS: Mapping[str, Callable[[State, Mapping[str, Any]], None]] = {
    "turn": _turn,
    "output": _output,
    "summary": _summary,
    "goal": _goal,
    "compact": _compact,
    "undo": _undo,
    "reset": _reset,
}
