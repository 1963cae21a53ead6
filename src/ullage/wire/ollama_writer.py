"""Writes requests for Ollama's chat API: text as one string, images beside it, arguments as objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ullage.messages import SYSTEM_ROLES, part_text
from ullage.wire import conversion
from ullage.wire.calls import arguments_object, given_id
from ullage.wire.fields import Object, parsed
from ullage.wire.parts import listed, split_data_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.messages import Message, Tool
    from ullage.target import ApiName
    from ullage.wire.request import Request

OLLAMA: ApiName = "ollama.chat"
TEXTS = frozenset({"text", "document", "refusal"})


def write(request: Request) -> Object:
    """Returns a Request as a body of Ollama's chat API."""
    body = conversion.options(request, OLLAMA)
    if request.model is not None:
        body["model"] = request.model
    names = {} if request.api == OLLAMA else conversion.called_names(request.messages)
    body["messages"] = [_write_message(message, names, request.api) for message in request.messages]
    if request.tools:
        body["tools"] = [_write_tool(tool, request.api) for tool in request.tools]
    written = _format(request.response_format)
    if written is not None:
        body["format"] = written
    return body


def _write_message(message: Message, names: Mapping[str, str], api: ApiName | None) -> Object:
    role = message["role"]
    parts = [part for part in listed(message.get("content")) if conversion.is_sendable(part)]
    thoughts = [part["thinking"] for part in parts if part.get("type") == "thinking"]
    images = [_image(part, api) for part in parts if part.get("type") == "image_url"]
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
        written |= _known(tool_call_id=given_id(message["tool_call_id"]), tool_name=name)
    calls = message.get("tool_calls") or ()
    if calls:
        written["tool_calls"] = [_write_call(each, api) for each in calls]
    return written


def _image(part: Mapping[str, Any], api: ApiName | None) -> str:
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
    if api == OLLAMA and isinstance(given, str) and not _same(given):
        arguments = given  # an object would be written differently, so the arguments came as a string
    return {**_known(id=given_id(each["id"])), "function": {"name": function["name"], "arguments": arguments}}


def _known(**members: str | None) -> Object:
    return {name: value for name, value in members.items() if value is not None}


def _same(text: str) -> bool:
    value = parsed(text)
    return isinstance(value, dict) and json.dumps(value, ensure_ascii=False, separators=(",", ":")) == text


def _write_tool(tool: Tool, api: ApiName | None) -> Object:
    if api in (None, OLLAMA):
        return dict(tool)
    if tool.get("type") != "function":
        raise conversion.no_counterpart(tool.get("type"), OLLAMA)
    return {"type": "function", "function": tool["function"]}


def _format(response_format: Mapping[str, Any] | None) -> Any:
    kind = None if response_format is None else response_format.get("type")
    if response_format is not None and kind == "json_schema":
        return response_format["json_schema"].get("schema")
    return "json" if kind == "json_object" else None
