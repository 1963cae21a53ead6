"""A model family as a row of data: which vocabulary, which framing, which margin.

The rows are in `families.toml`, where a person can read and change them; `scripts/derive_families.py`
derives their figures from recorded provider usage.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """How tool definitions, or a structured-output schema, are charged."""

    rule: str = "json"
    """The text that stands for them (`definitions.py`): `json`, `free` (not charged), for tools `values` and
    OpenAI's `typescript`, for schemas OpenAI's `section`."""
    scale: float | None = None
    """Tokens of this family for one token of the vocabulary; None means the family's own `scale`."""
    once: int = 0
    """What their presence adds to a request."""
    each: int = 0
    """What every tool adds."""
    property: int = 0
    """What every named member of their schemas adds."""
    object: int = 0
    """What asking for JSON without a schema adds."""
    forced: int = 0
    """What a tool choice that demands a call adds."""
    named: int = 0
    """What a tool choice that names one tool adds beside the name; 0 where the name is not repeated."""
    sole: bool = False
    """Whether demanding a call where there is one tool counts as naming it."""
    none: bool = False
    """Whether they are charged even where the tool choice forbids every call."""
    no_system: int = 0
    """What they add on top where the request has no system message."""
    after_word: int = 0
    """What they add on top where the system message ends in a word: the break after it is a token there."""
    margin: float | None = None
    """The share by which the ceiling stands above the estimate; None means the family's own `margin`."""
    margin_once: int = 0
    """Tokens by which the ceiling stands above the estimate, once a request, where they are present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How one family of models is counted."""

    name: str
    models: tuple[str, ...] = ()
    """Prefixes of model names, lower case. One may reach into a provider's prefix (`openai/gpt-oss`)."""
    vocabulary: str = "o200k"
    scale: float = 1.0
    """Tokens of this family for one token of the vocabulary."""
    exact: bool = False
    """Whether plain text and its framing are counted by the provider's own rule."""

    request: int = 3
    """Once a request."""
    thinking: int = 0
    """Once a request that asks the model to think."""
    no_system: int = 0
    """Once a request that has no system message (a default prompt that the template puts in)."""
    message: int = 4
    """A message, its role included, beside its content."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """The same by role, where it differs: `roles = { tool = 5, assistant = 3 }`."""
    name_field: int = 1
    """A `name` field, beside its text."""
    call: int = 3
    """A tool call, beside its name and its arguments."""
    call_names: tuple[str, ...] = ("{}",)
    """The texts in which the name of a called function stands, in the call and in its result."""
    compact: bool = False
    """Whether the JSON of arguments is written without spaces."""
    parallel: int = 0
    """A step of several calls, beside the JSON in which they and their results are wrapped; 0 where they are
    charged one by one."""
    margin_parallel: int = 0
    """Tokens by which the ceiling of a step of several calls stands above its estimate."""
    call_scale: float | None = None
    """Tokens for one token of a call's name and arguments; None means `scale`."""
    argument: int = 0
    """An argument of a call, beside its text."""
    result_scale: float | None = None
    """Tokens for one token of a tool result, code or data more often than prose; None means `scale`."""

    late_tools: int = 0
    """A message that brings tools in, beside their JSON; the ceiling has half as much again."""
    citations: int = 0
    """A message with documents or search results that the model may cite."""

    tools: Definitions = field(default_factory=Definitions)
    schema: Definitions = field(default_factory=Definitions)
    image: str = "flat"
    """The rule of `images.py` that prices an image."""

    margin: float = 0.0
    """The share by which the ceiling of a text stands above its estimate."""
    margin_once: int = 0
    """Tokens by which the ceiling of a request stands above its estimate."""
    margin_continued: int = 0
    """The same where a structured answer has to go on from an assistant's message."""
    bound: str = "margin"
    """What else the ceiling of a text holds for (`bounds.py`): `margin` (nothing), `scaled` (one-sided texts,
    of which an average over many words says little), `any` (every modern vocabulary)."""


_FIELDS = frozenset(each.name for each in fields(Family)) - {"name"}
_NESTED = {"tools": Definitions, "schema": Definitions}
SAME = {
    "openai.responses.input_tokens": "openai.responses",
    "anthropic.count_tokens": "anthropic.messages",
    "gemini.count_tokens": "gemini",
}
"""APIs that charge like another: they count for it."""
_ROW_ONLY = frozenset({"like", "api", "models"})


@functools.cache
def rows() -> dict[str, dict[str, Any]]:
    """The table as it is written."""
    return tomllib.loads(Path(__file__).with_name("families.toml").read_text("utf-8"))


@functools.cache
def family(name: str, api: str | None = None) -> Family:
    """The row of that name, with what it inherits and what `api` changes filled in."""
    return make_family(name, _values(rows(), name, api), rows()[name].get("models", ()))


def make_family(name: str, values: Mapping[str, Any], models: tuple[str, ...] = ()) -> Family:
    """A family from the values of a row; ConfigurationError for a key that no family has."""
    unknown = values.keys() - _FIELDS
    if unknown:
        raise ConfigurationError(f"family {name!r}: unknown keys {', '.join(sorted(unknown))}")
    nested = {key: kind(**values[key]) for key, kind in _NESTED.items() if key in values}
    tuples = {key: tuple(values[key]) for key in ("call_names",) if key in values}
    return Family(name=name, models=tuple(models), **{**values, **nested, **tuples})


def _values(table: Mapping[str, Mapping[str, Any]], name: str, api: str | None) -> dict[str, Any]:
    """A row's values over those of the row it is `like`, then what the row says about `api`."""
    row = table[name]
    values = _values(table, row["like"], api) if "like" in row else {}
    _overlay(values, row)
    if api is not None:
        _overlay(values, row.get("api", {}).get(SAME.get(api, api), {}))
    return values


def _overlay(values: dict[str, Any], row: Mapping[str, Any]) -> None:
    for key, value in row.items():
        if key in _ROW_ONLY:
            continue
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value


@functools.cache
def _prefixes() -> dict[str, str]:
    return {prefix: name for name, row in rows().items() for prefix in row.get("models", ())}


@functools.lru_cache(1024)
def family_name(model: str) -> str:
    """The name of the family with the longest prefix of the model's name; `unknown` where none matches."""
    prefixes = _prefixes()
    best = longest_prefix(model, prefixes)
    return "unknown" if best is None else prefixes[best]


def family_of(model: str, api: str | None = None) -> Family:
    """The family of a model, as charged through `api` where that makes a difference."""
    return family(family_name(model), api)


_REGION_OR_VENDOR = re.compile(r"[a-z]+\.")


def longest_prefix(model: str, prefixes: Mapping[str, object]) -> str | None:
    """The longest of `prefixes` that `model` begins with, with or without its provider's prefixes."""
    best: str | None = None
    for start, name in _spellings(model.lower()):
        # A prefix must reach past what is the provider's: `mistral` is not the family of `mistralai/mixtral`.
        for end in range(len(name), start, -1):
            if name[:end] in prefixes:
                if best is None or end > len(best):
                    best = name[:end]
                break
    return best


def _spellings(name: str) -> Iterator[tuple[int, str]]:
    """`openrouter/anthropic/claude-x`, `anthropic/claude-x`, `claude-x`: where each one's own name begins."""
    name = name.removeprefix("ft:")
    own = name.rfind("/") + 1
    while match := _REGION_OR_VENDOR.match(name, own):
        own = match.end()
    starts = {0, own} | {at + 1 for at, character in enumerate(name[:own]) if character in "/."}
    for start in sorted(starts):
        yield own - start, name[start:]
