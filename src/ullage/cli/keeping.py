"""The options of the commands about what is kept: cost, memory, recall."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_CODES = """\
exit codes:
  0  all done
  1  what was asked for is not there
  2  wrong usage: an unknown option, a store that cannot be used"""

COST = """\
What calls have cost, across all sessions. Days are those of UTC. A cost that is not known is shown as
?, and where that is so for some of the calls only, their number is told."""

COST_EXAMPLES = """\
examples:
  ullage cost
  ullage cost --by project,category --since 30d
  ullage cost --by model --since 2026-11-01 --until 2026-11-30 --csv > november.csv"""

MEMORY = """\
What is remembered in every conversation: each item is a line of the system prompt's background."""

MEMORY_EXAMPLES = """\
examples:
  ullage memory add --kind preference "answer in metric units"
  ullage memory list
  ullage memory forget 3"""

RECALL = """\
What fitting took out of a conversation is kept whole. A handle prints exactly that text; words print
the pieces in which they all stand, the best first: handle, session, first line."""

RECALL_EXAMPLES = """\
examples:
  ullage recall mfrggzdf > output.txt
  ullage recall timeout database
  ullage recall --session 2f6c timeout --json"""

# name → usage, help in a line, description, examples, exit codes
COMMANDS = {
    "cost": ("[options]", "what calls have cost, by day, model, project …", COST, COST_EXAMPLES, EXIT_CODES),
    "memory": (
        "ACTION [options]",
        "what is remembered in every conversation",
        MEMORY,
        MEMORY_EXAMPLES,
        EXIT_CODES,
    ),
    "recall": (
        "HANDLE|WORD ... [options]",
        "the texts that fitting took out",
        RECALL,
        RECALL_EXAMPLES,
        EXIT_CODES,
    ),
}

# action of memory → usage, help in a line
ACTIONS = {
    "add": ("TEXT ... [options]", "remember a text"),
    "list": ("[options]", "print what is remembered"),
    "forget": ("NUMBER [options]", "forget an item"),
    "clear": ("[options]", "forget everything"),
}


def add_commands(commands: Any, command: Callable[[Any, str, Callable[..., int]], Any]) -> None:
    """Adds these commands to the command line; `command` makes an empty one."""
    _cost_options(command(commands, "cost", _cost))
    _memory_options(command(commands, "memory", _memory))
    _recall_options(command(commands, "recall", _recall))


def _cost_options(cost: Any) -> None:
    cost.add_argument(
        "--by",
        type=_groups,
        default=("day", "model"),
        metavar="A,B",
        help="a line for each of these: day, model, project, category, session (default: day,model)",
    )
    cost.add_argument(
        "--since", type=_day, metavar="DAY", help="from this day on: 2026-11-01, or 7d for 7 days ago"
    )
    cost.add_argument("--until", type=_day, metavar="DAY", help="up to this day, itself included")
    cost.add_argument("--session", metavar="S", help="only this session")
    cost.add_argument("--project", metavar="P", help="only this project")
    form = cost.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--csv", action="store_true", help="print CSV with a head, without the total")
    _store_option(cost)


def _memory_options(memory: Any) -> None:
    actions = memory.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, prog="ullage memory"
    )
    for name, (usage, brief) in ACTIONS.items():
        action = actions.add_parser(
            name,
            usage=f"ullage memory {name} {usage}",
            help=brief,
            description=f"{brief.capitalize()}.",
            epilog=EXIT_CODES,
            formatter_class=memory.formatter_class,
            allow_abbrev=False,
        )
        if name == "add":
            action.add_argument("text", nargs="+", metavar="TEXT", help="what to remember; words are joined")
            action.add_argument("--kind", default="", metavar="K", help="what kind of thing it is, in a word")
        if name == "forget":
            action.add_argument("number", type=int, metavar="NUMBER", help="as `ullage memory list` shows it")
        action.add_argument("--json", action="store_true", help="print one JSON object a line")
        _store_option(action)


def _recall_options(recall: Any) -> None:
    recall.add_argument("words", nargs="+", metavar="HANDLE|WORD", help="a handle, or words to search for")
    recall.add_argument(
        "--session", metavar="S", help="pieces of this session; a handle is sought there first"
    )
    recall.add_argument(
        "--most", type=_positive, default=20, metavar="N", help="the most pieces of a search (default: 20)"
    )
    recall.add_argument("--json", action="store_true", help="print one JSON object a line, texts whole")
    _store_option(recall)


def _store_option(command: Any) -> None:
    command.add_argument(
        "--store", metavar="PATH", help="the file that keeps it (default: in the user's state directory)"
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _groups(text: str) -> tuple[str, ...]:
    from ullage.cost.report import GROUPS

    given = tuple(filter(None, (each.strip() for each in text.split(","))))
    wrong = [each for each in given if each not in GROUPS]
    if wrong or not given:
        raise argparse.ArgumentTypeError(
            f"{text!r}: a report is made by {', '.join(GROUPS)}, joined by commas"
        )
    return given


def _day(text: str) -> str:
    """A day as 2026-11-16, given as that or as a number of days ago."""
    from datetime import UTC, date, datetime, timedelta

    try:
        if text.endswith("d") and text[:-1].isdecimal():
            return (datetime.now(UTC).date() - timedelta(days=int(text[:-1]))).isoformat()
        return date.fromisoformat(text).isoformat()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no day: write 2026-11-01, or 7d for 7 days ago"
        ) from None


# What the commands run -------------------------------------------------------------------------------


def _cost(options: argparse.Namespace) -> int:
    from ullage.cli.cost import run

    return run(options)


def _memory(options: argparse.Namespace) -> int:
    from ullage.cli.memory import run

    return run(options)


def _recall(options: argparse.Namespace) -> int:
    from ullage.cli.recall import run

    return run(options)
