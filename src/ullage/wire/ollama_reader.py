"""Reads Ollama's chat API, `ollama.chat`: images beside the text, calls without ids, a schema as `format`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire.calls import Ids, call, schema_format
from ullage.wire.fields import BodyField, Object, without
from ullage.wire.openai_chat import read_tool
from ullage.wire.parts import base64_text, data_url, image_part, text_part
from ullage.wire.request import Request

if TYPE_CHECKING:
    from ullage.messages import Message

ROLES = frozenset({"system", "user", "assistant", "tool"})


def read(body: BodyField) -> Request:
    """Reads a body of Ollama's chat API."""
    messages = body.at("messages")
    if messages.value is None:
        raise messages.wrong("the messages are missing")
    ids = Ids()
    return Request(
        model=body.at("model").optional_text(),
        messages=tuple(_message(message, ids) for message in messages.each()),
        tools=tuple(read_tool(tool) for tool in body.at("tools").each()),
        response_format=_format(body.at("format")),
        thinking=body.at("think").value not in (None, False),
        rest=without(body.object(), "model", "messages", "tools", "format"),
        api=body.api,
    )


def _message(place: BodyField, ids: Ids) -> Message:
    role = place.get("role").text()
    if role not in ROLES:
        raise place.at("role").wrong(f"unknown role {role!r}; use one of {', '.join(sorted(ROLES))}")
    parts: list[Object] = []
    thinking = place.at("thinking").optional_text()
    if thinking:
        parts.append({"type": "thinking", "thinking": thinking})
    text = place.at("content").optional_text() or ""
    images = [_image(image) for image in place.at("images").each()]
    if text:
        parts.append(text_part(text))
    content: Any = [*parts, *images] if thinking or images else text
    message: Object = {"role": role, "content": content}
    if role == "tool":
        name = place.get("tool_name", "name").optional_text()
        message["tool_call_id"] = ids.answered(place.at("tool_call_id").optional_text(), name)
        if name is not None:
            message["name"] = name
    calls = [_call(each, ids) for each in place.at("tool_calls").each()]
    if calls and role != "assistant":
        raise place.at("tool_calls").wrong(
            f"a message with the role {role} cannot call tools; only the assistant can"
        )
    if calls:
        message["tool_calls"] = calls
        message["content"] = content or None
    return message


def _image(place: BodyField) -> Object:
    data = base64_text(place)
    return image_part(data if data.startswith("data:") else data_url("image", data))


def _call(place: BodyField, ids: Ids) -> Object:
    function = place.get("function")
    name = function.get("name").text()
    given = function.at("arguments")
    arguments = given.value if isinstance(given.value, str) else "{}" if given.value is None else given.json()
    return call(ids.made(place.at("id").optional_text(), name), name, arguments)


def _format(place: BodyField) -> Object | None:
    if place.value in (None, ""):
        return None
    if isinstance(place.value, str):
        return {"type": "json_object"}
    place.object()
    return schema_format(place.value)
