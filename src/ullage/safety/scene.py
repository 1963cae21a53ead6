"""Gives the handler of a command its view of the line, and classifies the commands that it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.safety.verdict import CommandClass, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ullage.safety.words import Word

Words = list["Word"]


@dataclass(slots=True)
class Facts:
    """Facts about the whole line, for verdicts that depend on several of its commands."""

    fetches: str = ""
    """The command that fetches text from elsewhere, or empty."""
    runs: str = ""
    """The command that runs text which is not on the line or comes through a pipe, or empty."""
    asks: str = ""
    """The database client that reads its statements from its input or a file, or empty."""
    texts: list[str] = field(default_factory=list)
    """Texts that the line itself makes, by `echo` or a here-document, and that such a command may run."""
    folders: list[Path] | None = None
    """The folders that the line may run in, after each `cd`; None if they are unknown."""
    shadows: Mapping[str, str | None] = field(default_factory=dict)
    """Names that bash runs instead of a program: an alias has its text, and a function has None."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One command of a line, as its handler sees it."""

    part: str
    """The command as it was written."""
    facts: Facts
    words: Callable[[Words], Verdict]
    """Classifies a command that this one runs."""
    line: Callable[[str], Verdict]
    """Classifies a text that this command gives to a shell."""
    functions: frozenset[str] = frozenset()
    """The functions of the line that the shell would run instead of a program."""

    def verdict(self, kind: CommandClass, reason: str) -> Verdict:
        """Returns a verdict about this command."""
        return Verdict(kind, reason, self.part)

    def code(self, word: Word, name: str) -> Verdict:
        """Classifies a word that a shell will read as a line."""
        seen = self.line(word.text)
        if word.fixed or seen.kind == "destructive":
            return seen
        self.facts.runs = self.facts.runs or name
        return self.verdict("unknown", f"{name} runs a text that is not known before it runs")
