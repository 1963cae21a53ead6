"""`ullage config`: writes, changes, shows and checks the configuration, and trusts a project's file."""
# ruff: noqa: PLC0415 - the options are always built; an action loads its modules when it runs

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ullage.cli.command_spec import ActionSpec, CommandSpec, json_option, store_option

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ullage.config import Problem, Settings

WRONG = 1
"""The exit code for an invalid configuration, and for a project's file that was not trusted."""

EXIT_CODES = """\
exit codes:
  0  done, no problems
  1  the configuration is invalid, with one line for each problem; or a file was not trusted
  2  wrong usage: an unknown option, a file that cannot be read or exists already"""

DESCRIPTION = """\
The configuration consists of your own TOML file, environment variables, and a project's .ullage.toml.
The project's file can only make settings stricter, and is ignored until you trust it."""

EXAMPLES = """\
examples:
  ullage config init
  ullage config set cost.cap_at_dollars_a_day 2.50
  ullage config set routing.rules.code refactor "write a test"
  ullage config edit
  ullage config show
  ullage config check --config other.toml
  ullage config trust"""


def _add_init_options(action: ArgumentParser) -> None:
    _config_option(action)
    action.add_argument("--force", action="store_true", help="overwrite an existing file")


def _add_set_options(action: ArgumentParser) -> None:
    _config_option(action)
    action.add_argument("key", metavar="KEY", help="the key with dots, such as context.max_turns")
    action.add_argument(
        "value",
        nargs="+",
        metavar="VALUE",
        help="the value; a list takes several, a table is given in TOML",
    )


def _add_unset_options(action: ArgumentParser) -> None:
    _config_option(action)
    action.add_argument("key", metavar="KEY", help="the key with dots, or a table such as models.fast")


def _add_show_options(action: ArgumentParser) -> None:
    _config_option(action)
    json_option(action)
    _trust_store_option(action)


def _add_trust_options(action: ArgumentParser) -> None:
    _config_option(action)
    action.add_argument(
        "path", nargs="?", metavar="PATH", help="the file (default: the nearest one, here or above)"
    )
    action.add_argument("--forget", action="store_true", help="withdraw the trust")
    action.add_argument("--yes", action="store_true", help="trust the file without asking")
    _trust_store_option(action)


def _config_option(action: ArgumentParser) -> None:
    action.add_argument(
        "--config",
        metavar="PATH",
        help="your file (default: ULLAGE_CONFIG, else in your configuration directory)",
    )


def _trust_store_option(action: ArgumentParser) -> None:
    store_option(action, "the store, which records the trusted files")


def run(options: Namespace) -> int:
    """Runs the action and returns the exit code."""
    from ullage.config import InvalidSettings

    try:
        return ACTIONS[options.action](options)
    except InvalidSettings as error:
        _print_problems(options, error.problems)
        return WRONG


def _init(options: Namespace) -> int:
    import os
    from pathlib import Path

    from ullage.config.documents import config_path
    from ullage.config.writer import write_initial

    path = Path(options.config).expanduser() if options.config else config_path(os.environ)
    _print(f"wrote {write_initial(path, force=options.force)}; every key in it is a comment")
    return 0


def _show(options: Namespace) -> int:
    from ullage.config.builder import entries
    from ullage.config.problems import join_key
    from ullage.config.writer import public

    settings = _load_settings(options)
    for row, path, value in entries(settings):
        key, text, source = join_key(path), public(value, row), settings.source(*path)
        if options.json:
            _print_json({"key": key, "value": text, "source": source})
        else:
            _print(f"{f'{key} = {text}':<56}  # {source}")
    _notice(settings)
    return 0


def _check(options: Namespace) -> int:
    from ullage.shell.status import check_settings

    settings = _load_settings(options)
    check_settings(settings)
    if not options.json:
        for path in settings.files:
            _print(f"{path}: no problems")
        if not settings.files:
            _print("no configuration file: all settings are defaults. To write one, run: ullage config init")
    _notice(settings)
    _notice_keys(settings)
    return 0


def _trust(options: Namespace) -> int:
    """Shows the file and the settings that it changes, and asks whether to trust it."""
    import hashlib

    from ullage.cli.open_store import open_store
    from ullage.session.trust import trust
    from ullage.text import show_hidden

    path = _overlay(options.path)
    if options.forget:
        with open_store(options.store) as kept:
            if kept is not None:
                trust(kept.preferences, path, None)
        _print(f"{path} is no longer trusted")
        return 0
    settings, content = _as_if_trusted(path, options)
    _print(f"{path}:")
    for line in content.decode("utf-8", "replace").splitlines():
        _print(f"  | {show_hidden(line)}")
    _print("This file sets:")
    _print_sources(settings, path)
    if not (options.yes or _is_confirmed()):
        _print(f"{path} is not trusted")
        return WRONG
    with open_store(options.store, make=True) as kept:
        if kept is not None:
            trust(kept.preferences, path, hashlib.sha256(content).hexdigest())
    _print(f"{path} is trusted until it changes")
    return 0


def _is_confirmed() -> bool:
    """Returns True if the user types yes; raises ConfigurationError without a terminal."""
    from ullage.errors import ConfigurationError

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("cannot ask without a terminal. If you have read the file, add --yes")
    try:
        return input("Trust this file? Type yes: ").strip() == "yes"
    except (EOFError, KeyboardInterrupt):
        return False


def _set(options: Namespace) -> int:
    from ullage.cli.config_change import set_value

    return set_value(options)


