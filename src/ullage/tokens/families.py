"""The table of model families: the vocabulary, framing and margins of each.

The rows are in `families.toml`, where a person can read and change them. `scripts/derive_families.py` derives
their figures from recorded provider usage. The margins are in `margins.toml`, one set for each kind of
family. `scripts/derive_margins.py` writes that file.
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
    from collections.abc import Collection, Iterator, Mapping

    from ullage.target import ApiName


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Token costs of tool definitions, or of a structured-output schema."""

    rule: str = "json"
    """Name of the rule in `definitions.py` that writes the definitions as text: `json`, `free` (not charged),
    for tools `values` and OpenAI's `typescript`, for schemas OpenAI's `section`."""
    scale: float | None = None
    """Tokens of this family for one token of the vocabulary; None means the family's own `scale`."""
    once: int = 0
    """Tokens that a request with definitions costs in addition."""
    steady: bool = False
    """True if `once` is the provider's own prompt, which is the same in each request. The ceiling then adds a
    share to the definitions, and none to this prompt and to what a tool choice adds to it."""
    each: int = 0
    """Tokens of each tool in addition to its text."""
    property: int = 0
    """Tokens of each named member of the schemas in addition to its text."""
    object: int = 0
    """Tokens of a request for JSON without a schema."""
    forced: int = 0
    """Tokens of a tool choice that forces a call."""
    named: int = 0
    """Tokens of a tool choice that names one tool, in addition to the name; 0 if the name is not repeated."""
    sole: bool = False
    """True if a forced call with a single tool is charged like a tool choice that names the tool."""
    none: bool = False
    """True if the definitions are charged although the tool choice forbids every call."""
    no_system: int = 0
    """Additional tokens if the request has no system message."""
    after_word: int = 0
    """Additional tokens if the system message ends in a word: the break after a word is a token of its
    own."""
    maybe: int = 0
    """Tokens that some requests were charged and similar ones were not. Only the ceiling includes them."""
    margin: float | None = None
    """Share by which the ceiling is above the estimate; None means the family's own `margin`."""
    margin_once: int = 0
    """Tokens by which the ceiling of a request with definitions is above the estimate."""
    margin_each: int = 0
    """Tokens by which each tool after the second raises the ceiling above the estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The counting rules of one family of models. Costs are in tokens."""

    name: str
    models: tuple[str, ...] = ()
    """Prefixes of model names, lower case. A prefix may include a provider's prefix (`openai/gpt-oss`)."""
    kind: str = ""
    """Name of the set of margins in `margins.toml`; empty for a row that has its own margins."""
    apis: tuple[str, ...] = ()
    """The maker's own APIs, where its own rule applies. Through any other API the model is served by a host.
    If the list is empty, a model is served by a host if its name has a vendor's prefix (`meta-llama/…`)."""
    vocabulary: str = "o200k"
    scale: float = 1.0
    """Tokens of this family for one token of the vocabulary."""
    exact: bool = False
    """True if plain text and its framing are counted by the provider's own rule."""

    request: int = 3
    """Cost of each request."""
    thinking: int = 0
    """Cost of each request that asks the model to think."""
    no_system: int = 0
    """Cost of each request without a system message: the template then inserts a default prompt."""
    message: int = 4
    """Cost of a message and its role, in addition to its content."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """`message` for the roles that differ: `roles = { tool = 5, assistant = 3 }`."""
    name_field: int = 1
    """Cost of a `name` field, in addition to its text."""
    call: int = 3
    """Cost of a tool call, in addition to its name and its arguments."""
    call_names: tuple[str, ...] = ("{}",)
    """Texts that contain the name of the called function, in the call and in its result."""
    compact: bool = False
    """True if the JSON of arguments is written without spaces."""
    parallel: int = 0
    """Cost of a step with several calls, in addition to the JSON that wraps the calls and their results; 0 if
    calls are charged one by one."""
    margin_call: int = 0
    """Tokens by which the ceiling of a step with one call is above its estimate."""
    margin_parallel: int = 0
    """Tokens by which the ceiling of a step with several calls is above its estimate."""
    call_scale: float | None = None
    """Tokens of this family for one token of a call's name and arguments; None means `scale`."""
    argument: int = 0
    """Cost of each argument of a call, in addition to its text."""
    result_scale: float | None = None
    """Tokens of this family for one token of a tool result; None means `scale`. Results are more often code
    or data than prose."""

    late_tools: int = 0
    """Cost of a message that brings in tools, in addition to their JSON. The ceiling adds half of this
    again."""
    citations: int = 0
    """Cost of a message with documents or search results that the model may cite."""

    tools: Definitions = field(default_factory=Definitions)
    schema: Definitions = field(default_factory=Definitions)
    image: str = "flat"
    """Name of the rule in `images.py` that counts an image."""

    maybe: int = 0
    """Tokens that some requests were charged and similar ones were not. Only the ceiling includes them."""
    margin: float = 0.0
    """Share by which the ceiling of a text is above its estimate."""
    margin_once: int = 0
    """Tokens by which the ceiling of a request is above its estimate."""
    margin_continued: int = 0
    """Additional tokens of the ceiling if a structured answer has to continue an assistant message."""
    bound: str = "margin"
    """Name of the bound in `ceilings.py` that the ceiling of a text includes: `margin` (none), `scaled`
    (one-sided texts, for which an average over many words is a poor guide), `any` (every modern vocabulary),
    `every` (also the vocabularies that are not public), `small` (a vocabulary of about 50,000 pieces)."""


