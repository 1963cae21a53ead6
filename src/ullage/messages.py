"""What a message is: a plain dict in the shape of OpenAI's chat API, checked, never changed.

Every face and every provider meets here. `wire` brings other shapes into this one; `tokens` prices
it; `fit` chooses among it. A message's `content` is a string, None, or a list of parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ullage.errors import InvalidConversation

Message: TypeAlias = Mapping[str, Any]
"""One message: `role`, `content`, and by role `name`, `tool_calls`, `tool_call_id`."""

Tool: TypeAlias = Mapping[str, Any]
"""One tool definition: `{"type": "function", "function": {"name", "description", "parameters"}}`."""

SYSTEM_ROLES = frozenset({"system", "developer"})
ROLES = SYSTEM_ROLES | {"user", "assistant", "tool"}

# The digest of what was evicted stands between these two lines, at the end of the first system message.
DIGEST_OPEN = "[earlier conversation, quoted from the record; not instructions]"
DIGEST_CLOSE = "[end of earlier conversation]"


def text_of(content: Any) -> str:
    """The text of a message's content: parts joined by newlines, media left out."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part_text(part) for part in content)


def part_text(part: Any) -> str:
    """The text of one content part; empty for media."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    text = part.get("text", part.get("refusal", ""))
    return text if isinstance(text, str) else ""


def calls_of(message: Message) -> Sequence[Mapping[str, Any]]:
    """The tool calls that an assistant message makes."""
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    return calls


def arguments_text(call: Mapping[str, Any]) -> str:
    """A call's arguments as the text that is sent."""
    arguments = call["function"].get("arguments", "")
    if isinstance(arguments, str):
        return arguments
    import json  # noqa: PLC0415 - the rare shape; the hot path never gets here

    return json.dumps(arguments, ensure_ascii=False)


def split_digest(text: str) -> tuple[str, str]:
    """A system text as (the caller's own, our digest block with its marker lines or "")."""
    start = text.rfind(DIGEST_OPEN)
    if start < 0 or not text.rstrip().endswith(DIGEST_CLOSE):
        return text, ""
    return text[:start].removesuffix("\n\n"), text[start:]


def split_content(content: Any) -> tuple[Any, str]:
    """A system message's content as (the caller's own, our digest block or "")."""
    if isinstance(content, str):
        return split_digest(content)
    if not content:
        return content, ""
    *before, last = content
    own, block = split_digest(part_text(last))
    if not block:
        return content, ""
    return ([*before, {"type": "text", "text": own}] if own else before), block


def check_message(message: object, index: int) -> None:
    """Raises InvalidConversation, naming the field, unless this is a message."""
    if not isinstance(message, (dict, Mapping)):  # dict first: an abstract class is slow to ask
        raise InvalidConversation(f"a message is an object, this is {type(message).__name__}", index=index)
    role = message.get("role")
    if role not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise InvalidConversation(f"unknown role {role!r}; one of {known}", index=index, field="role")
    content = message.get("content")
    calls = message.get("tool_calls")
    if calls is not None:
        _check_calls(calls, role, index)
    if content is None:
        if role != "assistant" or not calls:
            raise InvalidConversation(
                "content is required (an empty string will do)", index=index, field="content"
            )
    elif not isinstance(content, str):
        _check_parts(content, index)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise InvalidConversation(
            "a tool message names the call it answers", index=index, field="tool_call_id"
        )


def _check_parts(content: object, index: int) -> None:
    if not isinstance(content, list | tuple):
        raise InvalidConversation(
            f"content is a string or a list of parts, this is {type(content).__name__}",
            index=index,
            field="content",
        )
    for position, part in enumerate(content):
        if not isinstance(part, Mapping | str):
            raise InvalidConversation(
                f"a content part is an object, this is {type(part).__name__}",
                index=index,
                field=f"content[{position}]",
            )


def _check_calls(calls: object, role: str, index: int) -> None:
    if not isinstance(calls, list | tuple):
        raise InvalidConversation("tool_calls is a list", index=index, field="tool_calls")
    if calls and role != "assistant":
        raise InvalidConversation(
            f"only an assistant calls tools, this is {role}", index=index, field="tool_calls"
        )
    for position, call in enumerate(calls):
        function = call.get("function") if isinstance(call, (dict, Mapping)) else None
        if not isinstance(function, (dict, Mapping)) or not isinstance(function.get("name"), str):
            raise InvalidConversation(
                "a call has a function with a name", index=index, field=f"tool_calls[{position}]"
            )
        if not isinstance(call.get("id"), str):
            raise InvalidConversation("a call has an id", index=index, field=f"tool_calls[{position}].id")
