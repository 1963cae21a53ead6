"""A long history in one call: what fitting costs beside counting, in CPU time.

    python -m bench.history

The conversation is the peers' harness's own: 20,000 messages, 4.3 million tokens. Each pair of calls has a
fresh process, so that nothing is remembered from the one before, and the first call loads the vocabulary.
Each figure is the least of several; the ratios are what to read.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import ullage
from bench.peers import harness
from bench.shared import AbsentError

LIMIT = 32_000
ROUNDS = 3


def measure(what: str) -> dict[str, float]:
    """CPU seconds of the first and the second call of counting or fitting, in this process."""
    steps = harness().gen_conversation(20_000, n_messages=19_999)
    messages: list[dict[str, Any]] = [message for step in steps for message in step]
    share = {"fit": 0.0, "digest": ullage.FitPolicy().digest_share}
    times = []
    for _ in range(2):
        start = time.process_time()
        if what == "count":
            ullage.count(messages, model="gpt-4o")
        else:
            ullage.fit(
                messages, limit=LIMIT, policy=ullage.FitPolicy(digest_share=share[what]), model="gpt-4o"
            )
        times.append(time.process_time() - start)
    return {"first": times[0], "second": times[1]}


def main() -> None:
    """Prints the table."""
    harness()
    runs: dict[str, list[dict[str, float]]] = {"count": [], "fit": [], "digest": []}
    for _ in range(ROUNDS):
        for what, found in runs.items():
            command = [sys.executable, "-m", "bench.history", what]
            done = subprocess.run(command, capture_output=True, check=True)
            found.append(json.loads(done.stdout))
    best = {what: {key: min(run[key] for run in found) for key in found[0]} for what, found in runs.items()}
    count, fit, digest = best["count"], best["fit"], best["digest"]
    print(f"{'20,000 messages at 32k':<44}{'CPU s':>8}{'ratio':>8}   goal")
    rows = (
        ("counting, the first time", count["first"], 1.0, ""),
        (
            "fit without a digest, the first time",
            fit["first"],
            fit["first"] / count["first"],
            "at most 1.5 × counting",
        ),
        (
            "fit without a digest, again",
            fit["second"],
            fit["second"] / fit["first"],
            "at most 0.25 × the first",
        ),
        (
            "fit with the digest, the first time",
            digest["first"],
            digest["first"] / count["first"],
            "at most 6 × counting",
        ),
    )
    for name, seconds, ratio, goal in rows:
        print(f"{name:<44}{seconds:>8.3f}{ratio:>8.2f}   {goal}".rstrip())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        try:
            main()
        except AbsentError as error:
            sys.exit(f"bench.history: {error}")
