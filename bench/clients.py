"""Real coding agents behind the gateway, on a window of 32,768 tokens while they believe in 200,000.

    python -m bench clients --save        all of them, one after the other: about ten minutes
    python -m bench.clients codex llm     only these

Each runs a tool loop of 30 steps against a scripted model that refuses what a real API refuses. `reuse` is
the share of each request that a prompt cache could reuse, `kept` the number of the 20 code words that the
last request still has. The harness and its README are in the folder `clients` of ULLAGE_BENCH. It installs
each client once, from the package registries.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from bench.shared import scorer

WINDOW = 32_768
SECONDS = 900


class Setup(NamedTuple):
    """One run: a client of the harness, and more arguments."""

    client: str
    arguments: tuple[str, ...] = ()


SETUPS = {
    "Claude Code, claude-sonnet-4-5": Setup("claude-code"),
    "Claude Code, sonnet": Setup("claude-code", ("--model", "sonnet")),
    "Claude Code, haiku": Setup("claude-code", ("--model", "haiku")),
    "Codex": Setup("codex"),
    "opencode, chat completions": Setup("opencode"),
    "opencode, messages": Setup("opencode-anthropic"),
    "qwen-code": Setup("qwen-code"),
    "nanocoder": Setup("nanocoder"),
    "aider": Setup("aider"),
    "mini-swe-agent": Setup("mini-swe-agent"),
    "llm": Setup("llm"),
    "openai SDK, chat completions": Setup("openai-chat"),
    "openai SDK, responses": Setup("openai-responses"),
    "anthropic SDK": Setup("anthropic"),
    "Claude Code, output counted": Setup("claude-code", ("--count-output",)),
    "qwen-code, output counted": Setup("qwen-code", ("--count-output",)),
    "opencode, output counted": Setup("opencode", ("--count-output",)),
    "anthropic SDK, output counted": Setup("anthropic", ("--count-output",)),
}
"""The runs, by the names of the table. `output counted`: the server counts the requested output too."""
COLUMNS = {
    "finished": "finished",
    "exit": "exit",
    "overflows": "overflows",
    "invalid": "invalid",
    "stale_results": "stale",
    "prefix_reuse": "reuse",
    "code_words_in_last_request": "kept",
}
"""Figure of the harness → column of the table."""


def main(names: list[str] | None = None) -> dict[str, Any]:
    """Prints a line for each run and returns the figures."""
    harness = scorer("clients/run.py")
    figures: dict[str, Any] = {}
    print(f"{'client':34}" + "".join(f"{column:>10}" for column in COLUMNS.values()))
    for name, setup in SETUPS.items():
        if names and setup.client not in names:
            continue
        told = _run(harness, setup)
        figures[name] = {"version": told.get("version"), **{key: told.get(key) for key in COLUMNS}}
        print(f"{name:34}" + "".join(f"{told.get(key)!s:>10}" for key in COLUMNS), flush=True)
        if told.get("invalid_messages"):
            print(f"    {told['invalid_messages']}")
    return figures


def _run(harness: Path, setup: Setup) -> dict[str, Any]:
    """One run in a store of its own; an empty result if it printed none."""
    with tempfile.TemporaryDirectory() as folder:
        gateway = (
            f"{Path(sys.executable).with_name('ullage')} serve --store {folder}/ullage.db --port {{port}} "
            "--upstream {upstream} --window {window}"
        )
        command = [sys.executable, "-B", str(harness), "--client", setup.client, "--window", str(WINDOW)]
        done = subprocess.run(
            [*command, *setup.arguments, "--gateway", gateway],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    told: dict[str, Any] = json.loads(lines[-1]) if lines else {"finished": False, "exit": done.returncode}
    return told


if __name__ == "__main__":
    main(sys.argv[1:])
