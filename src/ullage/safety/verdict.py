"""The class of a command line, with the reason and the part of the line that decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

CommandClass = Literal["read-only", "writes", "sends", "unknown", "destructive"]
"""The class of a command, in the order of concern. What was sent to another machine cannot be taken back, so
"sends" is worse than a plain write. An unknown command may do anything. "destructive" is the worst."""

KINDS: tuple[CommandClass, ...] = get_args(CommandClass)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class of a command line, or of a part of one."""

    kind: CommandClass
    reason: str
    """A short sentence for a person: `rm deletes files`."""
    part: str
    """The part of the line that decided, as it was written."""

    @property
    def rank(self) -> int:
        """The position of the class in the order of concern; a higher rank is worse."""
        return KINDS.index(self.kind)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the worst verdict, the first of several equal ones; a line without verdicts does nothing."""
    return max(verdicts, key=lambda verdict: verdict.rank, default=Verdict("read-only", "does nothing", ""))
