"""The policy of fitting for the gateway, whose clients are mostly agents in long tool loops.

An agent sends a request for each step, and each request repeats the one before. A provider's cache reuses the
part that is unchanged, and a trim changes nearly all of it. So trims should be rare, and each should go deep.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ullage.fitting.draft import Edit
from ullage.fitting.passes import NEWEST_STEPS
from ullage.fitting.policy import STRATEGY, FitPolicy, Pass
from ullage.fitting.shorten import cut_middle
from ullage.fitting.units import SHORTEST
from ullage.gateway.quoted_files import count_documents, rewrite_documents
from ullage.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.fitting.draft import Draft
    from ullage.fitting.policy import PassName

LOW_WATER = 0.4
"""Share of the room that a trim leaves filled.

If requests grow by the share g of the room with each step, and a trim leaves the share a, then the share that
no cache can reuse is 2g / (1 - a²). Below 0.4 it falls by less than a fifth, and more is taken out."""


DOCUMENT_TOKENS = (2_000, 1_000, 500, 250, 125)
"""The sizes to which quoted documents are cut, one after the other. They are fixed, so that a document is cut
at the same place in each request, whatever other documents come to it."""


def documents(draft: Draft) -> Iterator[Edit]:
    """Cuts each of several documents in an older user message in its middle.

    Some clients send all their files in one message, which grows. Without it, the model would see no file.
    """
    quoting = [
        (unit.start, content)
        for unit in draft.units
        if unit.role == "user"
        and unit.exchange < draft.exchange
        and not unit.pinned
        and isinstance(content := unit.entries[0].given.get("content"), str)
        and count_documents(content) > 1
    ]
    for most in DOCUMENT_TOKENS:
        for place, content in quoting:
            yield Edit(contents={place: rewrite_documents(content, partial(_cut, draft, most))})


def _cut(draft: Draft, most: int, text: str) -> str:
    """Returns the head and the tail of a document."""
    cost = draft.options.counter.text(text)
    return text if cost.ceiling <= most else cut_middle(text, most, cost.tokens, draft.measure)


def old_steps(draft: Draft) -> Iterator[Edit]:
    """Removes old steps whose results are placeholders or small, the oldest first.

    In a loop of one question all steps are recent, so no other pass removes them below the limit. But a call
    has arguments and sealed thoughts, and hundreds of calls would fill the window.
    """
    policy = draft.options.policy
    newest = draft.steps - NEWEST_STEPS
    for unit in draft.units:
        if unit.step > newest:
            return
        if unit.step and not unit.pinned and unit.loose < policy.small_output_threshold:
            yield Edit(gone=(unit,))


PREVIOUS_TOKENS = 500
"""The size to which the results before the newest ones are cut if a trim finds nothing else."""


def previous(draft: Draft) -> Iterator[Edit]:
    """Cuts the results that other passes leave whole, except the newest, in the middle.

    Beside a long prompt, two results may fill the room. Then every step would need a trim.
    """
    for unit in draft.units:
        if unit.step and not unit.pinned and unit.start != draft.last and unit.loose > PREVIOUS_TOKENS:
            yield Edit(
                contents={
                    entry.place: _cut(draft, PREVIOUS_TOKENS, text_of(entry.given["content"]))
                    for entry in unit.entries[1:]
                    if entry.size > PREVIOUS_TOKENS and entry.form not in SHORTEST
                }
            )


def _strategy() -> Iterator[PassName | Pass]:
    """Yields the built-in passes, and those above in their places."""
    for name in STRATEGY:
        if name == "evict":
            yield Pass("documents", documents)
        if name == "recent":
            yield Pass("steps", old_steps)
            yield Pass("previous", previous)
        yield name


POLICY = FitPolicy(low_water=LOW_WATER, trim_strategy=tuple(_strategy()))
"""The policy of all conversations of the gateway."""
