"""Prefix reuse: the share of a request that repeats the beginning of the one before it.

A provider's prompt cache can reuse at most this share. Messages that did not change are the same objects in
both requests, so a comparison costs a few microseconds, and only new messages are measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.messages import arguments_text, calls_of, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.fitting.result import Fitted
    from ullage.messages import Message

FRAME = 20
"""Characters that stand for the role and the marks of a message."""


class SentMessages(NamedTuple):
    """The messages of a request, and the characters of each."""

    tools: int
    """Tokens of the tool definitions, which stand before the messages."""
    messages: list[Message]
    sizes: list[int]
    total: int
    """The sum of the sizes."""


class PrefixReuse:
    """The newest request of one conversation, for comparison with the next one.

    The messages are those that the window of the conversation keeps too. They are compared and never shown.
    """

    def __init__(self) -> None:
        self._newest: SentMessages | None = None

    def share(self, fitted: Fitted[Any]) -> float | None:
        """Returns the share of a request that the one before it began with; None for the first request."""
        count, messages = fitted.count, list(fitted.messages)
        tools = count.breakdown.get("tools", 0)
        before = self._newest
        sizes, known, partly = ([], 0, 0) if before is None else _reuse_sizes(before, messages)
        new = [_size(message) for message in messages[len(sizes) :]]
        total = known + sum(new)
        sizes += new
        self._newest = SentMessages(tools, messages, sizes, total)
        if before is None:
            return None
        if before.tools != tools:
            return 0.0
        tokens = max(1, count.tokens)
        return (tools + (tokens - tools) * (known + partly) / max(1, total)) / tokens


def _reuse_sizes(before: SentMessages, now: list[Message]) -> tuple[list[int], int, int]:
    """Returns the sizes of the messages that both requests begin with, and their sum.

    The third figure is the beginning of the next message that both have: a digest stands after the system
    prompt, which stays as it is. Most requests only add messages; then the list of sizes is used again.
    """
    length = len(before.messages)
    if now[:length] == before.messages:
        return before.sizes, before.total, 0
    same = _same(before.messages, now)
    sizes = before.sizes[:same]
    partly = _same_characters(before.messages[same], now[same]) if same < min(length, len(now)) else 0
    return sizes, sum(sizes), partly


def _same(before: Sequence[Message], now: Sequence[Message]) -> int:
    """Returns the number of messages at the beginning that are equal."""
    same = 0
    for old, new in zip(before, now, strict=False):
        if old is not new and old != new:
            break
        same += 1
    return same


def _same_characters(old: Message, new: Message) -> int:
    """Returns the number of characters with which two messages begin alike, in few comparisons."""
    if old["role"] != new["role"]:
        return 0
    one, other = text_of(old.get("content")), text_of(new.get("content"))
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _size(message: Message) -> int:
    """Returns the characters of a message, without media."""
    calls = sum(len(arguments_text(call)) for call in calls_of(message))
    return FRAME + len(text_of(message.get("content"))) + calls
