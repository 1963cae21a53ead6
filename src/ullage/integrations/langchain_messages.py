"""Fits LangChain's messages: messages that did not change are the given objects, others are copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ullage.errors import InvalidConversation, MissingHost
from ullage.integrations.fitter import restore, restore_parts
from ullage.integrations.langchain_blocks import read_block

try:
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        HumanMessage,
        SystemMessage,
    )
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as error:
    raise MissingHost("LangChain", "langchain-core>=1", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.integrations.fitter import HistoryFitter
    from ullage.messages import Message

KINDS = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
"""Role → class of a message that fitting made."""
ROLES = {"human": "user", "ai": "assistant"}
"""Type of a message → role, if they differ."""
CALL_BLOCKS = {"custom_tool_call", "function_call", "input_json_delta", "tool_call", "tool_use"}
"""Blocks in the content of an answer that repeat its tool calls."""


def fit_messages(
    fitter: HistoryFitter,
    messages: list[BaseMessage],
    tools: Iterable[Any] = (),
    model: str | None = None,
) -> list[BaseMessage]:
    """Returns messages that fit; the given list if none had to change."""
    answered = {message.tool_call_id for message in messages if message.type == "tool"}
    given = [_read(message, place, answered) for place, message in enumerate(messages)]
    fitted = fitter.fit(given, list(map(_read_tool, tools)), model=model)
    return restore(fitted, given, messages, _remake) if fitted.changed else messages


def system_message(text: str) -> BaseMessage:
    """Returns a system message of LangChain."""
    made: BaseMessage = SystemMessage(text)
    return made


def model_name(model: object) -> str | None:
    """Returns the name of a chat model; None if it has none. Integrations call the attribute differently."""
    names = (getattr(model, attribute, None) for attribute in ("model_name", "model", "model_id"))
    return next((name for name in names if isinstance(name, str) and name), None)


def _read_tool(tool: Any) -> dict[str, Any]:
    """Returns the definition of a tool. One that the model's provider runs has a form of its own."""
    try:
        made: dict[str, Any] = convert_to_openai_tool(tool)
    except ValueError:
        if not isinstance(tool, dict):
            raise
        name = str(tool.get("name") or tool.get("type") or next(iter(tool), "tool"))
        made = {"type": "function", "function": {"name": name, "parameters": tool}}
    return made


def _read(message: BaseMessage, place: int, answered: set[str]) -> Message:
    role = ROLES.get(message.type, message.type)
    if role in {"chat", "system"}:  # OpenAI's newer models call the system the developer
        role = getattr(message, "role", None) or message.additional_kwargs.get("__openai_role__", role)
    made: dict[str, Any] = {"role": role, "content": _read_content(message, place)}
    if message.name:
        made["name"] = message.name
    if role == "tool":
        made["tool_call_id"] = message.tool_call_id
    return {**made, **_answer_fields(message, answered)} if role == "assistant" else made


def _read_content(message: BaseMessage, place: int) -> str | list[dict[str, Any]] | None:
    if isinstance(message.content, str):
        return message.content
    if any(_kind(block) == "tool_result" for block in message.content):
        raise InvalidConversation(
            "a message with several tool results cannot be fitted; use a ToolMessage for each", index=place
        )
    shown = _select_content(message)
    return [read_block(block) for block in shown] if shown or message.type != "ai" else None


def _kind(block: Any) -> object:
    return block.get("type") if isinstance(block, dict) else None


def _select_content(message: BaseMessage) -> list[Any]:
    """Returns the blocks that are content; the calls of an answer have a field of their own."""
    blocks: list[Any] = list(message.content)
    return [block for block in blocks if _kind(block) not in CALL_BLOCKS] if message.type == "ai" else blocks


def _answer_fields(message: Any, answered: set[str]) -> dict[str, Any]:
    """Returns the calls and the thoughts of an answer that do not stand in its content."""
    fields: dict[str, Any] = {}
    given = getattr(message, "tool_calls", None) or [
        {**block, "args": block["input"]} for block in message.content if _kind(block) == "tool_use"
    ]
    # Calls with invalid arguments are sent too, if somebody has answered them.
    wrong = [call for call in getattr(message, "invalid_tool_calls", ()) if call["id"] in answered]
    if calls := [*map(_read_call, given), *map(_read_call, wrong)]:
        fields["tool_calls"] = calls
    elif isinstance(call := message.additional_kwargs.get("function_call"), dict):
        fields["function_call"] = call
    if isinstance(thought := message.additional_kwargs.get("reasoning_content"), str):
        fields["reasoning_content"] = thought
    return fields


def _read_call(call: Any) -> dict[str, Any]:
    given = call["args"]
    arguments = given if isinstance(given, str) else orjson.dumps(given or {}, default=str).decode()
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"] or "", "arguments": arguments},
    }


def _remake(owner: BaseMessage | None, message: Message) -> BaseMessage:
    """Returns a copy of the owner with the new content; its blocks that are still there stay as they are."""
    content = message["content"]
    if owner is None:
        made: BaseMessage = KINDS[message["role"]](content=content)
        return made
    if isinstance(owner.content, list) and content is not None:
        own = _select_content(owner)
        calls = [block for block in owner.content if not any(block is each for each in own)]
        if isinstance(content, list):
            content = restore_parts(content, list(map(read_block, own)), own, lambda part: part)
        elif calls:
            content = [{"type": "text", "text": content}]
        content = [*content, *calls] if calls else content
    copy: BaseMessage = owner.model_copy(update={"content": content})
    return copy
