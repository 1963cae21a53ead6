"""`load`: files and the environment become Settings; nothing else in Ullage reads them for settings.

    default < the user's file < the environment, and the project's file, which only tightens, over all.

Everything that is wrong is told at once.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ullage.broker.about import runs_here
from ullage.classes import MAIN
from ullage.config import kinds
from ullage.config.building import build
from ullage.config.documents import Found, check, config_path, read_file
from ullage.config.keys import FIXED_CLASSES, SECTIONS, variables
from ullage.config.overlay import find_overlay, lay_over
from ullage.config.problems import InvalidSettings, Problem, Wrong, clean, dotted
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.config.documents import Document
    from ullage.config.settings import McpSettings, ModelSettings, Settings

    Keys = tuple[str, ...]


def load(
    path: Path | str | None = None,
    *,
    environ: Mapping[str, str],
    cwd: Path | str,
    trusted: Callable[[Path, str], bool] | None = None,
) -> Settings:
    """The settings that are in effect in a folder.

    `path` is the user's file, by default ULLAGE_CONFIG or the one in the user's configuration directory,
    which may be missing. `trusted(path, sha256)` says whether a project's file may be read; without it none
    is. Raises InvalidSettings with all problems, and ConfigurationError for a file that cannot be read.
    """
    notices: list[str] = []
    files: list[Path] = []
    document = _own_file(path, environ)
    found = Found()
    if document is not None:
        files.append(document.path)
        found = check(document)
        if document.is_open:
            notices.append(f"{clean(document.path)} can be written by others: take that away with chmod go-w")
    _hear(found, environ)
    project = _overlay(Path(cwd), environ, files, notices)
    if project is not None:
        if trusted is not None and trusted(project.path, project.sha256):
            files.append(project.path)
            lay_over(build(found.values, found.tables), found, check(project))
        else:
            notices.append(
                f"{clean(project.path)} is not trusted and was left out. Read it, then: ullage config trust"
            )
    settings = build(
        found.values,
        found.tables,
        sources=MappingProxyType(found.sources),
        notices=(*notices, *_unsafe(build(found.values, found.tables))),
        files=tuple(files),
    )
    problems = [*found.problems, *_together(settings, found)]
    if problems:
        raise InvalidSettings(problems)
    return settings


def _own_file(path: Path | str | None, environ: Mapping[str, str]) -> Document | None:
    """The user's own file; None where there is none and none was named."""
    place = config_path(environ) if path is None else Path(path)
    named = path is not None or bool(environ.get("ULLAGE_CONFIG"))
    try:
        return read_file(place)
    except FileNotFoundError as error:
        if not named:
            return None
        raise ConfigurationError(
            f"there is no {clean(place)}; write one with: ullage config init --config {clean(place)}"
        ) from error


def _overlay(cwd: Path, environ: Mapping[str, str], files: list[Path], notices: list[str]) -> Document | None:
    """The project's file; whatever lies in its place, nobody has trusted it yet, and it stops nothing."""
    home = environ.get("HOME")
    place = find_overlay(cwd, Path(home) if home else None)
    if place is None or any(place.resolve() == each.resolve() for each in files):
        return None
    try:
        return read_file(place, regular=True)
    except (ConfigurationError, FileNotFoundError):
        notices.append(f"{clean(place)} is no file that can be read, and was left out")
        return None


def _hear(found: Found, environ: Mapping[str, str]) -> None:
    """Adds what the environment says."""
    known = dict(variables())
    sections = tuple(f"ULLAGE_{name.partition('.')[0].upper()}_" for name in SECTIONS)
    for variable, text in sorted(environ.items()):
        row = known.get(variable)
        if row is None:
            if variable.startswith(sections):
                found.problems.append(Problem(variable, (), _unheard(variable, known)))
            continue
        if not text:  # as good as not set
            continue
        try:
            found.values[row.path] = kinds.parse(text, row)
            found.sources[row.path] = variable
        except Wrong as error:
            found.problems.append(Problem(variable, row.path, str(error)))


def _unheard(variable: str, known: Mapping[str, object]) -> str:
    import difflib  # noqa: PLC0415 - only for what is wrong

    near = difflib.get_close_matches(variable, list(known), 1, 0.6)
    return "no key is set by this variable" + (f"; did you mean {near[0]}?" if near else "")


