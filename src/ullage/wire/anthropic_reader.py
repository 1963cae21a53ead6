"""Reads Anthropic's messages API: `anthropic.messages` and `anthropic.count_tokens`.

A user turn with tool results becomes tool messages, followed by a user message with the other parts. Writing
joins them into one turn again. Thinking blocks stay parts of their message, with their signatures. Blocks of
Anthropic's own tools are kept unchanged.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from ullage.wire import conversion
from ullage.wire.calls import assistant, call, choose_function, function_tool, schema_format
from ullage.wire.fields import BodyField, Object, without
from ullage.wire.original import BodyOrigin
from ullage.wire.parts import data_url, image_part, own_block, text_part
from ullage.wire.request import Request
from ullage.wire.turns import APART, mark_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

THINKS = frozenset({"enabled", "adaptive"})
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read(body: BodyField) -> Request:
    """Reads a body of the messages API."""
    rest = body.object()
    system, turns, tools = body.at("system"), body.at("messages"), body.at("tools")
    if turns.value is None:
        raise turns.wrong("the messages are missing")
    messages = [*_system(system), *mark_turns(_by_turn(turns))]
    return Request(
        model=body.at("model").optional_text(),
        messages=tuple(messages),
        tools=tuple(_tool(tool) for tool in tools.each()),
        response_format=_take_format(body, rest),
        tool_choice=_take_choice(body.at("tool_choice"), rest),
        thinking=thinks(rest.get("thinking")),
        rest=without(rest, "model", "system", "messages", "tools"),
        api=body.api,
    )


def thinks(asked: Any) -> bool:
    """Returns True if the body's `thinking` asks the model to think."""
    kind = asked.get("type") if isinstance(asked, dict) else None
    return isinstance(kind, str) and kind in THINKS


def _system(place: BodyField) -> Iterator[Object]:
    if place.value is None or place.value in ("", []):
        return
    yield {"role": "system", "content": _content(place)}


def _by_turn(turns: BodyField) -> Iterator[list[Object]]:
    for _, group in groupby(read_turns(turns), key=lambda read: read[1].items):
        yield [message for message, _ in group]


def read_turns(turns: BodyField, start: int = 0) -> Iterator[tuple[Object, BodyOrigin]]:
    """Reads the turns from `start` on into messages."""
    for index, turn in enumerate(turns.each(start), start):
        role = turn.get("role").text()
        content = turn.get("content")
        more = without(turn.object(), "role", "content", "tool_calls", "tool_call_id", APART)
        if role == "assistant":
            yield _assistant(content, more), BodyOrigin((index,))
        elif role in ("user", "system"):
            for message, blocks in _user(role, content, more):
                # Clients put reminders beside results and after them. They belong to the step.
                beside = blocks is not None and message["role"] == "user"
                yield (
                    message,
                    BodyOrigin((index,), blocks, joins=beside or (role == "system" and index > 0)),
                )
        else:
            raise turn.at("role").wrong(f"unknown role {role!r}; use user or assistant")


def _user(role: str, content: BodyField, more: Object) -> Iterator[tuple[Object, tuple[int, ...] | None]]:
    """Yields the messages of a user's turn, each with the positions of its blocks; None means all of them."""
    blocks = [] if isinstance(content.value, str) else list(content.each())
    results = [index for index, block in enumerate(blocks) if _is_result(block)]
    if not results:
        yield {"role": role, "content": _content(content), **more}, None
        return
    for index in results:
        block = blocks[index]
        result = {
            **without(block.object(), "type", "tool_use_id", "tool_calls", APART),
            "role": "tool",
            "tool_call_id": block.get("tool_use_id").text(),
            "content": "" if block.at("content").value is None else _content(block.at("content")),
        }
        yield result, (index,)
    others = [index for index in range(len(blocks)) if index not in results]
    if others:
        yield {"role": role, "content": [_part(blocks[index]) for index in others], **more}, tuple(others)


def _is_result(block: BodyField) -> bool:
    return bool(block.get("type").value == "tool_result")


