"""Constants of the digest, chosen while one source is left out.

    python -m bench heldout

Each constant is tried with other values, one at a time. A value's score on a source is the share of what is
needed there that a fitted conversation still has, at a tenth of its length: arguments of the next call in
recorded conversations, literal answers in talks of LoCoMo without recall. `held out` is the mean score if for
each source the other sources choose the value. Change a constant only if `held out` is higher than `now`.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from math import log
from statistics import mean
from typing import TYPE_CHECKING, Any

import bench.evidence
import bench.memory
from bench.shared import data, scorer
from ullage.fitting import digest
from ullage.fitting.values import VALUE_CHARS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FRACTION = 0.1
EVERY = 3
"""One of so many questions of a talk is asked."""
VALUES: dict[str, tuple[float, ...]] = {
    "FADING": (0.002, 0.008),
    "DEARNESS": (0.7, 1.0),
    "TELLING": (3.5, 7.0),
    "LINE_SHARE": (0.3, 0.7),
    "AGAIN": (0.6, 1.5),
}
"""Constant of `ullage.fitting.digest` → other values to try."""

Scores = dict[str, float]


def main() -> None:
    """Prints one row a constant."""
    now = score()
    print(f"{len(now)} sources, mean {mean(now.values()):.4f}")
    print(f"{'constant':<12}{'value: mean':<46}{'now':>8}{'held out':>10}")
    for name, others in VALUES.items():
        own = float(getattr(digest, name))
        scores = {own: now}
        for value in others:
            with _set(name, value):
                scores[value] = score()
        row = "  ".join(f"{value:g}: {mean(scores[value].values()):.4f}" for value in sorted(scores))
        print(f"{name:<12}{row:<46}{mean(now.values()):>8.4f}{held_out(scores):>10.4f}", flush=True)


def held_out(scores: Mapping[float, Scores]) -> float:
    """The mean score on each source of the value that is best on all the others."""
    sources = next(iter(scores.values())).keys()
    found = []
    for source in sources:
        best = max(scores, key=lambda value: mean(scores[value][each] for each in sources if each != source))
        found.append(scores[best][source])
    return mean(found)


def score() -> Scores:
    """The score of each source with the constants as they are."""
    evidence = _scorer("evidence")
    recorded = [
        each
        for each in evidence.load(str(data("conversations.jsonl.gz")))
        if any(message.get("tool_calls") for message in each["messages"])
    ]
    return {**evidence.evaluate(bench.evidence.fit, recorded, FRACTION)["by_source"], **_talks()}


def _talks() -> Scores:
    """The share of literal answers that a digest still has, by talk."""
    memory = _scorer("memory")
    found = {}
    for name, turns, asked in memory.load(str(data("locomo.json.gz"))):
        limit = 60 + int(FRACTION * memory.cost(turns))
        questions = [each for each in asked if each["verbatim"]][::EVERY]
        kept = 0
        for each in questions:
            fitted = bench.memory.digest([*turns, {"role": "user", "content": each["question"]}], limit)
            text = "\n".join(message["content"] for message in fitted[:-1]).lower()
            kept += each["answer"] in text
        found[f"talk {name}"] = kept / len(questions)
    return found


def _scorer(name: str) -> Any:
    folder = str(scorer(f"{name}.py").parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


@contextmanager
def _set(name: str, value: float) -> Iterator[None]:
    """Gives a constant another value for a while."""
    before = getattr(digest, name)
    try:
        _put(name, value)
        yield
    finally:
        _put(name, before)


def _put(name: str, value: float) -> None:
    setattr(digest, name, value)
    if name == "DEARNESS":  # the table that is made of it
        table = [value * log(12 + chars) for chars in range(VALUE_CHARS + 1)]
        digest._dearness[:] = table  # noqa: SLF001 - the only place that tries another constant


if __name__ == "__main__":
    main()
