"""Writes requests for Anthropic's messages API, and patches a body that was fitted.

Results and the user's words after them become one turn. System messages of another API go into `system`, from
any position. Anthropic's own late system messages stay at their positions.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from ullage.messages import SYSTEM_ROLES
from ullage.wire import conversion
from ullage.wire.anthropic_reader import source_text
from ullage.wire.calls import arguments_object, read_chosen_name
from ullage.wire.fields import BodyField, Object, without
from ullage.wire.original import patch_content
from ullage.wire.parts import listed, split_data_url
from ullage.wire.turns import APART

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.wire.fields import Object
    from ullage.wire.original import Kept
    from ullage.wire.request import Request

CHOICES = {"auto": "auto", "required": "any", "any": "any", "none": "none"}


def write(request: Request) -> Object:
    """Returns a Request as a body of the messages API."""
    own = conversion.is_own(request, "anthropic.messages")
    system, turns = _split_system(request.messages, keep_late=own and request.api is not None)
    body = conversion.options(request, "anthropic.messages")
    if request.model is not None:
        body["model"] = request.model
    if system:
        body["system"] = _system_content(system)
    body["messages"] = list(_turns(turns, own))
    if request.tools:
        body["tools"] = [_write_tool(tool, own) for tool in request.tools]
    _put_choice(request.tool_choice, body, bool(own or request.tools))
    _put_format(request.response_format, body, own)
    return body


def _split_system(messages: Sequence[Message], *, keep_late: bool) -> tuple[list[Message], list[Message]]:
    """Splits messages into those for `system` and the turns. Anthropic's late system messages are turns."""
    if keep_late:
        head: Message = messages[0] if messages else {}
        first = int(head.get("role") in SYSTEM_ROLES and bool(head.get("content")) and len(head) == 2)
        return list(messages[:first]), list(messages[first:])
    system = [message for message in messages if message["role"] in SYSTEM_ROLES]
    return system, [message for message in messages if message["role"] not in SYSTEM_ROLES]


def _system_content(system: list[Message]) -> Any:
    if len(system) == 1 and isinstance(system[0].get("content"), str):
        return system[0]["content"]
    return [_block(part, own=True) for message in system for part in listed(message.get("content"))]


def _turns(messages: Sequence[Message], own: bool) -> Iterator[Object]:
    results: list[Object] = []
    for message in messages:
        role = message["role"]
        if results and message.get(APART):
            yield {"role": "user", "content": results}
            results = []
        if role == "tool":
            results.append(_result_block(message, own))
            continue
        if results and role == "user" and _joins(message, own):
            yield _user_turn(results, message, own)
            results = []
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        yield write_turn(message, own)
    if results:
        yield {"role": "user", "content": results}


def _joins(message: Message, own: bool) -> bool:
    """Returns True if a user message joins the turn of the results before it; an own string does not."""
    content = message.get("content")
    return bool(content) and not (own and isinstance(content, str))


def write_turn(message: Message, own: bool) -> Object:
    """Returns a message of the assistant, the user or the system as a turn."""
    return _assistant_turn(message, own) if message["role"] == "assistant" else _plain_turn(message, own)


def _plain_turn(message: Message, own: bool) -> Object:
    role = "system" if message["role"] in SYSTEM_ROLES else "user"
    return {"role": role, "content": _blocks(message.get("content"), own), **_extras(message, own)}


def _user_turn(results: list[Object], message: Message, own: bool) -> Object:
    blocks = [_block(part, own) for part in listed(message.get("content"))]
    return {"role": "user", "content": [*results, *blocks], **_extras(message, own)}


def _blocks(content: Any, own: bool) -> Any:
    """Returns the content of a turn or a result."""
    if content is None:
        return ""
    return content if isinstance(content, str) else [_block(part, own) for part in listed(content)]


def _extras(message: Message, own: bool) -> Object:
    return without(message, "role", "content", "tool_calls", "tool_call_id", APART) if own else {}


