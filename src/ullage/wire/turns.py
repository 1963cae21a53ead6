"""Turns of the APIs whose bodies hold the results of calls and the user's next words in one turn.

Such a turn becomes several messages, and writing joins them again: results that follow each other, and the
user's words after them, are one turn. A body may also have them in turns of their own. Then the first message
of the second turn is marked to stand apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.messages import SYSTEM_ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ullage.messages import Message
    from ullage.wire.fields import Object

APART = "apart"
"""Member of a message that begins a turn of its own, although results stand before it."""


def mark_turns(turns: Iterable[Iterable[Object]]) -> Iterator[Object]:
    """Yields the messages of all turns; those that begin a turn right after results are marked."""
    follows_results = False
    for turn in turns:
        is_first = True
        for message in turn:
            is_apart = is_first and follows_results and side_of(message) == "user"
            yield {**message, APART: True} if is_apart else message
            follows_results, is_first = message["role"] == "tool", False


def side_of(message: Message) -> str:
    """Returns the speaker of this message: `assistant`, `system` or `user`; results come from the user."""
    role = message["role"]
    if role in SYSTEM_ROLES:
        return "system"
    return "assistant" if role == "assistant" else "user"


def group_turns(
    messages: Iterable[Message], *, alternating: bool = False, only_results: bool = False
) -> Iterator[list[Message]]:
    """Yields the messages of each turn.

    With `alternating`, messages of the same speaker that follow each other are one turn. With `only_results`,
    tool results are a turn without words: the user's next message begins another turn.
    """
    turn: list[Message] = []
    for message in messages:
        is_other = only_results and message["role"] != "tool"
        if turn and (is_other or not _joins(turn[-1], message, alternating)):
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def _joins(before: Message, message: Message, alternating: bool) -> bool:
    if message.get(APART) or side_of(before) != side_of(message):
        return False
    return alternating or before["role"] == "tool"


def split_system(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Splits messages into those of the system, from any position, and the others."""
    system = [message for message in messages if message["role"] in SYSTEM_ROLES]
    return system, [message for message in messages if message["role"] not in SYSTEM_ROLES]
