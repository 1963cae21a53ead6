"""Amazon Bedrock: `bedrock.converse`, and `bedrock.invoke` with the body of whatever model it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire import anthropic, cohere, openai_chat
from ullage.wire.calls import assistant, call, function_tool, named_function, schema_format
from ullage.wire.fields import Object, Place, is_list, parsed, without
from ullage.wire.parts import NAMED, base64_text, data_url, folded, media_part, text_part
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TAKEN = ("model", "modelId", "system", "messages", "toolConfig", "outputConfig")
PROMPTS = ("prompt", "inputText", "inputs")
"""Where the models that take one text have it: Llama, Mistral and Claude 2; Titan; others."""

CHOICES = {"auto": "auto", "any": "required"}
THINKERS = ("thinking", "reasoning_config", "reasoningConfig")


def read(body: Place) -> Request:
    """A body of the converse API as a Request."""
    rest = without(body.object(), *TAKEN)
    turns = body.at("messages")
    if turns.value is None:
        raise turns.wrong("the messages are missing")
    messages = [*_system(body.at("system")), *(message for turn in turns.each() for message in _turn(turn))]
    config = body.at("toolConfig")
    return Request(
        model=body.get("model", "modelId").optional_text(),
        messages=tuple(messages),
        tools=tuple(tool for place in config.at("tools").each() for tool in _tool(place)),
        response_format=_format(body.at("outputConfig").at("textFormat")),
        tool_choice=_choice(config.at("toolChoice")),
        thinking=_thinks(body.at("additionalModelRequestFields")),
        rest=rest,
        api=body.api,
    )


def read_invoke(body: Place) -> Request:
    """A body of the invoke API as a Request: its shape tells whose model it is for."""
    prompt = body.get(*PROMPTS)
    if prompt.value is not None and not body.has("messages"):
        model = body.get("model", "modelId").optional_text()
        message = {"role": "user", "content": prompt.text()}
        rest = without(body.object(), "model", "modelId", *PROMPTS)
        return Request(model=model, messages=(message,), rest=rest, raw=True, api=body.api)
    if body.has("message"):
        return cohere.read_v1(body)
    if not body.has("messages"):
        raise body.wrong(f"neither messages nor a prompt ({', '.join(PROMPTS)})")
    if body.has("anthropic_version"):
        return anthropic.read(body)
    return read(body) if _is_converse(body) else openai_chat.read(body)


def _is_converse(body: Place) -> bool:
    """Whether the messages are Nova's: blocks without a type, or the options of converse."""
    if body.has("inferenceConfig", "toolConfig", "schemaVersion"):
        return True
    contents = [message.at("content").value for message in body.at("messages").each()]
    blocks = [block for content in contents if is_list(content) for block in content]
    return bool(blocks) and all(isinstance(block, dict) and "type" not in block for block in blocks)


def _system(place: Place) -> Iterator[Object]:
    if isinstance(place.value, str):
        parts = [text_part(place.value)] if place.value else []
    else:
        parts = [part for block in place.each() for part in _parts(block)]
    if parts:
        yield {"role": "system", "content": folded(parts)}


def _turn(turn: Place) -> Iterator[Object]:
    role = turn.get("role").text()
    parts: list[Object] = []
    calls: list[Object] = []
    content = turn.get("content")
    blocks = (
        [Place({"text": content.value}, turn.api, content.path)] if isinstance(content.value, str) else None
    )
    for block in blocks or content.each():
        if block.has("toolUse"):
            calls.append(_call(block.at("toolUse")))
        elif block.has("toolResult"):
            yield _result(block.at("toolResult"))
        else:
            parts += _parts(block)
    if role == "assistant":
        yield {**assistant(parts, calls), "content": folded(parts) or (None if calls else "")}
    elif role not in ("user", "system"):
        raise turn.at("role").wrong(f"unknown role {role!r}; user or assistant")
    elif calls:
        raise turn.at("content").wrong("only the assistant calls tools")
    elif parts:
        yield {"role": role, "content": folded(parts)}


def _call(used: Place) -> Object:
    given = used.at("input")
    arguments = "{}" if given.value is None else given.json()
    return call(used.get("toolUseId").text(), used.get("name").text(), arguments)


