"""Prints every table: `python -m bench`, or those that are named: `python -m bench accuracy evidence`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench import (
    adversarial,
    calibration,
    coldstart,
    conversation,
    history,
    peers,
    served,
    startup,
    store,
    streams,
)
from bench.shared import AbsentError, data, run, scorer

if TYPE_CHECKING:
    from collections.abc import Callable


def accuracy() -> None:
    """Counting against the providers' own counts: all requests, then those of 200 tokens and more."""
    command = (scorer("accuracy.py"), data("usage.jsonl.gz"), "bench.accuracy:count")
    print(run(*command))
    print("requests of 200 tokens and more")
    print(run(*command, "--min-tokens", 200))


def evidence() -> None:
    """What fitting keeps of what the next action needs, beside keeping the newest messages."""
    command = (scorer("evidence.py"), data("conversations.jsonl.gz"))
    print(run(*command, "bench.evidence:fit", "baseline:slide", "baseline:placeholders"))


TABLES: dict[str, tuple[str | None, Callable[[], None]]] = {
    "coldstart": (coldstart.__doc__, coldstart.main),
    "startup": (startup.__doc__, startup.main),
    "adversarial": (adversarial.__doc__, adversarial.main),
    "accuracy": (accuracy.__doc__, accuracy),
    "calibration": (calibration.__doc__, calibration.main),
    "evidence": (evidence.__doc__, evidence),
    "history": (history.__doc__, history.main),
    "conversation": (conversation.__doc__, conversation.main),
    "store": (store.__doc__, store.main),
    "streams": (streams.__doc__, streams.main),
    "served": (served.__doc__, served.main),
    "peers": (peers.__doc__, peers.main),
}


def main(names: list[str]) -> int:
    """Prints the tables and returns 0; 2 for a name that is none."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        print(f"bench: no table is called {unknown[0]!r}; there are {', '.join(TABLES)}", file=sys.stderr)
        return 2
    for name in names or TABLES:
        title, table = TABLES[name]
        print(f"\n== {name}: {(title or '').splitlines()[0]}", flush=True)
        try:
            table()
        except AbsentError as error:
            print(f"left out: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
