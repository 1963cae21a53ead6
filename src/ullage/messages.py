"""The message format: a plain dict as in OpenAI's chat API, which is never changed.

All other packages use this format. `intake` checks messages from callers, `wire` converts other APIs'
formats, `tokens` counts messages, and `fit` chooses which to send. A message's `content` is a string, None,
or a list of parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ullage.text import DIGEST_CLOSE, DIGEST_OPEN, RECALL_CLOSE, RECALL_OPEN, TASK_CLOSE, TASK_OPEN

Message: TypeAlias = Mapping[str, Any]
"""One message: `role`, `content` and, depending on the role, `name`, `tool_calls`, `tool_call_id`.

An assistant message may also have `refusal`, `audio`, `reasoning_content`, `thinking_blocks`, and the older
`function_call`, which a message with the role `function` answers."""

Tool: TypeAlias = Mapping[str, Any]
"""One tool definition: `{"type": "function", "function": {"name", "description", "parameters"}}`."""

SYSTEM_ROLES = frozenset({"system", "developer"})
RESULT_ROLES: Mapping[str, str] = {"tool": "tool_call_id", "function": "name"}
"""Role of a result → the field that names its call."""
ROLES = frozenset({*SYSTEM_ROLES, "user", "assistant", *RESULT_ROLES})
OLDER = "function_call:"
"""Prefix of the ids that are made for calls by the older `function_call`, which have no id."""
CHARGED = frozenset(
    {"refusal", "reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "audio"}
)
"""Fields of an assistant message that cost tokens in addition to content and calls."""


def is_plain(message: Message) -> bool:
    """Returns True if a message is only text, for which the rules are known exactly."""
    if message["role"] in RESULT_ROLES or message.get("tool_calls") or message.get("function_call"):
        return False
    if len(message) > 2 and any(message.get(name) for name in CHARGED):
        return False
    content = message.get("content")
    return isinstance(content, str) or content is None or all(_is_text(part) for part in content)


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (part.get("type") == "text" and isinstance(part.get("text"), str))


def text_of(content: Any) -> str:
    """Returns the text of a message's content: parts joined by newlines, without media."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part_text(part) for part in content)


def part_text(part: Any) -> str:
    """Returns the text of one content part; empty for media."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    text = part.get("text", part.get("refusal", ""))
    return text if isinstance(text, str) else ""


def calls_of(message: Message) -> Sequence[Mapping[str, Any]]:
    """Returns the calls of an assistant message, each with an id and a function.

    A custom call has its input as the arguments. The older `function_call` gets an id made from its name.
    """
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    for call in calls:
        if "function" not in call:
            calls = [_with_function(call) for call in calls]
            break
    older = message.get("function_call")
    if older is not None:
        calls = [*calls, {"id": f"{OLDER}{older['name']}", "type": "function", "function": older}]
    return calls


def _with_function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    if "function" in call:
        return call
    custom = call["custom"]
    function = {"name": custom["name"], "arguments": custom.get("input", "")}
    return {**{key: value for key, value in call.items() if key != "custom"}, "function": function}


def read_call_id(result: Message) -> str:
    """Returns the id of the call that a result answers."""
    if result["role"] == "function":
        return f"{OLDER}{result['name']}"
    identity: str = result["tool_call_id"]
    return identity


def result_message(identity: str, content: str) -> Message:
    """Returns the result message for the call with this id."""
    if identity.startswith(OLDER):
        return {"role": "function", "name": identity.removeprefix(OLDER), "content": content}
    return {"role": "tool", "tool_call_id": identity, "content": content}


def arguments_text(call: Mapping[str, Any]) -> str:
    """Returns a call's arguments as the text that is sent."""
    arguments = call["function"].get("arguments", "")
    if isinstance(arguments, str):
        return arguments
    import json  # noqa: PLC0415 - the rare shape; the hot path never gets here

    return json.dumps(arguments, ensure_ascii=False, default=str, skipkeys=True)


def split_digest(text: str) -> tuple[str, str]:
    """Splits a system text into the caller's own text and our block, which may be empty.

    The block is the task, the digest, or both, with their marker lines. It is recognised by these markers,
    each on a line of its own. `text.disarm` removes the markers from foreign texts.
    """
    own = _without_block(_without_block(text, DIGEST_OPEN, DIGEST_CLOSE), TASK_OPEN, TASK_CLOSE)
    return own, text[len(own) :].removeprefix("\n\n")


def _without_block(text: str, opening: str, closing: str) -> str:
    """Returns a text without the block between these lines at its end."""
    start = text.rfind(f"{opening}\n")
    if start < 0 or text[start - 1 : start] not in {"", "\n"} or not text.rstrip().endswith(f"\n{closing}"):
        return text
    return text[:start].removesuffix("\n\n")


def split_content(content: Any) -> tuple[Any, str]:
    """Splits a system message's content into the caller's own and our digest block, which may be empty."""
    if isinstance(content, str):
        return split_digest(content)
    if not content:
        return content, ""
    *before, last = content
    own, block = split_digest(part_text(last))
    if not block:
        return content, ""
    return ([*before, {"type": "text", "text": own}] if own else before), block


def split_recalled(text: str) -> tuple[str, str]:
    """Splits a user's text into our recalled block, which may be empty, and the user's own words."""
    end = text.find(RECALL_CLOSE)
    if end < 0 or not text.startswith(RECALL_OPEN):
        return "", text
    end += len(RECALL_CLOSE)
    return text[:end], text[end:].removeprefix("\n\n")


def without_recalled(content: Any) -> Any:
    """Returns a user message's content without our recalled block; the same object if it has none."""
    if isinstance(content, str):
        return split_recalled(content)[1]
    if not content:
        return content
    first, *rest = content
    block, own = split_recalled(part_text(first))
    if not block:
        return content
    return [{"type": "text", "text": own}, *rest] if own else rest
