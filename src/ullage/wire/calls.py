"""Tool calls and their results in the format of OpenAI's chat API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire.fields import Object, parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence


def call(identity: str, name: str, arguments: str, /, **more: Any) -> Object:
    """Returns a call of a function."""
    function = {"name": name, "arguments": arguments}
    return {**more, "id": identity, "type": "function", "function": function}


def assistant(parts: Sequence[Object], calls: Sequence[Object], /, **more: Any) -> Object:
    """Returns an assistant message with these parts and calls."""
    if not calls:
        return {**more, "role": "assistant", "content": list(parts)}
    return {**more, "role": "assistant", "content": list(parts) or None, "tool_calls": list(calls)}


def arguments_object(text: Any) -> Object:
    """Returns a call's arguments as an object; other text becomes the member `arguments`."""
    if isinstance(text, dict):
        return text
    if not text:
        return {}
    value = parse_json(text)
    return value if isinstance(value, dict) else {"arguments": text}


MADE = "made_call"
"""Prefix of the ids that are made for calls without one."""


def find_given_id(identity: str) -> str | None:
    """Returns the id of a call if its body had one, else None."""
    return None if identity.startswith(MADE) else identity


class Ids:
    """Makes ids for calls without one, and finds the call of a result without an id."""

    def __init__(self) -> None:
        self._made = 0
        self._place = ""
        self._open: list[tuple[str, str | None]] = []

    def begin(self, index: int) -> None:
        """Begins the message at this position; its new ids are the same wherever reading started."""
        self._made, self._place = 0, f"{index}_"

    def make_id(self, given: str | None, name: str | None, *, prefix: str = MADE) -> str:
        """Returns the id of a call: the given one, or a new one."""
        identity = given
        if not identity:
            identity = f"{prefix}_{self._place}{self._made}"
            self._made += 1
        self._open.append((identity, name))
        return identity

    def match_result(self, given: str | None, name: str | None = None) -> str:
        """Returns the id of the call that a result answers: by id, else by name, else the oldest one."""
        index = self._find(given, name)
        if index is not None:
            return self._open.pop(index)[0]
        if given:
            return given
        self.make_id(None, name)
        return self._open.pop()[0]

    def _find(self, given: str | None, name: str | None) -> int | None:
        if given:
            return next((at for at, (identity, _) in enumerate(self._open) if identity == given), None)
        same_name = next((at for at, (_, called) in enumerate(self._open) if called == name), None)
        return 0 if same_name is None and self._open else same_name


def function_tool(name: str, description: str | None, parameters: Any, /, **more: Any) -> Object:
    """Returns the definition of a function."""
    function: Object = {"name": name}
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters
    return {**more, "type": "function", "function": function}


def choose_function(name: str) -> Object:
    """Returns the tool choice for one function."""
    return {"type": "function", "function": {"name": name}}


def schema_format(schema: Any, /, **more: Any) -> Object:
    """Returns a response format with a JSON schema."""
    return {"type": "json_schema", "json_schema": {**more, "schema": schema}}


def read_chosen_name(choice: Any) -> str | None:
    """Returns the function that a tool choice names, or None."""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None
