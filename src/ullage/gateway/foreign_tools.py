"""The tools of a request that goes to another API: all of them become functions, under names of their own.

A custom tool takes plain text. It becomes a function with the one parameter `input`. The functions of a
namespace get the namespace before their names. Calls that come back get the client's own form again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.errors import InvalidRequest
from ullage.gateway.tool_names import INPUT, ToolNames
from ullage.wire.calls import choose_function, function_tool
from ullage.wire.fields import BodyField, without
from ullage.wire.openai_responses_reader import read_tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.messages import Message, Tool
    from ullage.target import ApiName
    from ullage.wire import Request

OFFERS = ("web_search", "web_fetch", "image_generation", "tool_search")
"""The beginnings of the types of tools that clients offer by themselves and that run on the provider's
server. Another server has none of them, so the model is not offered them, and the answer says so."""
BETWEEN = "__"
"""The text between the name of a namespace and the name of a function."""


class AdoptedTools(NamedTuple):
    """A request with functions alone."""

    request: Request
    names: ToolNames
    left_out: tuple[str, ...]
    """The tools that were left out, by their place and type."""


def adopt_tools(request: Request) -> AdoptedTools:
    """Returns a request whose tools, calls and choice are functions; raises InvalidRequest for others."""
    tools: list[Tool] = []
    custom: set[str] = set()
    spaced: dict[str, tuple[str, str]] = {}
    left_out: list[str] = []
    for place, tool in enumerate(request.tools):
        kind = str(tool.get("type"))
        if kind == "function":
            tools.append(tool)
        elif kind == "custom":
            custom.add(tool["custom"]["name"])
            tools.append(_function_of_custom(tool["custom"]))
        elif kind == "namespace":
            for name, made in _functions_of_namespace(tool, place):
                spaced[made["function"]["name"]] = (str(tool["name"]), name)
                tools.append(made)
        elif kind.startswith(OFFERS):
            left_out.append(f"tools[{place}] ({kind})")
        else:
            raise _unknown(request.api, f"tools[{place}]", kind)
    adopted = replace(
        request,
        tools=tuple(tools),
        tool_choice=_choice(request, has_tools=bool(tools)),
        messages=tuple(map(_with_functions, request.messages)),
    )
    return AdoptedTools(adopted, ToolNames(frozenset(custom), spaced), tuple(left_out))


def _function_of_custom(custom: Mapping[str, Any]) -> Tool:
    described = str(custom.get("description") or "")
    grammar = custom.get("format")
    if isinstance(grammar, dict) and isinstance(grammar.get("grammar"), dict):
        definition = grammar["grammar"].get("definition", "")
        described += f"\n\nThe input must match this grammar:\n{definition}"
    parameters = {
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": "The whole input, as plain text."}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    return function_tool(custom["name"], described.strip() or None, parameters)


def _functions_of_namespace(tool: Mapping[str, Any], place: int) -> Iterator[tuple[str, Tool]]:
    """Yields the functions of a namespace, each with its name there."""
    inside = BodyField(tool, "openai.responses", f"tools[{place}]")
    namespace = inside.get("name").text()
    for each in inside.at("tools").each():
        read = read_tool(each)
        if read.get("type") != "function":
            raise _unknown(each.api, each.path, str(read.get("type")))
        function = read["function"]
        name = function["name"]
        renamed = {**function, "name": f"{namespace}{BETWEEN}{name}"}
        yield name, {"type": "function", "function": renamed}


def _unknown(api: ApiName | None, field: str, kind: str) -> InvalidRequest:
    return InvalidRequest(
        f"tools of type {kind!r} do not exist at the model's server: remove it, or use another model",
        api=str(api),
        field=field,
    )


def _choice(request: Request, *, has_tools: bool) -> Any:
    """Returns the choice of a tool; raises InvalidRequest if another API cannot say it."""
    choice = request.tool_choice
    if not has_tools and choice in (None, "auto", "none"):
        return None
    if not isinstance(choice, dict) or isinstance(choice.get("function"), dict):
        return choice
    inner = choice.get("custom", choice)
    if choice.get("type") == "custom" and isinstance(inner, dict) and isinstance(inner.get("name"), str):
        return choose_function(inner["name"])
    raise InvalidRequest(
        f"a choice of the type {choice.get('type')!r} cannot be sent to the model's server: choose auto, "
        "none, required or one function",
        api=str(request.api),
        field="tool_choice",
    )


def _with_functions(message: Message) -> Message:
    calls = message.get("tool_calls") or ()
    made = [_function_call(each) for each in calls]
    if all(new is old for new, old in zip(made, calls, strict=True)):
        return message
    return {**message, "tool_calls": made}


def _function_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    item = call.get("item")
    namespace = item.get("namespace") if isinstance(item, dict) else None
    function = call["function"]
    if call.get("type") == "custom":
        arguments = orjson.dumps({INPUT: function["arguments"]}).decode()
        return {**call, "type": "function", "function": {**function, "arguments": arguments}}
    if isinstance(namespace, str):
        renamed = {**function, "name": f"{namespace}{BETWEEN}{function['name']}"}
        return {**call, "function": renamed, "item": without(item or {}, "namespace")}
    return call
