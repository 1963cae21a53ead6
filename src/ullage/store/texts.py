"""Extracts the text of an event, so that a piece can refer to the event instead of storing the text again.

This is part of the file's format: a piece that names an event has exactly the text that `text_in` returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def text_in(data: Any) -> str | None:
    """Returns the text of a message with its calls, or a command's output; None if there is neither."""
    if not isinstance(data, Mapping):
        return None
    message = data.get("message")
    if not isinstance(message, Mapping):
        text = data.get("text")
        return text if isinstance(text, str) else None
    try:
        calls = [_call(call) for call in message.get("tool_calls") or ()]
    except (AttributeError, KeyError, TypeError):
        return None
    content = message.get("content")
    return "\n".join(filter(None, (_content(content), *calls))) if calls else _content(content)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(map(_part, content)) if isinstance(content, list) else ""


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text", part.get("refusal", "")) if isinstance(part, Mapping) else ""
    return text if isinstance(text, str) else ""


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return f"{function['name']} {arguments}"
