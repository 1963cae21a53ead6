"""Other forms of a request: short for a small model, or without the role that some templates refuse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ullage.context.rendering import joined
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.messages import arguments_text, calls_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.context.bounds import Bounds
    from ullage.fitting import Fitted
    from ullage.messages import Message


@dataclass(frozen=True, slots=True)
class Compress:
    """How a conversation is shortened for a small local model."""

    keep_turns: int = 2
    """The newest turns that are sent."""
    max_turn_chars: int = 800
    """The most characters of a turn's text: its tail is kept."""

    def __post_init__(self) -> None:
        if self.keep_turns < 1 or self.max_turn_chars < 1:
            raise ConfigurationError(
                f"keep_turns is {self.keep_turns}, max_turn_chars {self.max_turn_chars}; both are at least 1"
            )


def newest(messages: Sequence[Message], compress: Compress) -> Sequence[int]:
    """The places of the messages that a small model gets.

    The last user message, and the newest step when it came after that, are there however few are kept;
    results whose call is not there are left out.
    """
    roles = [message["role"] for message in messages]
    asked = max((place for place, role in enumerate(roles) if role == "user"), default=len(roles))
    start = max(0, len(messages) - compress.keep_turns)
    stepped = [place for place in range(asked, len(messages)) if calls_of(messages[place])]
    start = min([start, *stepped[-1:]])
    while start < len(roles) and roles[start] == "tool":
        start += 1
    return [*([asked] if asked < start else []), *range(start, len(messages))]


def compressed(messages: Sequence[Message], compress: Compress) -> list[Message]:
    """The newest messages with their contents cut to the tail."""
    return [tail_of(messages[place], compress.max_turn_chars) for place in newest(messages, compress)]


def tail_of(message: Message, most: int) -> Message:
    """The message with the end of its content; itself where that is no longer."""
    content = message.get("content")
    if isinstance(content, str):
        return message if len(content) <= most else {**message, "content": content[-most:]}
    if not content or len(text_of(content)) <= most:
        return message
    parts = [part if isinstance(part, str) else dict(part) for part in content]
    left = most
    for position in range(len(parts) - 1, -1, -1):
        part = parts[position]
        text = part if isinstance(part, str) else part.get("text")
        if isinstance(text, str):
            tail = text[-left:] if left else ""
            left -= len(tail)
            parts[position] = tail if isinstance(part, str) else {**part, "text": tail}
    return {**message, "content": parts}


# For templates that refuse `role: tool` -----------------------------------------------------------------

STEP, TRIES = 64, 8
"""By how many tokens at a time the limit is lowered for a text that costs more than the calls did, and how
often that is tried."""


def fitted_without_tool_role(fitted: Fitted, whole: Sequence[Message], bounds: Bounds) -> Fitted:
    """A request with its calls and results as texts; `whole` is fitted anew where those cost more."""
    most = limit = bounds.limit
    for _ in range(TRIES):
        messages = without_tool_role(fitted.messages)
        count = bounds.count(messages)
        if count.ceiling <= most:
            return replace(fitted, messages=messages, count=count, tokens_after=count.tokens)
        limit -= -(-(count.ceiling - most) // STEP) * STEP
        if limit <= 0:
            break
        fitted = bounds.fit(whole, limit)
    raise ContextOverflowError(count.ceiling, most, count.breakdown)


def without_tool_role(messages: Iterable[Message]) -> list[Message]:
    """Calls and their results as texts of the assistant; its texts in a row are one."""
    plain: list[Message] = []
    waiting: list[_Call] = []
    for message in messages:
        if message["role"] == "tool":
            _answer(waiting, message)
            continue
        _flush(plain, waiting)
        calls = calls_of(message)
        if not calls:
            _say(plain, message)
            continue
        text = text_of(message.get("content"))
        if text:
            _say(plain, {"role": "assistant", "content": text})
        waiting = [_Call(call["id"], call["function"]["name"], arguments_text(call)) for call in calls]
    _flush(plain, waiting)
    return plain


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str
    result: str | None = None


def _answer(waiting: list[_Call], message: Message) -> None:
    """Gives a result to its call; one that answers none is left out."""
    for call in waiting:
        if call.id == message["tool_call_id"] and call.result is None:
            call.result = text_of(message.get("content"))
            return


def _flush(plain: list[Message], waiting: list[_Call]) -> None:
    for call in waiting:
        text = f"[tool: {call.name}]\n{call.arguments}\n[result]\n{call.result or ''}"
        _say(plain, {"role": "assistant", "content": text})
    waiting.clear()


def _say(plain: list[Message], message: Message) -> None:
    if plain and message["role"] == plain[-1]["role"] == "assistant":
        before = plain.pop()
        message = {**before, "content": joined(before.get("content") or "", message.get("content") or "")}
    plain.append(message)
