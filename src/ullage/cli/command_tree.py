"""All commands with their options as a tree of plain values, for completions and the manual page.

The tree is made from the specifications that the parser reads, so it has what `--help` shows.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.cli.command_table import COMMANDS, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.cli.command_spec import ActionSpec, CommandSpec

FILES = ("FILE", "PATH", "OUT")
"""Names of values that are files."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An option, or a word without a dash."""

    flags: tuple[str, ...]
    """The names of an option; empty for a word."""
    value: str
    """The name of its value in the help; empty if it takes none."""
    help: str
    words: tuple[str, ...]
    """The values that it accepts; empty if they cannot be listed."""
    is_repeated: bool
    """True if several values may follow."""

    @property
    def is_file(self) -> bool:
        """True if its value is the name of a file."""
        return self.value in FILES


@dataclass(frozen=True, slots=True)
class CommandNode:
    """A command, or an action of a command."""

    path: tuple[str, ...]
    """The words after `ullage`."""
    brief: str
    arguments: tuple[Argument, ...]
    children: tuple[CommandNode, ...] = ()
    spec: CommandSpec | None = None

    def walk(self) -> Iterator[CommandNode]:
        """Yields this node and all nodes below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def command_tree() -> CommandNode:
    """Returns the tree; the root has the options of the shell, which `ullage` opens without a command."""
    nodes = tuple(_command(spec_of(name)) for name in COMMANDS)
    shell = next(node for node in nodes if node.path == ("shell",))
    version = Argument(("--version",), "", "print the version and exit", (), is_repeated=False)
    options = tuple(each for each in shell.arguments if each.flags)
    return CommandNode((), "", (*options, version), nodes)


def _command(spec: CommandSpec) -> CommandNode:
    children = tuple(
        CommandNode((spec.name, action.name), action.brief, _arguments(action, (spec.name, action.name)))
        for action in spec.actions
    )
    return CommandNode((spec.name,), spec.brief, _arguments(spec, (spec.name,)), children, spec)


def _arguments(spec: CommandSpec | ActionSpec, path: tuple[str, ...]) -> tuple[Argument, ...]:
    recorder = _Recorder(add_help=False, allow_abbrev=False)
    recorder.add_argument("-h", "--help", action="store_true", help="show the help and exit")
    spec.add_options(recorder)
    return tuple(_argument(action, path) for action in recorder.added if action.help != argparse.SUPPRESS)


def _argument(action: argparse.Action, path: tuple[str, ...]) -> Argument:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    words = tuple(map(str, action.choices or ()))
    if path[0] == "config" and metavar == "KEY":
        words = _keys()
    return Argument(
        tuple(action.option_strings),
        "" if action.nargs == 0 else metavar,
        (action.help or "").replace("%%", "%"),
        words,
        is_repeated=action.nargs in ("*", "+"),
    )


def _keys() -> tuple[str, ...]:
    from ullage.config.keys import ROWS  # noqa: PLC0415 - only the keys of the configuration need it

    return tuple(row.name for row in ROWS if not row.is_named)


class _Recorder(argparse.ArgumentParser):
    """A parser that remembers its arguments in order, also those of its groups."""

    def __init__(self, **options: Any) -> None:
        self.added: list[argparse.Action] = []
        self._is_made = False
        super().__init__(**options)  # makes the two groups of every parser
        self._is_made = True

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Adds an argument."""
        action = super().add_argument(*names, **options)
        self.added.append(action)
        return action

    def add_argument_group(self, *titles: Any, **options: Any) -> Any:
        """Returns the parser itself, so that the arguments of groups are recorded too."""
        return self if self._is_made else super().add_argument_group(*titles, **options)

    def add_mutually_exclusive_group(self, **_: Any) -> Any:
        """Returns the parser itself, so that the arguments of groups are recorded too."""
        return self
