"""Lines that mean the same in every shell, whatever they read like: comments, paths, `wait` and `!!`."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from ullage.safety.input_line import InputDecision

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

AGAIN = re.compile(r"(?P<before>[\w./-]+[ \t]+)?!!")
"""Runs the last command again, also behind one word: `!!`, `sudo !!`."""
_PATH = re.compile(r"(?:\.{1,2}|~)(?:/\S*)?")


def decide_by_habit(
    text: str, *, metas: Container[str], folder: Path, has_jobs: bool, last: str
) -> InputDecision | None:
    """Returns the decision about such a line, or None if the line is another one.

    `metas` are the names of the shell's own commands, which may also begin with a slash. `has_jobs` is True
    if bash has background jobs, and `last` is the command that ran last; it may be empty.
    """
    if text.startswith("#") and "\n" not in text:
        return InputDecision("nothing", text)
    if text == "wait" and has_jobs:
        return InputDecision("shell", text)
    if last and (again := AGAIN.fullmatch(text)):
        line = f"{again['before'] or ''}{last}"
        return InputDecision("shell", line, hint=f"$ {line}")
    words = text.split(maxsplit=2)
    if not words:
        return None
    is_meta = words[0][1:] in metas
    is_path = _PATH.fullmatch(words[0]) or (
        words[0].startswith("/") and not is_meta and _exists(folder / words[0])
    )
    if is_path and (len(words) == 1 or words[1].startswith("-")):
        return InputDecision("shell", text)  # bash says what is wrong with it
    return None


def _exists(path: Path) -> bool:
    with suppress(OSError, ValueError):  # too long, or no valid path
        return path.exists()
    return False
