"""Pydantic AI's messages: read into the format that fitting reads, and put together again for its result.

A request of Pydantic AI has several parts, and each part is a message for fitting. A request whose parts did
not change is the given object.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.errors import MissingHost
from ullage.integrations.fitter import restore_parts
from ullage.integrations.media_parts import media_part

try:
    from pydantic_ai.messages import (
        BinaryContent,
        ImageUrl,
        ModelRequest,
        SystemPromptPart,
        TextContent,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
except ImportError as error:
    raise MissingHost("Pydantic AI", "pydantic-ai-slim>=2", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.fitting import Fitted
    from ullage.messages import Message

RECORDS = {
    "instruction-baseline",
    "instruction-delta",
    "tool-availability-delta",
    "capability-load-delta",
    "model-settings-delta",
}
"""Kinds of parts that tell what changed between requests: they are no messages, and must stay."""


class Place(NamedTuple):
    """The origin of a message: a message of Pydantic AI, and one of its parts."""

    message: int
    part: int | None
    """None for an answer of the model, which is one message with all its parts."""


def read_history(messages: Sequence[Any]) -> Iterator[tuple[Place, Message]]:
    """Yields each message for fitting, with its origin."""
    for number, message in enumerate(messages):
        if isinstance(message, ModelRequest):
            read = [
                (Place(number, at), _read_part(part))
                for at, part in enumerate(message.parts)
                if part.part_kind not in RECORDS
            ]
            # Results come first, because nothing may stand between a call and its results.
            yield from sorted(read, key=lambda each: each[1]["role"] != "tool")
        else:
            yield Place(number, None), _read_answer(message)


def find_changed_instructions(messages: Sequence[Any]) -> str:
    """Returns the instructions that changed since the first request; they are sent beside the messages."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return "\n\n".join(part.render() for part in parts if part.part_kind == "instruction-delta")


def restore_history(
    messages: Sequence[Any], given: Sequence[Message], places: Sequence[Place | None], fitted: Fitted[Any]
) -> list[Any]:
    """Returns the messages of a result; `places` has the origin of each message that was given to fitting."""
    kept: dict[int, dict[int, Any]] = {
        number: records
        for number, message in enumerate(messages)
        if isinstance(message, ModelRequest) and (records := _records(message))
    }
    for message, source in zip(fitted.messages, fitted.sources, strict=True):
        place = None if source is None else places[source]
        if source is None or place is None:
            continue
        parts = kept.setdefault(place.message, {})
        if place.part is not None:
            part = messages[place.message].parts[place.part]
            parts[place.part] = part if message is given[source] else _remake_part(part, message)
    return [_with_parts(messages[number], parts) for number, parts in sorted(kept.items())]


def _records(message: Any) -> dict[int, Any]:
    return {at: part for at, part in enumerate(message.parts) if part.part_kind in RECORDS}


def _with_parts(message: Any, parts: dict[int, Any]) -> Any:
    if not isinstance(message, ModelRequest):
        return message
    left = [parts[at] for at in sorted(parts)]
    is_same = len(left) == len(message.parts) and all(map(_is_same, left, message.parts))
    return message if is_same else replace(message, parts=left)


def _is_same(one: object, other: object) -> bool:
    return one is other


def _read_part(part: Any) -> Message:
    """Returns a part of a request as a message."""
    if isinstance(part, SystemPromptPart):
        return {"role": "system", "content": part.content}
    if isinstance(part, ToolReturnPart):
        text, files = part.model_response_str_and_user_content()
        return _result(part, [_read_item(each) for each in (text, *files)] if files else text)
    if isinstance(part, UserPromptPart):
        is_text = isinstance(part.content, str)
        return {
            "role": "user",
            "content": part.content if is_text else [_read_item(each) for each in part.content],
        }
    if hasattr(part, "model_response"):  # a tool, or the whole answer, has to be tried again
        told = part.model_response()
        is_result = getattr(part, "tool_name", None) is not None
        return _result(part, told) if is_result else {"role": "user", "content": told}
    told = getattr(part, "content", None) or getattr(part, "transcript", None)
    return {"role": "user", "content": told if isinstance(told, str) else str(part)}


def _result(part: Any, content: str | list[dict[str, Any]]) -> Message:
    return {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}


def _read_item(item: Any) -> dict[str, Any]:
    """Returns one item of a user's prompt, or of a tool's result, as a part of a message."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, TextContent):
        return {"type": "text", "text": item.content}
    if isinstance(item, BinaryContent):
        return media_part(item.media_type, data=item.data)
    address = getattr(item, "url", None) or getattr(item, "file_id", None)
    if address is None:  # a mark for the cache
        return {"type": "text", "text": ""}
    return media_part("image" if isinstance(item, ImageUrl) else None, url=address)


def _read_answer(message: Any) -> Message:
    """Returns an answer of the model as a message."""
    texts = [part.content for part in message.parts if isinstance(part, TextPart)]
    thoughts = [part.content for part in message.parts if isinstance(part, ThinkingPart)]
    known = TextPart | ThinkingPart | ToolCallPart
    others = [str(part) for part in message.parts if not isinstance(part, known)]
    made: dict[str, Any] = {"role": "assistant", "content": "\n\n".join([*texts, *others])}
    if thoughts:
        made["reasoning_content"] = "\n\n".join(thoughts)
    calls = [
        {
            "id": part.tool_call_id,
            "type": "function",
            "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
        }
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    return {**made, "tool_calls": calls} if calls else made


def _remake_part(part: Any, message: Message) -> Any:
    """Returns a copy of a part with the new content; the items of a prompt that are still there stay."""
    content = message["content"]
    if message["role"] == "tool":
        # A part that tells of a failure would put words around the content, which has them already.
        return ToolReturnPart(part.tool_name, content, part.tool_call_id, timestamp=part.timestamp)
    if not isinstance(part, UserPromptPart | SystemPromptPart):
        return UserPromptPart(content)
    if isinstance(content, list):
        read = [_read_item(item) for item in part.content]
        content = restore_parts(content, read, part.content, lambda added: added["text"])
    return replace(part, content=content)
