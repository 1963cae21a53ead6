"""Standing permissions of the user: a command in one folder of one project, or a tool of one server.

An allowance covers nothing else. For the same command in another folder, or a tool of the same name on
another server, the user is asked again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ullage.session.preferences import ALLOWANCES, Allowance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ullage.store.settings import PreferenceStore

COMMAND, TOOL = "command", "tool"


def list_allowances(preferences: PreferenceStore) -> Sequence[Allowance]:
    """Returns all allowances, the oldest first."""
    return list(ALLOWANCES.get(preferences))


def keep_allowance(
    preferences: PreferenceStore, kind: str, text: str, origin: str, project: str = ""
) -> None:
    """Saves a permanent allowance, unless it is saved already."""

    def change(known: tuple[Allowance, ...]) -> tuple[Allowance, ...]:
        if any(each[1:] == (kind, text, origin, project) for each in known):
            return known
        number = 1 + max((each.number for each in known), default=0)
        return (*known, Allowance(number, kind, text, origin, project))

    ALLOWANCES.update(preferences, change)


def forget_allowance(preferences: PreferenceStore, number: int | None) -> Sequence[Allowance]:
    """Deletes the allowance with this number, or all if it is None; returns the deleted ones."""
    gone: list[Allowance] = []

    def change(known: tuple[Allowance, ...]) -> tuple[Allowance, ...]:
        gone[:] = [each for each in known if number in {None, each.number}]
        return tuple(each for each in known if each not in gone)

    ALLOWANCES.update(preferences, change)
    return gone


def allows_command(preferences: PreferenceStore, command: str, folder: Path) -> bool:
    """Returns True if the user allowed exactly this command in this folder and project."""
    wanted = (COMMAND, command, str(folder), str(project_of(folder)))
    return any(each[1:] == wanted for each in list_allowances(preferences))


def list_allowed_tools(preferences: PreferenceStore, server: str) -> set[str]:
    """Returns the allowed tools of the server with this command or address."""
    return {each.text for each in list_allowances(preferences) if each.kind == TOOL and each.origin == server}


def project_of(folder: Path) -> Path:
    """Returns the root of the repository that contains a folder; outside a repository, the folder itself."""
    return next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), folder)
