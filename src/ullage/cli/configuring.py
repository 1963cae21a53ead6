"""`ullage config`: writes the file, shows what is in effect and why, checks it, trusts a project's own."""
# ruff: noqa: PLC0415 - the options are always built; what an action needs is loaded when it runs

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ullage.config import Problem, Settings

WRONG = 1
"""The exit code where the configuration is not as it should be."""

EXIT_CODES = """\
exit codes:
  0  all done, all is well
  1  something is wrong with the configuration; each problem is a line with file, line and key
  2  wrong usage: an unknown option, a file that cannot be read or is there already"""

CONFIG = """\
The configuration: a TOML file of your own, the environment, and a project's .ullage.toml, which can only
make things safer and is left out until you trust it."""

EXAMPLES = """\
examples:
  ullage config init
  ullage config show
  ullage config check --config other.toml
  ullage config trust"""

COMMANDS = {
    "config": (
        "ACTION [options]",
        "write, show and check the configuration",
        CONFIG,
        EXAMPLES,
        EXIT_CODES,
    )
}

USAGE = {
    "init": ("[options]", "write a file with every key as a comment: its default, and what it costs"),
    "show": ("[options]", "print the settings that are in effect here, and where each comes from"),
    "check": ("[options]", "say what is wrong, a line for each problem"),
    "trust": ("[PATH] [options]", "let a project's .ullage.toml, as it is now, have its say"),
}


def add_commands(commands: Any, command: Callable[[Any, str, Callable[..., int]], Any]) -> None:
    """Adds the command to the command line; `command` makes an empty one."""
    config = command(commands, "config", run)
    actions = config.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, prog="ullage config"
    )
    for name, (usage, brief) in USAGE.items():
        action = actions.add_parser(
            name,
            usage=f"ullage config {name} {usage}",
            help=brief,
            description=f"{brief[0].upper()}{brief[1:]}.",
            epilog=EXIT_CODES,
            formatter_class=config.formatter_class,
            allow_abbrev=False,
        )
        action.add_argument(
            "--config",
            metavar="PATH",
            help="your file (default: ULLAGE_CONFIG, else in your configuration directory)",
        )
        if name == "init":
            action.add_argument("--force", action="store_true", help="write it even where there is one")
            continue
        if name == "trust":
            action.add_argument(
                "path", nargs="?", metavar="PATH", help="the file (default: the nearest from here upwards)"
            )
            action.add_argument("--forget", action="store_true", help="trust it no longer")
        else:
            action.add_argument("--json", action="store_true", help="print one JSON object a line")
        action.add_argument(
            "--store",
            metavar="PATH",
            help="the file that keeps what is trusted (default: in the user's state directory)",
        )


def run(options: Namespace) -> int:
    """Does what the action says and returns the exit code."""
    from ullage.config import InvalidSettings

    try:
        return ACTIONS[options.action](options)
    except InvalidSettings as error:
        _tell_problems(options, error.problems)
        return WRONG


def _init(options: Namespace) -> int:
    import os
    from pathlib import Path

    from ullage.config.documents import config_path
    from ullage.config.writing import write_initial

    path = Path(options.config).expanduser() if options.config else config_path(os.environ)
    _print(f"{write_initial(path, force=options.force)} is written; every key in it is a comment")
    return 0


def _show(options: Namespace) -> int:
    from ullage.config.building import entries
    from ullage.config.problems import dotted
    from ullage.config.writing import public

    settings = _loaded(options)
    for row, path, value in entries(settings):
        key, text, source = dotted(path), public(value, row), settings.source(*path)
        if options.json:
            _print_json({"key": key, "value": text, "source": source})
        else:
            _print(f"{f'{key} = {text}':<56}  # {source}")
    _notice(settings)
    return 0


def _check(options: Namespace) -> int:
    from ullage.shell.status import check_settings

    settings = _loaded(options)
    check_settings(settings)
    if not options.json:
        for path in settings.files:
            _print(f"{path}: all is well")
        if not settings.files:
            _print("there is no file, so that the defaults hold; write one with: ullage config init")
    _notice(settings)
    _notice_keys(settings)
    return 0


