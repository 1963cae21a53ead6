"""Reads OpenAI's responses API: `openai.responses` and `openai.responses.input_tokens`.

Consecutive items of the assistant (reasoning, a message, calls) become one assistant message. Results become
tool messages. Members of an item beyond the chat format are kept in the member `item` of its message or call.
An item of OpenAI's own tools is kept unchanged as a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire import conversion
from ullage.wire.api import HISTORIES
from ullage.wire.calls import call, choose_function, function_tool
from ullage.wire.fields import BodyField, Object, without
from ullage.wire.original import BodyOrigin
from ullage.wire.parts import image_part, own_block, text_part
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TAKEN = ("model", "instructions", "input", "tools", "tool_choice", "text")
ROLES = frozenset({"system", "developer", "user", "assistant"})
CALL_INPUTS = ("arguments", "input", "action", "operation")
"""Names of the input in the items for calls of various tools."""

GIVEN = frozenset({"additional_tools", "mcp_approval_response"})
"""Items from the caller without a role or a call."""

CONTENT = "responses_content"
"""Type that we give to a part of an assistant message without an equivalent."""

OWN_PARTS = frozenset({"text", "image_url", "file", "refusal", "document", "input_audio", CONTENT})
"""Parts of a message. Any other part of an assistant message is an item of its own."""


def read(body: BodyField) -> Request:
    """Reads a body of the responses API."""
    rest = without(body.object(), *TAKEN)
    messages: list[Object] = []
    instructions = body.at("instructions")
    if isinstance(instructions.value, str):
        if instructions.value:
            messages.append(
                {"role": "system", "content": instructions.value, "item": {"type": "instructions"}}
            )
    elif instructions.value is not None:
        messages += [message for message, _ in read_items(instructions)]
    given = body.at("input")
    if isinstance(given.value, str):
        messages.append({"role": "user", "content": given.value})
    else:
        messages += [message for message, _ in read_items(given)]
    return Request(
        model=body.at("model").optional_text(),
        messages=tuple(messages),
        tools=tuple(read_tool(tool) for tool in body.at("tools").each()),
        response_format=_take_format(body.at("text"), rest),
        tool_choice=_choice(body.at("tool_choice")),
        rest=rest,
        api=body.api,
    )


class _Turn:
    """Collects the items of one assistant message."""

    def __init__(self) -> None:
        self.parts: list[Object] = []
        self.calls: list[tuple[int, Object]] = []
        self.item: Object = {}
        self.content: str | None = None
        self.spoken = False

    def message(self) -> Object:
        """Returns the message of the items so far."""
        calls = [conversion.place_call(each, at, len(self.parts)) for at, each in self.calls]
        content: Any = self.parts
        if self.content is not None and len(self.parts) == 1:
            content = self.content
        if calls and not self.parts:
            content = None
        made: Object = {"role": "assistant", "content": content}
        if calls:
            made["tool_calls"] = calls
        if self.item and (self.spoken or not (self.parts or calls)):
            made["item"] = self.item
        return made

    def say(self, content: Any, item: Object) -> None:
        """Adds a message item; in a second one, the first part marks where it begins."""
        parts = [text_part(content)] if isinstance(content, str) else content
        if not parts:
            self.item = self.item or item
            return
        if self.spoken:
            parts[0] = {**parts[0], "item": item}
        else:
            self.item = item
            self.content = content if isinstance(content, str) else None
        self.spoken = True
        self.parts += parts


def read_items(place: BodyField, start: int = 0) -> Iterator[tuple[Object, BodyOrigin]]:
    """Reads the items from `start` on into messages."""
    turn: _Turn | None = None
    first = start  # the first item of the assistant's turn
    for index, item in enumerate(place.each(start), start):
        kind = item.get("type").optional_text() or "message"
        side = _role_in_turn(item, kind)
        stands_alone = side is None or kind in HISTORIES
        is_over = stands_alone or (turn is not None and turn.spoken and not turn.calls and side != "call")
        if turn is not None and is_over:
            yield turn.message(), BodyOrigin(tuple(range(first, index)))
            turn = None
        if side is None:  # not the assistant's
            yield _other_message(item, kind), BodyOrigin((index,))
            continue
        if stands_alone:
            yield {"role": "assistant", "content": [own_block(item)]}, BodyOrigin((index,))
            continue
        if turn is None:
            turn, first = _Turn(), index
        _add_item(turn, item, kind, side)
    if turn is not None:
        yield turn.message(), BodyOrigin(tuple(range(first, len(place.value))))


def _role_in_turn(item: BodyField, kind: str) -> str | None:
    """Returns the role of an item in the assistant's turn (message, call or other part), else None."""
    if kind == "message":
        return "message" if item.get("role").text() == "assistant" else None
    if kind.endswith("_call") and isinstance(item.at("call_id").value, str):
        return "call"
    answered = kind.endswith("_output") and isinstance(item.at("call_id").value, str)
    given = answered or kind in GIVEN
    return None if given else "part"


def _add_item(turn: _Turn, item: BodyField, kind: str, side: str) -> None:
    if side == "message":
        content = _content(item.at("content"))
        if not isinstance(content, str):  # an unknown part must not be taken for an item
            content = [p if p["type"] in OWN_PARTS else {"type": CONTENT, CONTENT: p} for p in content]
        turn.say(content, without(item.object(), "role", "content"))
    elif side == "call":
        turn.calls.append((len(turn.parts), _call(item, kind)))
    else:
        turn.parts.append(own_block(item))


