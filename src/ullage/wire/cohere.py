"""Cohere's chat API: `cohere.chat.v1` (message and history) and `cohere.chat.v2` (messages).

Documents stand in a system message of their own, behind the system prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire.calls import Ids, call, function_tool, schema_format
from ullage.wire.fields import Object, Place, without
from ullage.wire.openai_chat import read_message, read_tool
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.messages import Message

V1_TAKEN = (
    "model",
    "message",
    "chat_history",
    "preamble",
    "documents",
    "tools",
    "tool_results",
    "response_format",
)
V2_TAKEN = ("model", "messages", "documents", "tools", "tool_choice", "response_format")
V1_ROLES = {"USER": "user", "CHATBOT": "assistant", "SYSTEM": "system", "TOOL": "tool"}
PYTHON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}


def read_v2(body: Place) -> Request:
    """A body of the second version as a Request."""
    given = body.at("messages")
    if given.value is None:
        raise given.wrong("the messages are missing")
    ids = Ids()
    messages = [_v2_message(message, ids) for message in given.each()]
    documents = list(_documents(body.at("documents")))
    leading = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    choice = body.at("tool_choice").optional_text()
    return Request(
        model=body.at("model").optional_text(),
        messages=(*messages[:leading], *documents, *messages[leading:]),
        tools=tuple(read_tool(tool) for tool in body.at("tools").each()),
        response_format=_format(body.at("response_format")),
        tool_choice=choice and choice.lower(),
        thinking=body.at("thinking").at("type").value == "enabled",
        rest=without(body.object(), *V2_TAKEN),
        api=body.api,
    )


def _v2_message(place: Place, ids: Ids) -> Message:
    message = dict(read_message(place, ids))
    if isinstance(message["content"], list):
        blocks = place.at("content").each()
        message["content"] = [
            _document(block.get("document")) if part.get("type") == "document" else part
            for block, part in zip(blocks, message["content"], strict=True)
        ]
    return message


def read_v1(body: Place) -> Request:
    """A body of the first version as a Request."""
    ids = Ids()
    messages: list[Object] = []
    preamble = body.at("preamble").optional_text()
    if preamble:
        messages.append({"role": "system", "content": preamble})
    messages += _documents(body.at("documents"))
    for turn in body.at("chat_history").each():
        messages += _v1_turn(turn, ids)
    text = body.get("message").text()
    results = list(_v1_results(body.at("tool_results"), ids))
    if text or not results:
        messages.append({"role": "user", "content": text})
    return Request(
        model=body.at("model").optional_text(),
        messages=(*messages, *results),
        tools=tuple(_v1_tool(tool) for tool in body.at("tools").each()),
        response_format=_format(body.at("response_format")),
        rest=without(body.object(), *V1_TAKEN),
        api=body.api,
    )


def _v1_turn(turn: Place, ids: Ids) -> Iterator[Object]:
    word = turn.get("role").text()
    role = V1_ROLES.get(word.upper())
    if role is None:
        raise turn.at("role").wrong(f"unknown role {word!r}; one of {', '.join(V1_ROLES)}")
    if role == "tool":
        yield from _v1_results(turn.at("tool_results"), ids)
        return
    message: Object = {"role": role, "content": turn.at("message").optional_text() or ""}
    calls = [_v1_call(each, ids) for each in turn.at("tool_calls").each()] if role == "assistant" else []
    if calls:
        message["tool_calls"] = calls
    yield message


def _v1_call(place: Place, ids: Ids) -> Object:
    name = place.get("name").text()
    given = place.at("parameters")
    return call(ids.made(None, name), name, "{}" if given.value is None else given.json())


def _v1_results(place: Place, ids: Ids) -> Iterator[Object]:
    for result in place.each():
        name = result.at("call").at("name").optional_text()
        yield {
            "role": "tool",
            "tool_call_id": ids.answered(None, name),
            "content": result.at("outputs").json(),
        }


def _v1_tool(place: Place) -> Object:
    properties: Object = {}
    required: list[str] = []
    definitions = place.at("parameter_definitions")
    if definitions.value is not None:
        for name in definitions.object():
            described = definitions.at(name).object()
            if described.pop("required", False) is True:
                required.append(name)
            kind = described.get("type")
            described["type"] = PYTHON_TYPES.get(kind, kind) if isinstance(kind, str) else kind
            properties[name] = described
    parameters: Object = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    return function_tool(place.get("name").text(), place.at("description").optional_text(), parameters)


def _documents(place: Place) -> Iterator[Object]:
    parts = [_document(each) for each in place.each()]
    if parts:
        yield {"role": "system", "content": parts}


def _document(place: Place) -> Object:
    if isinstance(place.value, str):
        return {"type": "document", "text": place.value}
    data: Any = place.at("data").value if place.has("data") else place.object()
    if not isinstance(data, dict):
        text = data if isinstance(data, str) else place.at("data").json()
        return {"type": "document", "text": text}
    texts = [
        value if isinstance(value, str) else Place(value, place.api, place.path).json()
        for value in data.values()
    ]
    return {"type": "document", "text": "\n".join(texts)}


def _format(place: Place) -> Object | None:
    if place.value is None:
        return None
    kind = place.get("type").text()
    schema = place.get("json_schema", "schema")
    if schema.value is None:
        return {"type": kind}
    schema.object()
    return schema_format(schema.value)