# What is wrong only together


def _together(settings: Settings, found: Found) -> Iterator[Problem]:
    """Problems of values that are right by themselves; where one of them is wrong, nothing more is said."""
    wrong = {problem.path[:2] for problem in found.problems}

    def problem(path: Keys, text: str) -> Iterator[Problem]:
        if path[:2] not in wrong:
            yield Problem(found.sources.get(path, "default"), path, text)

    for path, name in (
        (("model",), settings.default_model),
        *((("routing", "models", each), name) for each, name in settings.routing.models.items()),
    ):
        reason = None if name in settings.models else _nowhere(name, settings)
        if reason:
            yield from problem(path, reason)
    if not any(path[:1] == ("routing",) for path in wrong):
        for path, text in _routing_problems(settings):
            yield from problem(path, text)
    for model in settings.models.values():
        for key, text in _model_problems(model, settings):
            yield from problem(("models", model.name, *key), text)
    for server in settings.mcp.values():
        for text in _server_problems(server):
            yield from problem(("mcp", server.name), text)


def _nowhere(name: str, settings: Settings) -> str | None:
    if kinds.leads_somewhere(name) is None:
        return None
    import difflib  # noqa: PLC0415 - the same

    near = difflib.get_close_matches(name, list(settings.models), 1, 0.6)
    if near:
        return f"there is no such model; did you mean {near[0]}?"
    return (
        "there is no such model: name one of your own [models], or one as `ullage model use` takes it, such "
        "as embedded, openai/gpt-4o or http://127.0.0.1:8080"
    )


def _routing_problems(settings: Settings) -> Iterator[tuple[Keys, str]]:
    routing = settings.routing
    if MAIN in routing.models:
        yield ("routing", "models", MAIN), "the model of ordinary turns is the key model: set that"
    for kind in routing.rules:
        if kind in FIXED_CLASSES:
            yield ("routing", "rules", kind), f"no words choose this class: {FIXED_CLASSES[kind]}"
        elif kind not in {*routing.models, *routing.system_prompts}:
            model = dotted(("routing", "models", kind))
            prompt = dotted(("routing", "system_prompts", kind))
            yield ("routing", "rules", kind), f"leads nowhere: set {model} or {prompt}"


def _model_problems(model: ModelSettings, settings: Settings) -> Iterator[tuple[Keys, str]]:
    reserved, window = settings.context.reserved_output, model.window
    if window is not None and reserved is not None and reserved >= window:
        yield ("window",), f"is {window}, and context.reserved_output keeps {reserved} of it: no room is left"
    spec = model.model or model.name
    if model.endpoint is None and kinds.leads_somewhere(spec) is not None:
        if model.model is None:
            yield (), "it leads nowhere: give it an endpoint, and the model that is asked for there"
        else:
            yield ("model",), "which provider has it is not known: give it an endpoint"
    elif model.endpoint is None and model.key is not None and runs_here(spec):
        yield ("key",), "a model that runs here takes no key"


def _server_problems(server: McpSettings) -> Iterator[str]:
    if not kinds.SERVER_NAME.fullmatch(server.name):
        yield kinds.NO_SERVER_NAME
    if (server.command is None) == (server.url is None):
        yield "an MCP server has either a command or a url" + ("" if server.command is None else ", not both")
    elif server.command is None and (server.args or server.env):
        yield "args and env are for a command, and this server has a url"
    elif server.url is None and server.headers:
        yield "headers are for a url, and this server has a command"


def _unsafe(settings: Settings) -> Iterator[str]:
    """What works, and should be known."""
    for model in settings.models.values():
        address = model.endpoint or ""
        if model.key is not None and address.startswith("http://") and not _is_here(address):
            yield f"the key of models.{model.name} goes to {address} unencrypted: use https:// where it can"
    for server in settings.mcp.values():
        address = server.url or ""
        if server.headers and address.startswith("http://") and not _is_here(address):
            yield f"the headers of mcp.{server.name} go to {address} unencrypted: use https:// where it can"


def _is_here(address: str) -> bool:
    from urllib.parse import urlsplit  # noqa: PLC0415 - only for a model of one's own

    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
