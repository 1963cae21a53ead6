"""A project's own file, `.ullage.toml`: it can make things safer, never looser, and is trusted first.

Somebody else may have written it. So it is read only when its user has trusted this very content at this
very place, and even then it names no program, no address and no key.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ullage.broker.about import EMBEDDED
from ullage.config.keys import find
from ullage.config.problems import Problem
from ullage.config.writing import toml_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ullage.config.documents import Found
    from ullage.config.keys import Row
    from ullage.config.settings import Settings

NAME = ".ullage.toml"
PREFERENCE = "trusted:"
"""What a path stands behind where trust is kept."""


class Rule(NamedTuple):
    """What a project's file may do with a key."""

    words: str
    """For the table of keys."""
    refusal: str
    """What is said of a value that is not allowed; {mine} is what holds without it."""
    allows: Callable[[Any, Any, Row, Settings], bool]
    """(what holds without it, what it says, the row, the user's own settings)."""


RULES: Mapping[str, Rule] = {
    "no": Rule(
        "",
        "a project's file cannot set this: it belongs in your own configuration",
        lambda *_: False,
    ),
    "any": Rule("any", "", lambda *_: True),
    "lower": Rule(
        "lower only",
        "a project's file can only lower this, and it is {mine}",
        lambda mine, theirs, *_: theirs == mine or (theirs is not None and (mine is None or theirs <= mine)),
    ),
    "stricter": Rule(
        "stricter only",
        "a project's file can only make this stricter, and it is {mine}",
        lambda mine, theirs, row, _: row.choices.index(theirs) >= row.choices.index(mine),
    ),
    "off": Rule(
        "off only",
        "a project's file can only turn this off",
        lambda mine, theirs, *_: mine or not theirs,
    ),
    "own": Rule(
        "models of yours",
        "a project's file can only name the embedded model or one of your own [models]",
        lambda mine, theirs, _, own: theirs in own.models or theirs in (mine, EMBEDDED),
    ),
}


def find_overlay(cwd: Path, home: Path | None) -> Path | None:
    """The nearest file from a folder up to its repository's root, or up to home; elsewhere in it alone."""
    here = cwd.resolve()
    ways = [here, *here.parents]
    end = home.resolve() if home is not None and home.is_absolute() else None
    # Beyond its bound a folder may belong to anybody, as /tmp does.
    bound = next((each for each in ways if each == end or _is_there(each / ".git")), here)
    within = ways[: ways.index(bound) + 1]
    return next((folder / NAME for folder in within if _is_there(folder / NAME)), None)


def _is_there(path: Path) -> bool:
    """Whether there is one, as far as we may look."""
    return os.path.lexists(path)


def lay_over(own: Settings, mine: Found, theirs: Found) -> None:
    """Adds what a project's file may set to what was found, and a problem for all that it may not."""
    mine.problems += theirs.problems
    for path in theirs.tables:
        if not any(value[: len(path)] == path for value in theirs.values):  # else its keys are told
            mine.problems.append(Problem(theirs.sources[path], path, RULES["no"].refusal))
    for path, value in theirs.values.items():
        row = find(path)
        if row is None:
            continue
        before = mine.values.get(path, row.default)
        rule = RULES[row.overlay]
        if rule.allows(before, value, row, own):
            mine.values[path] = value
            mine.sources[path] = theirs.sources[path]
        else:
            told = rule.refusal.format(mine=toml_of(before, row))
            mine.problems.append(Problem(theirs.sources[path], path, told))


# Trust


class Preferences(Protocol):
    """Where trust is kept: `store.open().preferences` is one."""

    def get(self, name: str, default: Any = None) -> Any:
        """What was kept."""
        ...

    def set(self, name: str, value: Any) -> None:
        """Keeps it."""
        ...


def trust_in(preferences: Preferences) -> Callable[[Path, str], bool]:
    """Whether a file with this content was trusted, as `load` asks for it."""
    return lambda path, sha256: preferences.get(f"{PREFERENCE}{path}") == sha256


def trust(preferences: Preferences, path: Path, sha256: str | None) -> None:
    """Trusts a file with this content from now on; with None as the content, no longer."""
    preferences.set(f"{PREFERENCE}{path}", sha256)
