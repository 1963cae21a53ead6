"""`ullage config set`, `unset` and `edit`: change your own file, which is checked before it is replaced."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.config import InvalidSettings
from ullage.config.changes import parse_key, set_key, unset_key, value_of
from ullage.config.documents import Document, config_path, read_file
from ullage.config.keys import find
from ullage.config.loader import preview
from ullage.config.problems import join_key, show_path
from ullage.config.writer import initial, public, replace_file
from ullage.errors import ConfigurationError
from ullage.extras import require
from ullage.shell.status import check_settings
from ullage.text import printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ullage.config import Problem, Settings


def set_value(options: Namespace) -> int:
    """Sets a key in the user's file, and prints its new value."""
    path = parse_key(options.key)
    value = value_of(options.value, path)
    settings = _change(options, lambda text: set_key(text, path, value))
    _print_value(settings, path)
    return 0


def unset_value(options: Namespace) -> int:
    """Removes a key from the user's file, and prints the value that is now in effect."""
    path = parse_key(options.key)
    settings = _change(options, lambda text: unset_key(text, path))
    _print_value(settings, path)
    return 0


def edit_file(options: Namespace) -> int:
    """Opens an editor on a copy of the user's file; the checked copy replaces the file."""
    from ullage.cli.config_editor import edit_copy  # noqa: PLC0415 - only this action needs it

    document = _own(options)
    before = _text(document) if document.content else initial()
    return edit_copy(before, lambda text: _save(document, text), problems=lambda text: _check(document, text))


def _change(options: Namespace, change: Callable[[str], str]) -> Settings:
    """Changes the text of the user's file, and saves it if that causes no new problem."""
    require("shell", "tomlkit")
    document = _own(options)
    text = _text(document) if document.content else initial()
    known = {(problem.path, problem.text) for problem in _check(document, text)}
    if any(not path for path, _ in known):  # invalid TOML or UTF-8
        raise InvalidSettings(_check(document, text))
    changed = change(text)
    new = [each for each in _check(document, changed) if (each.path, each.text) not in known]
    if new:
        raise InvalidSettings(new)
    _save(document, changed)
    return preview(Document(document.path, changed.encode()), os.environ)[0]


def _own(options: Namespace) -> Document:
    """Returns the user's file; an empty document if it does not exist yet."""
    path = Path(options.config).expanduser() if options.config else config_path(os.environ)
    try:
        return read_file(path)
    except FileNotFoundError:
        return Document(path, b"")


def _text(document: Document) -> str:
    try:
        return document.content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{show_path(document.path)} is not UTF-8: save it as UTF-8") from error


def _check(document: Document, text: str) -> list[Problem]:
    """Returns the problems of a file with this text; variables of the environment are not its problems."""
    settings, problems = preview(Document(document.path, text.encode()), os.environ)
    try:
        check_settings(settings)
    except InvalidSettings as error:
        problems += error.problems
    return [problem for problem in problems if problem.source not in os.environ]


def _save(document: Document, text: str) -> None:
    """Replaces the file, unless somebody else has changed it since it was read."""
    try:
        now = read_file(document.path).content
    except FileNotFoundError:
        now = b""
    if now != document.content:
        raise ConfigurationError(
            f"{show_path(document.path)} was changed by another program meanwhile: run the command again"
        )
    ending = "\r\n" if b"\r\n" in document.content else "\n"
    replace_file(document.path, text.replace("\n", ending).encode())


def _print_value(settings: Settings, path: tuple[str, ...]) -> None:
    """Prints a key with its value in effect, and names the variable that overrides the file."""
    from ullage.config.builder import entries  # noqa: PLC0415 - only needed at the end

    row = find(path)
    for each, key, value in entries(settings):
        if key == path and row is not None:
            _say(f"{f'{join_key(path)} = {public(value, each)}':<56}  # {settings.source(*path)}")
            if row.variable is not None and os.environ.get(row.variable):
                _complain(f"the variable {row.variable} overrides your file in this terminal")
            return
    _say(f"{join_key(path)} is no longer set")


def _complain(text: str) -> None:
    from ullage.cli.complaint import complain  # noqa: PLC0415 - only needed for a notice

    complain(text)


def _say(text: str) -> None:
    sys.stdout.write(f"{printable(text).rstrip()}\n")
