"""Ollama's chat API: text as one string, images beside it, calls without ids, a schema as `format`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ullage.messages import SYSTEM_ROLES, part_text
from ullage.wire import conversion
from ullage.wire.api import Api
from ullage.wire.calls import Ids, arguments_object, call, find_given_id, schema_format
from ullage.wire.fields import BodyField, Object, parse_json, without
from ullage.wire.openai_chat import read_tool
from ullage.wire.parts import base64_text, data_url, image_part, listed, split_data_url, text_part
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.messages import Message, Tool
    from ullage.target import ApiName
    from ullage.wire.api import Sum

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
        message["tool_call_id"] = ids.match_result(place.at("tool_call_id").optional_text(), name)
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
    return call(ids.make_id(place.at("id").optional_text(), name), name, arguments)


def _format(place: BodyField) -> Object | None:
    if place.value in (None, ""):
        return None
    if isinstance(place.value, str):
        return {"type": "json_object"}
    place.object()
    return schema_format(place.value)


OLLAMA: ApiName = "ollama.chat"
TEXTS = frozenset({"text", "document", "refusal"})


def write(request: Request) -> Object:
    """Returns a Request as a body of Ollama's chat API."""
    body = conversion.options(request, OLLAMA)
    if request.model is not None:
        body["model"] = request.model
    names = {} if request.api == OLLAMA else conversion.map_names(request.messages)
    body["messages"] = [_write_message(message, names, request.api) for message in request.messages]
    if request.tools:
        body["tools"] = [_write_tool(tool, request.api) for tool in request.tools]
    written = _write_format(request.response_format)
    if written is not None:
        body["format"] = written
    return body


def _write_message(message: Message, names: Mapping[str, str], api: ApiName | None) -> Object:
    role = message["role"]
    parts = [part for part in listed(message.get("content")) if conversion.is_sendable(part)]
    thoughts = [part["thinking"] for part in parts if part.get("type") == "thinking"]
    images = [_write_image(part, api) for part in parts if part.get("type") == "image_url"]
    for part in parts:
        if part.get("type") not in TEXTS | {"thinking", "image_url"}:
            raise conversion.no_counterpart(part.get("type"), OLLAMA)
    written: Object = {
        "role": "system" if role in SYSTEM_ROLES else role,
        "content": "\n".join(part_text(part) for part in parts if part["type"] in TEXTS),
    }
    if thoughts:
        written["thinking"] = "\n".join(thoughts)
    if images:
        written["images"] = images
    if role == "tool":
        name = message.get("name") or names.get(message["tool_call_id"])
        written |= _drop_none(tool_call_id=find_given_id(message["tool_call_id"]), tool_name=name)
    calls = message.get("tool_calls") or ()
    if calls:
        written["tool_calls"] = [_write_call(each, api) for each in calls]
    return written


def _write_image(part: Mapping[str, Any], api: ApiName | None) -> str:
    url: str = part["image_url"].get("url") or ""
    data = split_data_url(url)
    if data is None:
        if api == OLLAMA:
            return url
        raise conversion.no_counterpart("an image by its address", OLLAMA)
    return url if api == OLLAMA and data[0] != "image" else data[1]


def _write_call(each: Mapping[str, Any], api: ApiName | None) -> Object:
    function = each["function"]
    given = function.get("arguments")
    arguments: Any = arguments_object(given)
    if api == OLLAMA and isinstance(given, str) and not _is_same_json(given):
        arguments = given  # an object would be written differently, so the arguments came as a string
    return {
        **_drop_none(id=find_given_id(each["id"])),
        "function": {"name": function["name"], "arguments": arguments},
    }


def _drop_none(**members: str | None) -> Object:
    return {name: value for name, value in members.items() if value is not None}


def _is_same_json(text: str) -> bool:
    value = parse_json(text)
    return isinstance(value, dict) and json.dumps(value, ensure_ascii=False, separators=(",", ":")) == text


def _write_tool(tool: Tool, api: ApiName | None) -> Object:
    if api in (None, OLLAMA):
        return dict(tool)
    if tool.get("type") != "function":
        raise conversion.no_counterpart(tool.get("type"), OLLAMA)
    return {"type": "function", "function": tool["function"]}


def _write_format(response_format: Mapping[str, Any] | None) -> Any:
    kind = None if response_format is None else response_format.get("type")
    if response_format is not None and kind == "json_schema":
        return response_format["json_schema"].get("schema")
    return "json" if kind == "json_object" else None


USAGE: Mapping[str, Sum] = {
    "prompt": (("prompt_eval_count",),),
    "completion": (("eval_count",),),
}
OPTIONS = {
    "output limit": ("options.num_predict",),
    "temperature": ("options.temperature",),
    "nucleus": ("options.top_p",),
    "stop": ("options.stop",),
    "stream": ("stream",),
}

APIS = (Api(name="ollama.chat", read=read, write=write, usage=USAGE, options=OPTIONS),)
