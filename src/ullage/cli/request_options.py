"""The options that `count`, `fit` and `explain` share: files, requests, limits and the policy."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from ullage.cli.command_spec import json_option, positive_number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ullage.batch.job import Job
    from ullage.fitting import FitPolicy

EXIT_CODES = """\
exit codes:
  0  done
  1  some lines are bad; the output has an error object for each, and the results of the others
  2  wrong usage: an unknown option, a missing file, no limit for a model with an unknown window
  3  overflow: the part that must be sent does not fit (and nothing else is wrong)"""


class PolicyOption(NamedTuple):
    """An option that sets a field of FitPolicy."""

    field: str
    read: Callable[[str], float]
    metavar: str
    help: str
    """The help text; {default} is replaced by the default of the field."""


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


POLICY: tuple[PolicyOption, ...] = (
    PolicyOption(
        "low_water",
        _share,
        "X",
        "a trim stops at this share of the room (default: {default}; 1 fills the window)",
    ),
    PolicyOption(
        "digest_share",
        _share,
        "X",
        "the digest's share of the room (default: {default}; 0 keeps only the task)",
    ),
    PolicyOption(
        "recall_share",
        _share,
        "X",
        "the share of the room for recalled passages (default: {default}; 0 for none)",
    ),
    PolicyOption(
        "max_turns",
        positive_number,
        "N",
        "the most messages, not counting the system prompt (default: {default})",
    ),
    PolicyOption(
        "max_age", whole_number, "N", "a tool output is old after N more steps (default: {default})"
    ),
    PolicyOption(
        "max_tokens_per_output",
        positive_number,
        "N",
        "the length in tokens to which old tool outputs are shortened (default: {default})",
    ),
    PolicyOption(
        "small_output_threshold",
        whole_number,
        "N",
        "do not change tool outputs of fewer tokens (default: {default})",
    ),
    PolicyOption(
        "preserve_recent_turns",
        whole_number,
        "N",
        "the number of newest exchanges, which are changed last (default: {default})",
    ),
)


def add_files(command: argparse.ArgumentParser) -> None:
    """Adds the files of a batch."""
    command.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="JSON, JSONL or Parquet, or a folder of them; - or no file is standard input",
    )


def add_request_options(command: argparse.ArgumentParser) -> None:
    """Adds the model and the API of the requests."""
    command.add_argument(
        "--model",
        metavar="M",
        help="count for this model (default: the model in the request, else gpt-4o)",
    )
    command.add_argument(
        "--api",
        metavar="API",
        type=_api,
        help="the API of the requests (default: openai.chat)",
    )


def add_batch_options(command: argparse.ArgumentParser) -> None:
    """Adds the options of a batch: its output, and who works on it."""
    json_option(command, "print one JSON result per line, in the order of the input")
    command.add_argument(
        "--jobs",
        type=positive_number,
        metavar="N",
        help="the number of processes (default: one per core for large input; 1 prints each result at once)",
    )
    command.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="write the results to this file (JSONL, or Parquet if it ends with .parquet), or to a file for "
        "each input in this folder",
    )
    command.add_argument(
        "--resume", action="store_true", help="go on where a run with the same -o was stopped"
    )
    command.add_argument(
        "--engine",
        choices=("processes", "ray"),
        default="processes",
        help="what runs the job: processes on this machine, or a Ray cluster (default: processes)",
    )


def add_fit_options(command: argparse.ArgumentParser) -> None:
    """Adds the limit, the reserve and the policy."""
    from ullage.fitting import FitPolicy

    defaults = FitPolicy()
    command.add_argument(
        "--limit",
        type=positive_number,
        metavar="N",
        help="the most input tokens (default: the model's window less the reserve)",
    )
    command.add_argument(
        "--reserve",
        type=whole_number,
        metavar="N",
        help="tokens kept free for the answer; also subtracted from --limit",
    )
    group = command.add_argument_group(
        "policy",
        "Rules for trimming, see docs/library/fitting.md. Room: the limit less system prompt and tools.",
    )
    for option in POLICY:
        default = getattr(defaults, option.field)
        group.add_argument(
            f"--{option.field.replace('_', '-')}",
            type=option.read,
            metavar=option.metavar,
            help=option.help.format(default="none" if default is None else default),
        )
    group.add_argument(
        "--pin",
        type=whole_number,
        metavar="I",
        action="append",
        help="do not change message I (the first is 0); may be repeated",
    )
    group.add_argument(
        "--recall",
        action="store_true",
        default=None,
        help="write handles into placeholders, so that removed texts can be recalled",
    )


def _api(text: str) -> str:
    from ullage.wire import APIS

    if text not in APIS:
        raise argparse.ArgumentTypeError(f"unknown API {text!r}: use one of {', '.join(APIS)}")
    return text


def policy_of(options: argparse.Namespace) -> FitPolicy:
    """Returns the policy of the options; raises ConfigurationError if it is invalid."""
    from ullage.fitting import FitPolicy

    given = {name: getattr(options, name) for name in (*(option.field for option in POLICY), "recall")}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return FitPolicy(pins=frozenset(options.pin or ()), **chosen)


def fit_job(options: argparse.Namespace, command: str) -> Job:
    """Returns the job that `fit` or `explain` runs on each request."""
    from ullage.batch.job import Job

    return Job(
        command,
        model=options.model,
        api=options.api,
        limit=options.limit,
        reserve=options.reserve,
        policy=policy_of(options),
        json=options.json or getattr(options, "output", None) is not None,
    )