def _unset(options: Namespace) -> int:
    from ullage.cli.config_change import unset_value

    return unset_value(options)


def _edit(options: Namespace) -> int:
    from ullage.cli.config_change import edit_file

    return edit_file(options)


ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "init": _init,
    "set": _set,
    "unset": _unset,
    "edit": _edit,
    "show": _show,
    "check": _check,
    "trust": _trust,
}


def _load_settings(options: Namespace) -> Settings:
    """Returns the settings of this folder; without a store, no project's file is trusted."""
    import os
    from pathlib import Path

    from ullage import store
    from ullage.config import load
    from ullage.session.trust import load_trusted
    from ullage.store import locate_file

    kept = locate_file(options.store)
    if kept is not None and not kept.exists():
        return load(options.config, environ=os.environ, cwd=Path.cwd())
    with store.open(options.store) as open_store:
        return load_trusted(options.config, open_store.preferences, os.environ, Path.cwd())


def _overlay(given: str | None) -> Path:
    """Returns the path of the project's file: the given one, or the one that `load` finds."""
    import os
    from pathlib import Path

    from ullage.config.overlay import NAME, find_overlay
    from ullage.errors import ConfigurationError

    if given is None:
        home = os.environ.get("HOME")
        found = find_overlay(Path.cwd(), Path(home) if home else None)
        if found is None:
            raise ConfigurationError(f"no {NAME} in this folder or above it in the repository: give its path")
        return found
    path = Path(given).expanduser()
    path = path / NAME if path.is_dir() else path
    if path.name != NAME:
        raise ConfigurationError(f"{given} is not a project's file: name a file called {NAME}")
    return path.parent.resolve() / NAME


def _as_if_trusted(path: Path, options: Namespace) -> tuple[Settings, bytes]:
    """Returns the settings with this file in effect, and its content; raises InvalidSettings for problems."""
    import hashlib
    import os

    from ullage.config import load
    from ullage.config.documents import LARGEST, contents
    from ullage.errors import ConfigurationError

    seen: list[str] = []

    def is_trusted(found: Path, sha256: str) -> bool:
        seen.extend([sha256] if found == path else [])
        return found == path

    settings = load(options.config, environ=os.environ, cwd=path.parent, trusted=is_trusted)
    if not seen:
        raise ConfigurationError(f"{path} does not exist")
    content, _ = contents(path, LARGEST + 1, regular=True)
    if hashlib.sha256(content).hexdigest() != seen[0]:
        raise ConfigurationError(f"{path} was changed in the meantime: run the command again")
    return settings, content


def _print_sources(settings: Settings, path: Path) -> None:
    from ullage.config.builder import entries
    from ullage.config.problems import join_key, show_path
    from ullage.config.writer import public

    for row, key, value in entries(settings):
        if settings.source(*key).startswith(f"{show_path(path)}:"):
            _print(f"  {join_key(key)} = {public(value, row)}")


def _print_problems(options: Namespace, problems: Iterable[Problem]) -> None:
    for problem in problems:
        if getattr(options, "json", False):
            _print_json({"place": problem.source, "key": problem.key, "problem": problem.text})
        else:
            _print(str(problem))


def _notice(settings: Settings) -> None:
    from ullage.cli.complaint import complain
    from ullage.text import printable

    for notice in settings.notices:
        complain(printable(notice))


def _notice_keys(settings: Settings) -> None:
    """Warns about missing keys; a missing key is not an error, because another terminal may have it."""
    import os

    from ullage.cli.complaint import complain
    from ullage.errors import ConfigurationError
    from ullage.session.endpoint import endpoint_of

    for model in settings.models.values():
        try:
            if not model.runs_here:
                endpoint_of(model, os.environ)
        except ConfigurationError as error:
            complain(str(error))


def _print(text: str) -> None:
    from ullage.text import printable

    line = printable(text).rstrip()
    sys.stdout.write(f"{line.encode('utf-8', 'replace').decode()}\n")


def _print_json(value: dict[str, str]) -> None:
    from ullage.batch.request_text import encode

    sys.stdout.flush()
    sys.stdout.buffer.write(encode(value))


SPEC = CommandSpec(
    name="config",
    usage="ACTION [options]",
    brief="write, change, show and check the configuration",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    run=run,
    actions=(
        ActionSpec(
            name="init",
            usage="[options]",
            brief="write a file with every key as a comment, with its default and its cost",
            add_options=_add_init_options,
        ),
        ActionSpec(
            name="set",
            usage="KEY VALUE [VALUE ...] [options]",
            brief="set a key in your file; comments stay, and an invalid value changes nothing",
            add_options=_add_set_options,
        ),
        ActionSpec(
            name="unset",
            usage="KEY [options]",
            brief="remove a key from your file, so that its default is in effect",
            add_options=_add_unset_options,
        ),
        ActionSpec(
            name="edit",
            usage="[options]",
            brief="open $VISUAL or $EDITOR on a copy of your file, and save it if it has no problems",
            add_options=_config_option,
        ),
        ActionSpec(
            name="show",
            usage="[options]",
            brief="print the settings in effect here, and the source of each",
            add_options=_add_show_options,
        ),
        ActionSpec(
            name="check",
            usage="[options]",
            brief="check the configuration, and print one line for each problem",
            add_options=_add_show_options,
        ),
        ActionSpec(
            name="trust",
            usage="[PATH] [options]",
            brief="show a project's .ullage.toml, and ask whether to trust it",
            add_options=_add_trust_options,
        ),
    ),
)
