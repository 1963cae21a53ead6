"""One object an API: its reader and writer, its usage, its options, and the parts that may not be cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from ullage.errors import InvalidRequest
from ullage.intake import shown
from ullage.target import ApiName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ullage.messages import Message
    from ullage.wire.fields import BodyField, Object
    from ullage.wire.original import BodyOrigin, Kept
    from ullage.wire.request import Request

Sum: TypeAlias = tuple[tuple[str, ...], ...]
"""Figures to add up: of each group the first place that holds a count; a dot leads into an object."""

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "output limit": ("max_completion_tokens", "max_tokens"),
    "temperature": ("temperature",),
    "nucleus": ("top_p",),
    "stop": ("stop",),
    "stream": ("stream",),
    "parallel": ("parallel_tool_calls",),
}
"""The options that several APIs have, and their names in OpenAI's chat API."""

MOST_TOKENS = 10**9
"""Highest token count of one request that is accepted."""

THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "compaction"})
HISTORIES = frozenset({"compaction", "item_reference"})
"""Types of parts that stand for a piece of the conversation which only the provider's server can read. They
are never removed: nothing else tells the model about that piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API."""

    name: ApiName
    read: Callable[[BodyField], Request]
    """Reads a body."""
    write: Callable[[Request], Object]
    """Writes a body."""
    usage: Mapping[str, Sum] = field(default_factory=dict)
    """Field of `ullage.usage.Usage` → where the usage object of this API has it."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: OPTIONS)
    """Option → its names; the first that is there is read, and the first is written. A dot leads into an
    object."""
    held: tuple[str, ...] = ()
    """Members of a body that name a part of the conversation which only the provider's server holds."""
    leave: Callable[[Request], Request] | None = None
    """Returns a request without the forms of this API, before it is written for another one."""
    members: frozenset[str] | None = None
    """The members of a body, if the API refuses all others, as endpoints do that only count."""
    history: str = ""
    """The member of a body that holds the list of its items; empty if `patch` is None."""
    read_items: Callable[[BodyField, int], Iterator[tuple[Message, BodyOrigin]]] | None = None
    """Reads the items of that list from this position on."""
    patch: Callable[[Object, Sequence[Kept]], Object] | None = None
    """Writes a body again with other messages, and leaves all that did not change as it is. None if a changed
    body of this API can only be written as a whole."""
    form: Callable[[Object], ApiName | None] | None = None
    """Returns the API whose items a body has, if they can be read and patched as there; else None. None for
    an API that wraps no other."""
    sealed: frozenset[str] = THOUGHTS
    """Types of parts that only their own provider can read, as they are signed or encrypted for it. They go
    back to it uncut, and to no other API."""

    def usage_counts(self, reported: Mapping[str, Any]) -> dict[str, int] | None:
        """Returns the figures of a usage object, by the fields of `ullage.usage.Usage`; None without any.

        A figure that is missing, not a whole number or impossible is left out of the sum. `ullage.usage`
        checks that parts are not larger than their totals.
        """
        counts: dict[str, int] = {}
        for name, groups in self.usage.items():
            for group in groups:
                if (count := _first(reported, group)) is not None:
                    counts[name] = counts.get(name, 0) + count
        return counts or None


_OBJECT = (dict, Mapping)
"""A dict is recognised at once; only other mappings need the slower check."""


def _first(usage: Mapping[str, Any], group: tuple[str, ...]) -> int | None:
    """Returns the first count at one of these places; None if none has one."""
    for place in group:
        value = usage.get(place) if "." not in place else _inner(usage, place)
        if value.__class__ is int and 0 <= value <= MOST_TOKENS:  # nearly always
            return value
        if value is None or value.__class__ is bool or not isinstance(value, int | float):
            continue
        if 0 <= value <= MOST_TOKENS:
            count = int(value)  # Cohere and Bedrock write whole numbers as 28.0
            if count == value:
                return count
    return None


def _inner(value: Any, place: str) -> Any:
    """Returns the value at a place with a dot in its name; None if there is none."""
    for step in place.split("."):
        if value is None:
            return None
        value = value.get(step) if isinstance(value, _OBJECT) else None
    return value


MODULES: Mapping[ApiName, str] = {
    "openai.chat": "openai_chat",
    "openai.responses": "openai_responses",
    "openai.responses.input_tokens": "openai_responses",
    "anthropic.messages": "anthropic",
    "anthropic.count_tokens": "anthropic",
    "gemini": "gemini",
    "gemini.count_tokens": "gemini",
    "bedrock.converse": "bedrock",
    "bedrock.invoke": "bedrock_invoke",
    "ollama.chat": "ollama",
    "cohere.chat.v1": "cohere_v1",
    "cohere.chat.v2": "cohere_v2",
}
"""API → the module whose `APIS` has its object; it is loaded when it is first needed."""

APIS: tuple[ApiName, ...] = get_args(ApiName)
"""Every API that can be read and written."""


def api_of(name: ApiName) -> Api:
    """Returns the object of an API; raises InvalidRequest for an unknown name."""
    if not isinstance(name, str) or name not in MODULES:
        raise InvalidRequest(f"unknown API; one of {', '.join(APIS)}", api=shown(name))
    return _load_api(name)


@cache
def _load_api(name: ApiName) -> Api:
    module = import_module(f"ullage.wire.{MODULES[name]}")
    found: Api = next(api for api in module.APIS if api.name == name)
    return found


def is_same(one: ApiName, other: ApiName) -> bool:
    """Returns True if two names are of one API, such as its endpoint for messages and the one for counts."""
    return MODULES.get(one) == MODULES.get(other)
