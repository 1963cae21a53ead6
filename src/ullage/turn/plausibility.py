"""Checks a provider's usage, and replaces each impossible figure by our own count.

A server may report nothing, or 0 for an answer that arrived, or an absurdly high number. Without this check
nothing would be booked for such a call, and a cap would never be reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ullage.usage import PARTS, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRange:
    """The range in which a provider's figure is plausible, relative to our own count of the same text."""

    share: float
    """Least figure, as a share of our own count."""
    times: float
    """Greatest figure, as a multiple of the compared figure."""
    slack: int
    """Tokens added to the greatest figure."""


BOUNDS: Mapping[str, FigureRange] = {
    # Tokenizers differ by a factor of three at most, and providers may add prompts of their own. A count far
    # below ours leaves out a part, mostly cached tokens.
    "prompt": FigureRange(share=0.05, times=4.0, slack=20_000),
    # An answer is compared with the requested maximum. Thinking counts and is not always shown, so the figure
    # may be far above the visible text.
    "completion": FigureRange(share=0.05, times=2.0, slack=1_000),
}
SMALL = 200
"""Below this many tokens of our own count, the least figure is 1, because shares of short texts vary
widely."""
MOST_OUTPUT = 1_000_000
"""Longest answer in tokens if no limit is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCount:
    """Our own counts for a request and its answer, in tokens."""

    prompt: int
    ceiling: int
    """Upper bound of the prompt by our own count."""
    completion: int
    max_output: int | None
    """Longest answer that was requested, or that the model can give; None if unknown."""


def believable(reported: Usage | None, own: OwnCount) -> tuple[Usage, tuple[str, ...]]:
    """Replaces each impossible figure by our own count; returns the usage and the names of these figures."""
    usage = Usage() if reported is None else reported
    ours = {"prompt": own.prompt, "completion": own.completion}
    longest = MOST_OUTPUT if own.max_output is None else own.max_output
    compared = {"prompt": own.ceiling, "completion": max(longest, own.completion)}
    wrong = tuple(
        name
        for name in ours
        if reported is None
        or not _is_possible(getattr(reported, name), ours[name], compared[name], BOUNDS[name])
    )
    if not wrong:
        return usage, ()
    corrected = {name: ours[name] for name in wrong}
    corrected |= {part: 0 for name in wrong for part in PARTS[name]}  # the parts of a wrong total are unknown
    return replace(usage, **corrected, cost=None), wrong  # the cost was computed from the wrong figures


def _is_possible(figure: int, ours: int, compared: int, bounds: FigureRange) -> bool:
    least = ours * bounds.share if ours >= SMALL else min(ours, 1)
    return least <= figure <= compared * bounds.times + bounds.slack
