"""Works on chunks with all cores of this machine, in bounded memory; the order of the input is kept."""
# ruff: noqa: PLC0415 - the modules for processes are loaded only if they are needed

from __future__ import annotations

import itertools
import os
import signal
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from ullage.batch.outcome import work
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future, ProcessPoolExecutor

    from ullage.batch.chunk import Chunk
    from ullage.batch.job import Job
    from ullage.batch.outcome import FinishedChunk

BIG = 8
"""Number of chunks from which starting other processes saves time."""
AHEAD = 3
"""Chunks in the queue for each process: enough to keep it busy, few enough to bound the memory."""


def run_in_processes(job: Job, chunks: Iterator[Chunk], jobs: int | None) -> Iterator[FinishedChunk]:
    """Yields every chunk when it is done, in order; None as `jobs` uses all cores if the input is large."""
    first: list[Chunk] = []
    if jobs is None:
        first = list(itertools.islice(chunks, BIG))
        jobs = _cores() if len(first) == BIG else 1
    chunks = itertools.chain(first, chunks)
    if jobs == 1:
        return map(partial(work, job), chunks)
    return _in_pool(job, chunks, jobs)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_pool(job: Job, chunks: Iterable[Chunk], jobs: int) -> Iterator[FinishedChunk]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(jobs, initializer=_start_worker)
    try:
        yield from _in_order(pool, job, chunks, jobs * AHEAD)
    except BrokenProcessPool:
        raise ConfigurationError(
            "a worker process died, perhaps because memory ran out. Try again with fewer --jobs"
        ) from None
    except BaseException:  # Ctrl-C, or the reader of the output is gone: nobody needs the results
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, job: Job, chunks: Iterable[Chunk], ahead: int
) -> Iterator[FinishedChunk]:
    waiting: deque[Future[FinishedChunk]] = deque()
    for chunk in chunks:
        waiting.append(pool.submit(work, job, chunk))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _start_worker() -> None:
    """Leaves interrupts to the parent, and ends this process if the parent is killed."""
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
