"""`ullage completions`: prints a completion script for a shell, or the manual page."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

NAMES = ("bash", "zsh", "fish")

EXIT_CODES = """\
exit codes:
  0  done
  2  wrong usage: an unknown shell"""

DESCRIPTION = """\
Prints a script that completes the commands and options of `ullage` in your shell. `make install` puts the
scripts and the manual page where bash, fish and man find them."""

EXAMPLES = """\
examples:
  source <(ullage completions bash)               # in ~/.bashrc
  source <(ullage completions zsh)                # in ~/.zshrc, after compinit
  ullage completions fish | source                # in ~/.config/fish/config.fish
  ullage completions man > ullage.1; man ./ullage.1"""


def add_options(command: ArgumentParser) -> None:
    """Adds the options of the command."""
    command.add_argument(
        "what", choices=(*NAMES, "man"), metavar="SHELL", help="bash, zsh or fish; man for the manual page"
    )


def run(options: Namespace) -> int:
    """Prints the script or the page."""
    if options.what == "man":
        from ullage.cli.manual import manual_page  # noqa: PLC0415 - only this page needs it

        sys.stdout.write(manual_page())
        return 0
    from ullage.cli.completion_scripts import completion_script  # noqa: PLC0415 - the same

    sys.stdout.write(completion_script(options.what))
    return 0


SPEC = CommandSpec(
    name="completions",
    usage="bash|zsh|fish|man",
    brief="print a completion script for your shell, or the manual page",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
    extra=None,
)
