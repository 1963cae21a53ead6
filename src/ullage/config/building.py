"""From keys and values to Settings, and back: both go by the table of keys."""

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
    TokenizeSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ullage.config.keys import Row

Path = tuple[str, ...]

CLASSES: Mapping[Path, Callable[..., Any]] = {
    ("context",): ContextSettings,
    ("context", "compress"): CompressSettings,
    ("tokenize",): TokenizeSettings,
    ("routing",): RoutingSettings,
    ("memory",): MemorySettings,
    ("project",): ProjectSettings,
    ("cost",): CostSettings,
    ("models", "<name>"): ModelSettings,
    ("models", "<name>", "prices"): PriceSettings,
    ("shell",): ShellSettings,
    ("goal",): GoalSettings,
    ("mcp", "<name>"): McpSettings,
}
"""What each table of a file becomes."""
RENAMED = {"model": "default_model"}
"""Keys at the top whose name is taken by something else there."""


def build(values: Mapping[Path, Any], tables: Iterable[Path] = (), **more: Any) -> Settings:
    """Settings of these values, the defaults for all others; `tables` are there even where they are empty."""
    known = dict.fromkeys((*values, *tables))
    return Settings(
        **{RENAMED.get(part, part): _made(values, known, (part,), (part,)) for part in below(())}, **more
    )


def defaults() -> Settings:
    """The settings of a user who has set nothing."""
    return build({})


def plain_model(name: str) -> ModelSettings:
    """A model of which nothing is configured."""
    made: ModelSettings = _made({}, {}, ("models", name), ("models", "<name>"))
    return made


def _made(values: Mapping[Path, Any], known: Mapping[Path, None], path: Path, pattern: Path) -> Any:
    """What stands at a path: a value, a mapping of the user's own names, or a section."""
    row = find(pattern)
    if row is not None:
        value = values.get(path, row.default)
        return MappingProxyType(value) if isinstance(value, dict) else value
    inside = below(pattern)
    if inside[0].startswith("<"):
        names = dict.fromkeys(
            each[len(path)] for each in known if len(each) > len(path) and each[: len(path)] == path
        )
        named = {name: _made(values, known, (*path, name), (*pattern, inside[0])) for name in names}
        return MappingProxyType(named)
    parts = {part: _made(values, known, (*path, part), (*pattern, part)) for part in inside}
    if pattern[-1].startswith("<"):
        parts["name"] = path[-1]
    return CLASSES[pattern](**parts)


def entries(settings: Settings) -> Iterator[tuple[Row, Path, Any]]:
    """Every key with its value, in the order of the table; keys below own names once for each name."""
    for row in ROWS:
        for path, value in _spread(settings, row.path, ()):
            yield row, path, value


def _spread(value: Any, rest: Path, path: Path) -> Iterator[tuple[Path, Any]]:
    if not rest:
        yield path, value
    elif rest[0].startswith("<"):
        for name, inner in value.items():
            yield from _spread(inner, rest[1:], (*path, name))
    else:
        part = rest[0] if path else RENAMED.get(rest[0], rest[0])
        yield from _spread(getattr(value, part), rest[1:], (*path, rest[0]))
