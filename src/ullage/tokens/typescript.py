"""Writes tools as OpenAI's models read them: functions in a TypeScript namespace.

    namespace functions {

    // Looks the weather up.
    type weather = (_: {
    // Where
    place: string,
    unit?: "C" | "F", // default: "C"
    }) => any;

    } // namespace functions

The layout is derived from recorded token counts. Titles and descriptions are comments above the type that
they describe, with each line stripped. An object whose members have no comments is written on one line. The
chat API (version 1) repeats the whole schema for each type in a list of types; the responses API (version 2)
does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.messages import Tool

DEEPEST = 12
"""Greatest depth of a schema, which may refer to itself. A deeper type is written as `any`."""

_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_PLAIN = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}


def namespace(tools: Sequence[Tool], version: int = 1) -> str:
    """Returns all functions as one text."""
    functions = [_function(tool, version) for tool in tools]
    return "\n".join(["namespace functions {", "", *functions, "} // namespace functions"])


def _function(tool: Tool, version: int) -> str:
    function = tool.get("function", tool)
    if not isinstance(function, Mapping) or "name" not in function:
        return f"// {_literal(tool)}\n"  # The format for other kinds of tools is unknown.
    parameters = function.get("parameters", function.get("input_schema"))
    body = ""
    if isinstance(parameters, Mapping):
        body = _Schema(parameters, version).members_of(parameters, 0)
        if body:
            body = "".join(f"{line}\n" for line in _comments(parameters)) + body
    about = "".join(f"{line}\n" for line in _comment(function.get("description")))
    return f"{about}type {function['name']} = {f'(_: {body})' if body else '()'} => any;\n"


def _comment(text: Any) -> list[str]:
    if not isinstance(text, str) or not text:
        return []
    return [f"// {line.strip()}".rstrip() for line in text.strip().split("\n")]


def _comments(schema: Mapping[str, Any]) -> list[str]:
    """Returns the comment lines above a type: its title, an empty line, its description."""
    title, description = _comment(schema.get("title")), _comment(schema.get("description"))
    return [*title, *(["//"] if title and description else []), *description]


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True, slots=True)
class _Schema:
    """The parameters of one function. References start at `root`."""

    root: Mapping[str, Any]
    version: int

    def members_of(self, schema: Mapping[str, Any], depth: int) -> str:
        """Returns an object's members in braces; empty if it has none."""
        members = list(self._members(schema, depth))
        if not members:
            return ""
        if not any(comments or default or "\n" in member for comments, member, default in members):
            return "{ " + ", ".join(member for _, member, _ in members) + " }"
        lines = ["{"]
        for comments, member, default in members:
            lines += [*comments, f"{member},{default}"]
        return "\n".join([*lines, "}"])

    def _members(self, schema: Mapping[str, Any], depth: int) -> Iterator[tuple[list[str], str, str]]:
        """Yields (comments above, `name: type`, comment behind) of each member."""
        properties, required = schema.get("properties"), schema.get("required")
        needed = required if isinstance(required, list | tuple) else ()
        for name, value in properties.items() if isinstance(properties, Mapping) else ():
            member = self._resolve_reference(value)
            if member.get("type") == "object" and not member.keys() & {"properties", "additionalProperties"}:
                continue  # An object without any detail is left out.
            key = name if _IDENTIFIER.fullmatch(name) else _literal(name)
            default = f" // default: {_literal(member['default'])}" if "default" in member else ""
            mark = "" if name in needed else "?"
            yield _comments(member), f"{key}{mark}: {self._type(member, depth + 1)}", default

    def _type(self, schema: Mapping[str, Any], depth: int) -> str:
        found = "any" if depth > DEEPEST else self._bare_type(schema, depth)
        return f"{found} | null" if schema.get("nullable") is True and "null" not in found else found

    def _bare_type(self, schema: Mapping[str, Any], depth: int) -> str:
        kind = schema.get("type")
        variants = self._variants(schema)
        if variants is not None and ("enum" not in schema or "anyOf" in schema):
            return self._union(variants, depth)
        for literals in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if isinstance(literals, list | tuple):
                return " | ".join(map(_literal, literals))
        if kind == "array":
            return self._array(schema.get("items"), depth)
        if kind == "object" or "properties" in schema:
            return self.members_of(schema, depth) or "object"
        return _PLAIN.get(kind, "any") if isinstance(kind, str) else "any"

    def _variants(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list | tuple):
                return [self._resolve_reference(each) for each in schema[key]]
        kinds = schema.get("type")
        if not isinstance(kinds, list | tuple):
            return None
        unsaid = {} if self.version == 1 else {"title": None, "description": None}
        return [{**schema, **unsaid, "type": kind} for kind in kinds]

    def _union(self, variants: Sequence[Mapping[str, Any]], depth: int) -> str:
        """Returns the variants on one line, or one per line with comments if any variant has a comment."""
        types = [(self._type(each, depth + 1), _comments(each)) for each in variants]
        if not any(comments for _, comments in types):
            return " | ".join(each for each, _ in types)
        lines = [
            f" | {each}{' // ' if comments else ''}{' '.join(line[3:] for line in comments)}"
            for each, comments in types
        ]
        return "\n".join(["", *lines, *([""] if self.version == 1 else [])])

    def _array(self, items: Any, depth: int) -> str:
        if not isinstance(items, Mapping) or not items:
            return "any[]"
        member = self._resolve_reference(items)
        inner = self._type(member, depth + 1)
        comments = _comments(member)
        if comments or "\n" in inner:
            return "\n".join(["Array<", *comments, inner, ">"])
        is_union = "enum" in member or self._variants(member) is not None
        return f"Array<{inner}>" if is_union else f"{inner}[]"

    def _resolve_reference(self, schema: Any) -> Mapping[str, Any]:
        """Returns a schema with its reference replaced by the definition."""
        for _ in range(DEEPEST):
            if not isinstance(schema, Mapping):
                return {}
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            target: Any = self.root
            for step in reference.removeprefix("#").strip("/").split("/"):
                target = target.get(step) if isinstance(target, Mapping) and step else target
            own = {key: value for key, value in schema.items() if key != "$ref"}
            found = isinstance(target, Mapping) and target is not self.root
            schema = {**target, **own} if found else own
        return {}
