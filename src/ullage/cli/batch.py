"""Runs `count` or `fit` on files: shows or saves the results, and reports bad lines."""
# ruff: noqa: PLC0415 - the modules for drawing and for other engines are loaded only if they are needed

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from ullage.batch.chunk import CHUNK_LINES, START
from ullage.batch.reader import read_chunks
from ullage.batch.source import STDIN, find_sources, total_bytes
from ullage.cli.complaint import complain
from ullage.cli.exit_codes import FAILED, code_named
from ullage.cli.progress import progress
from ullage.errors import ConfigurationError
from ullage.extras import is_there, require
from ullage.text import printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Generator, Mapping, Sequence

    from ullage.batch.chunk import InputPosition
    from ullage.batch.job import Job
    from ullage.batch.outcome import FinishedChunk, Outcome
    from ullage.batch.result_files import ResultFiles
    from ullage.batch.source import Source

COMPLAINTS = 20
"""Number of bad lines that are reported one by one on standard error; the rest is only counted."""


class Sink(Protocol):
    """Receives the results and shows them."""

    def show(self, done: Outcome) -> None:
        """Shows the next result."""

    def end(self) -> None:
        """Ends the output after the last result."""


class JsonLines:
    """Prints each result as a line of JSON."""

    def show(self, done: Outcome) -> None:
        """Writes the line."""
        sys.stdout.buffer.write(done.encoded)

    def end(self) -> None:
        """Flushes the output."""
        sys.stdout.buffer.flush()


def run_batch(job: Job, options: Namespace) -> int:
    """Runs the job on every request of the files and returns the exit code."""
    _check(options)
    sources = find_sources(options.files)
    if any(source.path == STDIN for source in sources) and sys.stdin.isatty():
        complain("reading requests from the terminal; Ctrl-D ends the input")
    if options.output is None:
        return _show(job, sources, options)
    return _save(job, sources, options)


def _check(options: Namespace) -> None:
    if options.resume and options.output is None:
        raise ConfigurationError("--resume needs the output of the run that it goes on with: -o OUT")
    if options.engine == "ray":
        if not options.files or STDIN in options.files:
            raise ConfigurationError("--engine ray reads files: name files or folders")
        require("ray")


def _show(job: Job, sources: Sequence[Source], options: Namespace) -> int:
    """Prints the results on standard output."""
    sink = _sink(job)
    problems: dict[str, int] = {}
    complaints = _Complaints()
    with (
        progress(job.command, total_bytes(sources)) as bar,
        closing(_work(job, sources, START, options)) as chunks,
    ):
        for done in chunks:
            for outcome in done.outcomes:
                bar.step_aside(outcome)
                if outcome.problem:
                    problems[outcome.problem] = problems.get(outcome.problem, 0) + 1
                    complaints(outcome)
                sink.show(outcome)
            if options.jobs == 1:
                sys.stdout.flush()
            bar.advance(done)
    sink.end()
    complaints.end()
    return _exit_code(problems)


def _save(job: Job, sources: Sequence[Source], options: Namespace) -> int:
    """Writes the results to a file or a folder."""
    from ullage.batch.result_files import ResultFiles

    results = ResultFiles(job, sources, options.output)
    begin = results.start(resume=options.resume)
    before = results.checkpoint.requests
    if before:
        complain(f"going on after {before:,} requests")
    complaints = _Complaints()
    with (
        closing(results),
        progress(job.command, total_bytes(sources), _bytes_before(sources, begin)) as bar,
        closing(_work(job, sources, begin, options)) as chunks,
    ):
        for done in chunks:
            for outcome in done.outcomes:
                if outcome.problem:
                    bar.step_aside(outcome)
                    complaints(outcome)
            results.write(done)
            bar.advance(done)
        results.end()
    complaints.end()
    sys.stdout.write(_summary(results, options.output))
    return _exit_code(results.checkpoint.problems)


def _bytes_before(sources: Sequence[Source], position: InputPosition) -> int:
    """Returns the bytes of the input before a position, for the progress bar."""
    whole = sum(source.size or 0 for source in sources[: position.file])
    is_text = position.file < len(sources) and not sources[position.file].is_parquet
    return whole + (position.offset if is_text else 0)


def _summary(results: ResultFiles, output: str) -> str:
    total, bad = results.checkpoint.requests, sum(results.checkpoint.problems.values())
    what = "1 request" if total == 1 else f"{total:,} requests"
    return printable(f"{what}{f', {bad:,} bad' if bad else ''}: results in {output}") + "\n"


def _work(
    job: Job, sources: Sequence[Source], begin: InputPosition, options: Namespace
) -> Generator[FinishedChunk, None, None]:
    """Yields the chunks of the files with their outcomes, in order."""
    if options.engine == "ray":
        from ullage.batch.ray_engine import run_on_ray

        yield from run_on_ray(job, sources, begin, options.jobs)
        return
    from ullage.batch.processes import run_in_processes

    at_once = options.jobs == 1 and options.output is None  # each result is printed as soon as it is there
    chunks = read_chunks(sources, begin, 1 if at_once else CHUNK_LINES)
    yield from run_in_processes(job, chunks, options.jobs)


def _sink(job: Job) -> Sink:
    if job.json:
        return JsonLines()
    if not is_there("rich"):
        from ullage.cli.plain_view import PlainResults

        return PlainResults(job)
    from ullage.cli.result_table import ResultTable

    return ResultTable(job)


def _exit_code(problems: Mapping[str, int]) -> int:
    """Returns the exit code that all failures share; 1 if they differ."""
    codes = set(map(code_named, problems))
    if not codes:
        return 0
    return codes.pop() if len(codes) == 1 else FAILED


class _Complaints:
    """Reports bad lines on standard error, each with its place; counts them after the first `COMPLAINTS`."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, done: Outcome) -> None:
        self._count += 1
        if self._count <= COMPLAINTS:
            complain(complaint(done))

    def end(self) -> None:
        if self._count > COMPLAINTS:
            complain(f"… and {self._count - COMPLAINTS:,} more bad lines")


def complaint(done: Outcome) -> str:
    """Returns the message about a bad line: file, line, field and problem."""
    file = "standard input" if done.source == STDIN else done.source
    field = done.result.get("field")
    place = f"{file}, line {done.number}" + (f", field {field}" if field else "")
    return printable(f"{place}: {done.result['message']}")
