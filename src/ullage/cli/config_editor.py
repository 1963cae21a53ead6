"""Opens the user's editor on a copy of a settings file, and saves the copy only if it has no problems."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.config.problems import show_path
from ullage.errors import ConfigurationError
from ullage.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.config import Problem

WRONG = 1
"""The exit code if the file was not changed because of its new content."""
EDITORS = ("sensible-editor", "nano", "vim", "vi")
"""Editors to try if neither VISUAL nor EDITOR is set."""


def edit_copy(before: str, save: Callable[[str], None], problems: Callable[[str], Sequence[Problem]]) -> int:
    """Lets the user edit a text, calls `save` with the valid result, and returns the exit code.

    If the result has problems, the user may edit it again. A copy that is not saved stays, with a message.
    """
    folder = Path(tempfile.mkdtemp(prefix="ullage-config-"))  # only its owner can read it
    copy = folder / "config.toml"
    copy.write_text(before, encoding="utf-8")
    try:
        after = _edit_copy(copy, before, problems)
        if after is not None:
            save(after)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}. Your edited copy is {show_path(copy)}") from error
    if after is None:
        return WRONG
    _say("no changes" if after == before else "saved, no problems")
    shutil.rmtree(folder)
    return 0


def _edit_copy(copy: Path, before: str, problems: Callable[[str], Sequence[Problem]]) -> str | None:
    """Returns the text when it has no problems; None if the user gives up, and the copy stays."""
    while True:
        _open_editor(copy)
        try:
            text = copy.read_text(encoding="utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise ConfigurationError("the edited text is not UTF-8, nothing was saved") from error
        found = [] if text == before else problems(text)
        if not found:
            return text
        for problem in found:
            _say(str(problem))
        if not _is_repeated():
            _say(f"not saved: your file is unchanged. Your edited copy is {show_path(copy)}")
            return None


def _open_editor(copy: Path) -> None:
    command = _editor()
    try:
        code = subprocess.run([*command, str(copy)], check=False).returncode  # noqa: S603 - the user's editor
    except OSError as error:
        raise ConfigurationError(
            f"the editor {command[0]} cannot be started: {error.strerror}. Set VISUAL or EDITOR"
        ) from error
    if code:
        raise ConfigurationError(f"the editor {command[0]} failed with exit code {code}, nothing was saved")


def _editor() -> Sequence[str]:
    """Returns the command of the user's editor: VISUAL, EDITOR, or one that is installed."""
    for variable in ("VISUAL", "EDITOR"):
        try:
            command = shlex.split(os.environ.get(variable, ""))
        except ValueError as error:
            raise ConfigurationError(f"{variable} is not a command: {error}") from error
        if command:
            return command
    found = next(filter(None, map(shutil.which, EDITORS)), None)
    if found is None:
        raise ConfigurationError("no editor was found: set VISUAL or EDITOR")
    return [found]


def _is_repeated() -> bool:
    """Asks whether to edit the text again; without a terminal the answer is no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return input("Edit it again? [Y/n] ").strip().lower() not in ("n", "no")
    except (EOFError, KeyboardInterrupt):
        return False


def _say(text: str) -> None:
    sys.stdout.write(f"{printable(text)}\n")
    sys.stdout.flush()
