"""Tool calls and their results in the shape of OpenAI's chat API, whatever they were before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire.fields import Object, parsed

if TYPE_CHECKING:
    from collections.abc import Sequence


def call(identity: str, name: str, arguments: str, /, **more: Any) -> Object:
    """A call of a function."""
    function = {"name": name, "arguments": arguments}
    return {**more, "id": identity, "type": "function", "function": function}


def assistant(parts: Sequence[Object], calls: Sequence[Object], /, **more: Any) -> Object:
    """An assistant's message of these parts and calls."""
    if not calls:
        return {**more, "role": "assistant", "content": list(parts)}
    return {**more, "role": "assistant", "content": list(parts) or None, "tool_calls": list(calls)}


def arguments_object(text: Any) -> Object:
    """A call's arguments as an object; text that is no JSON object stands under `arguments`."""
    if isinstance(text, dict):
        return text
    if not text:
        return {}
    value = parsed(text)
    return value if isinstance(value, dict) else {"arguments": text}


class Ids:
    """Gives ids to calls that have none, and finds the call that a result without one answers."""

    def __init__(self) -> None:
        self._made = 0
        self._open: list[tuple[str, str | None]] = []

    def made(self, given: str | None, name: str | None, *, prefix: str = "call") -> str:
        """The id of a call: the given one, or the next of our own."""
        identity = given
        if not identity:
            identity = f"{prefix}_{self._made}"
            self._made += 1
        self._open.append((identity, name))
        return identity

    def answered(self, given: str | None, name: str | None = None) -> str:
        """The id of the call that a result answers: by its id, else by name, else the oldest open one."""
        index = self._find(given, name)
        if index is not None:
            return self._open.pop(index)[0]
        if given:
            return given
        self.made(None, name)
        return self._open.pop()[0]

    def _find(self, given: str | None, name: str | None) -> int | None:
        if given:
            return next((at for at, (identity, _) in enumerate(self._open) if identity == given), None)
        same_name = next((at for at, (_, called) in enumerate(self._open) if called == name), None)
        return 0 if same_name is None and self._open else same_name


def function_tool(name: str, description: str | None, parameters: Any, /, **more: Any) -> Object:
    """The definition of a function."""
    function: Object = {"name": name}
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters
    return {**more, "type": "function", "function": function}


def named_function(name: str) -> Object:
    """The choice of one function by its name."""
    return {"type": "function", "function": {"name": name}}


def schema_format(schema: Any, /, **more: Any) -> Object:
    """A response format with a JSON schema."""
    return {"type": "json_schema", "json_schema": {**more, "schema": schema}}


def chosen_name(choice: Any) -> str | None:
    """The function that a tool choice names, if it names one."""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None
