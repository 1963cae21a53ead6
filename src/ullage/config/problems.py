"""What is wrong with a configuration: each problem with its place, and all of them at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONG = 40


class Problem(NamedTuple):
    """One thing that is wrong."""

    place: str
    """`FILE:LINE`, or the name of an environment variable."""
    path: tuple[str, ...]
    """The key in its parts; empty where it is none."""
    text: str
    """What is wrong and what to do; never a value that could be a secret."""

    @property
    def key(self) -> str:
        """The key with dots, as a file would have it."""
        return dotted(self.path)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.place, self.key, self.text)))


class InvalidSettings(ConfigurationError):  # noqa: N818 - the form of InvalidConversation
    """A configuration that cannot be used; `problems` has all that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Wrong(Exception):  # noqa: N818 - it never leaves the package
    """A value that a key does not take; its text says why, and does not show what may be secret."""


def dotted(path: Iterable[str]) -> str:
    """A key with dots, its parts quoted where TOML asks for it."""
    return ".".join(part if _BARE.fullmatch(part) else quoted(part) for part in path)


def quoted(text: str) -> str:
    """A text as TOML writes it on one line, with an escape for whatever does not print."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return {"\n": "\\n", "\t": "\\t"}.get(character) or (
        f"\\u{ord(character):04X}" if ord(character) < 0x10000 else f"\\U{ord(character):08X}"
    )


def shown(value: object) -> str:
    """A value that is not taken, in short; of a text that may be a secret only its length."""
    if isinstance(value, str):
        return f"a text of {len(value)} characters" if looks_secret(value) else quoted(_cut(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return _cut(str(value))


def looks_secret(text: str) -> bool:
    """Whether a text could be a key: long, in one piece, with a digit in it."""
    return len(text) >= 16 and re.fullmatch(r"\S*\d\S*", text) is not None


def clean(path: object) -> str:
    """A path that can be printed anywhere: names of folders may hold what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in str(path))


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
