"""A rendered request, and its other forms: short for a small model, or without the role `tool`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ullage.context.state import join_contents
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.fitting import Change
from ullage.fitting.pieces import HANDLE_LENGTH, letters_of, piece_of
from ullage.fitting.result import EVICT
from ullage.intake import kind_of, whole_number
from ullage.messages import RESULT_ROLES, arguments_text, calls_of, read_call_id, text_of
from ullage.text import RESULT, disarm, keep_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ullage.context.bounds import Bounds
    from ullage.context.state import Line
    from ullage.fitting import Fitted
    from ullage.messages import Message
    from ullage.tokens import Counter


@dataclass(frozen=True, slots=True)
class Compress:
    """The short form of a conversation, for a small local model."""

    keep_turns: int = 2
    """The number of newest turns that are sent."""
    max_turn_chars: int = 800
    """The most characters of a turn's text; its tail is kept."""

    def __post_init__(self) -> None:
        whole_number(self.keep_turns, "keep_turns", 1)
        whole_number(self.max_turn_chars, "max_turn_chars", 1)


def check_form(given: object) -> Compress:
    """Returns a short form; raises ConfigurationError for anything else."""
    if isinstance(given, Compress):
        return given
    raise ConfigurationError(f"compress must be a Compress, not {kind_of(given)}")


def newest(messages: Sequence[Message], compress: Compress) -> Sequence[int]:
    """Returns the indexes of the messages that a small model gets.

    The last user message is always among them, and the newest step if it came later. Results without their
    call are left out.
    """
    roles = [message["role"] for message in messages]
    asked = max((place for place, role in enumerate(roles) if role == "user"), default=len(roles))
    start = max(0, len(messages) - compress.keep_turns)
    stepped = [place for place in range(asked, len(messages)) if calls_of(messages[place])]
    start = min([start, *stepped[-1:]])
    while start < len(roles) and roles[start] in RESULT_ROLES:
        start += 1
    return [*([asked] if asked < start else []), *range(start, len(messages))]


def tail_of(message: Message, most: int) -> Message:
    """Returns the message with the end of its content; the same message if the content is short enough."""
    content = message.get("content")
    if isinstance(content, str):
        return message if len(content) <= most else {**message, "content": keep_tail(content, most)}
    if not content or len(text_of(content)) <= most:
        return message
    parts = [part if isinstance(part, str) else dict(part) for part in content]
    left = most
    for position in range(len(parts) - 1, -1, -1):
        part = parts[position]
        text = part if isinstance(part, str) else part.get("text")
        if isinstance(text, str):
            tail = keep_tail(text, left)
            left -= len(tail)
            parts[position] = tail if isinstance(part, str) else {**part, "text": tail}
    return {**message, "content": parts}


# Templates that reject `role: tool` ---------------------------------------------------------------------

STEP, TRIES = 64, 8
"""Tokens by which the limit is lowered if the texts cost more than the calls, and the most attempts."""


def fit_without_tool_role(
    fitted: Fitted[Message], whole: Sequence[Message], bounds: Bounds
) -> Fitted[Message]:
    """Returns a request with its calls and results as texts; fits `whole` again if the texts cost more."""
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
    raise ContextOverflowError(count.ceiling, most, count.ceilings)


def without_tool_role(messages: Iterable[Message]) -> list[Message]:
    """Returns messages with calls and results as the assistant's texts; its successive texts are joined."""
    plain: list[Message] = []
    waiting: list[_Call] = []
    for message in messages:
        if message["role"] in RESULT_ROLES:
            _answer(waiting, message)
            continue
        _flush(plain, waiting)
        calls = calls_of(message)
        if not calls:
            _say(plain, _disarm_message(message))
            continue
        text = text_of(message.get("content"))
        if text:
            _say(plain, {"role": "assistant", "content": disarm(text)})
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
    """Gives a result to its call; a result without a call is left out."""
    for call in waiting:
        if call.id == read_call_id(message) and call.result is None:
            call.result = text_of(message.get("content"))
            return


def _flush(plain: list[Message], waiting: list[_Call]) -> None:
    for call in waiting:
        called = f"[tool: {_in_one_line(call.name)}]\n{disarm(call.arguments)}"
        text = f"{called}\n{RESULT}\n{disarm(call.result or '')}"
        _say(plain, {"role": "assistant", "content": text})
    waiting.clear()


def _in_one_line(name: str) -> str:
    return " ".join(name.replace("[", " ").replace("]", " ").split())


def _disarm_message(message: Message) -> Message:
    """Returns the message; marks of a call or a result that the assistant itself wrote are made harmless."""
    content = message.get("content")
    if message["role"] != "assistant" or not isinstance(content, str):
        return message
    harmless = disarm(content)
    return message if harmless == content else {**message, "content": harmless}


def _say(plain: list[Message], message: Message) -> None:
    if plain and message["role"] == plain[-1]["role"] == "assistant":
        before = plain.pop()
        message = {
            **before,
            "content": join_contents(before.get("content") or "", message.get("content") or ""),
        }
    plain.append(message)


class Rendition(NamedTuple):
    """A rendered request, and the line of the conversation that each of its messages comes from."""

    fitted: Fitted[Message]
    line_of: Callable[[int], int]
    """Returns the line of the message at this index before fitting."""
    short: Short | None = None
    """The short form that was fitted; None if the request is not one."""

    def changes(self, lines: Sequence[Line], counter: Counter) -> tuple[Change, ...]:
        """Returns one change for each turn that the request left out or altered, in order."""
        changes = {self.line_of(change.index): change for change in self.fitted.changes}
        for line, after in (self.short.instead if self.short else {}).items():
            message = lines[line].turn.message
            before, left = (0 if each is None else counter.message(each).tokens for each in (message, after))
            kind, handle = EVICT if after is None else "cut", letters_of(piece_of(message))[:HANDLE_LENGTH]
            changes.setdefault(line, Change(kind, line, before, left, handle, evicted=after is None))
        return tuple(replace(changes[line], index=lines[line].place) for line in sorted(changes))


class Short(NamedTuple):
    """The short form of a conversation."""

    lines: Sequence[int]
    """The indexes of the lines in the short form."""
    messages: Sequence[Message]
    """The messages of these lines, in their short form."""
    instead: dict[int, Message | None]
    """The message that replaces each changed line; None if the line is left out."""


def short_form(lines: Sequence[Line], compress: Compress) -> Short:
    """Returns the newest lines, each cut to its tail."""
    whole = [line.turn.message for line in lines]
    places = newest(whole, compress)
    messages = [tail_of(whole[place], compress.max_turn_chars) for place in places]
    instead: dict[int, Message | None] = dict.fromkeys(set(range(len(whole))).difference(places))
    instead |= {
        place: message for place, message in zip(places, messages, strict=True) if message is not whole[place]
    }
    return Short(places, messages, instead)
