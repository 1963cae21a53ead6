"""What a command line may do, as one of four kinds with the reason and the piece that decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal["read-only", "writes", "unknown", "destructive"]
"""In the order of concern. What is not known may be anything, so it stands above a plain write; what is known
to destroy stands above all."""

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class of a command line, or of a piece of one."""

    kind: Kind
    reason: str
    """A short sentence for a person: `rm deletes files`."""
    part: str
    """The piece of the line that decided, as it was written."""

    @property
    def rank(self) -> int:
        """How grave the kind is; a greater rank is worse."""
        return KINDS.index(self.kind)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The gravest verdict, the first of several that are as grave; of none, a line that does nothing."""
    return max(verdicts, key=lambda verdict: verdict.rank, default=Verdict("read-only", "does nothing", ""))
