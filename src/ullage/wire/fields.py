"""Checked access to the fields of a body, so that a malformed one is named and never crashes.

Every reader walks its body through a `Place`: the value, the API and the path that led there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ullage.errors import InvalidRequest

Object: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A value in a body, and the way to it."""

    value: Any
    api: str
    path: str = ""

    def wrong(self, reason: str) -> InvalidRequest:
        """The error that names this place."""
        return InvalidRequest(reason, api=self.api, field=self.path or None)

    def object(self) -> Object:
        """This value as a fresh dict; raises InvalidRequest unless it is an object."""
        if not isinstance(self.value, Mapping):
            raise self.wrong(f"an object is expected, this is {kind(self.value)}")
        return dict(self.value)

    def optional_object(self) -> Object | None:
        """This value as a fresh dict, or None where it is absent."""
        return None if self.value is None else self.object()

    def text(self) -> str:
        """This value as a string; raises InvalidRequest unless it is one."""
        if not isinstance(self.value, str):
            raise self.wrong(f"a string is expected, this is {kind(self.value)}")
        return self.value

    def optional_text(self) -> str | None:
        """This value as a string, or None where it is absent."""
        return None if self.value is None else self.text()

    def get(self, *names: str) -> Place:
        """The first of these members that is there and not null; the value None where none is."""
        if not isinstance(self.value, Mapping):
            raise self.wrong(f"an object is expected, this is {kind(self.value)}")
        for name in names:
            if self.value.get(name) is not None:
                return self.at(name)
        return Place(None, self.api, self._member(names[0]))

    def at(self, name: str) -> Place:
        """The member of that name, or None."""
        value = self.value.get(name) if isinstance(self.value, Mapping) else None
        return Place(value, self.api, self._member(name))

    def has(self, *names: str) -> bool:
        """Whether one of these members is there and not null."""
        return isinstance(self.value, Mapping) and any(self.value.get(name) is not None for name in names)

    def each(self) -> Iterator[Place]:
        """The elements of a list; nothing for null; raises InvalidRequest for anything else."""
        if self.value is None:
            return
        if not is_list(self.value):
            raise self.wrong(f"a list is expected, this is {kind(self.value)}")
        for index, value in enumerate(self.value):
            yield Place(value, self.api, f"{self.path}[{index}]")

    def one_or_each(self) -> Iterator[Place]:
        """The elements of a list, or a lone object as its own only element."""
        if isinstance(self.value, Mapping):
            yield self
        else:
            yield from self.each()

    def json(self) -> str:
        """This value as compact JSON text."""
        try:
            return json.dumps(self.value, ensure_ascii=False, separators=(",", ":"), default=str)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.wrong(f"cannot be written as JSON: {error}") from error

    def _member(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def kind(value: object) -> str:
    """The name of a value's type, in the words of JSON where there is one."""
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
    """Whether this is a list and not a text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def without(value: Mapping[str, Any], *names: str) -> Object:
    """What is left of an object when these members and all nulls are taken out."""
    return {key: each for key, each in value.items() if key not in names and each is not None}


def parsed(text: str) -> Any:
    """The value of a JSON text, or None where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
