"""Decides whether git ignores a path, with the patterns as pathspec reads them.

pathspec converts each line to a regular expression that matches a path and everything below it. This module
tests each path alone, from the top of the tree downwards, as git does: a pattern that re-includes a folder
does not re-include the files in it. Unlike in git, a question mark matches a character, not a byte.
"""

from __future__ import annotations

import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ullage.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

PATTERN_BYTES = 1 << 18
"""Maximum number of bytes of a pattern file that are read."""

PATTERN_LINES = 2_000
"""Maximum number of lines of a pattern file that are read."""


class Pattern(NamedTuple):
    """One line of a pattern file."""

    regex: re.Pattern[str]
    ignored: bool
    """False for a line with `!`, which re-includes a path."""


class Rules(NamedTuple):
    """The patterns of one file; they match paths relative to the folder of that file."""

    start: int
    """Number of characters of a path that lie above that folder."""
    patterns: tuple[Pattern, ...]
    """In reverse order of the lines, because the last line that matches decides."""


def is_ignored(path: str, rules: Sequence[Rules], *, folder: bool) -> bool:
    """Returns True if an entry is ignored: the nearest pattern file that matches it decides.

    The folders above the entry are not tested, because ignored folders are never entered.
    """
    for start, patterns in reversed(rules):
        seen = path[start:]
        for regex, ignored in patterns:
            if _matches(regex, seen) or (folder and _matches_folder(regex, seen + "/")):
                return ignored
    return False


def _matches(regex: re.Pattern[str], path: str) -> bool:
    # A named group of the expression matches the slash if the match is only a folder above the path.
    found = regex.search(path)
    return found is not None and found.lastgroup is None


def _matches_folder(regex: re.Pattern[str], path: str) -> bool:
    return any(found.lastgroup and found.end() == len(path) for found in regex.finditer(path))


def rules_of(lines: Iterable[str], start: int) -> tuple[Rules, ...]:
    """Returns the rules of the lines; an empty tuple if no line is a pattern."""
    require("shell", "pathspec")
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415 - loaded only for a project tree

    patterns: list[Pattern] = []
    for line in lines:
        # An invalid pattern matches nothing, as in git.
        with suppress(ValueError, re.error):
            text, ignored = GitIgnoreSpecPattern.pattern_to_regex(_plain_classes(line))
            if text is not None and ignored is not None:
                patterns.append(Pattern(re.compile(_safe(text), re.DOTALL), ignored))
    return (Rules(start, tuple(reversed(patterns))),) if patterns else ()


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a pattern file; an empty list if it is missing or not a regular file."""
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
    """Replaces POSIX class names by their characters, because pathspec does not know the names."""
    if "[:" in line:
        for name, members in _CLASSES.items():
            line = line.replace(name, members)
    return line


_SET = re.compile(r"(?<!\\)\[(\^?)(\]?[^\]]*)\]")
_STARS = re.compile(r"(?:\[\^/\]\*){2,}")
_ATOM = r"(?:\\.|\[\^/\](?![*+])|(?:\(\?!/\))?\[(?!\^/\])\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\](){}*+?|^$/.])"
_STAR_THEN = re.compile(rf"\[\^/\]\*({_ATOM}+)(?=\[\^/\]\*)")


def _safe(text: str) -> str:
    """Returns an equivalent expression that runs in bounded time and matches as git does.

    A text between two stars is searched once, at its first position: otherwise a hostile pattern with many
    stars would need exponential time on a long name. A set never matches a slash, and characters that are
    special only in Python's sets are escaped. `\\Z` replaces `$`, which ignores a final newline of a name.
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
