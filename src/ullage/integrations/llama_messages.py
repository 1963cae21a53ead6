"""Fits LlamaIndex's messages: messages that did not change are the given objects, others are copies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from ullage.errors import MissingHost
from ullage.intake import plain
from ullage.integrations.fitter import restore, restore_parts
from ullage.integrations.media_parts import media_part, opaque_part

try:
    from llama_index.core.base.llms.types import (
        ChatMessage,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )
    from llama_index.core.tools import FunctionTool
except ImportError as error:
    raise MissingHost("LlamaIndex", "llama-index-core>=0.14", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.integrations.fitter import HistoryFitter
    from ullage.messages import Message

MEDIA = {
    "image": ("image", "image/png"),
    "audio": ("audio", "wav"),
    "video": ("video", "mp4"),
    "document": ("data", "application/pdf"),
}
"""Kind of a block with data → the member that has it, and the form that is taken if none is told."""
ROLES = {"chatbot": "assistant", "model": "assistant"}
"""Roles of LlamaIndex that other APIs call differently."""


def fit_messages(
    fitter: HistoryFitter,
    messages: list[ChatMessage],
    tools: Iterable[Any] = (),
    model: str | None = None,
) -> list[ChatMessage]:
    """Returns messages that fit; the given list if none had to change. `tools` are as agents take them."""
    given = [_read(message) for message in messages]
    made = [tool if hasattr(tool, "metadata") else FunctionTool.from_defaults(tool) for tool in tools]
    definitions = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in made]
    fitted = fitter.fit(given, definitions, model=model)
    return restore(fitted, given, messages, _remake) if fitted.changed else messages


def _read(message: ChatMessage) -> Message:
    role = ROLES.get(message.role.value, message.role.value)
    made: dict[str, Any] = {"role": role, "content": _read_content(message)}
    if role == "tool":
        made["tool_call_id"] = message.additional_kwargs.get("tool_call_id")
    if role != "assistant":
        return made
    thoughts = [
        block.content for block in message.blocks if isinstance(block, ThinkingBlock) and block.content
    ]
    if thoughts:
        made["reasoning_content"] = "\n\n".join(thoughts)
    if calls := _read_calls(message):
        made["tool_calls"] = calls
    return made


def _select_content(message: ChatMessage) -> list[Any]:
    """Returns the blocks that are content; calls and thoughts have fields of their own."""
    return [block for block in message.blocks if not isinstance(block, ToolCallBlock | ThinkingBlock)]


def _read_content(message: ChatMessage) -> str | list[dict[str, Any]]:
    blocks = _select_content(message)
    if all(isinstance(block, TextBlock) for block in blocks):
        return "\n".join(block.text for block in blocks)
    return [_read_block(block) for block in blocks]


def _read_block(block: Any) -> dict[str, Any]:
    """Returns a block as a part of a message, in the form that is counted best."""
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if block.block_type not in MEDIA:
        return opaque_part(block.model_dump(mode="json"))
    member, default = MEDIA[block.block_type]
    form = getattr(block, f"{block.block_type}_mimetype", None) or getattr(block, "format", None) or default
    kind = form if "/" in form else f"{block.block_type}/{form}"
    data = getattr(block, member)
    if isinstance(data, bytes):  # LlamaIndex keeps base64
        return media_part(kind, data=data.decode())
    if block.path is not None and Path(block.path).is_file():
        return media_part(kind, data=Path(block.path).read_bytes())
    return media_part(kind, url=str(block.url or ""))


def _read_calls(message: ChatMessage) -> list[dict[str, Any]]:
    """Returns the calls of an answer. Older integrations keep them beside the blocks, some in both places."""
    calls = {}
    for block in message.blocks:
        if isinstance(block, ToolCallBlock):
            arguments = block.tool_kwargs
            text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            calls[block.tool_call_id] = {"name": block.tool_name, "arguments": text}
    for call in plain(message.additional_kwargs.get("tool_calls") or []):
        calls.setdefault(call["id"], {name: call["function"][name] for name in ("name", "arguments")})
    return [{"id": name, "type": "function", "function": call} for name, call in calls.items()]


def _remake(owner: ChatMessage | None, message: Message) -> ChatMessage:
    """Returns a copy of the owner with the new content; its blocks that are still there stay as they are."""
    content = message["content"]
    if owner is None:
        return ChatMessage(content, role=message["role"])
    if isinstance(content, list):
        own = _select_content(owner)
        read = [_read_block(block) for block in own]
        blocks = restore_parts(content, read, own, lambda part: TextBlock(text=part["text"]))
    else:
        blocks = [TextBlock(text=content)]
    return owner.model_copy(update={"blocks": blocks})