def _result_block(message: Message, own: bool) -> Object:
    """Returns a result as a block."""
    more = without(message, "role", "content", "tool_call_id", APART)
    kept = more if own else conversion.some(more, "is_error", "cache_control")
    content = _blocks(message.get("content"), own)
    return {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content, **kept}


def _assistant_turn(message: Message, own: bool) -> Object:
    calls = message.get("tool_calls") or ()
    content = message.get("content")
    if not calls and (content is None or isinstance(content, str)):
        return {"role": "assistant", "content": content or "", **_extras(message, own)}
    blocks = conversion.interleave_calls(
        [_block(part, own) if conversion.is_sendable(part) else None for part in listed(content)],
        [(each, _call_block(each, own)) for each in calls],
    )
    return {"role": "assistant", "content": blocks, **_extras(message, own)}


def _call_block(each: Mapping[str, Any], own: bool) -> Object:
    function = each["function"]
    more = without(each, "id", "type", "function", "position")
    return {
        "type": "tool_use",
        "id": each["id"],
        "name": function["name"],
        "input": arguments_object(function.get("arguments")),
        **(more if own else conversion.some(more, "cache_control")),
    }


def _block(part: Any, own: bool) -> Object:
    """Returns a part as a block."""
    kind = part.get("type")
    writer = _BLOCKS.get(kind)
    if writer is not None:
        kept = without(part, "type", "text", "image_url", "file")
        return writer(part, kept if own else conversion.some(kept, "cache_control", "title"))
    if own:
        return dict(part)
    raise conversion.no_counterpart(kind, "anthropic.messages")


def _text_block(part: Object, more: Object) -> Object:
    return {"type": "text", "text": part["text"], **more}


def _image_block(part: Object, more: Object) -> Object:
    image = part["image_url"]
    source = more.pop("source", None) or _source(image.get("url"), image.get("file_id"))
    return {"type": "image", "source": source, **more}


def _document_block(part: Object, more: Object) -> Object:
    written = {"type": "text", "media_type": "text/plain", "data": part.get("text", "")}
    given = more.pop("source", None)
    kept = given is not None and source_text(BodyField(given, "anthropic.messages")) == part.get("text")
    source = given if kept else written  # a text that was shortened since it was read replaces its blocks
    return {"type": "document", "source": source, **more}


def _file_block(part: Object, more: Object) -> Object:
    file = part["file"]
    address = file.get("file_data") or file.get("file_url")
    source = more.pop("source", None) or _source(address, file.get("file_id"))
    if file.get("filename") is not None:
        more["title"] = file["filename"]
    return {"type": "document", "source": source, **more}


def _source(address: str | None, file_id: str | None) -> Object:
    data = split_data_url(address or "")
    if data is not None:
        return {"type": "base64", "media_type": data[0], "data": data[1]}
    return {"type": "url", "url": address or ""} if file_id is None else {"type": "file", "file_id": file_id}


def _refusal_block(part: Object, more: Object) -> Object:
    return {"type": "text", "text": part["refusal"], **without(more, "refusal")}


_BLOCKS: Mapping[str | None, Callable[[Object, Object], Object]] = {
    "text": _text_block,
    "image_url": _image_block,
    "document": _document_block,
    "file": _file_block,
    "refusal": _refusal_block,
}


def _write_tool(tool: Tool, own: bool) -> Object:
    if tool.get("type") != "function":
        if own:
            return dict(tool)
        raise conversion.no_counterpart(tool.get("type"), "anthropic.messages")
    function = tool["function"]
    more = without(tool, "type", "function")
    written: Object = {"name": function["name"]}
    if function.get("description") is not None:
        written["description"] = function["description"]
    parameters = function.get("parameters")
    if own and parameters is not None:
        written["input_schema"] = parameters
    elif not own:
        written["input_schema"] = parameters or {"type": "object", "properties": {}}
    if own and function.get("strict") is not None:
        written["strict"] = function["strict"]
    kept = more if own else conversion.some(more, "cache_control")
    return {**written, **kept}


