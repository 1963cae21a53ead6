"""Parses the command line, by the specifications of the commands."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from ullage import __version__
from ullage.cli.command_table import COMMANDS, spec_of
from ullage.cli.request_options import EXIT_CODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.cli.command_spec import ActionSpec, CommandSpec

DESCRIPTION = """\
Keeps LLM conversations inside the model's context window, and records their cost. Without a command it
opens the shell; `ullage shell --help` lists its options.

A FILE contains requests: one JSON document, or JSONL with one request per line. A request is a list of
messages, or an object with "messages", optionally "model", "tools", "id", and anything else that is
sent. No FILE, or -, is standard input."""

ALL_EXIT_CODES = EXIT_CODES.replace("\n  2", "\n     (recall, memory, sessions: nothing was found)\n  2")


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Formats help with at most 98 columns."""

    def __init__(self, prog: str, **more: Any) -> None:
        width = min(100, shutil.get_terminal_size().columns) - 2
        super().__init__(prog, **{**more, "width": width, "max_help_position": 32})


class Parser(argparse.ArgumentParser):
    """A parser that reports an error as one line, and names the command for help."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with code 2."""
        self.exit(2, f"ullage: {message}\ntry: {self.prog} --help\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options of a command line; exits with code 2 if it is invalid."""
    first = arguments[0] if arguments else ""
    if first and not first.startswith("-") and first not in COMMANDS:
        make_parser(()).error(_unknown(first))
    names: Iterable[str] = (first,) if first in COMMANDS else COMMANDS  # does not load the other commands
    return make_parser(map(spec_of, names)).parse_args(arguments)


def _unknown(command: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistyped command needs it

    close = get_close_matches(command, COMMANDS, n=1)
    return f"Unknown command {command!r}." + "".join(f" Did you mean {name!r}?" for name in close)


def make_parser(specs: Iterable[CommandSpec]) -> argparse.ArgumentParser:
    """Returns the parser of these commands."""
    root = Parser(
        prog="ullage",
        usage="ullage [COMMAND] [options]",
        description=DESCRIPTION,
        epilog=f"{ALL_EXIT_CODES}\n\nFor more, run: ullage COMMAND --help",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    root.add_argument("--version", action="store_true", help="print the version and exit")
    root.set_defaults(run=lambda options: _run_without_command(root, options), extra=None)
    commands = root.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser, prog="ullage")
    for spec in specs:
        _add_command(commands, spec)
    return root


def _add_command(commands: Any, spec: CommandSpec) -> None:
    command = commands.add_parser(
        spec.name,
        usage=f"ullage {spec.name} {spec.usage}",
        help=spec.brief,
        description=spec.description,
        epilog=f"{spec.examples}\n\n{spec.exit_codes}",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=spec.run, extra=spec.extra)
    spec.add_options(command)
    if not spec.actions:
        return
    actions = command.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, prog=f"ullage {spec.name}"
    )
    for action in spec.actions:
        _add_action(actions, spec, action)


def _add_action(actions: Any, spec: CommandSpec, action: ActionSpec) -> None:
    made = actions.add_parser(
        action.name,
        usage=f"ullage {spec.name} {action.name} {action.usage}",
        help=action.brief,
        description=f"{action.brief[0].upper()}{action.brief[1:]}.",
        epilog=spec.exit_codes,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    action.add_options(made)


def _run_without_command(root: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    sys.stdout.write(f"ullage {__version__}\n" if options.version else root.format_help())
    return 0
