"""`ullage model`: downloads the embedded model, lists models, and chooses the one that answers."""
# ruff: noqa: PLC0415 - the options are always built; an action loads its modules when it runs

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.broker.embedded_info import EMBEDDED
from ullage.cli.command_spec import ActionSpec, CommandSpec, json_option, store_option

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

EXIT_CODES = """\
exit codes:
  0  done
  1  the file could not be downloaded, or is damaged; the message says how to repair it
  2  wrong usage: an unknown option or model, an unusable store"""

DESCRIPTION = """\
Manages the model that answers. The default is the embedded model, which runs in this process without a
key and without a network. Its file is downloaded once."""

EXAMPLES = """\
examples:
  ullage model get
  ullage model list
  ullage model use ~/models/qwen2.5-7b-instruct-q4_k_m.gguf
  ullage model use ollama/qwen2.5:7b
  ullage model use anthropic/claude-sonnet-4-5
  ullage model use embedded"""


def _add_get_options(action: ArgumentParser) -> None:
    action.add_argument("--force", action="store_true", help="replace an existing file")
    json_option(action)


def _add_list_options(action: ArgumentParser) -> None:
    store_option(action)
    _config_option(action)
    json_option(action)


def _add_use_options(action: ArgumentParser) -> None:
    store_option(action)
    _config_option(action)
    action.add_argument(
        "model",
        metavar="MODEL",
        help="a configured model, embedded, the path of a GGUF file, PROVIDER/MODEL, or a server's address",
    )
    json_option(action)


def _config_option(action: ArgumentParser) -> None:
    action.add_argument("--config", metavar="PATH", help="the configuration file (default: your own)")


def run(options: Namespace) -> int:
    """Runs the action and returns the exit code."""
    from ullage.cli.complaint import complain
    from ullage.cli.open_store import MISSING
    from ullage.errors import LocalModelError

    try:
        return ACTIONS[options.action](options)
    except LocalModelError as error:
        complain(str(error))
        return MISSING


def _get(options: Namespace) -> int:
    from ullage.broker.embedded import runtime, weights
    from ullage.cli.complaint import complain

    wanted = weights.SMOLLM2
    if not options.json and (options.force or weights.find() is None):
        complain(f"downloading {wanted.file} ({wanted.size / 1e6:.0f} MB, {wanted.licence}) …")
    path, fetched = weights.get(force=options.force)
    result = {"model": EMBEDDED, "path": str(path), "fetched": fetched, "runtime": runtime.is_installed()}
    _print_result(
        options, result, f"{path}\n{'downloaded' if fetched else 'already downloaded'}; its sha256 is correct"
    )
    if not result["runtime"]:
        complain(f"the runtime is not installed yet. Install it with: {runtime.INSTALL}")
    return 0


def _list(options: Namespace) -> int:
    import os

    from ullage import store
    from ullage.cli.complaint import complain
    from ullage.cli.model_rows import find_answering, list_models, row_text
    from ullage.config import load
    from ullage.session.trust import load_trusted
    from ullage.store import locate_file

    path = locate_file(options.store)
    if path is not None and not path.exists():  # the list makes no store, and without one nothing is chosen
        settings = load(options.config, environ=os.environ, cwd=Path.cwd())
        answering = find_answering(settings, None)
    else:
        with store.open(options.store) as kept:
            settings = load_trusted(options.config, kept.preferences, os.environ, Path.cwd())
            answering = find_answering(settings, kept.preferences)
    for notice in filter(None, (*settings.notices, answering.notice)):
        complain(notice)
    for row in list_models(settings, answering, os.environ):
        _print_result(options, row, row_text(row))
    return 0


def _use(options: Namespace) -> int:
    from ullage.cli.open_store import open_store
    from ullage.session.preferences import CHOSEN_MODEL

    chosen = _check_choice(options.model, options.config)
    with open_store(options.store, make=True) as kept:
        if kept is not None:
            CHOSEN_MODEL.set(kept.preferences, chosen)
    _print_result(options, {"model": chosen}, f"{chosen} answers from now on")
    return 0


ACTIONS: dict[str, Callable[[Namespace], int]] = {"get": _get, "list": _list, "use": _use}


def _check_choice(given: str, config: str | None) -> str:
    """Returns the choice to save: a configured name, the absolute path of a file, or a name of a provider.

    Raises ConfigurationError for an unknown model.
    """
    import os

    from ullage.broker.embedded.gguf import metadata
    from ullage.broker.registry import endpoint_for
    from ullage.config import load
    from ullage.errors import ConfigurationError, LocalModelError

    if given == EMBEDDED or given in load(config, environ=os.environ, cwd=Path.cwd()).models:
        return given
    path = Path(given).expanduser()
    if path.suffix.lower() == ".gguf" or path.is_file():
        try:
            metadata(path)
        except LocalModelError as error:
            raise ConfigurationError(str(error)) from error
        return str(path.resolve())
    # A missing key is an error only when a question is asked; an unknown name is an error now.
    endpoint_for(given, key="asked for later", environ=os.environ)
    return given


def _print_result(options: Namespace, value: dict[str, Any], text: str) -> None:
    if options.json:
        from ullage.batch.request_text import encode

        sys.stdout.buffer.write(encode(value))
    else:
        from ullage.window_chart import console

        console().file.write(f"{text}\n")


SPEC = CommandSpec(
    name="model",
    usage="ACTION [options]",
    brief="download, list and choose models",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    run=run,
    actions=(
        ActionSpec(
            name="get",
            usage="[options]",
            brief="download the file of the embedded model",
            add_options=_add_get_options,
        ),
        ActionSpec(
            name="list",
            usage="[options]",
            brief="list your models and the providers, and mark the model that answers",
            add_options=_add_list_options,
        ),
        ActionSpec(
            name="use",
            usage="MODEL [options]",
            brief="choose the model that answers from now on",
            add_options=_add_use_options,
        ),
    ),
)
