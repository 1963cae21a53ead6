"""Fits LangChain's messages: messages that did not change are the given objects, others are copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidConversation, MissingHost
from ullage.integrations.fitter import restore, restore_parts

try:
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        HumanMessage,
        SystemMessage,
        convert_to_openai_messages,
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
CALL_BLOCKS = {"function_call", "tool_call"}
"""Blocks in the content of an answer that repeat its tool calls."""


def fit_messages(
    fitter: HistoryFitter,
    messages: list[BaseMessage],
    tools: Iterable[Any] = (),
    model: str | None = None,
) -> list[BaseMessage]:
    """Returns messages that fit; the given list if none had to change."""
    given = [_read(message, place) for place, message in enumerate(messages)]
    fitted = fitter.fit(given, [convert_to_openai_tool(tool) for tool in tools], model=model)
    return restore(fitted, given, messages, _remake) if fitted.changed else messages


def system_message(text: str) -> BaseMessage:
    """Returns a system message of LangChain."""
    made: BaseMessage = SystemMessage(text)
    return made


def model_name(model: object) -> str | None:
    """Returns the name of a chat model; None if it has none. Integrations call the attribute differently."""
    names = (getattr(model, attribute, None) for attribute in ("model_name", "model", "model_id"))
    return next((name for name in names if isinstance(name, str) and name), None)


def _read(message: BaseMessage, place: int) -> Message:
    is_text = isinstance(message.content, str)
    # Parts are read one by one, so that each of them can be put back.
    made = convert_to_openai_messages([message], text_format="string" if is_text else "block")
    if len(made) != 1:
        raise InvalidConversation(
            "a message with several tool results cannot be fitted; use a ToolMessage for each", index=place
        )
    read: Message = made[0]
    if message.type == "ai" and not is_text:  # calls have a field of their own
        shown = [part for part in read["content"] or () if part["type"] not in CALL_BLOCKS]
        return {**read, "content": shown or None}
    return read


def _remake(owner: BaseMessage | None, message: Message) -> BaseMessage:
    """Returns a copy of the owner with the new content; its parts that are still there stay as they are."""
    content = message["content"]
    if owner is None:
        made: BaseMessage = KINDS[message["role"]](content=content)
        return made
    if isinstance(content, list) and isinstance(owner.content, list):
        read = _read(owner, 0)["content"]
        own = owner.content if len(read) == len(owner.content) else read
        content = restore_parts(content, read, own, lambda part: part)
    copy: BaseMessage = owner.model_copy(update={"content": content})
    return copy
