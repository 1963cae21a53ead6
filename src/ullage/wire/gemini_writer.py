"""Writes requests for Google's generateContent and countTokens, with names in camelCase.

Results and the user's words after them become one turn. System messages go into `systemInstruction`, from any
position. A call has an id only if it came with one.
"""

from __future__ import annotations

import mimetypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.messages import part_text
from ullage.wire import conversion
from ullage.wire.calls import arguments_object, find_given_id, read_chosen_name
from ullage.wire.fields import BodyField, Object, parse_json, without
from ullage.wire.gemini_reader import (
    CALLINGS,
    CODES,
    CONFIGS,
    MIMES,
    OWN,
    SCHEMAS,
    TOOL_CONFIGS,
    WRAPPERS,
    read_choice,
    read_format,
)
from ullage.wire.parts import listed, split_data_url
from ullage.wire.turns import APART, group_turns, split_system

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.target import ApiName
    from ullage.wire.request import Request

GEMINI: ApiName = "gemini"
COUNT: ApiName = "gemini.count_tokens"
DECLARED = "functionDeclarations"
MODES = {"auto": "AUTO", "required": "ANY", "any": "ANY", "none": "NONE"}
OUTPUTS = ("output", "error")
"""Members of a response that stand for the whole of it: the text of a result, and that of a failure."""


def write(request: Request) -> Object:
    """Returns a Request as a body of generateContent."""
    own = conversion.is_read_from(request, GEMINI)
    body = conversion.options(request, GEMINI)
    if request.model is not None:
        body["model"] = request.model if "/" in request.model else f"models/{request.model}"
    system, turns = split_system(request.messages)
    if system:
        body["systemInstruction"] = {
            "parts": [_part(part, own) for each in system for part in _parts_of(each)]
        }
    names = conversion.map_names(request.messages)
    body["contents"] = [_turn(turn, names, own) for turn in group_turns(turns)]
    if request.tools:
        body["tools"] = _write_tools(request.tools, own)
    _put_choice(request, body)
    _put_format(request, body)
    return body


def write_counted(request: Request) -> Object:
    """Returns a Request as a body of countTokens: the contents alone if it came so, else a whole request."""
    body = write(request)
    came_flat = request.original is not None and not any(request.original.get(name) for name in WRAPPERS)
    return body if request.api == COUNT and came_flat else {WRAPPERS[0]: body}


def leave(request: Request) -> Request:
    """Returns a request whose results are the texts that are wrapped as `output` or `error`."""
    return replace(request, messages=tuple(_unwrap_result(message) for message in request.messages))


def _unwrap_result(message: Message) -> Message:
    content = message.get("content")
    if message["role"] != "tool" or not content:
        return message
    first, *media = listed(content)
    response = parse_json(part_text(first))
    if not isinstance(response, dict) or len(response) != 1:
        return message
    name, text = next(iter(response.items()))
    if name not in OUTPUTS or not isinstance(text, str):
        return message
    failed = {"is_error": True} if name == "error" else {}
    return {**message, "content": [{"type": "text", "text": text}, *media] if media else text, **failed}


# Turns


def _turn(turn: Sequence[Message], names: Mapping[str, str], own: bool) -> Object:
    if turn[0]["role"] == "assistant":
        return {"role": "model", "parts": _answer(turn[0], own)}
    parts: list[Object] = []
    for message in turn:
        if message["role"] == "tool":
            parts.append(_result(message, names, own))
        else:
            parts += [_part(part, own) for part in _parts_of(message)]
    return {"role": "user", "parts": parts}


def _parts_of(message: Message) -> list[Object]:
    """Returns the parts of a message that may be sent; an empty message is an empty text."""
    parts = [part for part in listed(message.get("content")) if conversion.is_sendable(part)]
    return parts or [{"type": "text", "text": ""}]


def _answer(message: Message, own: bool) -> list[Object]:
    parts = [
        _part(part, own) if conversion.is_sendable(part) else None for part in listed(message.get("content"))
    ]
    calls = [(each, _call(each, own)) for each in message.get("tool_calls") or ()]
    return conversion.interleave_calls(parts, calls) or [{"text": ""}]


def _call(each: Mapping[str, Any], own: bool) -> Object:
    if each.get("type") == "custom":
        raise conversion.no_counterpart("custom", GEMINI)
    function = each["function"]
    made: Object = {"name": function["name"], "args": arguments_object(function.get("arguments"))}
    identity = find_given_id(each["id"])
    if identity is not None:
        made["id"] = identity
    more = without(each, "id", "type", "function", "position", "functionCall") if own else {}
    return _add_members({"functionCall": {**made, **(each.get("functionCall") or {} if own else {})}}, more)


def _result(message: Message, names: Mapping[str, str], own: bool) -> Object:
    identity = message["tool_call_id"]
    parts = [part for part in listed(message.get("content")) if conversion.is_sendable(part)]
    text = "\n".join(part_text(part) for part in parts if _is_text(part))
    media = [_part(part, own) for part in parts if not _is_text(part)]
    value = parse_json(text) if own else None
    wrapped = {OUTPUTS[bool(message.get("is_error"))]: text}
    answer: Object = {
        "name": message.get("name") or names.get(identity) or identity,
        "response": value if isinstance(value, dict) else wrapped,
    }
    if find_given_id(identity) is not None:
        answer["id"] = identity
    if media:
        answer["parts"] = media
    taken = ("role", "tool_call_id", "name", "content", "functionResponse", "is_error", APART)
    more = without(message, *taken) if own else {}
    return _add_members(
        {"functionResponse": {**answer, **(message.get("functionResponse") or {} if own else {})}}, more
    )


