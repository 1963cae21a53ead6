"""One key of the configuration as a row: its name, its type, its effect and its cost."""

from __future__ import annotations

from typing import Any, NamedTuple

MOST_TOKENS = 100_000_000
MOST_DOLLARS = 1_000_000


class KeyRow(NamedTuple):
    """One key."""

    name: str
    """The key with dots; a part in angle brackets stands for a name of the user."""
    kind: str
    """One of `kinds.KINDS`."""
    default: Any
    what: str
    """Its effect, as a sentence."""
    cost: str
    """Its cost or risk, as a sentence."""
    least: int = 0
    most: int | None = None
    """The range of a number, or of a text's length."""
    word: str | None = None
    """The word for None in a file; TOML has no null."""
    also: tuple[str, ...] = ()
    """More words that a file may use for None."""
    choices: tuple[str, ...] = ()
    overlay: str = "no"
    """Rule for a project's file: one of `overlay.RULES`."""
    example: str = ""
    """An example in TOML; empty if none is shown."""

    @property
    def path(self) -> tuple[str, ...]:
        """The parts of the name."""
        return tuple(self.name.split("."))

    def is_none(self, value: object) -> bool:
        """Returns True if a value of a file is a word for None."""
        return isinstance(value, str) and value in (self.word, *self.also)

    @property
    def is_named(self) -> bool:
        """True if a part of the key is a name of the user."""
        return "<" in self.name

    @property
    def variable(self) -> str | None:
        """The environment variable that sets the key; None if a part of the key is a name of the user."""
        return None if self.is_named else f"ULLAGE_{self.name.upper().replace('.', '_')}"
