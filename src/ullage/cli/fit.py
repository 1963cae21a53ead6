"""`ullage fit`: makes requests fit."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec
from ullage.cli.request_options import (
    EXIT_CODES,
    add_batch_options,
    add_files,
    add_fit_options,
    add_request_options,
    fit_job,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION = """\
Makes each request fit. Old tool outputs are shortened, and a digest replaces old exchanges. The result is
always a valid request. With --json the fitted requests are printed, one per line, ready to be sent."""

EXAMPLES = """\
examples:
  ullage fit session.json --limit 8000
  ullage fit --json --limit 32000 requests.jsonl > fitted.jsonl
  ullage fit --json --model claude-sonnet-4-5 --reserve 8000 < body.json"""


def add_options(command: ArgumentParser) -> None:
    """Adds the options of the command."""
    add_files(command)
    add_request_options(command)
    add_fit_options(command)
    add_batch_options(command)


def run(options: Namespace) -> int:
    """Fits each request and returns the exit code."""
    from ullage.cli.batch import run_batch

    return run_batch(fit_job(options, "fit"), options)


SPEC = CommandSpec(
    name="fit",
    usage="[FILE ...] [options]",
    brief="make requests fit",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
    extra=None,
)