def _put_choice(choice: Any, body: Object, allowed: bool) -> None:
    left = body.pop("tool_choice", {})
    if not allowed or (choice is None and not left):
        return
    name = read_chosen_name(choice)
    kind = {"type": CHOICES.get(str(choice), "auto")} if name is None else {"type": "tool", "name": name}
    body["tool_choice"] = {**kind, **left}


def _put_format(response_format: Mapping[str, Any] | None, body: Object, own: bool) -> None:
    older = body.pop("output_format", None) is not None
    if response_format is None or response_format.get("type") != "json_schema":
        return
    described = response_format["json_schema"]
    more = without(described, "schema") if own else {}
    written = {"type": "json_schema", **more, "schema": described.get("schema")}
    if older:
        body["output_format"] = written
    else:
        body["output_config"] = {**body.get("output_config", {}), "format": written}


THINKING = frozenset({"thinking", "redacted_thinking"})


def patch(body: Object, kept: Sequence[Kept]) -> Object:
    """Returns a body with other messages; turns that did not change are the given objects."""
    made = dict(body)
    for each in kept:
        if each.origin is None or (not each.origin.items and not each.is_same):
            made["system"] = patch_content(each, body.get("system"))
    placed = [each for each in kept if each.origin is not None and each.origin.items]
    groups = groupby(placed, key=_turn_number)
    turns = [_patch_turn(body["messages"][number], list(group)) for number, group in groups]
    made["messages"] = list(_without_old_thinking(turns))
    return made


def _turn_number(kept: Kept) -> int:
    return kept.origin.items[0] if kept.origin is not None else -1


def _patch_turn(turn: Mapping[str, Any], group: Sequence[Kept]) -> Any:
    """Returns a turn with the messages that are kept of it; the given object if all are, unchanged."""
    first, content = group[0], turn["content"]
    if first.origin is None or first.origin.blocks is None:
        return turn if first.is_same else _patch_whole_turn(turn, first)
    blocks: list[Any] = []
    for each in group:
        own = [content[index] for index in (each.origin.blocks if each.origin else None) or ()]
        if each.is_same:
            blocks += own
        elif each.message["role"] == "tool":
            blocks.append({**own[0], "content": patch_content(each, own[0].get("content"))})
        else:
            blocks += patch_content(each, own)
    if len(blocks) == len(content) and all(map(_is_same_object, blocks, content)):
        return turn
    return {**turn, "content": blocks}


def _patch_whole_turn(turn: Mapping[str, Any], kept: Kept) -> Object:
    """Returns a whole turn with the changes of its message."""
    if kept.message.get("tool_calls"):
        return write_turn(kept.message, own=True)
    return {**turn, "content": patch_content(kept, turn["content"])}


def _is_same_object(one: object, other: object) -> bool:
    return one is other


def _without_old_thinking(turns: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the turns, without the thinking of turns that were over before the user's last question.

    Newer models bind a thinking block to the exact text before it, which fitting has changed. The API wants
    back only the thinking of the tool loop that is under way.
    """
    asked = max((index for index, turn in enumerate(turns) if _is_question(turn)), default=0)
    for index, turn in enumerate(turns):
        content = turn.get("content")
        if index < asked and turn.get("role") == "assistant" and isinstance(content, list):
            others = [block for block in content if _type_of(block) not in THINKING]
            if others and len(others) < len(content):
                yield {**turn, "content": others}
                continue
        yield turn


def _is_question(turn: Mapping[str, Any]) -> bool:
    """Returns True for a turn of the user that answers no tool call."""
    content = turn.get("content")
    if turn.get("role") != "user":
        return False
    return isinstance(content, str) or all(_type_of(block) != "tool_result" for block in content or ())


def _type_of(block: Any) -> Any:
    return "text" if isinstance(block, str) else block.get("type")
