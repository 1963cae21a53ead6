"""Reads and writes the first version of Cohere's chat API, `cohere.chat.v1`: a message and its history.

Its calls have no ids, so a result belongs to a call by name and order. Results that the history does not have
yet follow the message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.messages import SYSTEM_ROLES, part_text, text_of
from ullage.wire import conversion
from ullage.wire.api import Api
from ullage.wire.calls import Ids, arguments_object, call, function_tool
from ullage.wire.cohere import (
    DOCUMENTS,
    FIELD,
    OPTIONS,
    USAGE,
    is_field,
    read_documents,
    read_format,
    write_document,
    write_format,
)
from ullage.wire.fields import BodyField, Object, is_list, parse_json, without
from ullage.wire.parts import listed
from ullage.wire.request import Request
from ullage.wire.turns import group_turns, mark_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.target import ApiName

V1: ApiName = "cohere.chat.v1"
PREAMBLE = "preamble"
TAKEN = (
    "model",
    "message",
    "chat_history",
    PREAMBLE,
    DOCUMENTS,
    "tools",
    "tool_results",
    "response_format",
)
ROLES = {"USER": "user", "CHATBOT": "assistant", "SYSTEM": "system", "TOOL": "tool"}
WORDS = {role: word for word, role in ROLES.items()} | {"developer": "SYSTEM"}
PYTHON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}
JSON_TYPES = {name: python for python, name in PYTHON_TYPES.items()}
TEXTS = frozenset({"text", "document", "refusal"})
DESCRIBED = frozenset({"type", "description", "title", "default"})
"""Members of a parameter's schema that a definition of this API can say, or that it can do without."""

OUTPUT = "output"
"""Member of the output that stands for the text of a result of another API."""


# Reading


def read(body: BodyField) -> Request:
    """Reads a body of the first version."""
    ids = Ids()
    messages: list[Object] = []
    preamble = body.at(PREAMBLE).optional_text()
    if preamble:
        messages.append({"role": "system", "content": preamble, FIELD: PREAMBLE})
    messages += read_documents(body.at(DOCUMENTS))
    messages += mark_turns(_read_turn(turn, ids) for turn in body.at("chat_history").each())
    text = body.get("message").text()
    results = list(_read_results(body.at("tool_results"), ids))
    if text or not results:
        messages.append({"role": "user", "content": text})
    return Request(
        model=body.at("model").optional_text(),
        messages=(*messages, *results),
        tools=tuple(_read_tool(tool) for tool in body.at("tools").each()),
        response_format=read_format(body.at("response_format")),
        rest=without(body.object(), *TAKEN),
        api=body.api,
    )


def _read_turn(turn: BodyField, ids: Ids) -> Iterator[Object]:
    word = turn.get("role").text()
    role = ROLES.get(word.upper())
    if role is None:
        raise turn.at("role").wrong(f"unknown role {word!r}; use one of {', '.join(ROLES)}")
    if role == "tool":
        yield from _read_results(turn.at("tool_results"), ids)
        return
    message: Object = {"role": role, "content": turn.at("message").optional_text() or ""}
    calls = [_read_call(each, ids) for each in turn.at("tool_calls").each()] if role == "assistant" else []
    if calls:
        message["tool_calls"] = calls
    yield message


def _read_call(place: BodyField, ids: Ids) -> Object:
    name = place.get("name").text()
    given = place.at("parameters")
    return call(ids.make_id(None, name), name, "{}" if given.value is None else given.json())


def _read_results(place: BodyField, ids: Ids) -> Iterator[Object]:
    for result in place.each():
        made = result.at("call")
        name = made.at("name").optional_text()
        yield {
            "role": "tool",
            "tool_call_id": ids.match_result(None, name),
            "content": result.at("outputs").json(),
            **({} if made.value is None else {"call": made.object()}),
        }


def _read_tool(place: BodyField) -> Object:
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


# Writing


def write(request: Request) -> Object:
    """Returns a Request as a body of the first version."""
    own = conversion.is_read_from(request, V1)
    if request.tool_choice not in (None, "auto"):
        raise conversion.no_counterpart(f"tool_choice {request.tool_choice}", V1)
    body = conversion.options(request, V1)
    if request.model is not None:
        body["model"] = request.model
    system, documents, messages = _split_fields(request.messages, own)
    if system is not None:
        body[PREAMBLE] = _text(system)
    if documents:
        body[DOCUMENTS] = [write_document(part, {"text": part_text(part)}) for part in documents]
    body |= _conversation(messages, own)
    if request.tools:
        body["tools"] = [_write_tool(tool, own) for tool in request.tools]
    return {**body, **write_format(request.response_format, "schema", V1)}


