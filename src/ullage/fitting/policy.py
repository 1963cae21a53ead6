"""Every knob of fitting, with its default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

STRATEGY = ("cap", "age", "placeholder", "evict", "recent", "cut")
"""The passes in their order; `passes.PASSES` says what each does."""

ERROR_MARKS = ("error", "exception", "failed", "fatal", "cannot", "unable to")
"""Words, lower case, that make a tool output an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPolicy:
    """What may be taken out of a conversation, in which order, and how far."""

    max_age: int = 5
    """A tool output is old when more than this many steps came after its own."""
    max_tokens_per_output: int = 2_000
    """What is left of an old tool output that is longer."""
    preserve_errors: bool = True
    """Keep what went wrong: an error stays until its exchange goes; a long one is cut to its error lines."""
    error_marks: tuple[str, ...] = ERROR_MARKS
    """Words, in lower case, by which a tool output is an error."""
    preserve_small_outputs: bool = True
    """Leave small outputs alone: a placeholder would save next to nothing."""
    small_output_threshold: int = 100
    """An output of fewer tokens is small."""
    preserve_recent_turns: int = 2
    """The newest exchanges that are touched last, when nothing else is left before an overflow."""
    keep_first_user: bool = True
    """Keep the first user message, the task: in place, or at the head of the digest."""
    digest_share: float = 0.3
    """The share of the room that the digest of what was taken out may use; 0 leaves the task alone."""
    low_water: float = 0.63
    """How far down a trim goes, as a share of the room, so that the prefix then stays as it is for long.
    The room is the limit less system prompt, tools and framing; 1.0 fills the window every time."""
    max_turns: int | None = None
    """The most messages beside the system prompt; None for no such limit."""
    pins: frozenset[int] = frozenset()
    """Indices of messages that stay as they are."""
    priorities: Mapping[int, int] = field(default_factory=dict)
    """Message index → priority, 0 where not named; exchanges of a lower priority are evicted first."""
    placeholder: str = "[content truncated - {age} steps ago, {tokens} tokens]"
    """What stands in the place of a tool output that was taken out."""
    recall: bool = False
    """Name the handle in placeholders and cuts, for a store that can give the content back."""
    trim_strategy: tuple[str, ...] = STRATEGY
    """The passes, in order."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.trim_strategy if name not in STRATEGY]
        if unknown:
            raise ConfigurationError(
                f"trim_strategy: no pass is called {unknown[0]!r}; the passes are {', '.join(STRATEGY)}"
            )
        for name, lowest, highest in _RANGES:
            value = getattr(self, name)
            if value is not None and not lowest <= value <= highest:
                raise ConfigurationError(f"{name} is {value}; it goes from {lowest} to {highest}")
        if self.low_water == 0:
            raise ConfigurationError("low_water is 0; a trim has to leave something")
        _check_placeholder(self.placeholder)


_MANY = 2**63
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("max_age", 0, _MANY),
    ("max_tokens_per_output", 1, _MANY),
    ("small_output_threshold", 0, _MANY),
    ("preserve_recent_turns", 0, _MANY),
    ("digest_share", 0, 0.9),
    ("low_water", 0, 1),
    ("max_turns", 1, _MANY),
)


def _check_placeholder(template: str) -> None:
    try:
        template.format(age=1, tokens=1)
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigurationError(
            f"placeholder {template!r} is no template of {{age}} and {{tokens}}: {error}"
        ) from error
