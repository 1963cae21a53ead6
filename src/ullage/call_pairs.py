"""Matches tool results to calls.

A step is an assistant message with calls and all of their results, which follow it directly in any order. A
result belongs to the call with its id. If a recording uses an id twice within a step, the position decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidConversation
from ullage.intake import read_message, read_messages
from ullage.messages import RESULT_ROLES, calls_of, read_call_id, result_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.messages import Message

INTERRUPTED = "[interrupted]"
"""The result of a call whose program ended before it had one."""

Waiting = tuple[str, ...]
"""Ids of the current step's calls that have no result yet, in the order of the calls."""


def follow(waiting: Waiting, message: Message, index: int) -> Waiting:
    """Returns the calls without a result after `message`; raises InvalidConversation if one is unpaired."""
    if message["role"] in RESULT_ROLES:
        answered = read_call_id(message)
        if answered not in waiting:
            raise InvalidConversation(
                f"this result answers no open call (id {answered!r}); "
                "put it right after the assistant message that makes the call, or leave it out",
                index=index,
                field=RESULT_ROLES[message["role"]],
            )
        position = waiting.index(answered)
        return waiting[:position] + waiting[position + 1 :]
    if waiting:
        raise make_unanswered_error(waiting, index)
    if message["role"] != "assistant":
        return ()
    return tuple([call["id"] for call in calls_of(message)])


def make_unanswered_error(waiting: Waiting, index: int | None = None) -> InvalidConversation:
    """Returns the error for calls without a result."""
    names = ", ".join(repr(each) for each in waiting)
    return InvalidConversation(
        f"calls without a result before this point: {names}; add a result for each call", index=index
    )


def with_interruptions(messages: Sequence[Any]) -> tuple[list[Any], list[int | None]]:
    """Returns the messages with the result `[interrupted]` for each call without one.

    The second list has the place of each message in `messages`, None for an added result.
    """
    made: list[Any] = []
    places: list[int | None] = []

    def interrupt(waiting: Waiting) -> None:
        made.extend(result_message(each, INTERRUPTED) for each in waiting)
        places.extend([None] * len(waiting))

    waiting: Waiting = ()
    for index, given in enumerate(messages):
        message = read_message(given, index)
        if waiting and message["role"] not in RESULT_ROLES:
            interrupt(waiting)
            waiting = ()
        waiting = follow(waiting, message, index)
        made.append(given)
        places.append(index)
    interrupt(waiting)
    return made, places


def check_conversation(messages: Iterable[object]) -> None:
    """Raises InvalidConversation if a message is invalid or a call has no result."""
    waiting: Waiting = ()
    for index, message in enumerate(read_messages(messages)):
        waiting = follow(waiting, message, index)
    if waiting:
        raise make_unanswered_error(waiting)
