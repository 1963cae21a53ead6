"""The state of a conversation, which is the sum of its events.

A turn is a message as it was appended. A line is a message as it is rendered: two user turns in a row are one
line, so that roles alternate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.call_pairs import Waiting, follow
from ullage.context.blocks import system_messages
from ullage.errors import InvalidConversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ullage.context.blocks import Blocks
    from ullage.context.journal import JournalEvent
    from ullage.messages import Message


class Turn(NamedTuple):
    """A message as it was appended, with its pin and priority."""

    message: Message
    pin: bool = False
    priority: int = 0
    event: int | None = None
    """The number of the event that has this message; None if the message joins several turns."""


class Line(NamedTuple):
    """A message as it is rendered, and the index of its first turn."""

    turn: Turn
    place: int


class Compaction(NamedTuple):
    """A trim that the user asked for."""

    lines: int
    """The number of lines at that time, without a question that had no answer yet."""
    share: float
    """The share of the room that the trim leaves in use."""


@dataclass(slots=True)
class State:
    """The turns of a conversation, the outputs that wait for the next turn, the summary and the goal."""

    turns: list[Turn] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    """The turns as they are rendered."""
    messages: list[Message] = field(default_factory=list)
    """The messages of the lines, as a list of their own, which is fast to copy."""
    marked: dict[int, Turn] = field(default_factory=dict)
    """The turns that are pinned or have a priority, by the index of their line."""
    waiting: Waiting = ()
    """The tool calls that have no result yet."""
    outputs: list[str] = field(default_factory=list)
    """The outputs of commands since the last user turn."""
    printed: dict[int, list[str]] = field(default_factory=dict)
    """The outputs that came before a user turn, by the index of the turn."""
    compactions: list[Compaction] = field(default_factory=list)
    summary: str = ""
    shown: bool = True
    """False while there is no room for the summary in a request."""
    covered: set[int] = field(default_factory=set)
    """The indexes of the turns that the summary replaces."""
    goal: str = ""
    events: int = 0
    """The number of events."""
    rewound: int = 0
    """The number of events that removed turns."""
    printed_by: dict[str, int] = field(default_factory=dict)
    """The number of the event that has an output, by the output's text."""
    cleared: State | None = None
    """The state before the last reset, which an undo without turns brings back; None if there was none."""


def apply(state: State, event: JournalEvent) -> None:
    """Applies an event to the state."""
    happen = HAPPENINGS.get(event.kind)
    if happen is None:
        raise InvalidConversation(
            f"unknown event {event.kind!r}: a newer version of Ullage wrote this session. Update Ullage"
        )
    happen(state, event.data)
    state.events += 1


def _turn(state: State, data: Mapping[str, Any]) -> None:
    place = len(state.turns)
    turn = Turn(data["message"], data.get("pin", False), data.get("priority", 0), state.events)
    state.waiting = follow(state.waiting, turn.message, place)
    state.turns.append(turn)
    add_line(state.lines, place, turn)
    line, rendered = len(state.lines) - 1, state.lines[-1].turn
    state.messages[line:] = [rendered.message]
    if rendered.pin or rendered.priority:
        state.marked[line] = rendered
    if turn.message["role"] == "user" and state.outputs:
        state.printed[place], state.outputs = state.outputs, []


def _output(state: State, data: Mapping[str, Any]) -> None:
    state.outputs.append(data["text"])
    state.printed_by[data["text"]] = state.events


def _summary(state: State, data: Mapping[str, Any]) -> None:
    state.summary = data["text"]
    state.covered.update(data["covered"])
    state.shown = data.get("shown", True)


def _goal(state: State, data: Mapping[str, Any]) -> None:
    state.goal = data["text"]


def _compact(state: State, data: Mapping[str, Any]) -> None:
    """Notes a compaction; a question that has no answer yet comes after it."""
    is_open = bool(state.lines) and state.lines[-1].turn.message["role"] == "user"
    state.compactions.append(Compaction(len(state.lines) - is_open, data["share"]))


def _undo(state: State, _: Mapping[str, Any]) -> None:
    """Removes the last exchange: the last user turn and all turns after it.

    The command outputs before that user turn wait for the next one again. If there is no turn, the last
    reset is taken back.
    """
    if not state.lines and state.cleared is not None:
        _restore(state, state.cleared)
        return
    while state.lines:
        turn, place = state.lines.pop()
        del state.turns[place:]
        if turn.message["role"] == "user":
            break
    state.rewound += 1
    state.waiting = ()
    length = len(state.turns)
    again = [text for place in sorted(state.printed) if place >= length for text in state.printed[place]]
    state.outputs = [*again, *state.outputs]
    state.printed = {place: texts for place, texts in state.printed.items() if place < length}
    state.covered = {place for place in state.covered if place < length}
    lines = len(state.lines)
    del state.messages[lines:]
    state.marked = {line: turn for line, turn in state.marked.items() if line < lines}
    state.compactions = [each for each in state.compactions if each.lines <= lines]


def _reset(state: State, _: Mapping[str, Any]) -> None:
    before = replace(state) if state.lines else state.cleared
    state.__init__(  # type: ignore[misc] # every other field gets its default
        goal=state.goal, events=state.events, rewound=state.rewound + 1, cleared=before
    )


def _restore(state: State, before: State) -> None:
    """Brings back the state before a reset; the goal and later outputs stay."""
    later = state.outputs
    state.__init__(  # type: ignore[misc] # every field gets a value of its own or of the earlier state
        **{each.name: getattr(before, each.name) for each in fields(state)}
        | {
            "outputs": [*before.outputs, *later],
            "printed_by": before.printed_by | state.printed_by,
            "goal": state.goal,
            "events": state.events,
            "rewound": state.rewound + 1,
        }
    )


HAPPENINGS: Mapping[str, Callable[[State, Mapping[str, Any]], None]] = {
    "turn": _turn,
    "output": _output,
    "summary": _summary,
    "goal": _goal,
    "compact": _compact,
    "undo": _undo,
    "reset": _reset,
}


# Lines ------------------------------------------------------------------------------------------------


def render(blocks: Blocks, turns: Iterable[Turn]) -> list[Message]:
    """Returns the messages of a conversation before fitting."""
    lines: list[Line] = []
    for place, turn in enumerate(turns):
        add_line(lines, place, turn)
    return [*system_messages(blocks), *(line.turn.message for line in lines)]


def add_line(lines: list[Line], place: int, turn: Turn) -> None:
    """Adds the next turn to `lines`; two user turns in a row become one line, so that roles alternate."""
    if turn.message["role"] == "user" and lines and lines[-1].turn.message["role"] == "user":
        before, place = lines.pop()
        content = join_contents(before.message["content"], turn.message["content"])
        turn = Turn(
            {**before.message, "content": content},
            before.pin or turn.pin,
            max(before.priority, turn.priority),
        )
    lines.append(Line(turn, place))


def join_contents(first: Any, second: Any) -> Any:
    """Returns two contents as one, with a blank line between texts."""
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(filter(None, (first, second)))
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> Sequence[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
