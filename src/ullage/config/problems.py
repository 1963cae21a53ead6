"""Problems in a configuration, each with its file and line; all are reported at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ullage.errors import ConfigurationError
from ullage.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONG = 40


class Problem(NamedTuple):
    """One problem in a configuration."""

    source: str
    """`FILE:LINE`, or the name of an environment variable."""
    path: tuple[str, ...]
    """The parts of the key; empty if the problem concerns no key."""
    text: str
    """The message: the problem and its remedy, without any value that could be a secret."""

    @property
    def key(self) -> str:
        """The key with dots, as in a file."""
        return join_key(self.path)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.source, self.key, self.text)))


class InvalidSettings(ConfigurationError):  # noqa: N818 - the form of InvalidConversation
    """The configuration is invalid; `problems` lists all its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Wrong(Exception):  # noqa: N818 - it never leaves the package
    """A value is invalid for its key; the message has the reason, and shows no value that may be secret."""


def join_key(path: Iterable[str]) -> str:
    """Returns a key with dots; quotes the parts that TOML requires in quotes."""
    return ".".join(part if _BARE.fullmatch(part) else quote_text(part) for part in path)


def quote_text(text: str) -> str:
    """Returns a text as a TOML string on one line; escapes characters that are not printable."""
    return f'"{"".join(map(_escape_character, text))}"'


def _escape_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return {"\n": "\\n", "\t": "\\t"}.get(character) or (
        f"\\u{ord(character):04X}" if ord(character) < 0x10000 else f"\\U{ord(character):08X}"
    )


def show_value(value: object) -> str:
    """Returns the short form of an invalid value; only the length of a text that may be a secret."""
    if isinstance(value, str):
        return f"a text of {len(value)} characters" if looks_secret(value) else quote_text(_cut(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return _cut(str(value))


def looks_secret(text: str) -> bool:
    """Returns True if a text could be a secret key: long, without blanks, with a digit."""
    return len(text) >= 16 and re.fullmatch(r"\S*\d\S*", text) is not None


def show_path(path: object) -> str:
    """Returns a path as a message shows it: without control characters, which a terminal would obey."""
    return printable(str(path))


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
