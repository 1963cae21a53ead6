"""What commands printed, on its way into the next question: never so much that the question has no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.fitting.shorten import HANDLE_LENGTH, cut_middle, letters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.tokens.counter import Cost

HEADING = "[exec output]"
LEAST = 64
"""Tokens that the newest output may have in any case; an earlier one is not cut to less."""
AHEAD = 8
"""How many earlier outputs a long one leaves room for."""
EARLIER = "[{} earlier outputs are left out] recall {}"


def blocks_of(
    outputs: Sequence[str], room: int, measure: Callable[[str], Cost], keep: Callable[[str], object]
) -> list[str]:
    """A block for each output, in half of the room: the newest whole where they fit, long ones cut.

    The earliest, where they no longer fit, are one line together. The whole of what is cut or left out is
    kept, and the block says under which handle.
    """
    whole = [f"{HEADING}\n{text}" for text in outputs]
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
            block = _cut(block, outputs[place], share, cost, measure)
            cost = measure(block).ceiling
        blocks.append(block)
        left -= cost
    return blocks[::-1]


def expected(outputs: Sequence[str], room: int, measure: Callable[[str], Cost]) -> int:
    """About how many tokens the blocks of these outputs will have."""
    return min(sum(measure(text).tokens for text in outputs), max(LEAST, room // 2)) if outputs else 0


def _cut(block: str, output: str, room: int, cost: int, measure: Callable[[str], Cost]) -> str:
    handle = letters_of(output)[:HANDLE_LENGTH]
    return cut_middle(block, room, cost, lambda each: measure(each).ceiling, handle)


def _earlier(outputs: Sequence[str], keep: Callable[[str], object]) -> str:
    whole = "\n\n".join(outputs)
    keep(whole)
    return EARLIER.format(len(outputs), letters_of(whole)[:HANDLE_LENGTH])


def in_front(blocks: Sequence[str], content: Any) -> tuple[Any, int]:
    """A user's content with the blocks in front, and how much they are: characters, or parts of a list."""
    if blocks and isinstance(content, str):
        quoted = "\n\n".join(blocks) + "\n\n"
        return quoted + content, len(quoted)
    if blocks and isinstance(content, list | tuple):
        return [*({"type": "text", "text": text} for text in blocks), *content], len(blocks)
    return content, 0