def _is_text(part: Object) -> bool:
    return part.get("type") == "text" or bool(part_text(part))


def _add_members(block: Object, more: Object) -> Object:
    """Returns a block with the other members of its part; the signature has its own name again."""
    if "signature" in more:
        more = {**without(more, "signature"), "thoughtSignature": more["signature"]}
    return {**block, **more}


# Parts


def _part(part: Object, own: bool) -> Object:
    kind = str(part.get("type"))
    writer = _PARTS.get(kind)
    if writer is not None:
        block = writer(part)
        more = without(part, "type", kind, "text", "title", "mimeType", "displayName") if own else {}
        return _add_members(block, more)
    if own and kind in CODES:
        name, member = CODES[kind]
        code = part.get(name) or {}
        changed = {} if (code.get(member) or "") == part["text"] else {member: part["text"]}
        return _add_members({name: {**code, **changed}}, without(part, "type", "text", name))
    if own and kind.partition(".")[0] == OWN:
        return without(part, "type")
    raise conversion.no_counterpart(kind, GEMINI)


def _text(part: Object) -> Object:
    return {"text": part_text(part)}


def _write_thinking(part: Object) -> Object:
    return {"text": part["thinking"], "thought": True}


def _address(part: Object) -> Object:
    kind = part["type"]
    held = part[kind]
    url = held.get("url") or ""
    if not url:
        raise conversion.no_counterpart("a medium by its file id", GEMINI)
    return _medium(part, url, kind.removesuffix("_url"))


def _file(part: Object) -> Object:
    held = part["file"]
    url = held.get("file_data") or held.get("file_url") or ""
    if not url:
        raise conversion.no_counterpart("a file by its id", GEMINI)
    return _medium(part, url, "file")


def _audio(part: Object) -> Object:
    held = part["input_audio"]
    data, form = held.get("data") or "", held.get("format") or "wav"
    if "mimeType" in part:
        return _medium(part, data, "audio")
    return {"inlineData": {"mimeType": f"audio/{form}", "data": data}}


def _medium(part: Object, url: str, kind: str) -> Object:
    name = {"displayName": part["displayName"]} if part.get("displayName") is not None else {}
    data = split_data_url(url)
    if data is not None and "mimeType" not in part:
        return {"inlineData": {"mimeType": data[0], "data": data[1], **name}}
    if "mimeType" in part:
        mime = {"mimeType": part["mimeType"]} if part["mimeType"] else {}
        return {"fileData": {**mime, "fileUri": url, **name}}
    guessed, _ = mimetypes.guess_type(url.partition("?")[0])
    if guessed is None or (kind != "file" and guessed.partition("/")[0] != kind):
        raise conversion.no_counterpart(
            f"a part of type {kind} with a URL that does not show its media type", GEMINI
        )
    return {"fileData": {"mimeType": guessed, "fileUri": url}}


_PARTS: Mapping[str, Callable[[Object], Object]] = {
    "text": _text,
    "document": _text,
    "refusal": _text,
    "thinking": _write_thinking,
    "image_url": _address,
    "video_url": _address,
    "input_audio": _audio,
    "file": _file,
}


# Tools and configurations


def _write_tools(tools: Sequence[Tool], own: bool) -> list[Object]:
    """Returns the tools in their order; functions that follow each other are in one list."""
    written: list[Object] = []
    for tool in tools:
        kind = str(tool.get("type"))
        if kind == "function":
            if not written or DECLARED not in written[-1]:
                written.append({DECLARED: []})
            written[-1][DECLARED].append(_declaration(tool, own))
        elif own and kind in tool:
            written.append({kind: tool[kind]})
        else:
            raise conversion.no_counterpart(kind, GEMINI)
    return written


def _declaration(tool: Tool, own: bool) -> Object:
    function = tool["function"]
    declared: Object = {"name": function["name"], **conversion.some(function, "description")}
    if function.get("parameters") is not None:
        declared["parameters" if own else "parametersJsonSchema"] = function["parameters"]
    return {**declared, **(without(tool, "type", "function") if own else {})}


def _put_choice(request: Request, body: Object) -> None:
    """Writes the tool choice, unless the configuration states it already."""
    config = _find_member(body, TOOL_CONFIGS)
    choice = request.tool_choice
    if read_choice(config) == choice:
        return
    more = without(config.optional_object() or {}, *CALLINGS)
    if choice is not None and (request.tools or conversion.is_read_from(request, GEMINI)):
        more[CALLINGS[0]] = _write_choice(choice)
    _put(body, config.path, more)


def _write_choice(choice: Any) -> Object:
    name = read_chosen_name(choice)
    if name is not None:
        return {"mode": "ANY", "allowedFunctionNames": [name]}
    if not isinstance(choice, str) or choice not in MODES:
        raise conversion.no_counterpart(f"tool_choice {choice}", GEMINI)
    return {"mode": MODES[choice]}


def _put_format(request: Request, body: Object) -> None:
    """Writes the response format, unless the configuration states it already."""
    config = _find_member(body, CONFIGS)
    wanted = request.response_format
    if read_format(config) == wanted:
        return
    more = without(config.optional_object() or {}, *SCHEMAS, *MIMES)
    kind = None if wanted is None else wanted.get("type")
    if kind in ("json_schema", "json_object"):
        more[MIMES[0]] = "application/json"
    if wanted is not None and kind == "json_schema":
        more[SCHEMAS[0]] = wanted["json_schema"].get("schema")
    _put(body, config.path, more)


def _find_member(body: Object, names: Sequence[str]) -> BodyField:
    return BodyField(body, GEMINI).get(*names)


def _put(body: Object, name: str, config: Object) -> None:
    body.pop(name, None)
    if config:
        body[name] = config
