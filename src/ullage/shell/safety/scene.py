"""What a handler of a command sees of the line, and how it asks about the pieces that the command runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.shell.safety.verdict import Kind, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.shell.safety.words import Word

Words = list["Word"]


@dataclass(slots=True)
class Facts:
    """What was noticed anywhere on the line, for what only its pieces together tell."""

    fetches: str = ""
    """A command that brings in text from elsewhere."""
    runs: str = ""
    """A command that runs text which is not on the line, or that only flows through it."""
    asks: str = ""
    """A client of a database that reads its statements from somewhere."""
    texts: list[str] = field(default_factory=list)
    """Texts that the line itself makes, by `echo` or a here-document, and that such a command may get."""
    functions: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Scene:
    """One command among the others of its line."""

    part: str
    """The command as it was written."""
    facts: Facts
    words: Callable[[Words], Verdict]
    """The class of a command that this one runs."""
    line: Callable[[str], Verdict]
    """The class of a text that this one gives to a shell."""

    def verdict(self, kind: Kind, reason: str) -> Verdict:
        """A verdict about this command."""
        return Verdict(kind, reason, self.part)

    def code(self, word: Word, name: str) -> Verdict:
        """The class of a word that a shell will read as a line."""
        seen = self.line(word.text)
        if word.fixed or seen.kind == "destructive":
            return seen
        self.facts.runs = self.facts.runs or name
        return self.verdict("unknown", f"{name} runs a text that is not known before it runs")