def _trust(options: Namespace) -> int:
    from ullage.cli.kept import opened
    from ullage.config import trust

    path = _overlay(options.path)
    if options.forget:
        with opened(options.store) as kept:
            if kept is not None:
                trust(kept.preferences, path, None)
        _print(f"{path} is not trusted any more")
        return 0
    settings, sha256 = _as_if_trusted(path, options)
    with opened(options.store, make=True) as kept:
        if kept is not None:
            trust(kept.preferences, path, sha256)
    _print(f"{path} is trusted as it is now; what it sets:")
    _print_sources(settings, path)
    return 0


ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "init": _init,
    "show": _show,
    "check": _check,
    "trust": _trust,
}


def _loaded(options: Namespace) -> Settings:
    """The settings here; a store that is not there yet has trusted nothing, and is not made."""
    import os
    from pathlib import Path

    from ullage import store
    from ullage.config import load, trust_in
    from ullage.store.files import located

    kept = located(options.store)
    if kept is not None and not kept.exists():
        return load(options.config, environ=os.environ, cwd=Path.cwd())
    with store.open(options.store) as opened:
        return load(options.config, environ=os.environ, cwd=Path.cwd(), trusted=trust_in(opened.preferences))


def _overlay(given: str | None) -> Path:
    """The project's file that is meant, by the path that `load` finds it by."""
    import os
    from pathlib import Path

    from ullage.config.overlay import NAME, find_overlay
    from ullage.errors import ConfigurationError

    if given is None:
        home = os.environ.get("HOME")
        found = find_overlay(Path.cwd(), Path(home) if home else None)
        if found is None:
            raise ConfigurationError(f"there is no {NAME} here, nor above within the repository")
        return found
    path = Path(given).expanduser()
    path = path / NAME if path.is_dir() else path
    if path.name != NAME:
        raise ConfigurationError(f"{given} is no project's file: those are called {NAME}")
    return path.parent.resolve() / NAME


def _as_if_trusted(path: Path, options: Namespace) -> tuple[Settings, str]:
    """The settings with this file in effect, and the content that was looked at; raises where it is wrong."""
    import os

    from ullage.config import load
    from ullage.errors import ConfigurationError

    seen: list[str] = []

    def trusted(found: Path, sha256: str) -> bool:
        seen.extend([sha256] if found == path else [])
        return found == path

    settings = load(options.config, environ=os.environ, cwd=path.parent, trusted=trusted)
    if not seen:
        raise ConfigurationError(f"there is no {path}")
    return settings, seen[0]


def _print_sources(settings: Settings, path: Path) -> None:
    from ullage.config.building import entries
    from ullage.config.problems import clean, dotted
    from ullage.config.writing import public

    for row, key, value in entries(settings):
        if settings.source(*key).startswith(f"{clean(path)}:"):
            _print(f"  {dotted(key)} = {public(value, row)}")


def _tell_problems(options: Namespace, problems: Iterable[Problem]) -> None:
    for problem in problems:
        if getattr(options, "json", False):
            _print_json({"place": problem.place, "key": problem.key, "problem": problem.text})
        else:
            _print(str(problem))


def _notice(settings: Settings) -> None:
    from ullage.cli.kept import complain
    from ullage.printable import printable

    for notice in settings.notices:
        complain(printable(notice))


def _notice_keys(settings: Settings) -> None:
    """Tells which keys are not where the file says: it may be right, and another terminal have them."""
    import os

    from ullage.cli.kept import complain
    from ullage.config.using import endpoint_of, runs_here
    from ullage.errors import ConfigurationError

    for model in settings.models.values():
        try:
            if not runs_here(model):
                endpoint_of(model, os.environ)
        except ConfigurationError as error:
            complain(str(error))


def _print(text: str) -> None:
    from ullage.printable import printable

    line = printable(text).rstrip()
    sys.stdout.write(f"{line.encode('utf-8', 'replace').decode()}\n")


def _print_json(value: dict[str, str]) -> None:
    from ullage.cli.reading import encode

    sys.stdout.flush()
    sys.stdout.buffer.write(encode(value))
