"""Many lines on all cores: results in the order of the input, memory bounded, one bad line no harm."""
# ruff: noqa: PLC0415 - drawing and processes are loaded where they are needed

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ullage.cli.progress import progress
from ullage.cli.reading import STDIN, check_files, read, total_bytes
from ullage.cli.work import BAD, outcome, work
from ullage.errors import ConfigurationError
from ullage.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future, ProcessPoolExecutor

    from ullage.cli.reading import Line
    from ullage.cli.work import Job, Outcome

CHUNK_BYTES, CHUNK_LINES = 256 * 1024, 64
"""What one process is handed at a time."""
BIG = 8
"""So many chunks are worth the start of other processes."""
AHEAD = 3
"""Chunks that wait for each process: enough to keep it busy, few enough to keep memory bounded."""
COMPLAINTS = 20
"""Bad lines that are told one by one on standard error."""


class Sink(Protocol):
    """Where results go."""

    def show(self, done: Outcome) -> None:
        """Takes the next result."""

    def end(self) -> None:
        """Takes notice that it was the last."""


class JsonLines:
    """Results as they are: one JSON object a line."""

    def show(self, done: Outcome) -> None:
        """Writes the line."""
        sys.stdout.buffer.write(done.encoded)

    def end(self) -> None:
        """Leaves nothing in the buffer."""
        sys.stdout.buffer.flush()


def run(job: Job, names: Sequence[str], jobs: int | None) -> int:
    """Does the job to every line of these files and returns the exit code."""
    files = check_files(names)
    if STDIN in files and sys.stdin.isatty():
        sys.stderr.write("ullage: reading requests from the terminal; Ctrl-D ends them\n")
    sink = _sink(job)
    codes: set[int] = set()
    complain = _Complaints()
    with progress(job.command, total_bytes(files)) as bar:
        for done in outcomes(job, read(files), jobs):
            bar.step_aside(done)
            if done.code:
                codes.add(done.code)
                complain(done)
            sink.show(done)
            if jobs == 1:
                sys.stdout.flush()
            bar.advance(done)
    sink.end()
    complain.end()
    return _exit_code(codes)


def _sink(job: Job) -> Sink:
    if job.json:
        return JsonLines()
    from ullage.cli.drawing import Table  # only people need it

    return Table(job)


def _exit_code(codes: set[int]) -> int:
    """The code that all failures share; 1 where they differ."""
    if not codes:
        return 0
    return codes.pop() if len(codes) == 1 else BAD


class _Complaints:
    """Bad lines on standard error, each with its place; the flood after the first few is only counted."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, done: Outcome) -> None:
        self._count += 1
        if self._count <= COMPLAINTS:
            sys.stderr.write(f"ullage: {complaint(done)}\n")

    def end(self) -> None:
        if self._count > COMPLAINTS:
            sys.stderr.write(f"ullage: … and {self._count - COMPLAINTS:,} more bad lines\n")


def complaint(done: Outcome) -> str:
    """What is wrong with a line, and where."""
    file = "standard input" if done.source == STDIN else done.source
    field = done.result.get("field")
    place = f"{file}, line {done.number}" + (f", field {field}" if field else "")
    return printable(f"{place}: {done.result['message']}")


# Lines to outcomes -----------------------------------------------------------------------------------


def outcomes(job: Job, lines: Iterable[Line], jobs: int | None) -> Iterator[Outcome]:
    """The outcome of every line, in order; by as many processes as are asked for, or are worth it."""
    if jobs == 1:
        return map(partial(outcome, job), lines)
    chunks = _chunks(lines)
    first: list[list[Line]] = []
    if jobs is None:
        first = list(itertools.islice(chunks, BIG))
        jobs = _cores() if len(first) == BIG else 1
    chunks = itertools.chain(first, chunks)
    if jobs == 1:
        return itertools.chain.from_iterable(map(partial(work, job), chunks))
    return _in_processes(partial(work, job), chunks, jobs)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    chunk: list[Line] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line.data)
        if size >= CHUNK_BYTES or len(chunk) >= CHUNK_LINES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _in_processes(
    do: Callable[[list[Line]], list[Outcome]], chunks: Iterable[list[Line]], jobs: int
) -> Iterator[Outcome]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(jobs, initializer=_leave_interrupts_to_the_parent)
    try:
        yield from _in_order(pool, do, chunks, jobs * AHEAD)
    except BrokenProcessPool:
        raise ConfigurationError(
            "a worker process died, perhaps for want of memory; try again with fewer --jobs"
        ) from None
    except BaseException:  # Ctrl-C, or nobody reads on: the work under way is of no use to anyone
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor,
    do: Callable[[list[Line]], list[Outcome]],
    chunks: Iterable[list[Line]],
    ahead: int,
) -> Iterator[Outcome]:
    waiting: deque[Future[list[Outcome]]] = deque()
    for chunk in chunks:
        waiting.append(pool.submit(do, chunk))
        if len(waiting) > ahead:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
