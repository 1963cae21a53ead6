"""Writes requests for OpenAI's responses API; an assistant message is split into its items again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.messages import part_text, split_content
from ullage.wire import conversion
from ullage.wire.fields import BodyField, Object, without
from ullage.wire.openai_responses_reader import CONTENT, GIVEN, OWN_PARTS, read_other_content
from ullage.wire.parts import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.wire.original import Kept
    from ullage.wire.request import Request


def write(request: Request) -> Object:
    """Returns a Request as a body of the responses API."""
    own = conversion.is_own(request, "openai.responses")
    body = conversion.options(request, "openai.responses")
    if request.model is not None:
        body["model"] = request.model
    messages = request.messages
    first = messages[0] if messages else {}
    if _is_instructions(first):
        body["instructions"], messages = first["content"], messages[1:]
    body["input"] = [item for message in messages for item in _items(message, own)]
    if request.tools:
        body["tools"] = [_write_tool(tool, own) for tool in request.tools]
    if request.tool_choice is not None:
        body["tool_choice"] = _write_choice(request.tool_choice)
    if request.response_format is not None:
        written = {**request.response_format, **request.response_format.get("json_schema", {})}
        name = {} if own or "json_schema" not in written else {"name": "response"}
        body["text"] = {**body.get("text", {}), "format": {**name, **without(written, "json_schema")}}
    return body


def patch(body: Object, kept: Sequence[Kept]) -> Object:
    """Returns a body with other items; those of messages that did not change are the given objects."""
    made, items = dict(body), []
    for each in kept:
        if each.origin is None or not each.origin.items:
            made["instructions"] = each.message["content"]
        elif each.is_same:
            items += [body["input"][index] for index in each.origin.items]
        elif body["input"][each.origin.items[0]].get("type") == "additional_tools":
            # The digest found no other system message: it becomes one, after the tools.
            items += [body["input"][each.origin.items[0]], _digest_item(each.message["content"])]
        else:
            items += _items(each.message, own=True)
    made["input"] = items
    return made


def _digest_item(content: Any) -> Object:
    return {"role": "developer", "content": split_content(content)[1]}


def _is_instructions(message: Message) -> bool:
    item = message.get("item")
    return (
        isinstance(item, dict) and item.get("type") == "instructions" and isinstance(message["content"], str)
    )


def _items(message: Message, own: bool) -> Iterator[Object]:
    role = message["role"]
    item: Object = dict(message.get("item") or {}) if own else {}
    content = message.get("content")
    if role == "tool":
        yield _write_result(message, item, own)
    elif role == "assistant":
        yield from _write_turn(message, item, own)
    elif item.get("type", "message") != "message" and not _is_instructions(message):
        yield item
    elif (
        role == "user"
        and isinstance(content, list)
        and [p["type"] in GIVEN for p in listed(content)] == [True]
    ):
        yield dict(content[0])
    else:
        if item.get("type") != "message":  # an own item states its type, or leaves it out
            item.pop("type", None)
        yield {"role": role, "content": _write_content(content, role, own), **item}


def _write_result(message: Message, item: Object, own: bool) -> Object:
    if "call_id" in item:
        if message.get("content") == read_other_content(BodyField(item, "openai.responses")):
            return item
        item.pop("tools", None)  # the text was shortened since it was read, so it replaces the list
    output = _write_content(message.get("content"), "tool", own)
    return {"type": "function_call_output", **item, "call_id": message["tool_call_id"], "output": output}


def _write_turn(message: Message, item: Object, own: bool) -> Iterator[Object]:
    content = message.get("content")
    calls = [(each, _write_call(each, own)) for each in message.get("tool_calls") or ()]
    if isinstance(content, str) and (content or own or not calls):
        pieces: list[Object | None] = [{"role": "assistant", "content": content, **item}]
    else:
        pieces = _pieces(listed(content), item, own)
        if not pieces and not calls:
            pieces = [{"role": "assistant", "content": [], **item}]
    yield from (piece for piece in conversion.interleave_calls(pieces, calls))


def _pieces(parts: Sequence[Object], item: Object, own: bool) -> list[Object | None]:
    """Returns the items of a turn, one for each part; parts of its message are joined into one item."""
    pieces: list[Object | None] = []
    said: Object | None = None
    for part in parts:
        if not conversion.is_sendable(part):
            pieces.append(None)
        elif part.get("type") not in OWN_PARTS:
            if not own:
                raise conversion.no_counterpart(part.get("type"), "openai.responses")
            pieces.append(part)
        elif said is None or (own and "item" in part):
            begun = part.get("item", {}) if said is not None else item
            said = {
                "role": "assistant",
                "content": [_write_part(without(part, "item"), "assistant", own)],
                **begun,
            }
            pieces.append(said)
        else:
            said["content"].append(_write_part(part, "assistant", own))
            pieces.append(None)
    return pieces


def _write_call(each: Mapping[str, Any], own: bool) -> Object:
    item: Object = dict(each.get("item") or {}) if own else {}
    function = each["function"]
    if "type" in item:
        return item
    custom = each.get("type") == "custom"
    return {
        "type": "custom_tool_call" if custom else "function_call",
        **item,
        "call_id": each["id"],
        "name": function["name"],
        "input" if custom else "arguments": function.get("arguments") or "",
    }


def _write_content(content: Any, role: str, own: bool) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    return [_write_part(part, role, own) for part in listed(content) if conversion.is_sendable(part)]


def _write_part(part: Object, role: str, own: bool) -> Object:
    kind = part.get("type")
    if kind in ("text", "document"):
        more = without(part, "type", "text") if own else {}
        return {
            "type": "output_text" if role == "assistant" else "input_text",
            "text": part_text(part),
            **more,
        }
    if kind == "image_url":
        image = conversion.some(part["image_url"], "detail", "file_id")
        url = {"image_url": part["image_url"]["url"]} if part["image_url"].get("url") else {}
        return {"type": "input_image", **url, **image, **(without(part, "type", "image_url") if own else {})}
    if kind == "file":
        return {"type": "input_file", **part["file"], **(without(part, "type", "file") if own else {})}
    if own or kind == "refusal":
        return dict(part.get(CONTENT, part))
    raise conversion.no_counterpart(kind, "openai.responses")


def _write_tool(tool: Tool, own: bool) -> Object:
    kind = tool.get("type")
    if kind == "function":
        function = dict(tool["function"])
        function.pop("type", None)
        return {"type": "function", **function, **(without(tool, "type", "function") if own else {})}
    if kind == "custom" and "custom" in tool:
        custom = dict(tool["custom"])
        grammar = custom.get("format")
        if isinstance(grammar, dict) and "grammar" in grammar:
            custom["format"] = {"type": "grammar", **grammar["grammar"]}
        return {"type": "custom", **custom}
    if own:
        return dict(tool)
    raise conversion.no_counterpart(kind, "openai.responses")


def _write_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    for member in ("function", "allowed_tools"):
        if isinstance(choice.get(member), dict):
            return {"type": member, **choice[member]}
    return dict(choice)
