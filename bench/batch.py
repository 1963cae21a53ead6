"""Batches: conversations a second with one process, with all cores and on Ray, and how the cost grows.

    python -m bench batch
    ULLAGE_LARGE=1 python -m bench batch     also 10^6 conversations, about 2 GB of disk
    .venv-ray/bin/python -m bench.batch      also Ray; `make ray` makes this environment

The conversations are made from a fixed seed: 2 to 20 messages of 10 to 120 words. Every engine reads the same
file and writes its results with `-o`, and all results are compared byte for byte. Seconds are those of the
whole command, start included, so that the first row shows what a start costs; all engines run one after the
other on the same machine. `CPU` is the computing time of the command and its processes in microseconds a
conversation: unlike the seconds it hardly depends on what else the machine does. `x` compares it with the
first row of that engine, so it shows how the cost grows. The processes of Ray are not all counted.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from bench.shared import AbsentError
from ullage.extras import is_there

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = str(Path(sys.executable).with_name("ullage"))
SIZES = (10_000, 100_000)
LARGE = 1_000_000
ENGINES = {"one process": ("--jobs", "1"), "all cores": (), "Ray": ("--engine", "ray")}
COMMAND = ("count", "--model", "gpt-4o")


def main() -> dict[str, Any]:
    """Prints a row for each engine and size, and returns the conversations a second."""
    if not Path(PROGRAM).exists():
        raise AbsentError("ullage is not installed beside this Python")
    engines = {name: options for name, options in ENGINES.items() if name != "Ray" or is_there("ray")}
    sizes = (*SIZES, LARGE) if os.environ.get("ULLAGE_LARGE") else SIZES
    figures: dict[str, Any] = {name: {} for name in engines}
    first: dict[str, float] = {}
    print(
        f"{'conversations':>13} {'engine':12} {'seconds':>8} {'a second':>9} {'MB/s':>6} {'CPU':>6} {'x':>5}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            given = Path(folder) / f"{size}.jsonl"
            write_conversations(given, size)
            results = set()
            for name, options in engines.items():
                out = Path(folder) / "results.jsonl"
                seconds, computed = run(given, out, options)
                results.add(digest(out))
                figures[name][str(size)] = round(size / seconds)
                each, megabytes = computed / size, given.stat().st_size / 1e6 / seconds
                print(
                    f"{size:>13,} {name:12} {seconds:>8.1f} {size / seconds:>9,.0f} {megabytes:>6.1f} "
                    f"{each * 1e6:>6.0f} {each / first.setdefault(name, each):>5.2f}",
                    flush=True,
                )
            if len(results) != 1:
                raise RuntimeError(f"the engines differ at {size:,} conversations")
            given.unlink()
    if "Ray" not in engines:
        print("Ray is not installed here: `make ray`, then .venv-ray/bin/python -m bench.batch")
    return figures


def run(given: Path, out: Path, options: tuple[str, ...]) -> tuple[float, float]:
    """The seconds of the whole command, and those that it and its processes have computed."""
    begin, before = time.perf_counter(), computed_by_children()
    done = subprocess.run(
        [PROGRAM, *COMMAND, str(given), "-o", str(out), *options], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return time.perf_counter() - begin, computed_by_children() - before


def computed_by_children() -> float:
    """The computing time of all processes that this one has started and that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def digest(path: Path) -> bytes:
    """The hash of a file, which is then removed."""
    import hashlib  # noqa: PLC0415 - only this function needs it

    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").digest()
    path.unlink()
    return found


def write_conversations(path: Path, size: int) -> None:
    """Writes that many conversations to a file; the same ones each time."""
    source = random.Random(7)
    with path.open("wb") as stream:
        for number in range(size):
            body = {"id": number, "messages": list(_messages(source))}
            stream.write(orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE))


def _messages(source: random.Random) -> Iterator[dict[str, str]]:
    for place in range(source.randrange(2, 21)):
        words = source.choices(WORDS, k=source.randrange(10, 121))
        yield {"role": ("user", "assistant")[place % 2], "content": " ".join(words)}


SYLLABLES = (
    "ba",
    "co",
    "de",
    "fi",
    "gu",
    "ka",
    "lo",
    "me",
    "ni",
    "pra",
    "qui",
    "ro",
    "sta",
    "ter",
    "vel",
    "zo",
)
WORDS = ["".join(random.Random(number).choices(SYLLABLES, k=1 + number % 4)) for number in range(4_000)]


if __name__ == "__main__":
    main()
