"""`ullage model`: fetches the embedded model's file, shows what there is, and chooses what is used."""
# ruff: noqa: PLC0415 - the options are always built; what an action needs is loaded when it runs

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.broker.about import EMBEDDED

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

EXIT_CODES = """\
exit codes:
  0  all done
  1  the file could not be fetched, or is damaged; the message has the command that mends it
  2  wrong usage: an unknown option or model, a store that cannot be used"""

MODEL = """\
The model that answers. Without any choice it is the embedded one, which runs in this process with no key
and no network; its file is fetched once."""

EXAMPLES = """\
examples:
  ullage model get
  ullage model list
  ullage model use ~/models/qwen2.5-7b-instruct-q4_k_m.gguf
  ullage model use ollama/qwen2.5:7b
  ullage model use anthropic/claude-sonnet-4-5
  ullage model use embedded"""

COMMANDS = {
    "model": (
        "ACTION [options]",
        "fetch, show and choose the model that answers",
        MODEL,
        EXAMPLES,
        EXIT_CODES,
    )
}

# action → usage, help in a line
USAGE = {
    "get": ("[options]", "fetch the embedded model's file"),
    "list": ("[options]", "show the models that there are, and the one that is used"),
    "use": ("MODEL [options]", "use this model from now on"),
}


def add_commands(commands: Any, command: Callable[[Any, str, Callable[..., int]], Any]) -> None:
    """Adds the command to the command line; `command` makes an empty one."""
    model = command(commands, "model", run)
    actions = model.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, prog="ullage model"
    )
    for name, (usage, brief) in USAGE.items():
        action = actions.add_parser(
            name,
            usage=f"ullage model {name} {usage}",
            help=brief,
            description=f"{brief.capitalize()}.",
            epilog=EXIT_CODES,
            formatter_class=model.formatter_class,
            allow_abbrev=False,
        )
        if name == "get":
            action.add_argument("--force", action="store_true", help="fetch it even where there is one")
        else:
            action.add_argument(
                "--store",
                metavar="PATH",
                help="the file that keeps it (default: in the user's state directory)",
            )
        if name == "use":
            action.add_argument(
                "model",
                metavar="MODEL",
                help="embedded, the path of a GGUF file, PROVIDER/MODEL, or a server's address",
            )
        action.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(options: Namespace) -> int:
    """Does what the action says and returns the exit code."""
    from ullage.cli.kept import MISSING, complain
    from ullage.errors import LocalModelError

    try:
        return ACTIONS[options.action](options)
    except LocalModelError as error:
        complain(str(error))
        return MISSING


def _get(options: Namespace) -> int:
    from ullage.broker.embedded import runtime, weights
    from ullage.cli.kept import complain

    wanted = weights.SMOLLM2
    if not options.json and (options.force or weights.find() is None):
        complain(f"fetching {wanted.file} ({wanted.size / 1e6:.0f} MB, {wanted.licence}) …")
    path, fetched = weights.get(force=options.force)
    told = {"model": EMBEDDED, "path": str(path), "fetched": fetched, "runtime": runtime.is_installed()}
    _tell(options, told, f"{path}\n{'fetched' if fetched else 'already there'}, and its sha256 is right")
    if not told["runtime"]:
        complain(f"the runtime is missing still. Install it with: {runtime.INSTALL}")
    return 0


def _list(options: Namespace) -> int:
    used = _used(options.store)
    rows = [_embedded_row(), *_provider_rows()]
    if used.partition("/")[0] not in {row["name"] for row in rows}:
        rows.insert(1, _other_row(used))
    for row in rows:
        row["used"] = row["name"] in (used, used.partition("/")[0])
        mark, named = ("*", used) if row["used"] else (" ", row["name"])
        _tell(options, row, f"{mark} {named:<24}  {row['state']}")
    return 0


def _use(options: Namespace) -> int:
    from ullage.cli.kept import opened
    from ullage.config.using import CHOSEN

    chosen = _checked(options.model)
    with opened(options.store, make=True) as kept:
        if kept is not None:
            kept.preferences.set(CHOSEN, chosen)
    _tell(options, {"model": chosen}, f"{chosen} is used from now on")
    return 0


ACTIONS: dict[str, Callable[[Namespace], int]] = {"get": _get, "list": _list, "use": _use}


def _checked(given: str) -> str:
    """What is kept for a choice: a configured name, the whole path of a file, or what leads somewhere."""
    import os

    from ullage.broker.embedded.gguf import metadata
    from ullage.broker.providers import endpoint_for
    from ullage.config import load
    from ullage.errors import ConfigurationError, LocalModelError

    if given == EMBEDDED or given in load(environ=os.environ, cwd=Path.cwd()).models:
        return given
    path = Path(given).expanduser()
    if path.suffix.lower() == ".gguf" or path.is_file():
        try:
            metadata(path)
        except LocalModelError as error:
            raise ConfigurationError(str(error)) from error
        return str(path.resolve())
    # The key is asked for when a question is; a name that leads nowhere is told now.
    endpoint_for(given, key="asked for later", environ=os.environ)
    return given


def _used(store: str | None) -> str:
    from ullage.cli.kept import opened
    from ullage.config.using import CHOSEN
    from ullage.store.files import located

    path = located(store)
    if path is not None and not path.exists():
        return EMBEDDED
    with opened(store) as kept:
        chosen = EMBEDDED if kept is None else kept.preferences.get(CHOSEN, EMBEDDED)
    return chosen if isinstance(chosen, str) else EMBEDDED


def _embedded_row() -> dict[str, Any]:
    from ullage.broker.embedded import runtime, weights

    wanted, path = weights.SMOLLM2, weights.find()
    state = f"{wanted.model}, {wanted.size / 1e6:.0f} MB, "
    state += f"missing: {weights.GET}" if path is None else "present"
    if not runtime.is_installed():
        state += f"; its runtime is missing: {runtime.INSTALL}"
    return {
        "name": EMBEDDED,
        "state": state,
        "path": None if path is None else str(path),
        "ready": path is not None and runtime.is_installed(),
    }


def _provider_rows() -> list[dict[str, Any]]:
    import os

    from ullage.broker.providers import KNOWN

    return [
        {
            "name": name,
            "state": f"{each.url}{_key_state(each.variable, os.environ)}",
            "path": None,
            "ready": each.variable is None or bool(os.environ.get(each.variable)),
        }
        for name, each in KNOWN.items()
    ]


def _key_state(variable: str | None, environ: Any) -> str:
    if variable is None:
        return ", no key needed"
    return f", key in {variable}" if environ.get(variable) else f", needs {variable}"


def _other_row(used: str) -> dict[str, Any]:
    """A row for what was chosen and is in no list: a file, or a server's address."""
    path = Path(used)
    if path.suffix.lower() != ".gguf":
        return {"name": used, "state": "an address or a model's own name", "path": None, "ready": True}
    there = path.is_file()
    state = f"{path.stat().st_size / 1e6:,.0f} MB, present" if there else "missing: the file is not there"
    return {"name": used, "state": state, "path": used, "ready": there}


def _tell(options: Namespace, value: dict[str, Any], text: str) -> None:
    if options.json:
        from ullage.cli.reading import encode

        sys.stdout.buffer.write(encode(value))
    else:
        from ullage.drawing import console

        console().file.write(f"{text}\n")
