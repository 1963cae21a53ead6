"""Fits the messages of `llm`: messages that did not change are the given objects, others are copies.

A message of the role `tool` may have several results, and each result is a message for fitting.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from ullage.errors import MissingHost
from ullage.integrations.fitter import MessageOrigin, join_results, restore, restore_parts
from ullage.integrations.media_parts import media_part, opaque_part

try:
    from llm.parts import (
        AttachmentPart,
        Message,
        ReasoningPart,
        TextPart,
        ToolCallPart,
        ToolResultPart,
    )
except ImportError as error:
    raise MissingHost("llm", "llm>=0.36", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.integrations.fitter import HistoryFitter


def fit_messages(
    fitter: HistoryFitter, messages: list[Message], tools: Sequence[Any], model: str | None
) -> list[Message]:
    """Returns messages that fit; the given list if none had to change."""
    read = list(_read_history(messages))
    given = [message for _, message in read]
    fitted = fitter.fit(given, tools, model=model)
    if not fitted.changed:
        return messages
    restored: list[MessageOrigin] = restore(fitted, given, [origin for origin, _ in read], _remake)
    return join_results(restored, _results, lambda message, results: replace(message, parts=results))


def read_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Returns the messages in the format that is counted and fitted."""
    return [message for _, message in _read_history(messages)]


def text_of(message: Message) -> str:
    """Returns the text of a message."""
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def _read_history(messages: Sequence[Message]) -> Iterator[tuple[MessageOrigin, dict[str, Any]]]:
    """Yields each message for fitting, with its origin. Calls of models that give them no ids get some."""
    called: list[str] = []
    for place, message in enumerate(messages):
        if message.role == "tool":
            for part in _results(message):
                made = called.pop(0) if called else ""
                name = part.tool_call_id or made
                yield (
                    MessageOrigin(message, part),
                    {"role": "tool", "tool_call_id": name, "content": _read_result(part)},
                )
        else:
            read = _read(message, place)
            called = [call["id"] for call in read.get("tool_calls", ())]
            yield MessageOrigin(message), read


def _results(message: Message) -> list[Any]:
    return [part for part in message.parts if isinstance(part, ToolResultPart)]


def _read(message: Message, place: int) -> dict[str, Any]:
    shown = _select_content(message)
    is_text = all(isinstance(part, TextPart) for part in shown)
    content = text_of(message) if is_text else [_read_part(part) for part in shown]
    made: dict[str, Any] = {"role": message.role, "content": content}
    if message.role != "assistant":
        return made
    thoughts = [part.text for part in message.parts if isinstance(part, ReasoningPart) and part.text]
    if thoughts:
        made["reasoning_content"] = "\n\n".join(thoughts)
    calls = [part for part in message.parts if _is_call(part)]
    if calls:
        made["content"] = content or None
        made["tool_calls"] = [
            {
                "id": call.tool_call_id or f"call_{place}_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
            }
            for number, call in enumerate(calls)
        ]
    return made


def _is_call(part: Any) -> bool:
    """Returns True for a call that `llm` answers; the model's server has answered others by itself."""
    return isinstance(part, ToolCallPart) and not part.server_executed


def _select_content(message: Message) -> list[Any]:
    """Returns the parts that are content; calls and thoughts have fields of their own."""
    return [part for part in message.parts if not (_is_call(part) or isinstance(part, ReasoningPart))]


def _read_result(part: Any) -> str | list[dict[str, Any]]:
    if not part.attachments:
        text: str = part.output
        return text
    return [{"type": "text", "text": part.output}, *map(_read_attachment, part.attachments)]


def _read_part(part: Any) -> dict[str, Any]:
    """Returns a part as fitting reads it, in the form that is counted best."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if not isinstance(part, AttachmentPart) or part.attachment is None:
        return opaque_part(part.to_dict())
    return _read_attachment(part.attachment)


def _read_attachment(attachment: Any) -> dict[str, Any]:
    if attachment.url:
        return media_part(attachment.type or "image", url=attachment.url)
    return media_part(attachment.resolve_type(), data=attachment.base64_content())


def _remake(owner: MessageOrigin | None, message: Any) -> MessageOrigin:
    """Returns a copy of the owner with the new content; its parts that are still there stay as they are."""
    content = message["content"]
    if owner is None:
        return MessageOrigin(Message(role=message["role"], parts=[TextPart(text=content)]))
    if owner.result is not None:
        return MessageOrigin(owner.message, replace(owner.result, output=content, attachments=[]))
    shown = _select_content(owner.message)
    if isinstance(content, list):
        read = [_read_part(part) for part in shown]
        parts = restore_parts(content, read, shown, lambda part: TextPart(text=part["text"]))
    else:
        parts = [TextPart(text=content)] if content else []
    others = [part for part in owner.message.parts if not any(part is each for each in shown)]
    thoughts = [part for part in others if isinstance(part, ReasoningPart)]
    calls = [part for part in others if not isinstance(part, ReasoningPart)]
    return MessageOrigin(replace(owner.message, parts=[*thoughts, *parts, *calls]))
