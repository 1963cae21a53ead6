"""Reads Google's generateContent and countTokens: `gemini` and `gemini.count_tokens`.

The API accepts every name in camelCase and in snake_case. Its calls mostly have no ids, so a result belongs
to a call by name and order. Other members of a part stay in place; its signature is the member `signature`.
The configurations of tools and of the answer stay in `Request.rest`, and writing changes only what differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire import conversion
from ullage.wire.calls import Ids, assistant, call, choose_function, function_tool, schema_format
from ullage.wire.fields import BodyField, Object, without
from ullage.wire.parts import data_url, fold_parts, media_part, text_part
from ullage.wire.request import Request
from ullage.wire.turns import mark_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

TAKEN = ("model", "contents", "tools", "systemInstruction", "system_instruction")
WRAPPERS = ("generateContentRequest", "generate_content_request")
"""Names of the member of countTokens that holds a whole body of generateContent."""

TOOL_CONFIGS = ("toolConfig", "tool_config")
CONFIGS = ("generationConfig", "generation_config")
CALLINGS = ("functionCallingConfig", "function_calling_config")
MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto", "MODE_UNSPECIFIED": None}
SCHEMAS = ("responseJsonSchema", "response_json_schema", "responseSchema", "response_schema")
MIMES = ("responseMimeType", "response_mime_type")
SIGNATURES = ("thoughtSignature", "thought_signature")
OWN = "gemini"
"""Beginning of the type that we give to a part without an equivalent."""

CODES = {
    "executable_code": ("executableCode", "code"),
    "code_execution_result": ("codeExecutionResult", "output"),
}
"""Type that we give to a part of the code tool → its member in camelCase, and the member with its text."""


def read(body: BodyField) -> Request:
    """Reads a body of generateContent or countTokens."""
    inner = body.get(*WRAPPERS)
    if inner.value is not None:
        return read(inner)
    rest = without(body.object(), *TAKEN, *WRAPPERS)
    contents = body.at("contents")
    if contents.value is None:
        raise contents.wrong("the contents are missing")
    ids = Ids()
    messages = [*_system(body.get("systemInstruction", "system_instruction"))]
    messages += mark_turns(_turn(content, ids) for content in _contents(contents))
    model = body.at("model").optional_text()
    return Request(
        model=model and model.removeprefix("models/"),
        messages=tuple(messages),
        tools=tuple(tool for place in body.at("tools").one_or_each() for tool in _tools(place)),
        response_format=read_format(body.get(*CONFIGS)),
        tool_choice=read_choice(body.get(*TOOL_CONFIGS)),
        rest=rest,
        api=body.api,
    )


def _contents(place: BodyField) -> Iterator[BodyField]:
    if isinstance(place.value, str):
        yield BodyField({"role": "user", "parts": [{"text": place.value}]}, place.api, place.path)
    else:
        yield from place.one_or_each()


def _system(place: BodyField) -> Iterator[Object]:
    if isinstance(place.value, str):
        parts = [text_part(place.value)]
    elif place.value is None:
        return
    else:
        parts = [_part(part) for part in place.get("parts").one_or_each()]
    if any(part.get("text") for part in parts):
        yield {"role": "system", "content": fold_parts(parts)}


def _turn(content: BodyField, ids: Ids) -> Iterator[Object]:
    role = content.at("role").optional_text() or "user"
    parts: list[Object] = []
    calls: list[tuple[int, Object]] = []
    results: list[Object] = []
    for part in content.get("parts").one_or_each():
        made, answer = (
            part.get("functionCall", "function_call"),
            part.get("functionResponse", "function_response"),
        )
        if made.value is not None:
            calls.append((len(parts), _call(made, part, ids)))
        elif answer.value is not None:
            results.append(_result(answer, part, ids))
        else:
            parts.append(_part(part))
    if role in ("model", "assistant"):
        made_calls = [conversion.place_call(each, at, len(parts)) for at, each in calls]
        yield {**assistant(parts, made_calls), "content": fold_parts(parts) or (None if calls else "")}
        parts = []
    elif role not in ("user", "function", "tool", "system"):
        raise content.at("role").wrong(f"unknown role {role!r}; use user or model")
    elif calls:
        raise content.at("parts").wrong("only the model can call functions")
    yield from results
    if parts:
        yield {"role": "system" if role == "system" else "user", "content": fold_parts(parts)}


def _call(made: BodyField, part: BodyField, ids: Ids) -> Object:
    name = made.get("name").text()
    args = made.at("args")
    more = _others(part, "functionCall", "function_call", "position")
    beside = without(made.object(), "name", "args", "id")
    if beside:
        more["functionCall"] = beside
    arguments = "{}" if args.value is None else args.json()
    return call(ids.make_id(made.at("id").optional_text(), name), name, arguments, **more)


def _result(answer: BodyField, part: BodyField, ids: Ids) -> Object:
    name = answer.get("name").text()
    response = answer.at("response")
    text = response.value if isinstance(response.value, str) else response.json()
    media = [_part(part) for part in answer.at("parts").one_or_each()]
    more = _others(part, "functionResponse", "function_response", "tool_calls")
    beside = without(answer.object(), "name", "response", "parts", "id")
    if beside:
        more["functionResponse"] = beside
    return {
        **more,
        "role": "tool",
        "tool_call_id": ids.match_result(answer.at("id").optional_text(), name),
        "name": name,
        "content": [text_part(text), *media] if media else text,
    }


def _part(part: BodyField) -> Object:
    if isinstance(part.value, str):
        return text_part(part.value)
    if part.has("text"):
        return _text(part)
    inline, file = part.get("inlineData", "inline_data"), part.get("fileData", "file_data")
    if inline.value is not None:
        mime = inline.get("mimeType", "mime_type").text()
        return {
            **_read_medium_members(inline, part),
            **media_part(mime, data_url(mime, inline.get("data").text())),
        }
    if file.value is not None:
        mime = file.get("mimeType", "mime_type").optional_text() or ""
        media = media_part(mime, file.get("fileUri", "file_uri").text())
        return {**_read_medium_members(file, part), **media, "mimeType": mime}
    for kind, (name, member) in CODES.items():
        code = part.get(name, kind)
        if code.value is not None:
            text = code.get(member).optional_text() or ""
            return {**_others(part, name, kind), name: code.value, "type": kind, "text": text}
    kind = ".".join((OWN, *list(part.object())[:1]))
    return {**part.object(), "type": kind}


def _read_medium_members(data: BodyField, part: BodyField) -> Object:
    """Returns the members beside the data of a medium."""
    more = _others(part, "inlineData", "inline_data", "fileData", "file_data", "mimeType")
    name = data.get("displayName", "display_name").value
    return more if name is None else {**more, "displayName": name}


def _text(part: BodyField) -> Object:
    text = part.get("text").text()
    more = _others(part, "text", "thought")
    if part.at("thought").value is True:
        return {**more, "type": "thinking", "thinking": text}
    return text_part(text, **more)


def _others(part: BodyField, *taken: str) -> Object:
    """Returns the other members of a part, with its signature under one name."""
    more = without(part.object(), *taken, *SIGNATURES)
    signature = part.get(*SIGNATURES).optional_text()
    return more if signature is None else {**more, "signature": signature}


def _tools(place: BodyField) -> Iterator[Object]:
    declared = place.get("functionDeclarations", "function_declarations")
    for each in declared.each():
        parameters = each.get(
            "parameters", "parametersJsonSchema", "parameters_json_schema"
        ).optional_object()
        more = without(
            each.object(),
            "name",
            "description",
            "parameters",
            "parametersJsonSchema",
            "parameters_json_schema",
        )
        yield function_tool(
            each.get("name").text(), each.at("description").optional_text(), parameters, **more
        )
    for name, value in without(place.object(), "functionDeclarations", "function_declarations").items():
        if name in ("function", "custom"):
            raise place.at(name).wrong("unknown type of tool")
        yield {"type": name, name: value}


def read_format(config: BodyField) -> Object | None:
    """Returns the response format of a configuration, or None."""
    if config.value is None:
        return None
    schema = config.get(*SCHEMAS)
    if schema.value is not None:
        schema.object()
        return schema_format(schema.value)
    mime = config.get(*MIMES).optional_text()
    return {"type": "json_object"} if mime == "application/json" else None


def read_choice(config: BodyField) -> Any:
    """Returns the tool choice of a configuration, or None."""
    if config.value is None:
        return None
    calling = config.get(*CALLINGS)
    if calling.value is None:
        return None
    mode = (calling.at("mode").optional_text() or "MODE_UNSPECIFIED").upper()
    if mode not in MODES:
        raise calling.at("mode").wrong(f"unknown mode {mode!r}; use one of {', '.join(MODES)}")
    names = [name.text() for name in calling.get("allowedFunctionNames", "allowed_function_names").each()]
    return choose_function(names[0]) if mode == "ANY" and len(names) == 1 else MODES[mode]
