"""The part of a conversation that a remote tokenizer has counted, so that only new texts are sent to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ullage.context.blocks import Blocks, shares, system_messages
from ullage.target import Target
from ullage.tokens import texts_counted, texts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.context.bounds import Bounds
    from ullage.context.state import Line
    from ullage.messages import Tool


CHARACTERS_A_TOKEN = 16
"""Most characters sent to the tokenizer for each token of the limit, the newest first; older turns are
evicted in any case."""


class Learned(NamedTuple):
    """The part of a conversation whose texts a tokenizer has counted."""

    lines: int = 0
    """The number of lines that were counted."""
    last: object = None
    """The content of the last line. A user's line grows if the user adds to it before the answer."""
    blocks: Blocks = Blocks("")
    tools: Sequence[Tool] | None = None
    target: Target = Target()


NOTHING_LEARNED = Learned()


def make_learned(lines: Sequence[Line], blocks: Blocks, bounds: Bounds) -> Learned:
    """Returns a `Learned` for the whole conversation."""
    last = lines[-1].turn.message.get("content") if lines else None
    return Learned(len(lines), last, blocks, bounds.tools, bounds.target)


def new_texts(before: Learned, now: Learned, lines: Sequence[Line], limit: int) -> list[str]:
    """Returns the texts that are new since `before`: those of every request, then turns, newest first."""
    texts: list[str] = []
    start = max(0, min(before.lines, now.lines) - 1)  # the last line may have grown
    if before[2:] != now[2:]:
        texts += texts_of(now.target, system_messages(now.blocks), now.tools)
        texts += texts_counted(now.target, lambda counter: shares(counter, now.blocks))
        start = start if before.target == now.target else 0
    while start and lines[start].turn.message["role"] == "tool":
        start -= 1  # a result is counted with its call
    messages = [line.turn.message for line in lines[start:]]
    left = CHARACTERS_A_TOKEN * limit
    for text in reversed(texts_of(now.target, messages)):
        if left <= 0:
            break
        texts.append(text)
        left -= len(text)
    return texts
