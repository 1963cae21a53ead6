"""Fits the messages of Microsoft's Agent Framework: unchanged ones are the given objects, others are copies.

A message of the role `tool` may have several results, and each result is a message for fitting.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.errors import MissingHost
from ullage.integrations.fitter import MessageOrigin, join_results, restore, restore_parts
from ullage.integrations.media_parts import opaque_part

try:
    from agent_framework import Content, Message
except ImportError as error:
    raise MissingHost("Agent Framework", "agent-framework-core>=1.23", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.integrations.fitter import HistoryFitter

INTERNAL = {"function_approval_request", "function_approval_response", "usage"}
"""Contents that are not sent to the model."""
FIELDS = {"function_call", "text_reasoning"}
"""Contents of an answer that have fields of their own."""


class FittedMessages(NamedTuple):
    """Messages that fit, and the instructions beside them if they changed."""

    messages: list[Message]
    instructions: str | None


def fit_messages(
    fitter: HistoryFitter,
    messages: list[Message],
    instructions: str | None,
    tools: Sequence[Any],
    model: str | None,
) -> FittedMessages | None:
    """Returns messages and instructions that fit; None if nothing had to change."""
    beside = None if instructions is None else MessageOrigin(Message("system", [instructions]))
    read = [(beside, {"role": "system", "content": instructions})] if beside else []
    read += [each for message in messages for each in _read(message)]
    given = [message for _, message in read]
    fitted = fitter.fit(given, tools, model=model)
    if not fitted.changed:
        return None
    restored: list[MessageOrigin] = restore(fitted, given, [origin for origin, _ in read], _remake)
    instructions_sent = None
    if beside is not None:
        first, *restored = restored
        instructions_sent = None if first is beside else first.message.text
    return FittedMessages(join_results(restored, _results, _with_contents), instructions_sent)


def _read(message: Message) -> Iterator[tuple[MessageOrigin, dict[str, Any]]]:
    """Yields a message as fitting reads it: each tool result by itself."""
    if message.role == "tool":
        for result in _results(message):
            read = {"role": "tool", "tool_call_id": result.call_id, "content": _read_result(result)}
            yield MessageOrigin(message, result), read
        return
    shown = _select_content(message)
    is_text = all(content.type == "text" for content in shown)
    made: dict[str, Any] = {
        "role": message.role,
        "content": "\n".join(content.text for content in shown)
        if is_text
        else [_read_content(content) for content in shown],
    }
    if message.role == "assistant":
        made |= _answer_fields(message)
    if made["content"] or len(made) > 2:
        yield MessageOrigin(message), made


def _answer_fields(message: Message) -> dict[str, Any]:
    """Returns the thoughts and the calls of an answer."""
    thoughts = [each.text for each in message.contents if each.type == "text_reasoning" and each.text]
    calls = [
        {
            "id": each.call_id,
            "type": "function",
            "function": {"name": each.name, "arguments": _arguments(each)},
        }
        for each in message.contents
        if each.type == "function_call"
    ]
    fields: dict[str, Any] = {}
    if thoughts:
        fields["reasoning_content"] = "\n\n".join(thoughts)
    if calls:
        fields["tool_calls"] = calls
    return fields


def _arguments(call: Content) -> str:
    given = call.arguments
    return given if isinstance(given, str) else orjson.dumps(given or {}).decode()


def _results(message: Message) -> list[Content]:
    return [content for content in message.contents if content.type == "function_result"]


def _read_result(result: Content) -> str | list[dict[str, Any]]:
    if result.items:
        texts = [item.text or "" for item in result.items if item.type == "text"]
        others = [_read_content(item) for item in result.items if item.type != "text"]
        text = "\n".join(texts)
        return [{"type": "text", "text": text}, *others] if others else text
    return result.result if isinstance(result.result, str) else orjson.dumps(result.result).decode()


def _select_content(message: Message) -> list[Content]:
    """Returns the contents that are shown to the model as content."""
    return [content for content in message.contents if content.type not in INTERNAL | FIELDS]


def _read_content(content: Content) -> dict[str, Any]:
    """Returns a content as a part of a message, in the form that is counted best."""
    if content.type == "text":
        return {"type": "text", "text": content.text}
    if content.type not in {"data", "uri"}:
        return opaque_part(content.to_dict())
    if (content.media_type or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": content.uri}}
    return {"type": "file", "file": {"file_data": content.uri}}


def _remake(owner: MessageOrigin | None, message: Any) -> MessageOrigin:
    """Returns a copy of the owner with the new content; its parts that are still there stay as they are."""
    content = message["content"]
    if owner is None:
        return MessageOrigin(Message(message["role"], [content]))
    if owner.result is not None:
        result = copy.copy(owner.result)
        result.result, result.items = content, None
        return MessageOrigin(owner.message, result)
    shown = _select_content(owner.message)
    if isinstance(content, list):
        read = [_read_content(each) for each in shown]
        parts = restore_parts(content, read, shown, lambda part: Content.from_text(part["text"]))
    else:
        parts = [Content.from_text(content)] if content else []
    thoughts = [each for each in owner.message.contents if each.type == "text_reasoning"]
    calls = [each for each in owner.message.contents if each.type == "function_call"]
    return MessageOrigin(_with_contents(owner.message, [*thoughts, *parts, *calls]))


def _with_contents(message: Message, contents: list[Any]) -> Message:
    made = copy.copy(message)
    made.contents = contents
    return made
