"""Reads Amazon Bedrock's Converse API, `bedrock.converse`.

A block is an object with one member that says what it is. A cache point is a member of the part, call, result
or tool before it, because it costs nothing. The members of a medium beside its data are the member `bedrock`
of its part. Other blocks stay in their parts under their own names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire import anthropic_reader, conversion
from ullage.wire.calls import assistant, call, choose_function, function_tool, schema_format
from ullage.wire.fields import BodyField, Object, parse_json, without
from ullage.wire.parts import NAMED, base64_text, data_url, fold_parts, media_part, text_part
from ullage.wire.request import Request
from ullage.wire.turns import mark_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TAKEN = ("model", "modelId", "system", "messages", "toolConfig", "outputConfig")
CACHE = "cachePoint"
BESIDE = "bedrock"
"""Member of a part with the members of its medium beside the data, and beginning of the type that we give to
a block without an equivalent."""
CHOICES = {"auto": "auto", "any": "required"}
THINKERS = ("thinking", "reasoning_config", "reasoningConfig")


def read(body: BodyField) -> Request:
    """Reads a body of the converse API."""
    rest = without(body.object(), *TAKEN)
    more = without(body.at("outputConfig").optional_object() or {}, "textFormat")
    if more:
        rest["outputConfig"] = more
    turns = body.at("messages")
    if turns.value is None:
        raise turns.wrong("the messages are missing")
    messages = [*_system(body.at("system")), *mark_turns(_turn(turn) for turn in turns.each())]
    config = body.at("toolConfig")
    return Request(
        model=body.get("model", "modelId").optional_text(),
        messages=tuple(messages),
        tools=tuple(_tools(config.at("tools"))),
        response_format=_format(body.at("outputConfig").at("textFormat")),
        tool_choice=_choice(config.at("toolChoice")),
        thinking=_thinks(body.at("additionalModelRequestFields")),
        rest=rest,
        api=body.api,
    )


def _system(place: BodyField) -> Iterator[Object]:
    if isinstance(place.value, str):
        parts = [text_part(place.value)] if place.value else []
    else:
        parts = _parts(place)
    if parts:
        yield {"role": "system", "content": fold_parts(parts)}


def _turn(turn: BodyField) -> Iterator[Object]:
    role = turn.get("role").text()
    parts: list[Object] = []
    calls: list[tuple[int, Object]] = []
    results: list[Object] = []
    last: Object | None = None
    for block in _blocks(turn.get("content")):
        if block.has(CACHE):
            _mark(last, block)
        elif block.has("toolUse"):
            last = _call(block.at("toolUse"))
            calls.append((len(parts), last))
        elif block.has("toolResult"):
            last = _result(block.at("toolResult"))
            results.append(last)
        else:
            last = _part(block)
            parts.append(last)
    yield from results
    if role == "assistant":
        made = [conversion.place_call(each, at, len(parts)) for at, each in calls]
        yield {**assistant(parts, made), "content": fold_parts(parts) or (None if calls else "")}
    elif role not in ("user", "system"):
        raise turn.at("role").wrong(f"unknown role {role!r}; use user or assistant")
    elif calls:
        raise turn.at("content").wrong("only the assistant can call tools")
    elif parts:
        yield {"role": role, "content": fold_parts(parts)}


def _blocks(content: BodyField) -> Iterator[BodyField]:
    if isinstance(content.value, str):
        yield BodyField({"text": content.value}, content.api, content.path)
    else:
        yield from content.each()


def _mark(last: Object | None, block: BodyField) -> None:
    """Adds a cache point to what stands before it."""
    if last is not None:
        last[CACHE] = block.at(CACHE).value


def _call(used: BodyField) -> Object:
    given = used.at("input")
    arguments = "{}" if given.value is None else given.json()
    more = without(used.object(), "toolUseId", "name", "input", "position", CACHE)
    if more:
        more = {BESIDE: more}
    return call(used.get("toolUseId").text(), used.get("name").text(), arguments, **more)


def _result(result: BodyField) -> Object:
    parts = _parts(result.get("content"))
    more = without(result.object(), "toolUseId", "content", "status")
    if result.at("status").value == "error":
        failed: Object = {"is_error": True}
    else:
        failed, more = {}, {**more, **conversion.some(result.object(), "status")}
    return {
        "role": "tool",
        "tool_call_id": result.get("toolUseId").text(),
        "content": fold_parts(parts) or "",
        **({BESIDE: more} if more else {}),
        **failed,
    }


def _parts(place: BodyField) -> list[Object]:
    """Returns the parts of blocks."""
    parts: list[Object] = []
    for block in place.each():
        if block.has(CACHE):
            _mark(parts[-1] if parts else None, block)
        else:
            parts.append(_part(block))
    return parts


def _part(block: BodyField) -> Object:
    for name, reader in _READERS.items():
        if block.has(name):
            return reader(block.at(name))
    kind = ".".join((BESIDE, *list(block.object())[:1]))
    return {**block.object(), "type": kind}


def _text(place: BodyField) -> Object:
    return text_part(place.text())


def _json(place: BodyField) -> Object:
    return text_part(place.json(), json=True)


def _read_guarded(place: BodyField) -> Object:
    inner = place.at("text")
    if inner.value is not None:
        return text_part(inner.get("text").text(), guardContent=place.value)
    return {**_media("image")(place.get("image")), "guardContent": place.value}


def _reasoning(place: BodyField) -> Object:
    reasoning = place.at("reasoningText")
    if reasoning.value is None:
        return {"type": "redacted_thinking", "data": base64_text(place.get("redactedContent"))}
    return {
        "type": "thinking",
        "thinking": reasoning.get("text").text(),
        **without(reasoning.object(), "text"),
    }


def join_texts(place: BodyField) -> str:
    """Returns the text of a search result, or of text with citations."""
    return "\n".join(each.at("text").optional_text() or "" for each in place.get("content").each())


def _make_citable_reader(name: str) -> Callable[[BodyField], Object]:
    def read(place: BodyField) -> Object:
        title = place.at("title").optional_text()
        part: Object = {"type": "document", "text": join_texts(place), name: place.value}
        if title is not None:
            part["title"] = title
        citable = place.at("citations").value
        if isinstance(citable, dict):  # a search result states if the model may cite it, which costs tokens
            part["citations"] = citable
        return part

    return read


def _media(head: str) -> Callable[[BodyField], Object]:
    def media(place: BodyField) -> Object:
        form = place.at("format").optional_text() or ""
        mime = NAMED.get(form, f"{head}/{form}")
        source = place.get("source")
        beside = {BESIDE: without(place.object(), "source")}
        if source.has("text", "content"):
            blocks = {"source": source.value} if source.has("content") else {}
            return {"type": "document", "text": inner_text(source), **_title(place), **beside, **blocks}
        if source.has("bytes"):
            url = data_url(mime, base64_text(source.at("bytes")))
        else:
            url = source.get("s3Location").get("uri").text()
            beside["s3Location"] = source.at("s3Location").value
        part = media_part(mime if head == "document" else f"{head}/{form}", url)
        if part["type"] == "file" and place.has("name"):
            part["file"]["filename"] = place.at("name").text()
        return {**part, **beside}

    return media


def _title(place: BodyField) -> Object:
    name = place.at("name").optional_text()
    return {} if name is None else {"title": name}


def inner_text(source: BodyField) -> str:
    """Returns the text of a document that is text or blocks of text."""
    if source.has("text"):
        return source.at("text").text()
    return "\n".join(each.at("text").optional_text() or "" for each in source.at("content").each())


_READERS: Mapping[str, Callable[[BodyField], Object]] = {
    "text": _text,
    "json": _json,
    "image": _media("image"),
    "document": _media("document"),
    "video": _media("video"),
    "audio": _media("audio"),
    "guardContent": _read_guarded,
    "reasoningContent": _reasoning,
    "searchResult": _make_citable_reader("searchResult"),
    "citationsContent": _make_citable_reader("citationsContent"),
}


def _tools(place: BodyField) -> list[Object]:
    tools: list[Object] = []
    for tool in place.each():
        if tool.has(CACHE):
            _mark(tools[-1] if tools else None, tool)
        else:
            tools.append(_tool(tool))
    return tools


def _tool(place: BodyField) -> Object:
    if not place.has("toolSpec"):
        kind = ".".join((BESIDE, *list(place.object())[:1]))
        return {**place.object(), "type": kind}
    spec = place.at("toolSpec")
    given = spec.at("inputSchema").at("json")
    schema = parse_json(given.value) if isinstance(given.value, str) else given.optional_object()
    more = without(spec.object(), "name", "description", "inputSchema", "strict")
    tool = function_tool(
        spec.get("name").text(),
        spec.at("description").optional_text(),
        schema,
        **({BESIDE: more} if more else {}),
    )
    if spec.has("strict"):
        tool["function"]["strict"] = spec.at("strict").value
    return tool


def _choice(place: BodyField) -> Any:
    if place.value is None:
        return None
    if place.has("tool"):
        return choose_function(place.at("tool").get("name").text())
    return next((word for name, word in CHOICES.items() if name in place.object()), None)


def _format(place: BodyField) -> Object | None:
    if place.value is None:
        return None
    described = place.get("structure").get("jsonSchema")
    schema = described.get("schema")
    value = parse_json(schema.value) if isinstance(schema.value, str) else schema.value
    if not isinstance(value, dict):
        raise schema.wrong("must be a JSON schema")
    return schema_format(value, **without(described.object(), "schema"))


def _thinks(fields: BodyField) -> bool:
    return any(anthropic_reader.thinks(fields.at(name).value) for name in THINKERS)
