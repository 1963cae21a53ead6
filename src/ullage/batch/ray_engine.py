"""Works on the files of a batch with a Ray cluster, through Ray Data; the order of the input is kept.

Tasks read the files, one task a file, and actors that hold the vocabularies work on the chunks. A lost node
loses nothing: Ray repeats its tasks, and the same chunk always has the same results. The files must have the
same paths on every node.
"""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray
import ray.data

from ullage.batch.chunk import Chunk, InputPosition
from ullage.batch.outcome import work
from ullage.batch.reader import read_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ullage.batch.job import Job
    from ullage.batch.outcome import FinishedChunk
    from ullage.batch.source import Source

BLOCK_BYTES = 1024 * 1024
"""Bytes of input in a block, the unit that Ray gives to an actor."""
READ_CPUS, WORK_CPUS = 0.1, 0.9
"""Cores of a task that reads and of an actor: one of each shares a core.

Different figures also keep Ray from merging both into one task, which would work on a file with one core."""

SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("number", pa.int64()),
        ("form", pa.string()),
        ("data", pa.large_binary()),
        ("size", pa.int64()),
        ("file", pa.int64()),
        ("end", pa.list_(pa.int64(), 3)),
    ]
)
"""A chunk as a row."""


def run_on_ray(
    job: Job, sources: Sequence[Source], start: InputPosition, actors: int | None
) -> Iterator[FinishedChunk]:
    """Yields every chunk when it is done, in order; the cluster is that of RAY_ADDRESS, else a local one."""
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        results = _dataset(job, sources, start, actors)
        for batch in results.iter_batches(batch_size=None, batch_format="pyarrow"):
            for each in batch.column("done"):
                yield pickle.loads(each.as_py())  # noqa: S301 - made by our own actors
    finally:
        if is_ours:
            ray.shutdown()


def _dataset(job: Job, sources: Sequence[Source], start: InputPosition, actors: int | None) -> Any:
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.target_max_block_size = BLOCK_BYTES
    context.enable_progress_bars = False
    begins = [{"file": file} for file in range(start.file, len(sources))]
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    return (
        ray.data.from_items(begins, override_num_blocks=max(1, len(begins)))
        .map_batches(_reader(list(sources), start), batch_size=1, batch_format="pyarrow", num_cpus=READ_CPUS)
        .map_batches(
            _Worker,
            fn_constructor_args=(job,),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=WORK_CPUS,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors or cores),
        )
    )


def _reader(sources: list[Source], start: InputPosition) -> Callable[[Any], Iterator[Any]]:
    """Returns a function that reads files into chunks, as rows of Arrow tables."""

    def read(batch: Any) -> Iterator[Any]:
        for file in batch.column("file").to_pylist():
            begin = start if file == start.file else InputPosition(file)
            for chunk in read_chunks(sources[: file + 1], begin):
                yield pa.Table.from_pylist([chunk._asdict()], SCHEMA)

    return read


class _Worker:
    """An actor: it loads the vocabularies with its first chunk, and keeps them."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, batch: Any) -> Any:
        done = [pickle.dumps(work(self._job, _chunk_of(row))) for row in batch.to_pylist()]
        return pa.table({"done": pa.array(done, pa.large_binary())})


def _chunk_of(row: dict[str, Any]) -> Chunk:
    return Chunk(**{**row, "end": InputPosition(*row["end"])})
