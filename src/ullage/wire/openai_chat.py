"""Reads and writes OpenAI's chat API, `openai.chat`, whose format Ullage uses internally.

Reading converts older and looser forms: `functions` and `function_call`, images given as a bare address,
parts that are strings, calls without ids. A message that is already in the common format is used as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.messages import part_text
from ullage.wire import conversion
from ullage.wire.api import Api
from ullage.wire.calls import MADE, Ids, choose_function, read_chosen_name
from ullage.wire.fields import BodyField, Object, without
from ullage.wire.original import BodyOrigin, patch_content
from ullage.wire.parts import fold_parts, listed, text_part
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.wire.api import Sum
    from ullage.wire.original import Kept

OLDER = f"{MADE}_older"
"""Prefix of the ids that are made for calls by the older `function_call`."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
CHAT_PARTS = frozenset({"text", "image_url", "file", "input_audio", "video_url", "refusal"})
TAKEN = ("model", "messages", "tools", "functions", "function_call", "tool_choice", "response_format")


# Reading


def read(body: BodyField) -> Request:
    """Reads a body of the chat API."""
    rest = without(body.object(), *TAKEN)
    messages = body.at("messages")
    if messages.value is None:
        raise messages.wrong("the messages are missing")
    tools = [read_tool(tool) for tool in body.at("tools").each()]
    if body.has("functions"):
        if not tools:
            rest["functions"] = []  # marks for writing that this caller uses the older form
        tools += [{"type": "function", "function": _function(each)} for each in body.at("functions").each()]
    response_format = body.at("response_format")
    return Request(
        model=body.at("model").optional_text(),
        messages=tuple(message for message, _ in read_messages(messages)),
        tools=tuple(tools),
        response_format=None if response_format.value is None else _format(response_format),
        tool_choice=_choice(body),
        thinking=_thinks(rest),
        rest=rest,
        api=body.api,
    )


def read_messages(place: BodyField, start: int = 0) -> Iterator[tuple[Message, BodyOrigin]]:
    """Reads the messages from `start` on, each with its position."""
    ids = Ids()
    for index, message in enumerate(place.each(start), start):
        ids.begin(index)
        yield read_message(message, ids), BodyOrigin((index,))


def read_message(place: BodyField, ids: Ids) -> Message:
    """Returns one message in the common format."""
    role = place.get("role").text()
    if role not in ROLES:
        raise place.at("role").wrong(f"unknown role {role!r}; use one of {', '.join(sorted(ROLES))}")
    message = without(place.object(), "content", "tool_calls", "function_call")
    if role == "tool":
        message["tool_call_id"] = ids.match_result(
            place.at("tool_call_id").optional_text(), place.at("name").optional_text()
        )
    elif role == "function":
        message["role"] = "tool"
        message["tool_call_id"] = ids.match_result(None, place.get("name").text())
    elif place.has("name"):
        place.at("name").text()
    calls = [_call(each, ids) for each in place.at("tool_calls").each()]
    if place.has("function_call"):
        calls.append(_older_call(place.at("function_call"), ids))
    if calls and role != "assistant":
        raise place.at("tool_calls").wrong(
            f"a message with the role {role} cannot call tools; only the assistant can"
        )
    message["content"] = _content(place.at("content"), bool(calls))
    if calls:
        message["tool_calls"] = calls
    return message


def _content(place: BodyField, has_calls: bool) -> Any:
    if place.value is None:
        return None if has_calls else ""
    return place.value if isinstance(place.value, str) else [read_part(part) for part in place.each()]


def read_part(place: BodyField) -> Object:
    """Returns one content part; an image's address is always inside an object."""
    if isinstance(place.value, str):
        return text_part(place.value)
    part = without(place.object())
    kind = place.get("type").text()
    if kind == "text":
        place.get("text").text()
    elif kind in ("image_url", "video_url"):
        source = place.get(kind)
        part[kind] = {"url": source.value} if isinstance(source.value, str) else source.object()
        BodyField(part[kind], source.api, source.path).get("url").text()
    elif kind in ("file", "input_audio"):
        part[kind] = place.get(kind).object()
        for name, value in part[kind].items():
            BodyField(value, place.api, f"{place.path}.{kind}.{name}").optional_text()
    elif kind == "refusal":
        place.get("refusal").text()
    return part


def _call(place: BodyField, ids: Ids) -> Object:
    own = place.has("custom")
    described = place.get("custom" if own else "function")
    name = described.get("name").text()
    given = described.at("input" if own else "arguments")
    arguments = given.value if isinstance(given.value, str) else "" if given.value is None else given.json()
    more = {} if own else described.object()
    return {
        **without(place.object(), "custom", "function"),
        "id": ids.make_id(place.at("id").optional_text(), name),
        "type": "custom" if own else "function",
        "function": {**more, "name": name, "arguments": arguments},
    }


def _older_call(place: BodyField, ids: Ids) -> Object:
    name = place.get("name").text()
    arguments = place.at("arguments").optional_text() or ""
    return {
        "id": ids.make_id(None, name, prefix=OLDER),
        "type": "function",
        "function": {**place.object(), "name": name, "arguments": arguments},
    }


def read_tool(place: BodyField) -> Object:
    """Returns one tool definition; a provider's own tool is kept unchanged."""
    tool = place.object()
    kind = place.at("type").optional_text()
    if kind in (None, "function"):
        tool["type"] = "function"
        tool["function"] = _function(place.get("function"))
    elif kind == "custom":
        place.get("custom").get("name").text()
    return tool


def _function(place: BodyField) -> Object:
    place.get("name").text()
    place.at("description").optional_text()
    if place.at("parameters").value is not None:
        place.at("parameters").object()
    return place.object()


