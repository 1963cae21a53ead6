"""The same session for every trimmer: the harness of ULLAGE_BENCH, ours and the peers that are here.

    python -m bench.peers

ULLAGE_PEERS may name a folder with one virtual environment a peer (`v_langchain`, …) and `tkcache`; without
it only ours and the reference run. The harness judges by its own plain count. OpenAI charges more than
that for parallel calls, so the last table has the same figures by the model's own count.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import ullage
from bench.shared import AbsentError, run, scorer

OURS = ("ullage_window", "ullage_fill", "ullage_nodigest")
REFERENCE = "REF_group_evict_lowwater"
SLIDING = "REF_group_evict"
"""Drops the oldest groups before each request until the rest fits, and no more."""
TIMED = ("ullage_window", "ullage_nodigest", REFERENCE)
BUDGETS = (32_000, 8_000)
ROUNDS = 3


@functools.cache
def harness() -> Any:
    """The harness as a module, for its generator."""
    sys.path.insert(0, str(scorer("peers/harness.py").parent))
    return importlib.import_module("harness")


def main() -> dict[str, Any]:
    """Prints the tables, and returns the figures of the session and the loop: name → budget → figure."""
    script = scorer("peers/harness.py")
    with tempfile.TemporaryDirectory() as folder:
        environments, names = _environments(Path(folder))
        where = {"PEERS_WORK": folder, "VENVS": str(environments)}
        Path(folder, "results").mkdir()
        run(script, "gen", **where)
        run(script, "all", *names, **where)
        results = Path(folder, "results")
        timings = []
        for _ in range(ROUNDS):
            run(script, "time", *TIMED, **where)
            timings.append({name: _read(results, name, BUDGETS[0])["timing"] for name in TIMED})
        best = {name: min((each[name] for each in timings), key=_total) for name in TIMED}
        print(_table(results, names, best))
        print(run(script, "giant", *names, **where))
        judged = {name: _judged(results, name) for name in names}
        session = json.loads(Path(folder, "data", "online.json").read_text("utf-8"))
    for turns in ((40, 60), (480, 500)):
        print(f"characters that a request brings, turns {turns[0]} to {turns[1]}: {brought(session, *turns)}")
    for policy in ({}, {"low_water": 1.0}):
        for budget in BUDGETS:
            unused = own_count(session, budget, ullage.FitPolicy(**policy))
            name = "low_water=1.0" if policy else "default"
            print(f"by the model's own count: {name:<14} {budget:>6} unused {100 * unused:.1f} %")
    return {name: figures for name, figures in judged.items() if figures}


def brought(session: list[list[dict[str, Any]]], first: int, last: int) -> int:
    """The mean number of characters of the messages between two requests, from one turn to another."""
    turn = characters = requests = 0
    for number, step in enumerate(session):
        turn += step[0]["role"] == "user"
        if first < turn <= last + 1:
            characters += sum(len(str(message)) for message in step)
            requests += number + 1 == len(session) or session[number + 1][0]["role"] == "assistant"
    return characters // requests


def own_count(session: list[list[dict[str, Any]]], budget: int, policy: ullage.FitPolicy) -> float:
    """The mean share of the budget that requests leave unused once the history is over it."""
    window = ullage.Window(model="gpt-4o", limit=budget, policy=policy)
    unused = []
    for number, step in enumerate(session):
        for message in step:
            window.append(message)
        asked = number + 1 == len(session) or session[number + 1][0]["role"] == "assistant"
        if asked and number:
            fitted = window.fitted()
            if fitted.changed:
                unused.append(1 - fitted.count.ceiling / budget)
    return sum(unused) / len(unused)


def _environments(folder: Path) -> tuple[Path, list[str]]:
    """A folder of environments in which ours is this one, and the names of all that can run."""
    environments = folder / "venvs"
    environments.mkdir()
    for name in ("v_ullage", "v_small"):
        (environments / name).symlink_to(sys.prefix)
    given = os.environ.get("ULLAGE_PEERS")
    if not given:
        return environments, [*OURS, SLIDING, REFERENCE]
    for path in Path(given).iterdir():
        if path.name == "tkcache":
            (folder / "tkcache").symlink_to(path.resolve())
        elif path.name.startswith("v_") and not (environments / path.name).exists():
            (environments / path.name).symlink_to(path.resolve())
    peers = harness().PEERS
    return environments, [name for name, (venv, _) in peers.items() if (environments / venv).exists()]


def _total(timing: dict[str, float]) -> float:
    return timing["total_s"]


def _table(results: Path, names: list[str], best: dict[str, dict[str, float]]) -> str:
    heading = (
        f"{'session of 500 turns':<28}{'budget':>7}{'CPU s':>8}{'× ref':>7}{'ms 50':>7}{'ms 490':>7}"
        f"{'over':>6}{'invalid':>8}{'lost':>6}{'unused %':>9}{'prefix %':>9}{'loop over/lost':>16}"
    )
    lines = [heading]
    reference = _total(best[REFERENCE])
    for name in names:
        for budget in BUDGETS:
            found = _read(results, name, budget)
            if "prefix" not in found.get("online", {}) or "over" not in found.get("loop", {}):
                lines.append(f"{name:<28}{budget:>7}  did not run to its end in its environment")
                continue
            online, loop = found["online"], found["loop"]
            timing = best.get(name, {}) if budget == BUDGETS[0] else {}
            cost = timing.get("total_s")
            lines.append(
                f"{name:<28}{budget:>7}"
                + (
                    f"{cost:>8.2f}{cost / reference:>7.1f}"
                    if cost
                    else f"{online.get('total_s', 0):>8.2f}{'':>7}"
                )
                + (f"{timing['ms_50']:>7.2f}{timing['ms_490']:>7.2f}" if cost else f"{'':>14}")
                + f"{online['over']:>6}{online['invalid']:>8}{online['user_lost'] + online['tail_lost']:>6}"
                + f"{100 * (online['waste'] or 0):>9.1f}{100 * (online['prefix'] or 0):>9.1f}"
                + f"{loop['over']:>10}/{loop['user_lost'] + loop['tail_lost']}"
            )
    return "\n".join(lines)


def _judged(results: Path, name: str) -> dict[str, dict[str, float]]:
    """The figures of one trimmer by budget, times left out; empty if it did not run to its end."""
    judged = {}
    for budget in BUDGETS:
        found = _read(results, name, budget)
        online, loop = found.get("online", {}), found.get("loop", {})
        if "prefix" in online and "over" in loop:
            judged[str(budget)] = {
                "prefix": round(online["prefix"] or 0, 4),
                "unused": round(online["waste"] or 0, 4),
                "over": online["over"] + loop["over"],
                "invalid": online["invalid"],
                "lost": sum(each[key] for each in (online, loop) for key in ("user_lost", "tail_lost")),
            }
    return judged


def _read(results: Path, name: str, budget: int) -> dict[str, Any]:
    path = results / f"{name}_{budget}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


if __name__ == "__main__":
    try:
        main()
    except AbsentError as error:
        sys.exit(f"bench.peers: {error}")
