"""Shared parts of all filters: a recall call, and the sum of usage objects."""

from __future__ import annotations

from typing import Any, NamedTuple

from ullage.context import RECALL_TOOL
from ullage.wire.calls import arguments_object

RECALL: str = RECALL_TOOL["function"]["name"]


class RecallCall(NamedTuple):
    """A call of the recall tool."""

    id: str
    arguments: str
    """JSON, as the model wrote it."""
    before: tuple[Any, ...] = ()
    """The thinking or reasoning right before the call, which goes back with it."""

    def values(self) -> dict[str, Any]:
        """Returns the arguments as an object."""
        return arguments_object(self.arguments)


def sum_usage(one: Any, other: Any) -> Any:
    """Returns the sum of two usage objects; of members that are no numbers, the newer ones."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = {**one, **other}
        return {name: sum_usage(one.get(name), other.get(name)) for name in names}
    if _is_number(one) and _is_number(other):
        return one + other
    return one if other is None else other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
