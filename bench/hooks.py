"""Hooks that see a whole history: the price of a call, and how long 100 calls at once stall an event loop.

    python -m bench.hooks

A host without a window of its own hands over the whole history on each call. `append` + `fitted` is what a
program pays that keeps a `Window`; `sync` reads the whole history again and pays for the end of it. All three
are the least of several calls at turn 500. The stall is the longest time between two beats of a loop while
100 tasks fit a history of their own: in one thread as the integrations do, and with `asyncio.to_thread`. The
time that this process computes between two beats is what a machine with nothing else to do would take.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import ullage
from ullage.integrations.fitter import run_aside

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS, LIMIT, ROUNDS = 500, 8_000, 20
TASKS, EACH = 100, 60
BEAT = 0.001
"""Seconds that the loop sleeps between two beats."""


def history(turns: int, name: str = "") -> list[dict[str, Any]]:
    """A tool loop of this many steps."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Read the files of {name or 'the boat'}."}]
    for step in range(turns):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"file {name}{step}: " + " ".join(f"line_{step}_{n} = {n * step}" for n in range(40))
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": text})
    return messages


def price() -> dict[str, float]:
    """Seconds of one call at turn 500, by way."""
    messages = history(TURNS + ROUNDS)
    kept = ullage.Window(model="gpt-4o", limit=LIMIT)
    given = ullage.Window(model="gpt-4o", limit=LIMIT)
    start = 1 + 2 * TURNS
    for message in messages[:start]:
        kept.append(message)
    given.sync(messages[:start])
    best = dict.fromkeys(("append", "sync", "fit"), float("inf"))
    for end in range(start + 2, len(messages) + 1, 2):
        for way in best:
            began = time.perf_counter()
            if way == "append":
                for message in messages[end - 2 : end]:
                    kept.append(message)
                kept.fitted()
            elif way == "sync":
                given.sync(messages[:end])
                given.fitted()
            elif end == start + 2:  # it takes long, and once is enough
                ullage.fit(messages[:end], model="gpt-4o", limit=LIMIT)
            else:
                continue
            best[way] = min(best[way], time.perf_counter() - began)
    return best


async def stall(aside: Callable[..., Any]) -> tuple[float, float, float]:
    """The longest time between two beats, in seconds of the clock and of computing; the time of all tasks."""
    histories = [history(EACH, f"task {number} ") for number in range(TASKS)]
    ullage.count(histories[0], model="gpt-4o")  # loads the vocabulary
    longest = computed = 0.0

    async def beat() -> None:
        nonlocal longest, computed
        while True:
            before, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(BEAT)
            longest = max(longest, time.perf_counter() - before - BEAT)
            computed = max(computed, time.process_time() - cpu)

    heart, began = asyncio.create_task(beat()), time.perf_counter()
    await asyncio.gather(*(aside(_fit, each) for each in histories))
    heart.cancel()
    return longest, computed, time.perf_counter() - began


def _fit(messages: list[dict[str, Any]]) -> ullage.Fitted:
    return ullage.fit(messages, "gpt-4o", limit=2_000)


WAYS: dict[str, Callable[..., Any]] = {
    "one thread, as the integrations": run_aside,
    "asyncio.to_thread": asyncio.to_thread,
}


def main() -> dict[str, Any]:
    """Prints the tables."""
    best = price()
    print(f"{'one call at turn 500':<44}{'ms':>10}{'ratio':>8}   goal")
    for way, name in (
        ("append", "append + fitted"),
        ("sync", "sync + fitted"),
        ("fit", "fit, without a window"),
    ):
        goal = "at most 3" if way == "sync" else ""
        print(f"{name:<44}{best[way] * 1e3:>10.2f}{best[way] / best['append']:>8.1f}   {goal}")
    figures: dict[str, Any] = {"ratio": round(best["sync"] / best["append"], 1)}
    told = f"longest stall while {TASKS} tasks fit"
    print(f"\n{told:<44}{'ms':>10}{'computed':>10}{'all, s':>8}   goal")
    for name, aside in WAYS.items():
        longest, computed, whole = asyncio.run(stall(aside))
        goal = "at most 100 computed" if aside is run_aside else ""
        print(f"{name:<44}{longest * 1e3:>10.0f}{computed * 1e3:>10.0f}{whole:>8.1f}   {goal}")
        if aside is run_aside:
            figures["stall_ms"] = round(computed * 1e3)
    return figures


if __name__ == "__main__":
    main()
