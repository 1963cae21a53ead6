"""Reads and writes the second version of Cohere's chat API, `cohere.chat.v2`, whose messages are OpenAI's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.messages import SYSTEM_ROLES, part_text
from ullage.wire import conversion
from ullage.wire.api import Api
from ullage.wire.calls import Ids, find_given_id
from ullage.wire.cohere import (
    DOCUMENTS,
    FIELD,
    OPTIONS,
    USAGE,
    is_field,
    read_document,
    read_documents,
    read_format,
    write_document,
    write_format,
)
from ullage.wire.fields import BodyField, Object, without
from ullage.wire.openai_chat import read_message, read_tool
from ullage.wire.parts import fold_parts, listed, text_part
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.messages import Message, Tool
    from ullage.target import ApiName

V2: ApiName = "cohere.chat.v2"
TAKEN = ("model", "messages", DOCUMENTS, "tools", "tool_choice", "response_format")
FORCED = ("required", "none")
"""The tool choices that the API knows; "auto" is the default."""


def read(body: BodyField) -> Request:
    """Reads a body of the second version."""
    given = body.at("messages")
    if given.value is None:
        raise given.wrong("the messages are missing")
    ids = Ids()
    messages = [_read_message(message, ids) for message in given.each()]
    documents = list(read_documents(body.at(DOCUMENTS)))
    leading = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    choice = body.at("tool_choice").optional_text()
    return Request(
        model=body.at("model").optional_text(),
        messages=(*messages[:leading], *documents, *messages[leading:]),
        tools=tuple(read_tool(tool) for tool in body.at("tools").each()),
        response_format=read_format(body.at("response_format")),
        tool_choice=choice and choice.lower(),
        thinking=body.at("thinking").at("type").value == "enabled",
        rest=without(body.object(), *TAKEN),
        api=body.api,
    )


def _read_message(place: BodyField, ids: Ids) -> Message:
    message = without(read_message(place, ids), FIELD)
    message.setdefault("content", None)
    if isinstance(message["content"], list):
        blocks = place.at("content").each()
        message["content"] = [
            {**without(block.object(), "type", "document", "text"), **read_document(block.get("document"))}
            if part.get("type") == "document"
            else part
            for block, part in zip(blocks, message["content"], strict=True)
        ]
    return message


# Writing


def write(request: Request) -> Object:
    """Returns a Request as a body of the second version."""
    own = conversion.is_read_from(request, V2)
    body = conversion.options(request, V2)
    if request.model is not None:
        body["model"] = request.model
    body["messages"] = [
        _write_message(message, own) for message in request.messages if not is_field(message, DOCUMENTS, own)
    ]
    documents = [
        write_document(part, {"data": {"text": part_text(part)}})
        for message in request.messages
        if is_field(message, DOCUMENTS, own)
        for part in listed(message.get("content"))
    ]
    if documents:
        body[DOCUMENTS] = documents
    if request.tools:
        body["tools"] = [_write_tool(tool, own) for tool in request.tools]
    if request.tools or own:
        body |= _write_choice(request.tool_choice)
    return {**body, **write_format(request.response_format, "json_schema", V2)}


def _write_message(message: Message, own: bool) -> Object:
    role = message["role"]
    more = without(message, "role", "content", "tool_calls", "tool_call_id") if own else {}
    written: Object = {"role": "system" if role in SYSTEM_ROLES and not own else role, **more}
    calls = [_write_call(each, own) for each in message.get("tool_calls") or ()]
    if calls:
        written["tool_calls"] = calls
    if role == "tool" and (not own or find_given_id(message["tool_call_id"]) is not None):
        written["tool_call_id"] = message["tool_call_id"]
    content = message.get("content")
    if content is None or isinstance(content, str):
        is_absent = calls and (content is None or (not own and not content))
        return written if is_absent else {**written, "content": content or ""}
    parts = [_write_part(part, own) for part in listed(content) if conversion.is_sendable(part)]
    return {**written, "content": parts if own else fold_parts(parts) or ""}


def _write_call(each: Mapping[str, Any], own: bool) -> Object:
    if each.get("type") == "custom":
        raise conversion.no_counterpart("custom", V2)
    if own:
        return dict(each) if find_given_id(each["id"]) is not None else without(each, "id")
    function = conversion.some(each["function"], "name", "arguments")
    return {"id": each["id"], "type": "function", "function": function}


def _write_part(part: Mapping[str, Any], own: bool) -> Object:
    kind = part.get("type")
    if own and kind == "document":
        document = write_document(part, {"data": {"text": part_text(part)}})
        return {**without(part, "text"), "document": document}
    if own or kind == "thinking":
        return dict(part)
    if kind in ("text", "document", "refusal"):
        return text_part(part_text(part))
    if kind == "image_url":
        return {"type": kind, kind: conversion.some(part[kind], "url", "detail")}
    raise conversion.no_counterpart(kind, V2)


def _write_tool(tool: Tool, own: bool) -> Object:
    if own:
        return dict(tool)
    if tool.get("type") != "function":
        raise conversion.no_counterpart(tool.get("type"), V2)
    return {"type": "function", "function": tool["function"]}


def _write_choice(choice: Any) -> Object:
    if choice in (None, "auto"):
        return {}
    if not isinstance(choice, str) or choice not in FORCED:
        raise conversion.no_counterpart(f"tool_choice {choice}", V2)
    return {"tool_choice": choice.upper()}


APIS = (Api(name=V2, read=read, write=write, usage=USAGE, options=OPTIONS),)
