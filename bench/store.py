"""What the store costs: a turn, a reservation, a piece kept, recalled and searched among 100,000.

    python -m bench.store [PIECES]

Wall time and CPU time in µs, the best of several rounds; wall time waits for the disk, in the system's
temporary directory (TMPDIR names another). `normal` is what a turn would cost if a commit did not wait.

The second table resumes conversations of 400 to 40,000 messages: reading them, and the first render without
and with the state of the fold that was saved at its last trim. Then each conversation is searched: for a rare
word, and for a question whose words stand in most of its texts, which is the worst case. The third tells how
large a file is whose evicted texts stand in events and pieces both, and how large with each of them once.
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

from bench.conversation import BUDGET, conversation
from ullage import store
from ullage.context import Context
from ullage.context.journal import JournalEvent
from ullage.cost.book import Account, Cap, Reservation
from ullage.fitting.pieces import letters_of, piece_of
from ullage.usage import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Callable

PIECES = 100_000
ROUNDS = 5
LENGTHS = (400, 4_000, 40_000)
DAY = "2026-11-16"
TURN = JournalEvent("turn", {"message": {"role": "user", "content": "x" * 500}})
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
    account = Account("s", "gpt-4o", "main", "p", DAY)
    reservation = Reservation(f"{prefix}{number}", account, Decimal("0.0123"))
    kept.book.reserve(reservation, CAPS)
    kept.book.settle(reservation, LedgerEntry(calls=1, prompt=100, cost=Decimal("0.0023")))


def searches(kept: store.Store) -> str:
    """What searching the conversation costs, in ms of wall time: a rare word, common words."""
    times = []
    for words in ("56e779c470", "which thread reads the schema of the server, and who retries the patch?"):
        rounds = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            kept.journal.search(words, "one")
            rounds.append(time.perf_counter() - begun)
        times.append(min(rounds))
    return " / ".join(f"{each * 1e3:,.0f}" for each in times)


def resume(lengths: tuple[int, ...] = LENGTHS) -> None:
    """Prints what resuming costs, by the length of the conversation."""
    columns = f"{'read':>9} {'render without':>16} {'with':>9} {'state, bytes':>14} {'search, ms':>12}"
    print(f"\n{'resume, CPU ms':<16} {columns}")
    first: tuple[float, float, float] | None = None
    for length in lengths:
        with tempfile.TemporaryDirectory() as folder, store.open(Path(folder, "ullage.db")) as kept:
            messages = conversation(length)
            with kept._database.writing():  # noqa: SLF001 - one commit, or this would take minutes
                for number, message in enumerate(messages[1:]):
                    kept.journal.append("one", number, JournalEvent("turn", {"message": message}))
            prompt = messages[0]["content"]
            _, without = _resumed(kept, prompt)  # which also saves the state
            best = [_resumed(kept, prompt) for _ in range(ROUNDS)]
            times = min(read for read, _ in best), without, min(render for _, render in best)
            with kept._database.reading() as connection:  # noqa: SLF001 - nobody else asks
                (state,) = connection.execute("SELECT max(length(state)) FROM folds").fetchone()
            found = searches(kept)
        first = first or times
        read, bare, saved = (f"{each * 1e3:,.1f}" for each in times)
        ratios = " / ".join(f"{now / then:,.1f}" for now, then in zip(times, first, strict=True))
        columns = f"{read:>9} {bare:>16} {saved:>9} {state or 0:>14,} {found:>12}"
        print(f"{length:>8,} turns   {columns}   × {ratios}", flush=True)


def _resumed(kept: store.Store, prompt: str) -> tuple[float, float]:
    """Seconds of CPU for reading the conversation, and for its first render."""
    options = {"model": "gpt-4o", "token_budget": BUDGET, "max_turns": None, "system_prompt": prompt}
    begun = time.process_time()
    context = Context.resume("one", kept.journal, **options)
    read = time.process_time()
    context.fitted()
    return read - begun, time.process_time() - read


def sizes(length: int = 4_000) -> None:
    """Prints the size of a file with a conversation whose evicted texts stand twice, and once."""
    made = {}
    for name, named in (("texts in events and pieces both", False), ("texts once", True)):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "ullage.db")
            with store.open(file) as kept, kept._database.writing():  # noqa: SLF001 - the same
                for number, message in enumerate(conversation(length)[1:]):
                    kept.journal.append("one", number, JournalEvent("turn", {"message": message}))
                    kept.journal.keep("one", [piece_of(message)], [number] if named else [])
            made[name] = file.stat().st_size
    print(f"\n{'file of ' + format(length, ',') + ' turns, all evicted':<44} {'bytes':>12}")
    for name, size in made.items():
        print(f"{name:<44} {size:>12,}")


def main(pieces: int = PIECES) -> None:
    """Prints the tables."""
    costs(pieces)
    resume()
    sizes()


def costs(pieces: int) -> None:
    """Prints what each act costs."""
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
