"""What commands printed, on its way into the next question: never so much that the question has no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.fitting.shorten import HANDLE_LENGTH, cut_middle, letters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.tokens.counter import Cost

HEADING = "[exec output]"
LEAST = 64
"""Tokens that one output may have in any case."""


def blocks_of(
    outputs: Sequence[str], room: int, measure: Callable[[str], Cost], keep: Callable[[str], None]
) -> list[str]:
    """A block for each output; what would take more than its part of half the room is cut in the middle.

    The whole of what is cut is kept, and the block says under which handle.
    """
    share = max(LEAST, room // 2) // max(1, len(outputs))
    shown = []
    for text in outputs:
        cost = measure(text)
        whole = cost.ceiling <= share
        if not whole:
            keep(text)
        handle = letters_of(text)[:HANDLE_LENGTH]
        short = (
            text
            if whole
            else cut_middle(text, share, cost.ceiling, lambda each: measure(each).ceiling, handle)
        )
        shown.append(f"{HEADING}\n{short}")
    return shown


def in_front(blocks: Sequence[str], content: Any) -> tuple[Any, int]:
    """A user's content with the blocks in front, and how much they are: characters, or parts of a list."""
    if blocks and isinstance(content, str):
        quoted = "\n\n".join(blocks) + "\n\n"
        return quoted + content, len(quoted)
    if blocks and isinstance(content, list | tuple):
        return [*({"type": "text", "text": text} for text in blocks), *content], len(blocks)
    return content, 0
