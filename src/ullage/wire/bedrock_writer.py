"""Writes requests for Amazon Bedrock's Converse API.

Turns alternate: messages of one side that follow each other become one turn. System messages go into
`system`, from any position.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ullage.messages import part_text
from ullage.wire import conversion
from ullage.wire.bedrock_reader import BESIDE, CACHE, inner_text, join_texts
from ullage.wire.calls import arguments_object, read_chosen_name
from ullage.wire.fields import BodyField, Object, parse_json, without
from ullage.wire.parts import NAMED, listed, split_data_url
from ullage.wire.turns import group_turns, split_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.target import ApiName
    from ullage.wire.request import Request

CONVERSE: ApiName = "bedrock.converse"
CHOICES = {"auto": "auto", "required": "any", "any": "any"}
FORMATS = {mime: form for form, mime in NAMED.items()}
QUOTED = ("searchResult", "citationsContent")
UNNAMED = "document"
"""Name of a document that has none; the API requires one."""

REFUSED = re.compile(r"[^A-Za-z0-9\s()\[\]-]+")
"""Characters that the API refuses in the name of a document."""


def write(request: Request) -> Object:
    """Returns a Request as a body of the converse API."""
    own = conversion.is_read_from(request, CONVERSE)
    body = conversion.options(request, CONVERSE)
    if request.model is not None:
        body["modelId"] = request.model
    system, turns = split_system(request.messages)
    if system:
        body["system"] = [block for message in system for block in _content(message, own)]
    body["messages"] = [_turn(turn, own) for turn in group_turns(turns, alternating=True)]
    config = _tool_config(request, own)
    if config:
        body["toolConfig"] = config
    _put_format(request.response_format, body, own)
    return body


# Turns


def _turn(turn: Sequence[Message], own: bool) -> Object:
    if turn[0]["role"] == "assistant":
        content = [block for message in turn for block in _answer(message, own)]
        return {"role": "assistant", "content": content}
    blocks: list[Object] = []
    for message in turn:
        blocks += _result(message, own) if message["role"] == "tool" else _content(message, own)
    return {"role": "user", "content": blocks}


def _answer(message: Message, own: bool) -> Iterator[Object]:
    parts = [part if conversion.is_sendable(part) else None for part in listed(message.get("content"))]
    calls = [(each, {**each}) for each in message.get("tool_calls") or ()]
    for each in conversion.interleave_calls(parts, calls):
        yield from _with_cache(each, _call(each, own) if "function" in each else _block(each, own), own)


def _content(message: Message, own: bool) -> Iterator[Object]:
    for part in listed(message.get("content")):
        if conversion.is_sendable(part):
            yield from _with_cache(part, _block(part, own), own)


def _with_cache(part: Mapping[str, Any], block: Object, own: bool) -> Iterator[Object]:
    """Yields a block, and the cache point after it."""
    yield block
    if own and part.get(CACHE) is not None:
        yield {CACHE: part[CACHE]}


def _call(each: Mapping[str, Any], own: bool) -> Object:
    if each.get("type") == "custom":
        raise conversion.no_counterpart("custom", CONVERSE)
    function = each["function"]
    used = {
        "toolUseId": each["id"],
        "name": function["name"],
        "input": arguments_object(function.get("arguments")),
    }
    return {"toolUse": {**used, **_beside(each, own)}}


def _result(message: Message, own: bool) -> Iterator[Object]:
    result: Object = {"toolUseId": message["tool_call_id"], "content": list(_content(message, own))}
    if message.get("is_error") is True:
        result["status"] = "error"
    yield from _with_cache(message, {"toolResult": {**result, **_beside(message, own)}}, own)


def _beside(value: Mapping[str, Any], own: bool) -> Object:
    return dict(value.get(BESIDE) or {}) if own else {}


# Blocks


def _block(part: Object, own: bool) -> Object:
    kind = str(part.get("type"))
    if own:
        for name, writer in _OWN.items():
            if part.get(name) is not None:
                return writer(part, name)
        if kind.partition(".")[0] == BESIDE:
            return without(part, "type", CACHE)
    known = _BLOCKS.get(kind)
    if known is None:
        raise conversion.no_counterpart(kind, CONVERSE)
    return known(part)


def _json(part: Object, _: str) -> Object:
    value = parse_json(part["text"])
    return {"text": part["text"]} if value is None else {"json": value}


def _write_guarded(part: Object, name: str) -> Object:
    guarded = part[name]
    if part.get("type") != "text" or guarded["text"]["text"] == part["text"]:
        return {name: guarded}
    return {name: {**guarded, "text": {**guarded["text"], "text": part["text"]}}}


def _write_quoted(part: Object, name: str) -> Object:
    given = part[name]
    if join_texts(BodyField(given, CONVERSE)) == part["text"]:
        return {name: given}
    return {name: {**given, "content": [{"text": part["text"]}]}}


def _medium(part: Object, _: str) -> Object:
    """Returns the block of a medium that was read from this API."""
    kind = part["type"]
    source: Object
    if kind == "document":
        given = part.get("source")
        is_same = given is not None and inner_text(BodyField(given, CONVERSE)) == part["text"]
        source = given if given is not None and is_same else {"text": part["text"]}
    elif "s3Location" in part:
        source = {"s3Location": part["s3Location"]}
    else:
        source = {"bytes": _data(part)[1]}
    head = _HEADS[kind]
    return {head: {**part[BESIDE], "source": source}}


_OWN: Mapping[str, Callable[[Object, str], Object]] = {
    "json": _json,
    "guardContent": _write_guarded,
    **dict.fromkeys(QUOTED, _write_quoted),
    BESIDE: _medium,
}
_HEADS = {
    "image_url": "image",
    "video_url": "video",
    "input_audio": "audio",
    "file": "document",
    "document": "document",
}


def _text(part: Object) -> Object:
    return {"text": part_text(part)}


def _write_thinking(part: Object) -> Object:
    reasoning = {"text": part["thinking"], **without(part, "type", "thinking", CACHE)}
    return {"reasoningContent": {"reasoningText": reasoning}}


def _write_redacted(part: Object) -> Object:
    return {"reasoningContent": {"redactedContent": part.get("data")}}


def _new_medium(part: Object) -> Object:
    """Returns the block of a medium of another API."""
    head = _HEADS[part["type"]]
    mime, data = _data(part)
    form = FORMATS.get(mime, mime.partition("/")[2])
    medium: Object = {"format": form, "source": {"bytes": data}}
    if head == "document":
        if mime not in FORMATS:
            raise conversion.no_counterpart(f"a file of the type {mime!r}", CONVERSE)
        name = (part["file"].get("filename") or UNNAMED).removesuffix(f".{form}")
        medium["name"] = REFUSED.sub("-", name).strip() or UNNAMED
    return {head: medium}


def _data(part: Object) -> tuple[str, str]:
    """Returns the media type and the base64 text of a medium."""
    kind = part["type"]
    held = part[kind]
    if kind == "input_audio":
        return f"audio/{held.get('format') or 'wav'}", held.get("data") or ""
    data = split_data_url(held.get("url") or held.get("file_data") or "")
    if data is None:
        raise conversion.no_counterpart(f"a medium without its data ({kind})", CONVERSE)
    return data


_BLOCKS: Mapping[str, Callable[[Object], Object]] = {
    "text": _text,
    "refusal": _text,
    "document": _text,
    "thinking": _write_thinking,
    "redacted_thinking": _write_redacted,
    "image_url": _new_medium,
    "video_url": _new_medium,
    "input_audio": _new_medium,
    "file": _new_medium,
}


# Tools and formats


def _tool_config(request: Request, own: bool) -> Object:
    tools = list(_write_tools(request.tools, own))
    config: Object = {"tools": tools} if tools else {}
    choice = request.tool_choice
    if choice is None or not (tools or own):
        return config
    name = read_chosen_name(choice)
    if name is None and (not isinstance(choice, str) or choice not in CHOICES):
        raise conversion.no_counterpart(f"tool_choice {choice}", CONVERSE)
    config["toolChoice"] = {CHOICES[choice]: {}} if name is None else {"tool": {"name": name}}
    return config


def _write_tools(tools: Iterable[Tool], own: bool) -> Iterator[Object]:
    for tool in tools:
        kind = str(tool.get("type"))
        if kind == "function":
            yield from _with_cache(tool, {"toolSpec": _spec(tool, own)}, own)
        elif own:
            yield from _with_cache(tool, without(tool, "type", CACHE), own)
        else:
            raise conversion.no_counterpart(kind, CONVERSE)


def _spec(tool: Tool, own: bool) -> Object:
    function = tool["function"]
    spec: Object = {"name": function["name"], **conversion.some(function, "description")}
    parameters = function.get("parameters")
    if parameters is not None or not own:
        spec["inputSchema"] = {"json": parameters or {"type": "object", "properties": {}}}
    strict = conversion.some(function, "strict") if own else {}
    return {**spec, **strict, **_beside(tool, own)}


def _put_format(response_format: Mapping[str, Any] | None, body: Object, own: bool) -> None:
    kind = None if response_format is None else response_format.get("type")
    if response_format is None or kind in (None, "text"):
        return
    if kind != "json_schema":
        raise conversion.no_counterpart(f"response_format {kind}", CONVERSE)
    described = response_format["json_schema"]
    more = without(described, "schema") if own else conversion.some(described, "name", "description")
    schema = json.dumps(described.get("schema"), ensure_ascii=False)
    text_format = {"type": "json_schema", "structure": {"jsonSchema": {**more, "schema": schema}}}
    body["outputConfig"] = {**body.get("outputConfig", {}), "textFormat": text_format}
