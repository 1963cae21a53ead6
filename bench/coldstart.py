"""What it costs to start: CPU time of fresh processes, beside a bare Python.

    python -m bench.coldstart

Each figure is the least of several runs, user and system time of the process and its children, so that
other work on the machine moves it little.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 15
LINE = '{"messages": [{"role": "user", "content": "How long is the Nile?"}]}\n'


def cpu_seconds(command: list[str]) -> float:
    """The CPU time of one run of a command."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """The least CPU seconds of each way to start; they take turns, so that all meet the same load."""
    ullage = str(Path(sys.executable).with_name("ullage"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "one.jsonl")
        file.write_text(LINE, encoding="utf-8")
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "ullage --version": [ullage, "--version"],
            "import ullage": [sys.executable, "-c", "import ullage"],
            "from ullage import fit": [sys.executable, "-c", "from ullage import fit"],
            "ullage count, one line": [ullage, "count", "--json", str(file)],
        }
        runs = [{name: cpu_seconds(command) for name, command in commands.items()} for _ in range(rounds)]
    return {name: min(run[name] for run in runs) for name in commands}


def main() -> None:
    """Prints the table."""
    times = measure()
    bare = times["python -c pass"]
    print(f"{'cold start':<24} {'CPU ms':>8} {'× python':>9}   goal")
    goals = {"ullage --version": "at most 3 ×", "import ullage": "at most 100 ms more than python"}
    for name, seconds in times.items():
        print(f"{name:<24} {seconds * 1000:>8.1f} {seconds / bare:>9.2f}   {goals.get(name, '')}".rstrip())


if __name__ == "__main__":
    main()
