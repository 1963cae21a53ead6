"""Puts the outputs of commands in front of the next question, fenced, and cut so that the question fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.fitting.pieces import HANDLE_LENGTH, letters_of
from ullage.fitting.shorten import cut_middle
from ullage.text import disarm, fence_output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.tokens.counter import Cost

LEAST = 64
"""Tokens that the newest output always gets; earlier outputs are not cut to less."""
AHEAD = 8
"""The number of earlier outputs that a long output leaves room for."""
EARLIER = "[{} earlier outputs are left out] recall {}"
"""The text in the fence that replaces outputs which no longer fit."""


def blocks_of(
    outputs: Sequence[str], room: int, measure: Callable[[str], Cost], keep: Callable[[str], object]
) -> list[str]:
    """Returns a block for each output, in half of the room: the newest whole if they fit, long ones cut.

    If the earliest outputs do not fit, one line replaces them all. The whole text of each output that is cut
    or left out is kept, and its block names the handle.
    """
    whole = [fence_output(text) for text in outputs]
    costs = [measure(block).ceiling for block in whole]
    left, rest = max(LEAST, room // 2), sum(costs)
    if rest <= left:
        return whole
    blocks: list[str] = []
    for place in range(len(outputs) - 1, -1, -1):
        block, cost = whole[place], costs[place]
        rest -= cost
        share = max(left // min(place + 1, AHEAD), left - rest)
        if cost > share:
            if blocks and share < LEAST:
                blocks.append(_earlier(outputs[: place + 1], keep))
                break
            keep(outputs[place])
            block = _cut(outputs[place], share, measure)
            cost = measure(block).ceiling
        blocks.append(block)
        left -= cost
    return blocks[::-1]


def expected(outputs: Sequence[str], room: int, measure: Callable[[str], Cost]) -> int:
    """Returns the approximate number of tokens of the blocks of these outputs."""
    return min(sum(measure(text).tokens for text in outputs), max(LEAST, room // 2)) if outputs else 0


def _cut(output: str, room: int, measure: Callable[[str], Cost]) -> str:
    """Returns the head and tail of an output, in its fence."""
    shown, handle = disarm(output), letters_of(output)[:HANDLE_LENGTH]
    inside = max(1, room - measure(fence_output("")).ceiling)
    short = cut_middle(shown, inside, measure(shown).ceiling, lambda each: measure(each).ceiling, handle)
    return fence_output(short)


def _earlier(outputs: Sequence[str], keep: Callable[[str], object]) -> str:
    whole = "\n\n".join(outputs)
    keep(whole)
    return fence_output(EARLIER.format(len(outputs), letters_of(whole)[:HANDLE_LENGTH]))


def in_front(blocks: Sequence[str], content: Any) -> tuple[Any, int]:
    """Returns a user's content with the blocks in front, and their size: characters, or parts of a list."""
    if blocks and isinstance(content, str):
        quoted = "\n\n".join(blocks) + "\n\n"
        return quoted + content, len(quoted)
    if blocks and isinstance(content, list | tuple):
        return [*({"type": "text", "text": text} for text in blocks), *content], len(blocks)
    return content, 0
