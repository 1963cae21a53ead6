"""The list of a project's files in the prompt, and how each folder remembers whether and how deep it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.config.using import tree_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ullage.shell.desk import Desk

TREES = "trees"
"""The preference with what was last asked for, by folder."""


def send(desk: Desk, folder: Path, depth: int | None = None) -> str:
    """Puts the files into the prompt, now and whenever a shell opens there; gives the list.

    Without a depth it is as deep as the last time.
    """
    asked = _remember(desk, folder, lambda asked: {"depth": asked.get("depth") if depth is None else depth})
    return _listed(desk, folder, asked["depth"])


def leave_out(desk: Desk, folder: Path) -> None:
    """Takes the files out of the prompt, and keeps them out when a shell opens there."""
    _remember(desk, folder, lambda asked: {**asked, "off": True})
    desk.context.set_project("")


def take_up(desk: Desk, folder: Path) -> None:
    """Puts the files into the prompt where that was asked for before, or is configured."""
    asked = _remembered(desk, folder)
    wanted = not asked["off"] if "off" in asked else bool(asked) or desk.settings.project.auto_tree
    if wanted:
        _listed(desk, folder, asked.get("depth"))


def _remembered(desk: Desk, folder: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = desk.kept.preferences.get(TREES, {}).get(str(folder), {})
    return found


def _remember(desk: Desk, folder: Path, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    """Changes what is remembered of a folder, and gives it; other shells change theirs meanwhile."""
    place = str(folder)
    trees = desk.kept.preferences.change(TREES, lambda kept: {**kept, place: change(kept.get(place, {}))}, {})
    return trees[place]


def _listed(desk: Desk, folder: Path, depth: int | None) -> str:
    from ullage.project import tree  # noqa: PLC0415 - only who lists files needs it

    options = tree_options(desk.settings)
    text = tree(folder, options if depth is None else replace(options, depth=depth)).text
    desk.context.set_project(text)
    return text
