"""Texts that break tokenizers: a row each, with the time for twice as much beside it.

    python -m bench.adversarial [VOCABULARY …]

A ratio of about 2 is linear, 4 would be the square.
"""

from __future__ import annotations

import random
import sys
import time

from ullage.tokens import counter_for
from ullage.tokens.vocabularies import vocabulary

RANDOM = random.Random(7)
BASE64 = "".join(
    RANDOM.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=1_000_000)
)
TEXTS = {
    "100k of one letter": "a" * 100_000,
    "1M spaces": " " * 1_000_000,
    "100k line ends": "\n" * 100_000,
    "1 MB base64": BASE64,
    "emoji sequences": "👩‍👩‍👧‍👦🏳️‍🌈" * 20_000,
    "lone surrogates": "\ud83d" * 100_000,
    "NUL bytes": "\x00" * 100_000,
    "100k digits": "8" * 100_000,
    "Chinese": "人工智能正在改变生活" * 10_000,
}
VOCABULARIES = ("o200k", "cl100k", "llama3", "qwen3", "deepseek", "tekken", "gemma3")


def seconds(count: object, text: str) -> tuple[float, int]:
    """The CPU time of a count, best of three, and the count."""
    best, tokens = float("inf"), 0
    for _ in range(3):
        before = time.process_time()
        tokens = count(text)  # type: ignore[operator] # any function from text to tokens
        best = min(best, time.process_time() - before)
    return best, tokens


def unknown(text: str) -> int:
    """The ceiling of a model that nobody knows, its memory left out."""
    counter = counter_for("no-such-model")
    return counter.text(text + " " * RANDOM.randrange(1, 64)).ceiling


def main(names: list[str] | None = None) -> None:
    """Prints a row for each text and vocabulary."""
    print(f"{'text':<20}{'vocabulary':<18}{'bytes':>10}{'tokens':>10}{'MB/s':>9}{'2n / n':>8}")
    counters = {name: vocabulary(name).count for name in names or VOCABULARIES}
    for count in (*counters.values(), unknown):
        count("warm up")
    for label, text in TEXTS.items():
        size = len(text.encode("utf-8", "surrogatepass"))
        for name, count in {**counters, "unknown's ceiling": unknown}.items():
            once, tokens = seconds(count, text)
            twice, _ = seconds(count, text * 2)
            print(
                f"{label:<20}{name:<18}{size:>10,}{tokens:>10,}{size / once / 1e6:>9.1f}{twice / once:>8.1f}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
