"""`ullage count`: counts the tokens of requests."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec, positive_number
from ullage.cli.request_options import EXIT_CODES, add_batch_options, add_files, add_request_options

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION = """\
Counts the tokens of each request offline, and shows how much of the window each part takes. Files that
are plain text, and not requests, are counted as texts."""

EXAMPLES = """\
examples:
  ullage count session.json
  ullage count README.md src/*.py
  git diff | ullage count --text
  ullage count --json --jobs 4 requests.jsonl > counts.jsonl
  curl -s example.org/body.json | ullage count --api anthropic.messages"""


def add_options(command: ArgumentParser) -> None:
    """Adds the options of the command."""
    add_files(command)
    add_request_options(command)
    command.add_argument(
        "--limit",
        type=positive_number,
        metavar="N",
        help="the length of the bar in tokens (default: the model's window)",
    )
    command.add_argument(
        "--text",
        action="store_true",
        help="count plain text, also on standard input or if a file looks like JSON; without --model an "
        "estimate (~) for any model",
    )
    add_batch_options(command)


def run(options: Namespace) -> int:
    """Counts each request and returns the exit code."""
    from ullage.batch.job import Job
    from ullage.cli.batch import run_batch
    from ullage.cli.text_count import are_texts, count_texts

    if options.text or are_texts(options.files):
        return count_texts(options)
    job = Job(
        "count",
        model=options.model,
        api=options.api,
        limit=options.limit,
        json=options.json or options.output is not None,
    )
    return run_batch(job, options)


SPEC = CommandSpec(
    name="count",
    usage="[FILE ...] [options]",
    brief="count the tokens of requests",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
    extra=None,
)
