"""What the store costs: a turn, a reservation, a piece kept, recalled and searched among 100,000.

    python -m bench.store [PIECES]

Wall time and CPU time in µs, the best of several rounds; wall time waits for the disk, in the system's
temporary directory (TMPDIR names another). `normal` is what a turn would cost if a commit did not wait.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from ullage import store
from ullage.context.journal import Event
from ullage.cost.book import Account, Cap, Entry, Reservation
from ullage.fitting.shorten import letters_of

if TYPE_CHECKING:
    from collections.abc import Callable

PIECES = 100_000
ROUNDS = 5
DAY = "2026-11-16"
TURN = Event("turn", {"message": {"role": "user", "content": "x" * 500}})
CAPS = [
    Cap(scope, name, Decimal(10**5)) for scope, name in (("session", "s"), ("day", DAY), ("project", "p"))
]


def row(name: str, times: int, act: Callable[[int], object], rounds: int = ROUNDS) -> None:
    """Prints one line: the best round, by the time of one act."""
    best = [float("inf"), float("inf")]
    numbers = itertools.count()
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(times):
            act(next(numbers))
        spent = time.perf_counter() - wall, time.process_time() - cpu
        best = [min(least, each / times) for least, each in zip(best, spent, strict=True)]
    print(f"{name:<44} {best[0] * 1e6:>9.0f} {best[1] * 1e6:>9.0f}", flush=True)


def turns(kept: store.Store, session: str) -> Callable[[int], object]:
    """Appends to a new session."""
    return lambda number: kept.journal.append(session, number, TURN)


def call(kept: store.Store, number: int, prefix: str) -> None:
    """Reserves under three caps, and settles."""
    now = time.time()
    account = Account("s", "gpt-4o", "main", "p", DAY)
    reservation = Reservation(f"{prefix}{number}", account, Decimal("0.0123"), now + 60)
    kept.book.reserve(reservation, CAPS, now)
    kept.book.settle(reservation, Entry(calls=1, prompt=100, cost=Decimal("0.0023")))


def main(pieces: int = PIECES) -> None:
    """Prints the table."""
    dice = random.Random(1)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 9))) for _ in range(20_000)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(words))))
    texts = [
        " ".join((f"piece {number}", *dice.choices(words, cum_weights=weights, k=120)))
        for number in range(pieces)
    ]
    print(f"{'store':<44} {'wall µs':>9} {'CPU µs':>9}")
    with tempfile.TemporaryDirectory() as folder, store.open(Path(folder, "ullage.db")) as kept:
        journal = kept.journal
        row("append a turn of 500 characters", 200, turns(kept, "first"))
        kept._database._connection.execute("PRAGMA synchronous = NORMAL")  # type: ignore[union-attr] # noqa: SLF001
        row("the same, normal", 200, turns(kept, "normal"))
        kept._database._connection.execute("PRAGMA synchronous = FULL")  # type: ignore[union-attr] # noqa: SLF001
        row("reserve and settle under 3 caps", 200, lambda number: call(kept, number, "a"))
        row("keep one piece of 800 characters", 100, lambda number: journal.keep("s", [texts[number]]))
        row("keep one that is kept", 100, lambda number: journal.keep("s", [texts[number]]))
        wall, cpu = time.perf_counter(), time.process_time()
        for start in range(0, pieces, 500):
            journal.keep(f"s{start // 500 % 20}", texts[start : start + 500])
        wall, cpu = (time.perf_counter() - wall) / pieces, (time.process_time() - cpu) / pieces
        print(f"{'keep pieces, 500 at a time: each':<44} {wall * 1e6:>9.0f} {cpu * 1e6:>9.0f}")
        print(f"among {pieces:,} pieces:")
        handles = [letters_of(text)[:8] for text in texts[:: pieces // 1_000]]
        row("recall", 200, lambda number: journal.recall(handles[number % len(handles)]))
        row("search, a number", 50, lambda number: journal.search(str(number * 7 + 1_000)))
        row(
            "search, two rare words",
            50,
            lambda number: journal.search(f"{words[-number - 1]} {words[9_000 + number]}"),
        )
        row("search, a word in 1 of 100", 4, lambda number: journal.search(words[800 + number]))
        row("search, a word that stands in all", 1, lambda _: journal.search("piece"))
        row("append a turn of 500 characters", 200, turns(kept, "last"))
        row("reserve and settle under 3 caps", 200, lambda number: call(kept, number, "b"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