def _assistant(content: BodyField, more: Object) -> Object:
    if isinstance(content.value, str):
        return {"role": "assistant", "content": content.value, **more}
    parts: list[Object] = []
    calls: list[tuple[int, Object]] = []
    for block in content.each():
        if block.get("type").value == "tool_use":
            calls.append((len(parts), _call(block)))
        else:
            parts.append(_part(block))
    return assistant(parts, [conversion.place_call(each, at, len(parts)) for at, each in calls], **more)


def _call(block: BodyField) -> Object:
    given = block.get("input")
    if given.value is not None:
        given.object()
    return call(
        block.get("id").text(),
        block.get("name").text(),
        "{}" if given.value is None else given.json(),
        **without(block.object(), "type", "id", "name", "input", "position"),
    )


def _content(place: BodyField) -> Any:
    if isinstance(place.value, str):
        return place.value
    if place.value is None:
        raise place.wrong("content is missing")
    return [_part(block) for block in place.each()]


def _part(block: BodyField) -> Object:
    if isinstance(block.value, str):
        return text_part(block.value)
    kind = block.get("type").text()
    reader = _PARTS.get(kind)
    if reader is None:
        return own_block(block)
    return reader(block, without(block.object(), "type", "text", "source", "image_url", "file"))


def _text(block: BodyField, more: Object) -> Object:
    return text_part(block.get("text").text(), **more)


def _image(block: BodyField, more: Object) -> Object:
    source = block.get("source")
    kind = source.get("type").text()
    if kind == "base64":
        return image_part(data_url(source.get("media_type").text(), source.get("data").text()), **more)
    if kind == "url":
        return image_part(source.get("url").text(), **more)
    return {"type": "image_url", "image_url": {"url": ""}, **more, "source": source.value}


def _document(block: BodyField, more: Object) -> Object:
    block.at("title").optional_text()
    source = block.get("source")
    kind = source.get("type").text()
    if kind == "text":
        return {"type": "document", "text": source.get("data").text(), **more}
    if kind == "content":
        return {"type": "document", "text": source_text(source), **more, "source": source.value}
    if kind == "base64":
        file: Object = {"file_data": data_url(source.get("media_type").text(), source.get("data").text())}
    elif kind == "url":
        file = {"file_url": source.get("url").text()}
    else:
        file, more["source"] = {}, source.value
    if "title" in more:
        file["filename"] = more.pop("title")
    return {"type": "file", "file": file, **more}


def source_text(source: BodyField) -> str:
    """Returns the text of a document that consists of blocks."""
    blocks = source.get("content")
    if isinstance(blocks.value, str):
        return blocks.value
    return "\n".join(each.at("text").optional_text() or "" for each in blocks.each())


_PARTS: Mapping[str, Callable[[BodyField, Object], Object]] = {
    "text": _text,
    "image": _image,
    "document": _document,
}


def _tool(tool: BodyField) -> Object:
    kind = tool.get("type").optional_text()
    if kind == "function":
        raise tool.at("type").wrong("unknown type of tool 'function'; leave out the type of your own tools")
    if kind not in (None, "custom"):
        return tool.object()
    strict = tool.at("strict").value
    read_tool = function_tool(
        tool.get("name").text(),
        tool.at("description").optional_text(),
        tool.at("input_schema").optional_object(),
        **without(tool.object(), "type", "name", "description", "input_schema", "strict"),
    )
    if strict is not None:
        read_tool["function"]["strict"] = strict
    return read_tool


def _take_choice(place: BodyField, rest: Object) -> Any:
    rest.pop("tool_choice", None)
    if place.value is None:
        return None
    kind = place.get("type").text()
    more = without(place.object(), "type", "name")
    if more:
        rest["tool_choice"] = more
    if kind == "tool":
        return choose_function(place.get("name").text())
    if kind not in CHOICES:
        raise place.at("type").wrong(f"unknown tool choice {kind!r}; use auto, any, tool or none")
    return CHOICES[kind]


def _take_format(body: BodyField, rest: Object) -> Object | None:
    """Removes the schema from `output_config.format` or the older `output_format`, and returns it."""
    for place, holder in (
        (body.at("output_config").at("format"), "output_config"),
        (body.at("output_format"), ""),
    ):
        if place.value is None:
            continue
        schema = place.get("schema").value
        if holder:
            rest[holder] = without(rest[holder], "format")
        else:
            rest["output_format"] = {}
        return schema_format(schema, **without(place.object(), "type", "schema"))
    return None
