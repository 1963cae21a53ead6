"""Applies a project's own file, `.ullage.toml`, which can only make settings stricter and must be trusted.

Somebody else may have written that file. So it is read only if the user has trusted exactly this content at
exactly this path. Even then it cannot set a program, an address, a key or a prompt, raise a limit, or choose
a model that costs more. `ROWS` in `keys` has the rule of each key, and docs/use/config.md lists them.
"""

from __future__ import annotations

import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.broker.embedded_info import EMBEDDED
from ullage.categories import SUMMARIZE
from ullage.config.keys import find
from ullage.config.problems import Problem
from ullage.config.writer import toml_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ullage.config.documents import FoundValues
    from ullage.config.key_row import KeyRow
    from ullage.config.settings import Settings

NAME = ".ullage.toml"


class OverlayRule(NamedTuple):
    """Rule for the values that a project's file may set for a key."""

    words: str
    """Short form for the table of keys."""
    refusal: str
    """Message for a value that is not allowed; {mine} is the value without the project's file."""
    allows: Callable[[Any, Any, KeyRow, Settings], bool]
    """Returns True if the project's file may set a value. Its arguments are the value without that file, the
    value in that file, the row of the key, and the user's settings."""


RULES: Mapping[str, OverlayRule] = {
    "no": OverlayRule(
        "",
        "a project's file cannot set this: set it in your own configuration",
        lambda *_: False,
    ),
    "lower": OverlayRule(
        "lower only",
        "a project's file can only lower this, and your value is {mine}",
        lambda mine, theirs, *_: theirs == mine or (theirs is not None and (mine is None or theirs <= mine)),
    ),
    "stricter": OverlayRule(
        "stricter only",
        "a project's file can only make this stricter, and your value is {mine}",
        lambda mine, theirs, row, _: row.choices.index(theirs) >= row.choices.index(mine),
    ),
    "off": OverlayRule(
        "off only",
        "a project's file can only turn this off",
        lambda mine, theirs, *_: mine or not theirs,
    ),
    "cheaper": OverlayRule(
        "your models, no more expensive",
        "a project's file can only choose the embedded model, or one of your [models] that is known to cost "
        "no more than {mine}",
        lambda mine, theirs, _, own: _is_no_dearer(mine, theirs, own),
    ),
}


def _is_no_dearer(mine: str | None, theirs: str, own: Settings) -> bool:
    """Returns True for the embedded model, the current one, and a configured one that costs no more."""
    if theirs in {EMBEDDED, mine}:
        return True
    if mine is None or theirs not in own.models:
        return False
    price, most = _prices(theirs, own), _prices(mine, own)
    pairs = zip(price, most, strict=True)
    return all(each is not None and (each == 0 or (top is not None and each <= top)) for each, top in pairs)


def _prices(name: str, own: Settings) -> tuple[Decimal | None, Decimal | None]:
    """Returns the prices of input and output; None for an unknown price."""
    from ullage.config.prices import is_free, prices_by_name  # noqa: PLC0415 - only needed to compare models
    from ullage.cost.prices import prices_of  # noqa: PLC0415 - only needed to compare models

    if is_free(own.model(name)):
        return Decimal(0), Decimal(0)
    prices = prices_by_name(own).get(name) or prices_of(name)
    return prices.input, prices.output


def find_overlay(cwd: Path, home: Path | None) -> Path | None:
    """Returns the nearest `.ullage.toml` from a folder up to its repository's root, or up to `home`.

    In a folder that is in neither, only the folder itself is searched. Returns None if there is no file.
    """
    here = cwd.resolve()
    ways = [here, *here.parents]
    end = home.resolve() if home is not None and home.is_absolute() else None
    # Folders above may belong to anybody, as /tmp does.
    bound = next((each for each in ways if each == end or _is_there(each / ".git")), here)
    within = ways[: ways.index(bound) + 1]
    return next((folder / NAME for folder in within if _is_there(folder / NAME)), None)


def _is_there(path: Path) -> bool:
    """Returns True if the path exists and its folder may be searched."""
    return os.path.lexists(path)


def lay_over(own: Settings, mine: FoundValues, theirs: FoundValues) -> None:
    """Adds the values that a project's file may set, and a problem for each value that it may not set."""
    mine.problems += theirs.problems
    for path in theirs.tables:
        if not any(value[: len(path)] == path for value in theirs.values):  # else its keys are reported below
            mine.problems.append(Problem(theirs.sources[path], path, RULES["no"].refusal))
    for path, value in theirs.values.items():
        row = find(path)
        if row is None:
            continue
        before = mine.values.get(path, row.default)
        if before is None and path[:2] == ("routing", "models") and path[2] != SUMMARIZE:
            before = own.default_model  # the category has no model of its own
        rule = RULES[row.overlay]
        if rule.allows(before, value, row, own):
            mine.values[path] = value
            mine.sources[path] = theirs.sources[path]
        else:
            refusal = rule.refusal.format(mine=toml_of(before, row))
            mine.problems.append(Problem(theirs.sources[path], path, refusal))
