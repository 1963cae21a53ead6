"""The list of a project's files in the prompt, and how each folder remembers whether and how deep it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.config.using import tree_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ullage.shell.desk import Desk

TREES = "trees"
"""The preference with what was last asked for, by folder."""


def send(desk: Desk, folder: Path, depth: int | None = None) -> str:
    """Puts the files into the prompt, now and whenever a shell opens there; gives the list.

    Without a depth it is as deep as the last time.
    """
    depth = _remembered(desk, folder).get("depth") if depth is None else depth
    _remember(desk, folder, {"depth": depth})
    return _listed(desk, folder, depth)


def leave_out(desk: Desk, folder: Path) -> None:
    """Takes the files out of the prompt, and keeps them out when a shell opens there."""
    _remember(desk, folder, {**_remembered(desk, folder), "off": True})
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


def _remember(desk: Desk, folder: Path, wanted: Mapping[str, Any]) -> None:
    preferences = desk.kept.preferences
    preferences.set(TREES, {**preferences.get(TREES, {}), str(folder): wanted})


def _listed(desk: Desk, folder: Path, depth: int | None) -> str:
    from ullage.project import tree  # noqa: PLC0415 - only who lists files needs it

    options = tree_options(desk.settings)
    text = tree(folder, options if depth is None else replace(options, depth=depth)).text
    desk.context.set_project(text)
    return text
