"""The client's own names and kinds of tools that have another form upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ullage.wire.calls import arguments_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.events import ToolCall

INPUT = "input"
"""The only parameter of a custom tool that became a function."""


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A call, under the client's own name of the tool."""

    id: str
    name: str
    arguments: str
    """JSON, or the plain input of a custom tool."""
    is_custom: bool = False
    namespace: str | None = None


class ToolNames(NamedTuple):
    """The client's own names and kinds of the tools that have another form upstream."""

    custom: frozenset[str] = frozenset()
    spaced: Mapping[str, tuple[str, str]] = {}
    """Name upstream → the namespace and the name in it."""

    def restore_call(self, call: ToolCall) -> CalledTool:
        """Returns a call of the upstream in the client's own form."""
        if call.name in self.custom:
            given = arguments_object(call.arguments).get(INPUT)
            text = given if isinstance(given, str) else call.arguments
            return CalledTool(call.id, call.name, text, is_custom=True)
        namespace, name = self.spaced.get(call.name, (None, call.name))
        return CalledTool(call.id, name, call.arguments, namespace=namespace)