def _result(result: Place) -> Object:
    parts = [part for block in result.get("content").each() for part in _parts(block)]
    more = {"is_error": True} if result.at("status").value == "error" else {}
    return {
        "role": "tool",
        "tool_call_id": result.get("toolUseId").text(),
        "content": folded(parts) or "",
        **more,
    }


def _parts(block: Place) -> Iterator[Object]:
    """The parts of a block: none for a cache point, which is free of charge."""
    if block.has("cachePoint"):
        return
    for name, reader in _BLOCKS.items():
        if block.has(name):
            yield reader(block.at(name))
            return
    yield {**block.object(), "type": "bedrock"}


def _text(place: Place) -> Object:
    return text_part(place.text())


def _json(place: Place) -> Object:
    return text_part(place.json())


def _guarded(place: Place) -> Object:
    inner = place.at("text")
    return (
        text_part(inner.get("text").text())
        if inner.value is not None
        else _media("image")(place.get("image"))
    )


def _reasoning(place: Place) -> Object:
    told = place.at("reasoningText")
    if told.value is None:
        return {"type": "redacted_thinking", "data": base64_text(place.get("redactedContent"))}
    return {"type": "thinking", "thinking": told.get("text").text(), **without(told.object(), "text")}


def _joined(place: Place) -> Object:
    """A search result, or text with its citations."""
    texts = [each.at("text").optional_text() or "" for each in place.get("content").each()]
    title = place.at("title").optional_text()
    return {"type": "document", "text": "\n".join(texts), **({} if title is None else {"title": title})}


def _media(head: str) -> Callable[[Place], Object]:
    def media(place: Place) -> Object:
        form = place.at("format").optional_text() or ""
        mime = NAMED.get(form, f"{head}/{form}")
        source = place.get("source")
        if source.has("text", "content"):
            return {"type": "document", "text": _inner_text(source), **_title(place)}
        if source.has("bytes"):
            url = data_url(mime, base64_text(source.at("bytes")))
        else:
            url = source.get("s3Location").get("uri").text()
        part = media_part(f"{head}/x" if head != "document" else mime, url)
        if part["type"] == "file" and place.has("name"):
            part["file"]["filename"] = place.at("name").text()
        return part

    return media


def _title(place: Place) -> Object:
    name = place.at("name").optional_text()
    return {} if name is None else {"title": name}


def _inner_text(source: Place) -> str:
    if source.has("text"):
        return source.at("text").text()
    return "\n".join(each.at("text").optional_text() or "" for each in source.at("content").each())


_BLOCKS: Mapping[str, Callable[[Place], Object]] = {
    "text": _text,
    "json": _json,
    "image": _media("image"),
    "document": _media("document"),
    "video": _media("video"),
    "audio": _media("audio"),
    "guardContent": _guarded,
    "reasoningContent": _reasoning,
    "searchResult": _joined,
    "citationsContent": _joined,
}


def _tool(place: Place) -> Iterator[Object]:
    if place.has("cachePoint"):
        return
    if not place.has("toolSpec"):
        yield {**place.object(), "type": "bedrock"}
        return
    spec = place.at("toolSpec")
    given = spec.at("inputSchema").at("json")
    schema = parsed(given.value) if isinstance(given.value, str) else given.optional_object()
    tool = function_tool(spec.get("name").text(), spec.at("description").optional_text(), schema)
    if spec.has("strict"):
        tool["function"]["strict"] = spec.at("strict").value
    yield tool


def _choice(place: Place) -> Any:
    if place.value is None:
        return None
    if place.has("tool"):
        return named_function(place.at("tool").get("name").text())
    return next((word for name, word in CHOICES.items() if name in place.object()), None)


def _format(place: Place) -> Object | None:
    if place.value is None:
        return None
    described = place.get("structure").get("jsonSchema")
    schema = described.get("schema")
    value = parsed(schema.value) if isinstance(schema.value, str) else schema.value
    if not isinstance(value, dict):
        raise schema.wrong("a JSON schema is expected")
    return schema_format(value, **without(described.object(), "schema"))


def _thinks(fields: Place) -> bool:
    return any(anthropic.thinks(fields.at(name).value) for name in THINKERS)
