"""Result files: they grow beside their final names, and get those names when they are complete."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ullage.batch.checkpoint import Checkpoint, key_of, load_checkpoint, save_checkpoint
from ullage.batch.chunk import InputPosition
from ullage.batch.source import STDIN
from ullage.errors import ConfigurationError
from ullage.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.batch.job import Job
    from ullage.batch.outcome import FinishedChunk
    from ullage.batch.source import Source

PARQUET = ".parquet"
EVERY = 1.0
"""Seconds between two checkpoints."""


class ResultFiles:
    """The results of a run: one file for all sources, or a folder with a file for each source.

    Results grow as lines of JSON in `NAME.partial`. A checkpoint says how many of its bytes are valid.
    """

    def __init__(self, job: Job, sources: Sequence[Source], output: str) -> None:
        self._command = job.command
        self._targets, self._checkpoint_file = _places(sources, output)
        if any(target.suffix == PARQUET for target in self._targets):
            require("batch")
        self._is_single = len(set(self._targets)) == 1
        self._can_resume = all(source.path != STDIN and source.size is not None for source in sources)
        self.checkpoint = Checkpoint(key_of(job, sources) if self._can_resume else "")
        self._stream: BinaryIO | None = None
        self._due = time.monotonic() + EVERY

    def start(self, *, resume: bool) -> InputPosition:
        """Returns the position from which the run begins; with `resume`, where the last one stopped."""
        if not self._can_resume:
            if resume:
                raise ConfigurationError(
                    "--resume needs regular files: standard input and pipes cannot be read again"
                )
            return self.checkpoint.position
        unfinished = self._checkpoint_file.exists()
        if unfinished and not resume:
            raise ConfigurationError(
                f"an unfinished run left {self._checkpoint_file}. Add --resume to go on with that run, "
                "or delete the file to start from the beginning"
            )
        self.checkpoint = load_checkpoint(self._checkpoint_file, self.checkpoint.key) or self.checkpoint
        begin = self.checkpoint.position
        self._finish(0, begin.file)
        if self.checkpoint.size:
            self._open(begin.file, self.checkpoint.size)
        return begin

    def write(self, done: FinishedChunk) -> None:
        """Appends the results of a chunk."""
        position = self.checkpoint.position
        if done.file != position.file:
            self._advance(position.file, done.file)
        stream = self._stream or self._open(done.file, 0)
        for outcome in done.outcomes:
            stream.write(outcome.encoded)
        problems = [outcome.problem for outcome in done.outcomes if outcome.problem]
        self.checkpoint = self.checkpoint.after(done.end, stream.tell(), problems, len(done.outcomes))
        if done.end.file != done.file:
            self._advance(done.file, done.end.file)
        elif time.monotonic() >= self._due:
            self.save()

    def save(self) -> None:
        """Makes the results so far durable, so that a later run can go on from here."""
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        if self._can_resume:
            self._checkpoint_file.parent.mkdir(parents=True, exist_ok=True)
            save_checkpoint(self._checkpoint_file, self.checkpoint)
        self._due = time.monotonic() + EVERY

    def close(self) -> None:
        """Closes the current file and keeps it, so that the run can be resumed."""
        if self._stream is not None:
            self.save()
            self._stream.close()
            self._stream = None

    def end(self) -> None:
        """Gives the last files their final names; there is nothing to resume after this."""
        self._advance(self.checkpoint.position.file, len(self._targets))
        self._checkpoint_file.unlink(missing_ok=True)

    def _advance(self, before: int, after: int) -> None:
        """Completes the files of the sources from `before` up to `after`, which is not included."""
        if self._is_single and after < len(self._targets):
            self.checkpoint = self.checkpoint.after(InputPosition(after), self.checkpoint.size, (), 0)
            return
        if self._stream is None and before < len(self._targets):
            self._open(before, 0)
        self.checkpoint = self.checkpoint.after(InputPosition(after), 0, (), 0)
        self.save()  # from here on a resumed run completes these files by itself
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        for each in range(before + 1, after):  # sources without a request have empty results
            if not _partial(self._targets[each]).exists():
                self._open(each, 0).close()
                self._stream = None
        self._finish(before, after)

    def _open(self, file: int, size: int) -> BinaryIO:
        """Opens the unfinished results of a source, cut to their valid size."""
        path = _partial(self._targets[file])
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("r+b" if size else "wb")
        stream.truncate(size)
        stream.seek(size)
        self._stream = stream
        return stream

    def _finish(self, before: int, after: int) -> None:
        """Gives complete results their final names; those that have them already are left alone."""
        if self._is_single:
            before, after = (0, 1) if after == len(self._targets) else (0, 0)
        for target in self._targets[before:after]:
            partial = _partial(target)
            if not partial.exists():
                continue
            if target.suffix == PARQUET:
                from ullage.batch.parquet import write_results  # noqa: PLC0415 - only Parquet needs pyarrow

                fresh = target.with_name(f"{target.name}.new")
                write_results(self._command, partial, fresh)
                fresh.replace(target)
                partial.unlink()
            else:
                partial.replace(target)


def _partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial")


def _places(sources: Sequence[Source], output: str) -> tuple[list[Path], Path]:
    """Returns the result file of each source, and the file of the checkpoint."""
    path = Path(output).absolute()
    for source in sources:
        if source.folder and path.resolve().is_relative_to(Path(source.folder).resolve()):
            raise ConfigurationError(f"{output} is in the folder of the input: choose another place")
    if output.endswith(os.sep) or path.is_dir():
        targets, checkpoint = [path / _result_name(source) for source in sources], path / ".ullage.progress"
        repeated = next((name for name, count in Counter(targets).items() if count > 1), None)
        if repeated is not None:
            raise ConfigurationError(f"several inputs would be written to {repeated}: name one output file")
    else:
        targets, checkpoint = [path] * len(sources), path.with_name(f"{path.name}.progress")
    inputs = {Path(source.path).resolve() for source in sources}
    replaced = next((target for target in targets if target.resolve() in inputs), None)
    if replaced is not None:
        raise ConfigurationError(f"{replaced} is an input: choose another output")
    return targets, checkpoint


def _result_name(source: Source) -> str:
    """Returns the name of a source's results: Parquet for Parquet, JSONL for text."""
    return source.below if source.is_parquet else str(Path(source.below).with_suffix(".jsonl"))