def _split_fields(
    messages: Sequence[Message], own: bool
) -> tuple[Message | None, list[Object], Sequence[Message]]:
    """Splits messages into the preamble, the documents, and the conversation."""
    documents = [
        part
        for message in messages
        if is_field(message, DOCUMENTS, own)
        for part in listed(message.get("content"))
    ]
    left = [message for message in messages if not is_field(message, DOCUMENTS, own)]
    first = left[0] if left else None
    if first is None or first["role"] not in SYSTEM_ROLES or (own and first.get(FIELD) != PREAMBLE):
        return None, documents, left
    return first, documents, left[1:]


def _conversation(messages: Sequence[Message], own: bool) -> Object:
    """Returns the history, the message and the results after it.

    A body of this API keeps an empty history, if it had one.
    """
    calls = {each["id"]: each for message in messages for each in message.get("tool_calls") or ()}
    end = len(messages)
    while end and messages[end - 1]["role"] == "tool":
        end -= 1
    has_message = end > 0 and messages[end - 1]["role"] == "user"
    history = [
        _write_turn(turn, calls) for turn in group_turns(messages[: end - has_message], only_results=True)
    ]
    body: Object = {"chat_history": history} if history or own else {}
    body["message"] = _text(messages[end - 1]) if has_message else ""
    if end < len(messages):
        body["tool_results"] = [_write_result(message, calls) for message in messages[end:]]
    return body


def _write_turn(turn: Sequence[Message], calls: Mapping[str, Mapping[str, Any]]) -> Object:
    first = turn[0]
    if first["role"] == "tool":
        return {"role": "TOOL", "tool_results": [_write_result(message, calls) for message in turn]}
    made = [_write_call(each) for each in first.get("tool_calls") or ()]
    return {
        "role": WORDS[first["role"]],
        "message": _text(first),
        **({"tool_calls": made} if made else {}),
    }


def _text(message: Message) -> str:
    parts = [part for part in listed(message.get("content")) if conversion.is_sendable(part)]
    for part in parts:
        if part.get("type") not in TEXTS:
            raise conversion.no_counterpart(part.get("type"), V1)
    return text_of(parts)


def _write_call(each: Mapping[str, Any]) -> Object:
    if each.get("type") == "custom":
        raise conversion.no_counterpart("custom", V1)
    function = each["function"]
    return {"name": function["name"], "parameters": arguments_object(function.get("arguments"))}


def _write_result(message: Message, calls: Mapping[str, Mapping[str, Any]]) -> Object:
    made = message.get("call")
    called = calls.get(message["tool_call_id"])
    if made is None and called is not None:
        made = _write_call(called)
    text = _text(message)
    outputs = parse_json(text) if "call" in message else None
    answered = {} if made is None else {"call": made}
    return {**answered, "outputs": outputs if is_list(outputs) else [{OUTPUT: text}]}


def _write_tool(tool: Tool, own: bool) -> Object:
    if tool.get("type") != "function":
        raise conversion.no_counterpart(tool.get("type"), V1)
    function = tool["function"]
    parameters = function.get("parameters") or {}
    required = parameters.get("required") or ()
    definitions = {
        name: _definition(name, schema, name in required, own)
        for name, schema in (parameters.get("properties") or {}).items()
    }
    description = conversion.some(function, "description")
    return {
        "name": function["name"],
        **description,
        **({"parameter_definitions": definitions} if definitions else {}),
    }


def _definition(name: str, schema: Mapping[str, Any], is_required: bool, own: bool) -> Object:
    kind = schema.get("type")
    if not own and (not isinstance(kind, str) or not DESCRIBED.issuperset(schema)):
        raise conversion.no_counterpart(f"the schema of the parameter {name}", V1)
    known = dict(schema) if own else conversion.some(schema, "description")
    known["type"] = JSON_TYPES.get(kind, kind) if isinstance(kind, str) else kind
    return {**known, **({"required": True} if is_required else {})}


def leave(request: Request) -> Request:
    """Returns the request with plain tool results: the text of each result that was wrapped in `output`."""
    return replace(request, messages=tuple(_unwrap_result(message) for message in request.messages))


def _unwrap_result(message: Message) -> Message:
    content = message.get("content")
    outputs = parse_json(content) if message["role"] == "tool" and isinstance(content, str) else None
    if not isinstance(outputs, list) or len(outputs) != 1 or not isinstance(outputs[0], dict):
        return message
    text = outputs[0].get(OUTPUT)
    return {**message, "content": text} if isinstance(text, str) and len(outputs[0]) == 1 else message


HELD = ("conversation_id",)

APIS = (Api(name=V1, read=read, write=write, usage=USAGE, options=OPTIONS, held=HELD, leave=leave),)
