"""Prints every table: `python -m bench`, or those that are named: `python -m bench accuracy evidence`.

With `--save`, the figures that the charts show are kept in results.json.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from bench import (
    adversarial,
    batch,
    calibration,
    clients,
    coldstart,
    constants,
    conversation,
    gateway,
    heldout,
    history,
    hooks,
    peers,
    quotations,
    results,
    served,
    startup,
    store,
    streams,
    windows,
)
from bench.shared import AbsentError, data, run, scorer

if TYPE_CHECKING:
    from collections.abc import Callable

Figures = dict[str, Any]


def accuracy() -> Figures:
    """Counting against the providers' own counts: all requests, the larger ones, and without a model."""
    command = (scorer("accuracy.py"), data("usage.jsonl.gz"), "bench.accuracy:count", "--json")
    unnamed = (*command[:2], "bench.accuracy:count_unnamed", "--json", "--min-tokens", 200)
    every = _print_accuracy(run(*command))
    print("\nrequests of 200 tokens and more")
    large = _print_accuracy(run(*command, "--min-tokens", 200))
    print("\nthe same, counted without the name of the model")
    _print_accuracy(run(*unnamed))
    return {"all": every, "from 200 tokens on": large}


def _print_accuracy(scored: str) -> Figures:
    """Prints the scorer's table and returns its larger rows."""
    result = json.loads(scored)
    columns = ("n", "median", "p95", "exact", "under", "worst_under", "excess")
    print(f"{'in % but n and worst_under':34}" + "".join(f"{name:>12}" for name in columns))
    rows = dict(sorted(result["table"].items(), key=lambda item: -item[1]["n"]))
    for name, row in rows.items():
        print(f"{name:34}" + "".join(f"{row[column]:>12}" for column in columns))
    if result["errors"]:
        print("raised:", result["errors"])
    return {name: row for name, row in rows.items() if row["n"] >= LARGE}


def evidence() -> None:
    """What fitting keeps of what the next action needs, beside keeping the newest messages."""
    command = (scorer("evidence.py"), data("conversations.jsonl.gz"))
    print(run(*command, "bench.evidence:fit", "baseline:slide", "baseline:placeholders"))


def memory() -> Figures:
    """What months of talk still know when a question is asked, beside the newest messages alone."""
    figures: Figures = {}
    for name, function in MEMORIES.items():
        print(name, flush=True)
        printed = run(scorer("memory.py"), data("locomo.json.gz"), function, "--json")
        rows = [json.loads(line) for line in printed.splitlines()]
        for row in rows:
            print(
                "  ".join(
                    f"{key} {row[key]}" for key in ("fraction", "questions", "answer", "turn", "faults")
                )
            )
        figures[name] = {str(row["fraction"]): {"answer": row["answer"], "turn": row["turn"]} for row in rows}
    print("an evidence turn found by Context.search, beside plain BM25")
    for function in ("bench.memory:search", "baseline:bm25"):
        print(run(scorer("memory.py"), data("locomo.json.gz"), function, "--search"))
    return figures


LARGE = 20
"""Recorded requests that a row of the accuracy table needs to be saved."""
MEMORIES = {
    "ullage.fit": "bench.memory:fit",
    "the digest alone": "bench.memory:digest",
    "the newest messages": "baseline:slide",
}
"""Ways to make a conversation fit, in the words of the chart → the function that the scorer calls."""


TABLES: dict[str, tuple[str | None, Callable[[], Figures | None]]] = {
    "coldstart": (coldstart.__doc__, coldstart.main),
    "startup": (startup.__doc__, startup.main),
    "adversarial": (adversarial.__doc__, adversarial.main),
    "accuracy": (accuracy.__doc__, accuracy),
    "calibration": (calibration.__doc__, calibration.main),
    "evidence": (evidence.__doc__, evidence),
    "memory": (memory.__doc__, memory),
    "constants": (constants.__doc__, constants.main),
    "heldout": (heldout.__doc__, heldout.main),
    "quotations": (quotations.__doc__, quotations.main),
    "history": (history.__doc__, history.main),
    "hooks": (hooks.__doc__, hooks.main),
    "conversation": (conversation.__doc__, conversation.main),
    "store": (store.__doc__, store.main),
    "streams": (streams.__doc__, streams.main),
    "served": (served.__doc__, served.main),
    "batch": (batch.__doc__, batch.main),
    "peers": (peers.__doc__, peers.main),
    "windows": (windows.__doc__, windows.main),
    "gateway": (gateway.__doc__, gateway.main),
    "clients": (clients.__doc__, clients.main),
}
NAMED_ONLY = ("clients",)
"""Tables that are printed only if they are named, because they install programs."""


def main(arguments: list[str]) -> int:
    """Prints the tables and returns 0; returns 2 for an unknown name."""
    names = [name for name in arguments if name != "--save"]
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        known = ", ".join(TABLES)
        print(f"bench: unknown table {unknown[0]!r}; the tables are {known}", file=sys.stderr)
        return 2
    for name in names or [each for each in TABLES if each not in NAMED_ONLY]:
        title, table = TABLES[name]
        print(f"\n== {name}: {(title or '').splitlines()[0]}", flush=True)
        try:
            figures = table()
        except AbsentError as error:
            print(f"left out: {error}")
            continue
        if figures is not None and "--save" in arguments:
            results.save(name, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
