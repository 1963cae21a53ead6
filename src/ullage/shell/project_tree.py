"""The project tree: a list of the project's files in the system prompt. Each folder keeps its own choice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ullage.session.preferences import PROJECT_TREES, TreeChoice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ullage.config.settings import ProjectSettings
    from ullage.context import Context
    from ullage.store.settings import PreferenceStore


def send_tree(
    context: Context,
    preferences: PreferenceStore,
    settings: ProjectSettings,
    folder: Path,
    depth: int | None = None,
) -> str:
    """Puts the file list into the prompt, now and whenever a shell opens in this folder; returns the list.

    If `depth` is None, the folder's last depth is used.
    """
    choice = _remember(
        preferences, folder, lambda last: TreeChoice(depth=last.depth if depth is None else depth)
    )
    return _list_files(context, settings, folder, choice.depth)


def leave_out_tree(context: Context, preferences: PreferenceStore, folder: Path) -> None:
    """Removes the file list from the prompt, now and whenever a shell opens in this folder."""
    _remember(preferences, folder, lambda last: replace(last, off=True))
    context.set_project("")


def restore_tree(
    context: Context, preferences: PreferenceStore, settings: ProjectSettings, folder: Path
) -> None:
    """Puts the file list into the prompt if the folder's stored choice or the configuration says so."""
    choice = PROJECT_TREES.get(preferences).get(str(folder))
    if settings.auto_tree if choice is None else not choice.off:
        _list_files(context, settings, folder, None if choice is None else choice.depth)


def _remember(
    preferences: PreferenceStore, folder: Path, change: Callable[[TreeChoice], TreeChoice]
) -> TreeChoice:
    """Changes the stored choice of one folder and returns it; safe if other shells do the same."""
    key = str(folder)
    trees = PROJECT_TREES.update(
        preferences, lambda trees: {**trees, key: change(trees.get(key, TreeChoice()))}
    )
    return trees[key]


def _list_files(context: Context, settings: ProjectSettings, folder: Path, depth: int | None) -> str:
    """Lists the files of a folder, puts the list into the prompt, and returns it."""
    from ullage.project import TreeOptions, tree  # noqa: PLC0415 - only a file list needs it

    options = TreeOptions(depth=settings.depth if depth is None else depth, max_chars=settings.max_chars)
    text = tree(folder, options).text
    context.set_project(text)
    return text
