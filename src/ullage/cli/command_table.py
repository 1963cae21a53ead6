"""The table of commands: each is a module with its `SPEC`, loaded when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.cli.command_spec import CommandSpec

COMMANDS: Mapping[str, str] = {
    "count": "ullage.cli.count",
    "fit": "ullage.cli.fit",
    "explain": "ullage.cli.explain",
    "shell": "ullage.cli.shell",
    "ask": "ullage.cli.ask",
    "serve": "ullage.cli.serve",
    "run": "ullage.cli.run",
    "mcp": "ullage.cli.mcp",
    "model": "ullage.cli.model",
    "config": "ullage.cli.config",
    "demo": "ullage.cli.demo",
    "cost": "ullage.cli.cost",
    "memory": "ullage.cli.memory",
    "recall": "ullage.cli.recall",
    "sessions": "ullage.cli.sessions",
    "keys": "ullage.cli.keys",
    "completions": "ullage.cli.completions",
}
"""The module of each command, in the order of the help."""


def spec_of(name: str) -> CommandSpec:
    """Returns the specification of a command."""
    spec: CommandSpec = import_module(COMMANDS[name]).SPEC
    return spec
