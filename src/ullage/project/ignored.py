"""What git ignores, by pathspec's reading of the patterns.

pathspec turns each line into a regular expression for a path and all that lies below it. Here a path is
asked for on its own, from the top of the tree downwards, as git does: a pattern that takes a folder back
says nothing about the files in it. Unlike in git a question mark stands for a character, not for a byte.
"""

from __future__ import annotations

import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

PATTERN_BYTES = 1 << 18
"""How much of one file of patterns is read."""

PATTERN_LINES = 2_000
"""How many of its lines are."""


class Pattern(NamedTuple):
    """One line."""

    regex: re.Pattern[str]
    ignored: bool
    """False for a line that takes back."""


class Rules(NamedTuple):
    """The patterns of one file; they see paths from the folder of that file."""

    start: int
    """How much of a path lies above that folder."""
    patterns: tuple[Pattern, ...]
    """The last that matches decides, so the last comes first."""


def is_ignored(path: str, rules: Sequence[Rules], *, folder: bool) -> bool:
    """Whether the nearest file of patterns that has a word on this entry ignores it.

    The folders above it are not asked about: the walk has not gone into one that is ignored.
    """
    for start, patterns in reversed(rules):
        seen = path[start:]
        for regex, ignored in patterns:
            if _matches(regex, seen) or (folder and _matches_folder(regex, seen + "/")):
                return ignored
    return False


def _matches(regex: re.Pattern[str], path: str) -> bool:
    # A group of the expression marks the slash after a match that is a folder above the path.
    found = regex.search(path)
    return found is not None and found.lastgroup is None


def _matches_folder(regex: re.Pattern[str], path: str) -> bool:
    return any(found.lastgroup and found.end() == len(path) for found in regex.finditer(path))


def rules_of(lines: Iterable[str], start: int) -> tuple[Rules, ...]:
    """The rules that lines make, none where they make none."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415 - only where it is used

    patterns: list[Pattern] = []
    for line in lines:
        # A pattern that cannot be read matches nothing, as in git.
        with suppress(ValueError, re.error):
            text, ignored = GitIgnoreSpecPattern.pattern_to_regex(_plain_classes(line))
            if text is not None and ignored is not None:
                patterns.append(Pattern(re.compile(_safe(text), re.DOTALL), ignored))
    return (Rules(start, tuple(reversed(patterns))),) if patterns else ()


def lines_of(path: Path) -> list[str]:
    """The lines of a file of patterns; none where there is no plain file of that name."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return []
        with path.open("rb") as file:
            data = file.read(PATTERN_BYTES)
    except OSError:
        return []
    lines = data.decode("utf-8-sig", "surrogateescape").split("\n")
    return [line.removesuffix("\r") for line in lines[:PATTERN_LINES]]


_CLASSES = {
    "[:alnum:]": "A-Za-z0-9",
    "[:alpha:]": "A-Za-z",
    "[:blank:]": " \t",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:space:]": " \t\n\r\f\v",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "A-Fa-f0-9",
}


def _plain_classes(line: str) -> str:
    """The line with the named classes of POSIX spelled out; pathspec does not know them."""
    if "[:" in line:
        for name, members in _CLASSES.items():
            line = line.replace(name, members)
    return line


_SET = re.compile(r"(?<!\\)\[(\^?)(\]?[^\]]*)\]")
_STARS = re.compile(r"(?:\[\^/\]\*){2,}")
_ATOM = r"(?:\\.|\[\^/\](?![*+])|(?:\(\?!/\))?\[(?!\^/\])\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\](){}*+?|^$/.])"
_STAR_THEN = re.compile(rf"\[\^/\]\*({_ATOM}+)(?=\[\^/\]\*)")


def _safe(text: str) -> str:
    """The same expression without its traps.

    A text between two stars is looked for once, at its first place: a hostile pattern with many stars would
    otherwise take time beyond all bounds on a long name. A set never matches a slash, and what Python's
    expressions would read into one is escaped. A name may end in a newline, which `$` would pass over.
    """
    text = _SET.sub(_plain_set, text)
    text = _STAR_THEN.sub(r"(?>[^/]*?\1)", _STARS.sub("[^/]*", text))
    return text.removesuffix("|$)") + r"|\Z)" if text.endswith("|$)") else text


def _plain_set(found: re.Match[str]) -> str:
    negated, members = found.groups()
    if members == "/":
        return found[0]
    members = re.sub(r"(?<!^)--", r"-\-", re.sub(r"[\[&~|]", r"\\\g<0>", members))
    return f"[^/{members}]" if negated else f"(?!/)[{members}]"
