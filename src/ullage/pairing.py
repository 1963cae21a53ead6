"""Which result answers which call.

A step is an assistant message with calls and all of their results, which follow it at once, in any
order. Results find their call by id; where a recording reuses an id within a step, by position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import InvalidConversation
from ullage.messages import check_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.messages import Message

Waiting = tuple[str, ...]
"""The ids of the calls of the current step that have no result yet, in the order of the calls."""


def follow(waiting: Waiting, message: Message, index: int) -> Waiting:
    """The calls left unanswered after `message`; raises InvalidConversation where the pairs break."""
    if message["role"] == "tool":
        answered = message["tool_call_id"]
        if answered not in waiting:
            raise InvalidConversation(
                f"this result answers no open call (id {answered!r}); "
                "put it right after the assistant message that makes the call, or leave it out",
                index=index,
                field="tool_call_id",
            )
        position = waiting.index(answered)
        return waiting[:position] + waiting[position + 1 :]
    if waiting:
        raise unanswered(waiting, index)
    calls = message.get("tool_calls")
    return tuple([call["id"] for call in calls]) if calls else ()


def unanswered(waiting: Waiting, index: int | None = None) -> InvalidConversation:
    """The error for calls that are left without a result."""
    names = ", ".join(repr(each) for each in waiting)
    return InvalidConversation(f"calls without a result before this point: {names}", index=index)


def check_conversation(messages: Sequence[object]) -> None:
    """Raises InvalidConversation unless every message is one and every call has its result."""
    waiting: Waiting = ()
    for index, message in enumerate(messages):
        check_message(message, index)
        waiting = follow(waiting, message, index)  # type: ignore[arg-type] # checked above
    if waiting:
        raise unanswered(waiting)
