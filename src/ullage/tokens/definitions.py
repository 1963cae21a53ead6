"""Writes tools, schemas, calls and results as the text that a provider puts into the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError
from ullage.tokens.typescript import namespace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.messages import Tool


def json_tools(tools: Sequence[Tool]) -> list[str]:
    """Returns one text with a line of JSON for each function: name, description, parameters."""
    return ["\n".join(_json(tool.get("function", tool)) for tool in tools)]


def value_texts(tools: Sequence[Tool]) -> list[str]:
    """Returns the texts in the definitions separately: names, descriptions, formats, choices."""
    return [text for tool in tools for text in _values(tool.get("function", tool))]


def _values(schema: Any) -> Iterator[str]:
    if isinstance(schema, list | tuple):
        for each in schema:
            yield from _values(each)
    if not isinstance(schema, Mapping):
        return
    yield from (schema[key] for key in ("name", "description", "format") if isinstance(schema.get(key), str))
    for key in ("enum", "required"):
        listed = schema.get(key)
        yield from (str(each) for each in listed) if isinstance(listed, list | tuple) else ()
    for name, value in _properties(schema).items():
        yield name
        yield from _values(value)
    for nested in (*map(schema.get, _NESTED), *_properties(schema, "$defs").values()):
        yield from _values(nested)


def count_properties(schema: Any) -> int:
    """Returns the number of named members in tool definitions, at every depth."""
    if isinstance(schema, list | tuple):
        return sum(map(count_properties, schema))
    if not isinstance(schema, Mapping):
        return 0
    members = _properties(schema)
    nested = [*map(schema.get, _NESTED), *_properties(schema, "$defs").values()]
    return len(members) + count_properties([*members.values(), *nested])


def has_references(schema: Any) -> bool:
    """Returns True if tool definitions contain a `$ref`."""
    if isinstance(schema, list | tuple):
        return any(map(has_references, schema))
    return isinstance(schema, Mapping) and (
        isinstance(schema.get("$ref"), str) or any(map(has_references, schema.values()))
    )


_NESTED = ("function", "parameters", "items", "anyOf", "oneOf")


def _properties(schema: Mapping[str, Any], key: str = "properties") -> Mapping[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, Mapping) else {}


def json_schema(schema: Mapping[str, Any]) -> str:
    """Returns the `json_schema` of a response format as JSON, with its name and description."""
    return _json(schema)


def format_section(schema: Mapping[str, Any]) -> str:
    """Returns OpenAI's section on a response format: name, description, and the schema's types only."""
    about = schema.get("description")
    comment = f"// {about}\n" if isinstance(about, str) and about else ""
    body = json.dumps(
        _types_only(schema.get("schema")), ensure_ascii=False, separators=(",", ":"), default=str
    )
    return f"## {schema.get('name', '')}\n\n{comment}{body}"


_UNSAID = frozenset({"$schema", "additionalProperties", "required"})
_NAMED = frozenset({"properties", "$defs", "definitions"})


def _types_only(schema: Any, named: bool = False) -> Any:
    """Returns a schema without the keywords that the model does not see; members with such names stay."""
    if isinstance(schema, list | tuple):
        return [_types_only(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _types_only(value, not named and key in _NAMED)
        for key, value in schema.items()
        if named or key not in _UNSAID
    }


_TOOL_RULES: Mapping[str, Callable[[Sequence[Tool]], list[str]]] = {
    "json": json_tools,
    "values": value_texts,
    "typescript": lambda tools: [namespace(tools)],
    "typescript-2": lambda tools: [namespace(tools, version=2)],
    "free": lambda _: [],
}
_SCHEMA_RULES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "json": json_schema,
    "section": format_section,
    "free": lambda _: "",
}


def tools_texts(tools: Sequence[Tool], rule: str) -> list[str]:
    """Returns the tools as prompt texts by the rule of that name. Each text is counted separately."""
    texts: list[str] = _rule(_TOOL_RULES, rule)(tools)
    return texts


def schema_text(response_format: Mapping[str, Any], rule: str) -> str:
    """Returns a structured-output schema as prompt text; empty if there is no schema or it is free."""
    schema = response_format.get("json_schema")
    if not isinstance(schema, Mapping) or not schema:
        return ""
    text: str = _rule(_SCHEMA_RULES, rule)(schema)
    return text


def _rule(rules: Mapping[str, Callable[[Any], Any]], name: str) -> Callable[[Any], Any]:
    if name not in rules:
        raise ConfigurationError(f"unknown rule {name!r}; use one of {', '.join(sorted(rules))}")
    return rules[name]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


_write_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Made once: `json.dumps` makes a new encoder for each text."""


def compact(arguments: str) -> str:
    """Returns JSON without spaces between its tokens; any other text unchanged."""
    if '": ' not in arguments and ", " not in arguments and "\n" not in arguments:
        return arguments
    try:
        return _write_compact(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def arguments_in(arguments: str) -> int:
    """Returns the number of arguments of a call; 0 if the arguments are not a JSON object."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return 0
    return len(found) if isinstance(found, dict) else 0


def wrap_calls(calls: Iterable[tuple[str, str]]) -> str:
    """Returns parallel calls (name, arguments) as the single call that OpenAI makes of them."""
    uses = (
        f'{{"recipient_name":"functions.{name}","parameters":{compact(arguments)}}}'
        for name, arguments in calls
    )
    return f'{{"tool_uses":[{",".join(uses)}]}}'


def quote_result(result: str) -> str:
    """Returns a result as the list of parallel results has it: JSON as JSON, text as a JSON string."""
    # Many lines of logs begin like a list, and to fail as JSON takes long.
    if result.lstrip()[:1] + result.rstrip()[-1:] in ("{}", "[]"):
        try:
            return json.dumps(json.loads(result))
        except (ValueError, RecursionError):
            pass
    return json.dumps(result)
