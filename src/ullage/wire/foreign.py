"""Finds bodies that were given for the wrong API, so that no item is read as something that it is not.

Only what no body of the named API has is taken for another API's. Many items look alike in several APIs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.errors import InvalidRequest
from ullage.intake import OTHERS, api_of_part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.target import ApiName


class Shape(NamedTuple):
    """The list of items of an API, and the formats that its items have."""

    history: str
    formats: frozenset[str]


CHAT = "openai.chat"
RESPONSES = Shape("input", frozenset({"openai.responses"}))
MESSAGES = Shape("messages", frozenset({"anthropic.messages"}))
GEMINI = Shape("contents", frozenset({"gemini"}))
SHAPES: Mapping[ApiName, Shape] = {
    "openai.chat": Shape("messages", frozenset({CHAT})),
    "openai.responses": RESPONSES,
    "openai.responses.input_tokens": RESPONSES,
    "anthropic.messages": MESSAGES,
    "anthropic.count_tokens": MESSAGES,
    "gemini": GEMINI,
    "gemini.count_tokens": GEMINI,
    "bedrock.converse": Shape("messages", frozenset({"bedrock.converse"})),
    "ollama.chat": Shape("messages", frozenset({CHAT})),
    "cohere.chat.v2": Shape("messages", frozenset({CHAT})),
}
"""API → its shape. The others are known by their own members."""
CALL_ITEMS = ("function_call", "function_call_output")
BODIES: Mapping[str, str] = {
    "contents": "gemini",
    "input": "openai.responses",
    "message": "cohere.chat.v1",
    "messages": "openai.chat, anthropic.messages, bedrock.converse, ollama.chat or cohere.chat.v2",
}
"""Member of a body → the APIs whose bodies have it."""


def check_format(body: Mapping[str, Any], api: ApiName) -> None:
    """Raises InvalidRequest with the right API if the body of another API was given."""
    shape = SHAPES.get(api)
    if shape is None:
        return
    items = body.get(shape.history)
    if isinstance(items, list | tuple):
        check_items(items, api, 0)
    if items is None and (other := next((name for name in BODIES if body.get(name)), None)):
        raise InvalidRequest(
            f"is missing; {other!r} is a member of bodies of {BODIES[other]}: pass that as api",
            api=api,
            field=shape.history,
        )


def check_items(items: Sequence[Any], api: ApiName, start: int) -> None:
    """Raises InvalidRequest with the right API if an item from this position on belongs to another API."""
    shape = SHAPES.get(api)
    if shape is None:
        return
    for index in range(start, len(items)):
        item = items[index]
        if item.__class__ is not dict:
            continue
        if shape is GEMINI and "content" in item and "parts" not in item:
            raise InvalidRequest(
                "a message of this API has parts, not content; pass the body's own API as api=",
                api=api,
                field=f"{shape.history}[{index}]",
            )
        found = _format_of(item)
        if found is not None and found not in shape.formats:
            raise InvalidRequest(
                f'this is {OTHERS[found]}; if the whole body is of that API, pass api="{found}"',
                api=api,
                field=f"{shape.history}[{index}]",
            )


def _format_of(item: Mapping[str, Any]) -> str | None:
    """Returns the API that alone has items like this one; None if several have."""
    content = item.get("content")
    if content is None and "parts" in item:
        return "gemini"
    if item.get("role") == "tool" or item.get("tool_calls"):
        return CHAT
    if item.get("type") in CALL_ITEMS and "role" not in item:
        return "openai.responses"
    if content.__class__ is list:
        for part in content:
            found = api_of_part(part) if part.__class__ is dict else None
            if found is not None:
                return found
    return None
