"""The policy of fitting for the gateway, whose clients are mostly agents in long tool loops.

An agent sends a request for each step, and each request repeats the one before. A provider's cache reuses the
part that is unchanged, and a trim changes nearly all of it. So trims should be rare, and each should go deep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.fitting.draft import Edit
from ullage.fitting.policy import STRATEGY, FitPolicy, Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.fitting.draft import Draft

LOW_WATER = 0.4
"""Share of the room that a trim leaves filled.

If requests grow by the share g of the room with each step, and a trim leaves the share a, then the share that
no cache can reuse is 2g / (1 - a²). Below 0.4 it falls by less than a fifth, and more is taken out."""


def old_steps(draft: Draft) -> Iterator[Edit]:
    """Removes old steps whose results are placeholders or small, the oldest first.

    In a loop of one question all steps are recent, so no other pass removes them below the limit. But a call
    has arguments and sealed thoughts, and hundreds of calls would fill the window.
    """
    policy = draft.options.policy
    newest = draft.steps - policy.max_age
    for unit in draft.units:
        if unit.step > newest:
            return
        if unit.step and not unit.pinned and unit.loose < policy.small_output_threshold:
            yield Edit(gone=(unit,))


STEPS = Pass("steps", old_steps)
POLICY = FitPolicy(
    low_water=LOW_WATER,
    trim_strategy=(*STRATEGY[: STRATEGY.index("recent")], STEPS, *STRATEGY[STRATEGY.index("recent") :]),
)
"""The policy of all conversations of the gateway."""