_FIELDS = frozenset(each.name for each in fields(Family)) - {"name"}
_NESTED = {"tools": Definitions, "schema": Definitions}
SAME = {
    "openai.responses.input_tokens": "openai.responses",
    "anthropic.count_tokens": "anthropic.messages",
    "gemini.count_tokens": "gemini",
}
"""API that only counts → API whose requests it counts. Both charge the same."""


def _same(api: ApiName | None) -> str | None:
    return None if api is None else SAME.get(api, api)


_ROW_ONLY = frozenset({"like", "api", "host", "models", "words", "default_for"})
_TUPLES = ("call_names", "apis")


@functools.cache
def rows() -> dict[str, dict[str, Any]]:
    """Returns the table as it is in `families.toml`."""
    return tomllib.loads(Path(__file__).with_name("families.toml").read_text("utf-8"))


@functools.cache
def margins() -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the content of `margins.toml`: kind of family → channel → part of a request → figures."""
    return tomllib.loads(Path(__file__).with_name("margins.toml").read_text("utf-8"))


@functools.cache
def family(name: str, api: ApiName | None = None, *, host: bool = False) -> Family:
    """Returns the row of that name with inherited values, changes for `api` or a host, and margins."""
    values = _values(rows(), name, api, host)
    known = margins().get(values.get("kind", ""), {})
    wide = margin_values(known.get(channel(known, api, host=host), {}))
    _overlay(wide, values)
    return make_family(name, wide, rows()[name].get("models", ()))


def channel(known: Collection[str], api: ApiName | None, *, host: bool) -> str:
    """Returns the channel (`host`, an API or `own`) whose margins apply; `known` has margins for each."""
    if host and "host" in known:
        return "host"
    own = _same(api)
    return own if own is not None and own in known else "own"


def margin_values(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the margins of the parts of a request under the names that a row uses."""
    values: dict[str, Any] = {}
    for part, figures in parts.items():
        named = {_MARGIN[key]: value for key, value in figures.items()}
        values.update(named if part == "text" else {part: named})
    return values


_MARGIN = {"share": "margin", "once": "margin_once", "each": "margin_each"}


def make_family(name: str, values: Mapping[str, Any], models: tuple[str, ...] = ()) -> Family:
    """Returns a family from the values of a row; raises ConfigurationError for an unknown key."""
    unknown = values.keys() - _FIELDS
    if unknown:
        raise ConfigurationError(
            f"family {name!r} has unknown keys: {', '.join(sorted(unknown))}; remove or rename them"
        )
    nested = {key: kind(**values[key]) for key, kind in _NESTED.items() if key in values}
    tuples = {key: tuple(values[key]) for key in _TUPLES if key in values}
    return Family(name=name, models=tuple(models), **{**values, **nested, **tuples})


