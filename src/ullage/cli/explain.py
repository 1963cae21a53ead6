"""`ullage explain`: shows the changes that `fit` would make to a request, and the reason for each."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec, json_option, positive_number
from ullage.cli.request_options import EXIT_CODES, add_fit_options, add_request_options, fit_job

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from types import ModuleType

    from ullage.batch.chunk import RequestLine
    from ullage.batch.job import Job

DESCRIPTION = """\
Shows what fit would change in a request, with the reason for each message. Nothing is sent."""

EXAMPLES = """\
examples:
  ullage explain session.json --limit 8000
  ullage explain requests.jsonl --line 17 --limit 32000"""


def add_options(command: ArgumentParser) -> None:
    """Adds the options of the command."""
    command.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="JSON, JSONL or Parquet; - is standard input"
    )
    command.add_argument(
        "--line",
        type=positive_number,
        metavar="N",
        help="the request on line N of a JSONL file (default: the first)",
    )
    add_request_options(command)
    add_fit_options(command)
    json_option(command, "print the explanation as one JSON object")


def run(options: Namespace) -> int:
    """Explains one request of a file and returns the exit code."""
    import sys

    from ullage.batch.fitted_request import fit_body
    from ullage.batch.outcome import body_of
    from ullage.batch.request_text import encode
    from ullage.cli.verdicts import as_json, conclude, digest_of, verdicts
    from ullage.errors import UllageError
    from ullage.fitting import FitPolicy

    job = fit_job(options, "explain")
    found = _find(options.file, options.line)
    try:
        line = fit_body(job, body_of(found))
    except (UllageError, RecursionError) as error:
        return _refuse(job, found, error)
    reasons = list(verdicts(line, job.policy or FitPolicy()))
    if job.json:
        sys.stdout.buffer.write(encode(as_json(line, reasons)))
    else:
        digest, conclusion = digest_of(line.done.fitted.messages), conclude(line, reasons)
        _view().print_explanation(found.source, line, reasons, digest, conclusion)
    return 0


def _view() -> ModuleType:
    """Returns the module that prints for people: with colours and columns if rich is installed."""
    from importlib import import_module

    from ullage.extras import is_there

    return import_module(f"ullage.cli.{'explain_view' if is_there('rich') else 'plain_view'}")


def _refuse(job: Job, found: RequestLine, error: Exception) -> int:
    """Prints why a request cannot be explained, and its blocks if it cannot fit; returns the exit code."""
    import sys

    from ullage.batch.outcome import Outcome, failure
    from ullage.batch.request_text import encode
    from ullage.cli.batch import complaint
    from ullage.cli.complaint import complain
    from ullage.cli.exit_codes import code_named
    from ullage.errors import ContextOverflowError

    problem = failure(error)
    number = found.number + problem.pop("line", 1) - 1
    if job.json:
        sys.stdout.buffer.write(encode({"line": number, "error": problem}))
    elif isinstance(error, ContextOverflowError):
        _view().print_overflow(error)
    complain(complaint(Outcome(found.source, number, "", "", problem, problem["type"], b"")))
    return code_named(problem["type"])


def _find(name: str, line: int | None) -> RequestLine:
    """Returns the first request of a file, or the one on this line."""
    import itertools

    from ullage.batch.reader import read_chunks, requests_of
    from ullage.batch.source import find_sources
    from ullage.errors import ConfigurationError

    for found in itertools.chain.from_iterable(map(requests_of, read_chunks(find_sources([name]), lines=1))):
        if line is None or found.number == line:
            return found
    raise ConfigurationError(f"{name}: no request on line {line}")


SPEC = CommandSpec(
    name="explain",
    usage="[FILE] [options]",
    brief="show what fit would change in a request, and why",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
    extra=None,
)
