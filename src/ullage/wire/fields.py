"""Checked access to the fields of a body, so that an error names the field instead of crashing.

Every reader walks its body through a `BodyField`: the value, the API, and the path to the value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ullage.errors import InvalidRequest

if TYPE_CHECKING:
    from ullage.target import ApiName

Object: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BodyField:
    """A value in a body, and the path to it."""

    value: Any
    api: ApiName
    path: str = ""

    def wrong(self, reason: str) -> InvalidRequest:
        """Returns the error that names this place."""
        return InvalidRequest(reason, api=self.api, field=self.path or None)

    def object(self) -> Object:
        """Returns this value as a new dict; raises InvalidRequest unless it is an object."""
        if not isinstance(self.value, Mapping):
            raise self.wrong(f"must be an object, but is {kind(self.value)}")
        return dict(self.value)

    def optional_object(self) -> Object | None:
        """Returns this value as a new dict, or None if it is absent."""
        return None if self.value is None else self.object()

    def text(self) -> str:
        """Returns this value as a string; raises InvalidRequest for any other type."""
        if not isinstance(self.value, str):
            raise self.wrong(f"must be a string, but is {kind(self.value)}")
        return self.value

    def optional_text(self) -> str | None:
        """Returns this value as a string, or None if it is absent."""
        return None if self.value is None else self.text()

    def get(self, *names: str) -> BodyField:
        """Returns the first of these members that is not null, else a place with the value None."""
        if not isinstance(self.value, Mapping):
            raise self.wrong(f"must be an object, but is {kind(self.value)}")
        for name in names:
            if self.value.get(name) is not None:
                return self.at(name)
        return BodyField(None, self.api, self._member(names[0]))

    def at(self, name: str) -> BodyField:
        """Returns the member of that name; its value is None if it is absent."""
        value = self.value.get(name) if isinstance(self.value, Mapping) else None
        return BodyField(value, self.api, self._member(name))

    def has(self, *names: str) -> bool:
        """Returns True if one of these members is present and not null."""
        return isinstance(self.value, Mapping) and any(self.value.get(name) is not None for name in names)

    def each(self, start: int = 0) -> Iterator[BodyField]:
        """Yields the elements of a list from `start` on; nothing for null; else raises InvalidRequest."""
        if self.value is None:
            return
        if not is_list(self.value):
            raise self.wrong(f"must be a list, but is {kind(self.value)}")
        for index in range(start, len(self.value)):
            yield BodyField(self.value[index], self.api, f"{self.path}[{index}]")

    def one_or_each(self) -> Iterator[BodyField]:
        """Yields the elements of a list, or a single object itself."""
        if isinstance(self.value, Mapping):
            yield self
        else:
            yield from self.each()

    def json(self) -> str:
        """Returns this value as compact JSON text."""
        try:
            return json.dumps(self.value, ensure_ascii=False, separators=(",", ":"), default=str)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.wrong(f"cannot be written as JSON: {error}") from error

    def _member(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def kind(value: object) -> str:
    """Returns the name of a value's type: JSON's name if JSON has the type."""
    if value is None:
        return "missing"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        dict: "an object",
        list: "a list",
    }
    return names.get(type(value), type(value).__name__)


def is_list(value: object) -> bool:
    """Returns True for a list or other sequence, but not for text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def without(value: Mapping[str, Any], *names: str) -> Object:
    """Returns an object without these members and without nulls."""
    return {key: each for key, each in value.items() if key not in names and each is not None}


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text, or None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
