"""Writes a fitted body of Anthropic's messages API: the given turns, without what fitting took out.

A turn of the user may hold results of several calls and words of the user. Each is a message of its own, and
fitting may shorten or remove one and keep the others. Turns that did not change are the given objects.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from ullage.wire.anthropic_writer import write_turn
from ullage.wire.origin import patched_content

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ullage.wire.fields import Object
    from ullage.wire.origin import Kept

THINKING = frozenset({"thinking", "redacted_thinking"})


def patch(body: Object, kept: Sequence[Kept]) -> Object:
    """Returns a body with other messages; turns that did not change are the given objects."""
    made = dict(body)
    for each in kept:
        if each.origin is None or (not each.origin.items and not each.is_same):
            made["system"] = patched_content(each, body.get("system"))
    placed = [each for each in kept if each.origin is not None and each.origin.items]
    groups = groupby(placed, key=_turn_number)
    turns = [_patched(body["messages"][number], list(group)) for number, group in groups]
    made["messages"] = list(_without_old_thinking(turns))
    return made


def _turn_number(kept: Kept) -> int:
    return kept.origin.items[0] if kept.origin is not None else -1


def _patched(turn: Mapping[str, Any], group: Sequence[Kept]) -> Any:
    """Returns a turn with the messages that are kept of it; the given object if all are, unchanged."""
    first, content = group[0], turn["content"]
    if first.origin is None or first.origin.blocks is None:
        return turn if first.is_same else _patched_turn(turn, first)
    blocks: list[Any] = []
    for each in group:
        own = [content[index] for index in (each.origin.blocks if each.origin else None) or ()]
        if each.is_same:
            blocks += own
        elif each.message["role"] == "tool":
            blocks.append({**own[0], "content": patched_content(each, own[0].get("content"))})
        else:
            blocks += patched_content(each, own)
    if len(blocks) == len(content) and all(map(_is_same_object, blocks, content)):
        return turn
    return {**turn, "content": blocks}


def _patched_turn(turn: Mapping[str, Any], kept: Kept) -> Object:
    """Returns a whole turn with the changes of its message."""
    if kept.message.get("tool_calls"):
        return write_turn(kept.message, own=True)
    return {**turn, "content": patched_content(kept, turn["content"])}


def _is_same_object(one: object, other: object) -> bool:
    return one is other


def _without_old_thinking(turns: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the turns, without the thinking of turns that were over before the user's last question.

    Newer models bind a thinking block to the exact text before it, which fitting has changed. The API wants
    back only the thinking of the tool loop that is under way.
    """
    asked = max((index for index, turn in enumerate(turns) if _is_question(turn)), default=0)
    for index, turn in enumerate(turns):
        content = turn.get("content")
        if index < asked and turn.get("role") == "assistant" and isinstance(content, list):
            others = [block for block in content if _type_of(block) not in THINKING]
            if others and len(others) < len(content):
                yield {**turn, "content": others}
                continue
        yield turn


def _is_question(turn: Mapping[str, Any]) -> bool:
    """Returns True for a turn of the user that answers no tool call."""
    content = turn.get("content")
    if turn.get("role") != "user":
        return False
    return isinstance(content, str) or all(_type_of(block) != "tool_result" for block in content or ())


def _type_of(block: Any) -> Any:
    return "text" if isinstance(block, str) else block.get("type")
