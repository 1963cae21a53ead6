"""What a conversation is at a moment: the fold of the events that happened to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ullage.context.rendering import Compaction, Line, Turn, add_line
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
    printed: dict[int, list[str]] = field(default_factory=dict)
    """What they had printed before the user turn at a place."""
    compactions: list[Compaction] = field(default_factory=list)
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
    if turn.message["role"] == "user" and state.outputs:
        state.printed[place], state.outputs = state.outputs, []


def _output(state: State, data: Mapping[str, Any]) -> None:
    state.outputs.append(data["text"])


def _summary(state: State, data: Mapping[str, Any]) -> None:
    state.summary = data["text"]
    state.covered.update(data["covered"])
    state.shown = data.get("shown", True)


def _goal(state: State, data: Mapping[str, Any]) -> None:
    state.goal = data["text"]


def _compact(state: State, data: Mapping[str, Any]) -> None:
    """A question that is still open comes after it, however it may grow."""
    is_open = bool(state.lines) and state.lines[-1].turn.message["role"] == "user"
    state.compactions.append(Compaction(len(state.lines) - is_open, data["share"]))


def _undo(state: State, _: Mapping[str, Any]) -> None:
    """Takes back the last exchange: the last user turn and all that came of it.

    What commands had printed before it waits for the next one again.
    """
    while state.lines:
        turn, place = state.lines.pop()
        del state.turns[place:]
        if turn.message["role"] == "user":
            break
    state.waiting = ()
    length = len(state.turns)
    again = [text for place in sorted(state.printed) if place >= length for text in state.printed[place]]
    state.outputs = [*again, *state.outputs]
    state.printed = {place: texts for place, texts in state.printed.items() if place < length}
    state.covered = {place for place in state.covered if place < length}
    state.compactions = [each for each in state.compactions if each.lines <= len(state.lines)]


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
