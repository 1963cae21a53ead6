"""Converts a request that was read from one API and is written for another.

For its own API everything is written as it was read. For another API, options are renamed or left out, and
members that only the first API knows are left out. So are sealed parts, such as signed thinking. If the
conversation needs a part that the other API does not have, InvalidRequest is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidRequest
from ullage.messages import CHARGED, calls_of, read_call_id
from ullage.wire.api import api_of, is_same
from ullage.wire.fields import without

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.messages import Message
    from ullage.target import ApiName
    from ullage.wire.fields import Object
    from ullage.wire.request import Request

CHAT: ApiName = "openai.chat"
LEFT_OUT = "left_out"
"""Type of the part that holds the place of one that only another API's provider can read."""


def is_own(request: Request, api: ApiName) -> bool:
    """Returns True if a request goes back to the API that it came from, or was made by hand."""
    return request.api is None or is_same(request.api, api)


def is_read_from(request: Request, api: ApiName) -> bool:
    """Returns True if a request was read from a body of this API."""
    return request.api is not None and is_same(request.api, api)


def options(request: Request, api: ApiName) -> Object:
    """Returns the body's options for this API: all on its own; on another the known ones, renamed."""
    if request.api is None or is_own(request, api):
        return dict(request.rest)
    source, target = api_of(request.api).options, api_of(api).options
    found: Object = {}
    for option, names in target.items():
        given = (_option(request.rest, name) for name in source.get(option, ()))
        value = next((value for value in given if value is not None), None)
        if value is not None:
            is_text = isinstance(value, str) and names[0] not in STOP_TEXTS
            _put_option(found, names[0], [value] if option == "stop" and is_text else value)
    return _parallel(request, api, found)


STOP_TEXTS = frozenset({"stop", "options.stop"})
"""Names of the stop sequences in the APIs that take a single text as well as a list."""


def _option(rest: Any, name: str) -> Any:
    for step in name.split("."):
        rest = rest.get(step) if isinstance(rest, Mapping) else None
    return rest


def _put_option(body: Object, name: str, value: Any) -> None:
    *holders, last = name.split(".")
    for step in holders:
        body = body.setdefault(step, {})
    body[last] = value


def _parallel(request: Request, api: ApiName, found: Object) -> Object:
    """Returns the option for parallel calls, which Anthropic has as a member of the tool choice."""
    is_single = request.rest.get("parallel_tool_calls") is False and request.tools
    if is_single and is_same(api, "anthropic.messages"):
        found["tool_choice"] = {"disable_parallel_tool_use": True}
    left = request.rest.get("tool_choice")
    if (
        "parallel" in api_of(api).options
        and isinstance(left, dict)
        and left.get("disable_parallel_tool_use") is True
    ):
        found["parallel_tool_calls"] = False
    return found


CHAT_ONLY = frozenset({*CHARGED, "annotations", "function_call"})
"""Members of an assistant message that only chat APIs know."""


def prepare(request: Request, api: ApiName) -> Request:
    """Returns a request whose messages the writer of this API knows.

    If it was made by hand, its calls and refusals get the one shape that all writers know; the chat API takes
    its own members back as they are. If it was read from another API, the sealed parts are left out.
    """
    if request.api is None and api != CHAT:
        return replace(request, messages=tuple(map(_in_common_shape, request.messages)))
    if request.api is None or is_own(request, api):
        return request
    source = api_of(request.api)
    if source.leave is not None:
        left = source.leave(request)
        if left.api != request.api:  # the body was in the format of another API
            return prepare(left, api)
        request = left
    for name in source.held:
        if request.rest.get(name) is not None:
            raise no_counterpart(name, api)
    messages = tuple(_without_sealed(each, source.sealed) for each in request.messages)
    return replace(request, messages=messages)


def _without_sealed(message: Message, sealed: frozenset[str]) -> Message:
    content = message.get("content")
    if not isinstance(content, list | tuple) or not any(_type_of(part) in sealed for part in content):
        return message
    return {**message, "content": [{"type": LEFT_OUT} if _type_of(p) in sealed else p for p in content]}


def _type_of(part: Any) -> str | None:
    found = part.get("type") if isinstance(part, Mapping) else None
    return found if isinstance(found, str) else None


def _in_common_shape(message: Message) -> Message:
    if message["role"] == "function":
        return {**without(message, "name"), "role": "tool", "tool_call_id": read_call_id(message)}
    calls = calls_of(message)
    is_common = calls is message.get("tool_calls") or not calls
    if is_common and CHAT_ONLY.isdisjoint(message):
        return message
    made = {key: value for key, value in message.items() if key not in CHAT_ONLY}
    if calls:
        made["tool_calls"] = calls
    if made.get("content") is None and message.get("refusal"):
        made["content"] = message["refusal"]
    return made


def is_sendable(part: Mapping[str, Any]) -> bool:
    """Returns False if a part only holds the place of one that this API must not get."""
    return part.get("type") != LEFT_OUT


def place_call(call: Object, at: int, total: int) -> Object:
    """Returns the call with the number of parts before it, if any parts follow it."""
    return {**call, "position": at} if at < total else call


def interleave_calls(
    parts: Sequence[Object | None], calls: Iterable[tuple[Mapping[str, Any], Object]]
) -> list[Object]:
    """Returns the parts with the calls at their positions between them; a part that is None is left out."""
    slots: list[list[Object]] = [[] for _ in range(len(parts) + 1)]
    for call, written in calls:
        at = call.get("position")
        slots[at if isinstance(at, int) and 0 <= at < len(parts) else -1].append(written)
    ordered: list[Object] = []
    for index, part in enumerate(parts):
        ordered += slots[index]
        if part is not None:
            ordered.append(part)
    return ordered + slots[-1]


def some(value: Mapping[str, Any], *names: str) -> Object:
    """Returns these members of an object, if they are present and not null."""
    return {name: value[name] for name in names if value.get(name) is not None}


def map_names(messages: Iterable[Message]) -> dict[str, str]:
    """Returns the called function's name by the call's id, for APIs whose results need the name."""
    return {
        each["id"]: each["function"]["name"]
        for message in messages
        for each in message.get("tool_calls") or ()
    }


def no_counterpart(kind: Any, api: ApiName) -> InvalidRequest:
    """Returns the error for a part that another API has no equivalent for."""
    return InvalidRequest(
        f"this API has no equivalent for {kind!r} of another API; remove it from the request", api=api
    )