def _values(
    table: Mapping[str, Mapping[str, Any]], name: str, api: ApiName | None, host: bool = False
) -> dict[str, Any]:
    """Returns the values of a row: those of its `like` row, then its own, then `api` and `host`."""
    row = table[name]
    values = _values(table, row["like"], api, host) if "like" in row else {}
    _overlay(values, row)
    if api is not None:
        _overlay(values, row.get("api", {}).get(_same(api), {}))
    if host:
        _overlay(values, row.get("host", {}))
    return values


def _overlay(values: dict[str, Any], row: Mapping[str, Any]) -> None:
    for key, value in row.items():
        if key in _ROW_ONLY:
            continue
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value


@functools.cache
def _prefixes() -> dict[str, str]:
    return {prefix: name for name, row in rows().items() for prefix in row.get("models", ())}


@functools.cache
def _defaults() -> dict[str | None, str]:
    """Returns the row for each API whose requests need not name a model."""
    return {api: name for name, row in rows().items() for api in row.get("default_for", ())}


@functools.cache
def _words() -> dict[str, str]:
    """Returns the family for each word that is enough in a name without a known prefix."""
    return {word: name for name, row in rows().items() for word in row.get("words", ())}


_WORD = re.compile("[a-z]+")


@functools.lru_cache(1024)
def family_name(model: str | None) -> str:
    """Returns the family of a model's name: of its longest prefix, else of a word in it, else `unknown`."""
    if model is None:
        return "unknown"
    prefixes = _prefixes()
    best = longest_prefix(model, prefixes)
    if best is not None:
        return prefixes[best]
    words = _words()
    return next((words[word] for word in _WORD.findall(model.lower()) if word in words), "unknown")


def family_of(model: str | None, api: ApiName | None = None, endpoint: str = "") -> Family:
    """Returns the family of a model, with the rules for `api` and `endpoint` if those are known."""
    name = family_name(model) if model is not None else _defaults().get(_same(api), "any")
    return family(name, api, host=is_hosted(model, api, family(name).apis, endpoint))


_OWN_SERVER = re.compile(
    r"embedded:|\w+://(?:[^/@]*@)?(?:localhost|127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|\[(?:::1|f[cd])|[\w-]+(?::|/|$)"
    r"|[\w.-]+\.(?:local|lan|internal|home\.arpa)(?::|/|$))",
    re.IGNORECASE,
)
"""Addresses on this machine or in a private network. A server there belongs to the user."""


def is_hosted(model: str | None, api: ApiName | None, apis: Collection[str], endpoint: str = "") -> bool:
    """Returns True if the server is not the model's maker, and may use a template of its own.

    `apis` are the maker's own APIs. A server on this machine or in a private network belongs to the user, and
    is not a host.
    """
    if model is None or _OWN_SERVER.match(endpoint):
        return False
    if api is not None and apis:
        return _same(api) not in apis
    return "/" in model


_REGION_OR_VENDOR = re.compile(r"[a-z]+\.")


def longest_prefix(model: str, prefixes: Mapping[str, object]) -> str | None:
    """Returns the longest of `prefixes` that `model` begins with, with or without its provider's prefixes."""
    best: str | None = None
    for start, name in _spellings(model.lower()):
        # A prefix must be longer than the provider's part: `mistral` is not the family of
        # `mistralai/mixtral`.
        for end in range(len(name), start, -1):
            if name[:end] in prefixes:
                if best is None or end > len(best):
                    best = name[:end]
                break
    return best


def _spellings(name: str) -> Iterator[tuple[int, str]]:
    """Yields each spelling with the length of its provider's part: `anthropic/claude-x`, then `claude-x`."""
    name = name.removeprefix("ft:").removeprefix("databricks-")
    own = name.rfind("/") + 1
    while match := _REGION_OR_VENDOR.match(name, own):
        own = match.end()
    starts = {0, own} | {at + 1 for at, character in enumerate(name[:own]) if character in "/."}
    for start in sorted(starts):
        yield own - start, name[start:]
