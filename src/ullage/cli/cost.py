"""`ullage cost`: the store's book as a report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ullage.cli.kept import opened
from ullage.cost.report import as_csv, as_json, as_table, report

if TYPE_CHECKING:
    from argparse import Namespace

    from ullage.cost.report import Report


def run(options: Namespace) -> int:
    """Prints the report that the options ask for; an empty one where there is no store yet."""
    with opened(options.store) as kept:
        entries = (
            []
            if kept is None
            else kept.book.entries(
                since=options.since, until=options.until, session=options.session, project=options.project
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


def _print(made: Report) -> None:
    from ullage.drawing import clean, console  # noqa: PLC0415 - only people need the drawing

    console().file.write(as_table(made, clean))
