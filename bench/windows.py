"""What an open window takes in memory, beside the conversation that it keeps.

    python -m bench windows

A conversation of the peers' harness is played, then its window is dropped. The figures are the bytes that
tracemalloc sees go: they are the window's alone, without the texts of the messages and without what all
windows share.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import ullage
from bench.peers import harness

BUDGETS = (32_000, 8_000)
TURNS = (100, 400)
PARTS = {
    "digest": ("digest", "facts", "fields", "outputs", "talk", "values", "block"),
    "recall": ("recall", "relevance"),
}
"""The parts of a window, and the modules whose objects count for each. The rest is the fold."""


def main() -> None:
    """Prints the table."""
    heading = f"{'turns':>6}{'budget':>8}{'messages':>10}{'their texts':>13}{'window':>9}"
    print(heading + "".join(f"{part:>9}" for part in (*PARTS, "fold")) + "   in KB")
    for turns in TURNS:
        steps = harness().gen_conversation(turns, n_turns=turns)
        messages = [message for step in steps for message in step]
        texts = sum(len(str(message).encode()) for message in messages)
        for budget in BUDGETS:
            parts = measure(steps, budget)
            row = f"{turns:>6}{budget:>8}{len(messages):>10}{texts / 1e3:>13.0f}{parts.total() / 1e3:>9.0f}"
            print(row + "".join(f"{parts[part] / 1e3:>9.0f}" for part in (*PARTS, "fold")))


def measure(steps: list[list[dict[str, Any]]], budget: int) -> Counter[str]:
    """The bytes that are free again when the window of a conversation goes, by part."""
    tracemalloc.start()
    try:
        window = play(steps, budget)
        gc.collect()
        before = tracemalloc.take_snapshot()
        del window
        gc.collect()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    parts: Counter[str] = Counter()
    for freed in before.compare_to(after, "filename"):
        parts[_part_of(Path(freed.traceback[0].filename))] += freed.size_diff
    return parts


def play(steps: list[list[dict[str, Any]]], budget: int) -> ullage.Window:
    """A window after a conversation, with a request before each answer."""
    window = ullage.Window(model="gpt-4o", limit=budget)
    for step in steps:
        if step[0]["role"] == "assistant":
            window.fitted()
        for message in step:
            window.append(message)
    return window


def _part_of(path: Path) -> str:
    for part, modules in PARTS.items():
        if path.parent.name == "fitting" and path.stem in modules:
            return part
    return "fold"


if __name__ == "__main__":
    main()
