"""From turns to messages, before anything is fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.context.blocks import system_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.context.blocks import Blocks
    from ullage.messages import Message


class Turn(NamedTuple):
    """A message as it was appended, and how much it matters."""

    message: Message
    pin: bool = False
    priority: int = 0


class Line(NamedTuple):
    """A message as it is rendered, and the place of the first turn in it."""

    turn: Turn
    place: int


class Compaction(NamedTuple):
    """The conversation was trimmed on demand."""

    lines: int
    """How many lines it had then, without a question that was still open."""
    share: float
    """Of the room that the trim was to leave in use."""


def render(blocks: Blocks, turns: Iterable[Turn]) -> list[Message]:
    """The messages of a conversation before anything is fitted."""
    lines: list[Line] = []
    for place, turn in enumerate(turns):
        add_line(lines, place, turn)
    return [*system_messages(blocks), *(line.turn.message for line in lines)]


def add_line(lines: list[Line], place: int, turn: Turn) -> None:
    """Adds the next turn to `lines`; a user's joins a user's before it, so that roles alternate."""
    if turn.message["role"] == "user" and lines and lines[-1].turn.message["role"] == "user":
        before, place = lines.pop()
        content = joined(before.message["content"], turn.message["content"])
        turn = Turn(
            {**before.message, "content": content},
            before.pin or turn.pin,
            max(before.priority, turn.priority),
        )
    lines.append(Line(turn, place))


def joined(first: Any, second: Any) -> Any:
    """Two contents as one, a blank line between texts."""
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(filter(None, (first, second)))
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> Sequence[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
