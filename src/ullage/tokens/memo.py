"""Answers are remembered by the hash and length of what was asked: the texts themselves are not kept.

Two generations bound the memory: when the young one is full it becomes the old one, and what is not
asked for again until the next time is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Asked = TypeVar("Asked", str, tuple[object, ...])
Answer = TypeVar("Answer")

GENERATION = 100_000
"""Answers in one generation: a 20,000-message history with all its calls fits in."""


def remembered(measure: Callable[[Asked], Answer], generation: int = GENERATION) -> Callable[[Asked], Answer]:
    """`measure`, asked once for each text as long as its answer is remembered."""
    young: dict[tuple[int, int], Answer] = {}
    old: dict[tuple[int, int], Answer] = {}

    def look(asked: Asked) -> Answer:
        nonlocal young, old
        key = (hash(asked), len(asked))
        found = young.get(key)
        if found is None:
            found = old.get(key)
            if found is None:
                found = measure(asked)
            if len(young) >= generation:
                old, young = young, {}
            young[key] = found
        return found

    return look
