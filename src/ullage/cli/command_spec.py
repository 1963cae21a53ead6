"""The specification of a command: its help texts, its options and the function that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ullage.extras import ExtraName

    AddOptions: TypeAlias = Callable[[argparse.ArgumentParser], None]
    Run: TypeAlias = Callable[[argparse.Namespace], int]


def no_options(_: argparse.ArgumentParser) -> None:
    """Adds no option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """An action of a command, such as `add` of `ullage memory`."""

    name: str
    usage: str
    brief: str
    """The help in one line, in lower case and without a full stop."""
    add_options: AddOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """One command of `ullage`."""

    name: str
    usage: str
    brief: str
    """The help in one line."""
    description: str
    examples: str
    exit_codes: str
    run: Run
    """Returns the exit code; `options.action` is the name of the action, if the command has actions."""
    add_options: AddOptions = no_options
    extra: ExtraName | None = "shell"
    """The extra that the command needs; None if the core is enough."""
    actions: tuple[ActionSpec, ...] = ()


def store_option(command: argparse.ArgumentParser, what: str = "the store") -> None:
    """Adds `--store`."""
    command.add_argument(
        "--store",
        metavar="PATH",
        help=f"{what}: a path, or postgresql://user@host/database (default: a file in your state directory)",
    )


def json_option(command: argparse.ArgumentParser, what: str = "print one JSON object a line") -> None:
    """Adds `--json`."""
    command.add_argument("--json", action="store_true", help=what)


def whole_number(text: str) -> int:
    """Returns a whole number of at least 0; commas between its digits are ignored."""
    try:
        number = int(text.replace(",", ""))
    except ValueError:
        raise _make_error(f"{text!r} is not a whole number") from None
    if number < 0:
        raise _make_error(f"{text} is less than 0")
    return number


def positive_number(text: str) -> int:
    """Returns a whole number of at least 1; commas between its digits are ignored."""
    number = whole_number(text)
    if number < 1:
        raise _make_error(f"{text} is less than 1")
    return number


def _make_error(why: str) -> Exception:
    from argparse import ArgumentTypeError  # noqa: PLC0415 - `ullage` alone needs no parser

    return ArgumentTypeError(why)
