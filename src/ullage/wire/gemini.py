"""Google's generateContent and countTokens: `gemini` and `gemini.count_tokens`.

The API takes every name in camelCase and in snake_case, and its calls mostly have no ids: results
find their call by name and order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire.calls import Ids, assistant, call, function_tool, named_function, schema_format
from ullage.wire.fields import Object, Place, without
from ullage.wire.parts import data_url, folded, media_part, text_part
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

TAKEN = (
    "model", "contents", "tools", "systemInstruction", "system_instruction", "toolConfig", "tool_config",
    "generateContentRequest", "generate_content_request",
)  # fmt: skip
MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto", "MODE_UNSPECIFIED": None}
SCHEMAS = ("responseSchema", "response_schema", "responseJsonSchema", "response_json_schema")


def read(body: Place) -> Request:
    """A body of generateContent or countTokens as a Request."""
    inner = body.get("generateContentRequest", "generate_content_request")
    if inner.value is not None:
        return read(inner)
    rest = without(body.object(), *TAKEN)
    contents = body.at("contents")
    if contents.value is None:
        raise contents.wrong("the contents are missing")
    ids = Ids()
    messages = [*_system(body.get("systemInstruction", "system_instruction"))]
    for content in _contents(contents):
        messages += _turn(content, ids)
    model = body.at("model").optional_text()
    return Request(
        model=model and model.removeprefix("models/"),
        messages=tuple(messages),
        tools=tuple(tool for place in body.at("tools").one_or_each() for tool in _tools(place)),
        response_format=_format(body.get("generationConfig", "generation_config")),
        tool_choice=_choice(body.get("toolConfig", "tool_config")),
        rest=rest,
        api=body.api,
    )


def _contents(place: Place) -> Iterator[Place]:
    if isinstance(place.value, str):
        yield Place({"role": "user", "parts": [{"text": place.value}]}, place.api, place.path)
    else:
        yield from place.one_or_each()


def _system(place: Place) -> Iterator[Object]:
    if isinstance(place.value, str):
        parts = [text_part(place.value)]
    elif place.value is None:
        return
    else:
        parts = [_part(part) for part in place.get("parts").one_or_each()]
    if any(part.get("text") for part in parts):
        yield {"role": "system", "content": folded(parts)}


def _turn(content: Place, ids: Ids) -> Iterator[Object]:
    role = content.at("role").optional_text() or "user"
    parts: list[Object] = []
    calls: list[Object] = []
    results: list[Object] = []
    for part in content.get("parts").one_or_each():
        made, answer = (
            part.get("functionCall", "function_call"),
            part.get("functionResponse", "function_response"),
        )
        if made.value is not None:
            calls.append(_call(made, part, ids))
        elif answer.value is not None:
            results.append(_result(answer, ids))
        else:
            parts.append(_part(part))
    if role in ("model", "assistant"):
        yield {**assistant(parts, calls), "content": folded(parts) or (None if calls else "")}
        parts = []
    elif role not in ("user", "function", "tool", "system"):
        raise content.at("role").wrong(f"unknown role {role!r}; user or model")
    elif calls:
        raise content.at("parts").wrong("only the model calls functions")
    yield from results
    if parts:
        yield {"role": "system" if role == "system" else "user", "content": folded(parts)}


def _call(made: Place, part: Place, ids: Ids) -> Object:
    name = made.get("name").text()
    args = made.at("args")
    signature = part.get("thoughtSignature", "thought_signature").optional_text()
    more = {} if signature is None else {"signature": signature}
    arguments = "{}" if args.value is None else args.json()
    return call(ids.made(made.at("id").optional_text(), name), name, arguments, **more)


def _result(answer: Place, ids: Ids) -> Object:
    name = answer.get("name").text()
    identity = ids.answered(answer.at("id").optional_text(), name)
    response = answer.at("response")
    text = response.value if isinstance(response.value, str) else response.json()
    media = [_part(part) for part in answer.at("parts").one_or_each()]
    content: Any = [text_part(text), *media] if media else text
    return {"role": "tool", "tool_call_id": identity, "name": name, "content": content}


def _part(part: Place) -> Object:
    if isinstance(part.value, str):
        return text_part(part.value)
    if part.has("text"):
        return _text(part)
    inline, file = part.get("inlineData", "inline_data"), part.get("fileData", "file_data")
    if inline.value is not None:
        mime = inline.get("mimeType", "mime_type").text()
        return media_part(mime, data_url(mime, inline.get("data").text()))
    if file.value is not None:
        mime = file.get("mimeType", "mime_type").optional_text() or ""
        return media_part(mime, file.get("fileUri", "file_uri").text())
    code = part.get("executableCode", "executable_code", "codeExecutionResult", "code_execution_result")
    if code.value is not None:
        return text_part(code.get("code", "output").optional_text() or "")
    return {**part.object(), "type": "gemini"}


def _text(part: Place) -> Object:
    text = part.get("text").text()
    signature = part.get("thoughtSignature", "thought_signature").optional_text()
    more = {} if signature is None else {"signature": signature}
    if part.at("thought").value is True:
        return {"type": "thinking", "thinking": text, **more}
    return text_part(text, **more)


def _tools(place: Place) -> Iterator[Object]:
    declared = place.get("functionDeclarations", "function_declarations")
    for each in declared.each():
        parameters = each.get(
            "parameters", "parametersJsonSchema", "parameters_json_schema"
        ).optional_object()
        yield function_tool(each.get("name").text(), each.at("description").optional_text(), parameters)
    for name, value in without(place.object(), "functionDeclarations", "function_declarations").items():
        if name in ("function", "custom"):
            raise place.at(name).wrong("unknown kind of tool")
        yield {"type": name, name: value}


def _format(config: Place) -> Object | None:
    if config.value is None:
        return None
    schema = config.get(*SCHEMAS)
    if schema.value is not None:
        schema.object()
        return schema_format(schema.value)
    mime = config.get("responseMimeType", "response_mime_type").optional_text()
    return {"type": "json_object"} if mime == "application/json" else None


def _choice(config: Place) -> Any:
    if config.value is None:
        return None
    calling = config.get("functionCallingConfig", "function_calling_config")
    if calling.value is None:
        return None
    mode = (calling.at("mode").optional_text() or "MODE_UNSPECIFIED").upper()
    if mode not in MODES:
        raise calling.at("mode").wrong(f"unknown mode {mode!r}; one of {', '.join(MODES)}")
    names = [name.text() for name in calling.get("allowedFunctionNames", "allowed_function_names").each()]
    return named_function(names[0]) if mode == "ANY" and len(names) == 1 else MODES[mode]
