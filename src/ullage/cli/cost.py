"""`ullage cost`: prints a report of the costs in the store."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec, store_option
from ullage.cli.open_store import STORE_EXIT_CODES, open_store

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ullage.cost.report import CostReport


DESCRIPTION = """\
Prints the cost of calls in all sessions. Days are in UTC. An unknown cost is shown as ?. If only some
calls of a line have an unknown cost, their number is shown. With `--by day`, a bar behind each day shows its
cost."""

EXAMPLES = """\
examples:
  ullage cost
  ullage cost --by day --since 14d
  ullage cost --by project,category --since 30d
  ullage cost --by model --since 2026-11-01 --until 2026-11-30 --csv > november.csv"""


def add_options(cost: ArgumentParser) -> None:
    """Adds the options of the command."""
    cost.add_argument(
        "--by",
        type=_groups,
        default=("day", "model"),
        metavar="A,B",
        help="group by one or more of day, model, project, category, session, key (default: day,model)",
    )
    cost.add_argument(
        "--since", type=_day, metavar="DAY", help="from this day on: 2026-11-01, or 7d for 7 days ago"
    )
    cost.add_argument("--until", type=_day, metavar="DAY", help="up to and including this day")
    cost.add_argument("--session", metavar="S", help="only this session")
    cost.add_argument("--project", metavar="P", help="only this project")
    cost.add_argument("--key", metavar="ID", help="only this gateway key, by its id from `ullage keys list`")
    form = cost.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--csv", action="store_true", help="print CSV with a header line, without the total")
    store_option(cost)


def _groups(text: str) -> tuple[str, ...]:
    from ullage.cost.report import GROUPS

    given = tuple(filter(None, (each.strip() for each in text.split(","))))
    wrong = [each for each in given if each not in GROUPS]
    if wrong or not given:
        raise argparse.ArgumentTypeError(
            f"cannot group by {text!r}: use {', '.join(GROUPS)}, separated by commas"
        )
    return given


def _day(text: str) -> str:
    """Returns a day as 2026-11-16, from that form or from a number of days ago."""
    from datetime import UTC, date, datetime, timedelta

    try:
        if text.endswith("d") and text[:-1].isdecimal():
            return (datetime.now(UTC).date() - timedelta(days=int(text[:-1]))).isoformat()
        return date.fromisoformat(text).isoformat()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a day: write 2026-11-01, or 7d for 7 days ago"
        ) from None


def run(options: Namespace) -> int:
    """Prints the report; an empty one if there is no store yet."""
    from ullage.cost.report import as_csv, as_json, report

    with open_store(options.store) as kept:
        entries = (
            []
            if kept is None
            else kept.book.entries(
                since=options.since,
                until=options.until,
                session=options.session,
                project=options.project,
                key=options.key,
            )
        )
    made = report(entries, options.by)
    if options.json:
        sys.stdout.buffer.write(as_json(made) + b"\n")
    elif options.csv:
        sys.stdout.buffer.write(as_csv(made).encode("utf-8", "replace"))
    else:
        _print(made)
    return 0


def _print(made: CostReport) -> None:
    from ullage.cost.report import add_bars, as_table
    from ullage.text import one_line
    from ullage.window_chart import console

    out, table = console(), as_table(made, one_line)
    out.file.write(add_bars(table, made, out.width) if made.by == ("day",) else table)


SPEC = CommandSpec(
    name="cost",
    usage="[options]",
    brief="print the cost of calls by day, model, project …",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=STORE_EXIT_CODES,
    add_options=add_options,
    run=run,
)
