"""Converts keys and values to Settings and back, by the table of keys."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ullage.config.keys import ROWS, below, find
from ullage.config.settings import (
    CompressSettings,
    ContextSettings,
    CostSettings,
    GoalSettings,
    McpSettings,
    MemorySettings,
    ModelSettings,
    PriceSettings,
    ProjectSettings,
    RoutingSettings,
    Settings,
    ShellSettings,
    StoreSettings,
    TimeoutSettings,
    TokenizeSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ullage.config.key_row import KeyRow
    from ullage.config.lines import KeyPath

CLASSES: Mapping[KeyPath, Callable[..., Any]] = {
    ("context",): ContextSettings,
    ("context", "compress"): CompressSettings,
    ("tokenize",): TokenizeSettings,
    ("routing",): RoutingSettings,
    ("memory",): MemorySettings,
    ("project",): ProjectSettings,
    ("cost",): CostSettings,
    ("store",): StoreSettings,
    ("models", "<name>"): ModelSettings,
    ("models", "<name>", "prices"): PriceSettings,
    ("models", "<name>", "timeouts"): TimeoutSettings,
    ("shell",): ShellSettings,
    ("goal",): GoalSettings,
    ("mcp", "<name>"): McpSettings,
}
"""The class of settings for each table of a file."""
RENAMED = {"model": "default_model"}
"""Fields of `Settings` whose name differs from the key; `Settings.model` is a method."""


def build(values: Mapping[KeyPath, Any], tables: Iterable[KeyPath] = (), **more: Any) -> Settings:
    """Returns settings with these values, and the defaults of all other keys.

    `tables` are the tables with names of the user, such as `models.fast`, which exist even if they are empty.
    """
    known = dict.fromkeys((*values, *tables))
    parts = {RENAMED.get(part, part): _build_value(values, known, (part,), (part,)) for part in below(())}
    return Settings(**parts, plain_model=plain_model(""), **more)


def defaults() -> Settings:
    """Returns the settings of a user who has configured nothing."""
    return build({})


def plain_model(name: str) -> ModelSettings:
    """Returns the settings of a model that is not configured."""
    made: ModelSettings = _build_value({}, {}, ("models", name), ("models", "<name>"))
    return made


def _build_value(
    values: Mapping[KeyPath, Any], known: Mapping[KeyPath, None], path: KeyPath, pattern: KeyPath
) -> Any:
    """Returns a value, a mapping by names of the user, or a section, as the path requires."""
    row = find(pattern)
    if row is not None:
        value = values.get(path, row.default)
        return MappingProxyType(value) if isinstance(value, dict) else value
    inside = below(pattern)
    if inside[0].startswith("<"):
        names = dict.fromkeys(
            each[len(path)] for each in known if len(each) > len(path) and each[: len(path)] == path
        )
        named = {name: _build_value(values, known, (*path, name), (*pattern, inside[0])) for name in names}
        return MappingProxyType(named)
    parts = {part: _build_value(values, known, (*path, part), (*pattern, part)) for part in inside}
    if pattern[-1].startswith("<"):
        parts["name"] = path[-1]
    return CLASSES[pattern](**parts)


def entries(settings: Settings) -> Iterator[tuple[KeyRow, KeyPath, Any]]:
    """Yields every key with its value, in the order of the table; `models.<name>.…` once for each model."""
    for row in ROWS:
        for path, value in _spread(settings, row.path, ()):
            yield row, path, value


def _spread(value: Any, rest: KeyPath, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not rest:
        yield path, value
    elif rest[0].startswith("<"):
        for name, inner in value.items():
            yield from _spread(inner, rest[1:], (*path, name))
    else:
        part = rest[0] if path else RENAMED.get(rest[0], rest[0])
        yield from _spread(getattr(value, part), rest[1:], (*path, rest[0]))