def _choice(body: BodyField) -> Any:
    choice = body.at("tool_choice")
    if isinstance(choice.value, str):
        return choice.value
    if choice.value is not None:
        return _read_named_choice(choice)
    older = body.at("function_call")
    if older.value is None or isinstance(older.value, str):
        return older.value
    return choose_function(older.get("name").text())


def _read_named_choice(choice: BodyField) -> Object:
    made = choice.object()
    if choice.has("function"):
        choice.at("function").get("name").text()
        made["type"] = choice.at("type").optional_text() or "function"
    return made


def _format(place: BodyField) -> Object:
    if place.get("type").text() == "json_schema":
        place.get("json_schema").object()
    return place.object()


def _thinks(rest: Mapping[str, Any]) -> bool:
    thinking, reasoning = rest.get("thinking"), rest.get("reasoning")
    asked = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    if isinstance(reasoning, dict):  # aggregators use this field for every model
        asked = asked or (reasoning.get("enabled") is not False and reasoning.get("effort") != "none")
    return asked or rest.get("enable_thinking") is True


# Writing


def write(request: Request) -> Object:
    """Returns a Request as a body of the chat API."""
    own = conversion.is_own(request, conversion.CHAT)
    body = conversion.options(request, conversion.CHAT)
    older = own and body.pop("functions", None) is not None
    if request.model is not None:
        body["model"] = request.model
    body["messages"] = [_write_message(message, own) for message in request.messages]
    if request.tools or older:
        tools = [_write_tool(tool, own) for tool in request.tools]
        body.update({"functions": [tool["function"] for tool in tools]} if older else {"tools": tools})
    if request.tool_choice is not None:
        _put_choice(request.tool_choice, body, older)
    if request.response_format is not None:
        body["response_format"] = _write_format(request.response_format, own)
    return body


def _write_message(message: Message, own: bool) -> Object:
    if own:
        written = dict(message)
    else:
        written = conversion.some(message, "role", "name", "tool_call_id")
        parts = [_write_part(part) for part in listed(message.get("content")) if conversion.is_sendable(part)]
        written["content"] = fold_parts(parts) or (None if message.get("tool_calls") else "")
    calls = message.get("tool_calls") or ()
    if calls:
        written["tool_calls"] = [_write_call(each, own) for each in calls]
    return _older_message(written) if own else written


def _older_message(message: Object) -> Object:
    """Returns a message with the older `function_call` if it came with it."""
    if message["role"] == "tool" and message["tool_call_id"].startswith(OLDER) and message.get("name"):
        return {**without(message, "tool_call_id"), "role": "function"}
    calls = message.get("tool_calls") or []
    if len(calls) == 1 and calls[0]["id"].startswith(OLDER):
        called = {"content": message["content"], "function_call": calls[0]["function"]}
        return {**without(message, "tool_calls"), **called}
    return message


def _write_call(each: Mapping[str, Any], own: bool) -> Object:
    if each.get("type") == "custom" and "function" in each:
        function = each["function"]
        more = without(each, "function") if own else conversion.some(each, "id", "type")
        return {**more, "custom": {"name": function["name"], "input": function["arguments"]}}
    if own:
        return dict(each)
    function = conversion.some(each["function"], "name", "arguments")
    return {"id": each["id"], "type": "function", "function": function}


def _write_part(part: Mapping[str, Any]) -> Object:
    """Returns a part of another API with only the members that the chat API knows."""
    kind = part.get("type")
    if kind == "document":
        return text_part(part_text(part))
    if kind not in CHAT_PARTS:
        raise conversion.no_counterpart(kind, conversion.CHAT)
    return {"type": kind, kind: part[kind]}


def _write_tool(tool: Tool, own: bool) -> Object:
    if own:
        return dict(tool)
    if tool.get("type") == "custom":
        return conversion.some(tool, "type", "custom")
    if tool.get("type") != "function":
        raise conversion.no_counterpart(tool.get("type"), conversion.CHAT)
    return {"type": "function", "function": tool["function"]}


def _put_choice(choice: Any, body: Object, older: bool) -> None:
    name = read_chosen_name(choice)
    if not older:
        body["tool_choice"] = choice
    elif name is not None or isinstance(choice, str):
        body["function_call"] = choice if name is None else {"name": name}


def _write_format(response_format: Mapping[str, Any], own: bool) -> Object:
    if own or response_format.get("type") != "json_schema":
        return dict(response_format)
    described = response_format["json_schema"]
    return {"type": "json_schema", "json_schema": {"name": "response", **described}}


def patch(body: Object, kept: Sequence[Kept]) -> Object:
    """Returns a body with other messages; those that did not change are the given objects."""
    return {**body, "messages": [_patch_message(body["messages"], each) for each in kept]}


def _patch_message(messages: Sequence[Any], kept: Kept) -> Any:
    if kept.origin is None:
        return _write_message(kept.message, own=True)
    message = messages[kept.origin.items[0]]
    return message if kept.is_same else {**message, "content": patch_content(kept, message.get("content"))}


# The API

USAGE: Mapping[str, Sum] = {
    "prompt": (("prompt_tokens",),),
    "completion": (("completion_tokens",),),
    "cached_read": (
        ("prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"),
    ),
    "cache_write": (("prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens"),),
    "reasoning": (("completion_tokens_details.reasoning_tokens",),),
}

APIS = (
    Api(
        name="openai.chat",
        read=read,
        write=write,
        usage=USAGE,
        history="messages",
        read_items=read_messages,
        patch=patch,
    ),
)