def _other_message(item: BodyField, kind: str) -> Object:
    """Returns the message of an item that is not the assistant's."""
    if kind == "message":
        role = item.get("role").text()
        if role not in ROLES:
            raise item.at("role").wrong(f"unknown role {role!r}; use one of {', '.join(sorted(ROLES))}")
        return _with_item({"role": role, "content": _content(item.at("content"))}, item, "role", "content")
    if kind.endswith("_output"):
        return _result(item, kind)
    if kind == "additional_tools":
        text = item.at("tools").json()
        return {"role": "developer", "content": text, "item": item.object()}
    return {"role": "user", "content": [item.object()]}


def _with_item(message: Object, item: BodyField, *taken: str) -> Object:
    more = without(item.object(), *taken)
    return {**message, "item": more} if more else message


def _call(item: BodyField, kind: str) -> Object:
    identity = item.get("call_id").text()
    if kind == "function_call":
        made = call(identity, item.get("name").text(), item.get("arguments").text())
        return _with_item(made, item, "type", "call_id", "name", "arguments")
    if kind == "custom_tool_call":
        made = {**call(identity, item.get("name").text(), item.get("input").text()), "type": "custom"}
        return _with_item(made, item, "type", "call_id", "name", "input")
    given = item.get(*CALL_INPUTS)
    name = item.at("name").optional_text() or kind.removesuffix("_call")
    arguments = given.value if isinstance(given.value, str) else given.json()
    return {**call(identity, name, arguments), "item": item.object()}


def _result(item: BodyField, kind: str) -> Object:
    output = item.at("output")
    message: Object = {"role": "tool", "tool_call_id": item.get("call_id").text()}
    if isinstance(output.value, str):
        more = without(item.object(), "call_id", "output")
        message["content"] = output.value
    elif isinstance(output.value, list) and kind in ("function_call_output", "custom_tool_call_output"):
        more = without(item.object(), "call_id", "output")
        message["content"] = [_part(part) for part in output.each()]
    elif kind == "function_call_output":
        raise output.wrong("must be a string or a list of parts")
    else:  # a screenshot, a list of tools, …
        more = item.object()
        message["content"] = read_other_content(item)
    if kind == "function_call_output":
        more.pop("type", None)
    return {**message, "item": more} if more else message


def read_other_content(item: BodyField) -> Any:
    """Returns the content of a result that is neither text nor parts: its image, or its JSON."""
    output = item.get("output", "tools")
    url = output.at("image_url").value
    return [image_part(url)] if isinstance(url, str) else output.json()


def _content(place: BodyField) -> Any:
    if isinstance(place.value, str):
        return place.value
    return [_part(part) for part in place.each()]


def _part(place: BodyField) -> Object:
    kind = place.get("type").text()
    reader = _PARTS.get(kind)
    return own_block(place) if reader is None else reader(place)


def _text(place: BodyField) -> Object:
    return text_part(place.get("text").text(), **without(place.object(), "type", "text", "item"))


def _image(place: BodyField) -> Object:
    url = place.at("image_url").optional_text() or ""
    image = {"url": url, **conversion.some(place.object(), "detail", "file_id")}
    return {
        "type": "image_url",
        "image_url": image,
        **without(place.object(), "type", "image_url", "detail", "file_id", "item"),
    }


def _file(place: BodyField) -> Object:
    names = ("file_data", "file_url", "file_id", "filename")
    for name in names:
        place.at(name).optional_text()
    return {
        "type": "file",
        "file": conversion.some(place.object(), *names),
        **without(place.object(), "type", *names),
    }


def _audio(place: BodyField) -> Object:
    place.get("input_audio").object()
    return without(place.object(), "item")


def _refusal(place: BodyField) -> Object:
    place.get("refusal").text()
    return without(place.object(), "item")


_PARTS: Mapping[str, Callable[[BodyField], Object]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
    "refusal": _refusal,
}


def read_tool(place: BodyField) -> Object:
    """Returns one tool definition; a provider's own tool is kept unchanged."""
    kind = place.get("type").text()
    if kind == "function":
        tool = function_tool(
            place.get("name").text(),
            place.at("description").optional_text(),
            place.at("parameters").optional_object(),
            **without(place.object(), "type", "name", "description", "parameters", "strict"),
        )
        if place.has("strict"):
            tool["function"]["strict"] = place.at("strict").value
        return tool
    if kind == "custom":
        place.get("name").text()
        custom = without(place.object(), "type")
        grammar = place.at("format")
        if isinstance(grammar.value, dict) and grammar.value.get("type") == "grammar":
            custom["format"] = {"type": "grammar", "grammar": without(grammar.value, "type")}
        return {"type": "custom", "custom": custom}
    return place.object()


def _choice(place: BodyField) -> Any:
    if place.value is None or isinstance(place.value, str):
        return place.value
    kind = place.get("type").text()
    if kind == "function":
        return choose_function(place.get("name").text())
    if kind == "allowed_tools":
        return {"type": kind, kind: without(place.object(), "type")}
    return place.object()


def _take_format(text: BodyField, rest: Object) -> Object | None:
    if text.value is None:
        return None
    more = without(text.object(), "format")
    if more:
        rest["text"] = more
    given = text.at("format")
    if given.value is None:
        return None
    kind = given.get("type").text()
    return (
        given.object()
        if kind != "json_schema"
        else {"type": kind, kind: without(given.object(), "type", kind)}
    )
