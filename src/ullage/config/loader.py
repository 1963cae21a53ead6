"""Loads Settings from files and the environment; no other module of Ullage reads settings from them.

    default < the user's file < the environment; the project's file comes last and can only tighten.

All problems are reported at once.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ullage.broker.embedded_info import runs_here
from ullage.categories import MAIN
from ullage.config import kinds
from ullage.config.builder import build
from ullage.config.documents import FoundValues, check, config_path, read_file
from ullage.config.keys import FIXED_CATEGORIES, SECTIONS, variables
from ullage.config.overlay import find_overlay, lay_over
from ullage.config.problems import InvalidSettings, Problem, Wrong, join_key, show_path
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
    """Returns the settings that are in effect in a folder.

    `path` is the user's file; the default is ULLAGE_CONFIG, or the file in the user's configuration folder,
    which may be missing. A project's file is read only if `trusted(path, sha256)` returns True. Raises
    InvalidSettings with all problems, and ConfigurationError if a file cannot be read.
    """
    notices: list[str] = []
    files: list[Path] = []
    document = _own_file(path, environ)
    found = FoundValues()
    if document is not None:
        files.append(document.path)
        found = check(document)
        if document.is_open:
            place = show_path(document.path)
            notices.append(f"other users can write {place}: run chmod go-w {place}")
    _add_environment(found, environ)
    project = _overlay(Path(cwd), environ, files, notices)
    if project is not None:
        if trusted is not None and trusted(project.path, project.sha256):
            files.append(project.path)
            lay_over(build(found.values, found.tables), found, check(project))
        else:
            notices.append(
                f"{show_path(project.path)} is not trusted and is ignored. "
                "Read it, then run: ullage config trust"
            )
    settings = build(
        found.values,
        found.tables,
        sources=MappingProxyType(found.sources),
        notices=(*notices, *_unsafe(build(found.values, found.tables))),
        files=tuple(files),
    )
    problems = [*found.problems, *_check_combinations(settings, found)]
    if problems:
        raise InvalidSettings(problems)
    return settings


def preview(document: Document, environ: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
    """Returns the settings and the problems of a content that the user's file may get.

    A project's file plays no part.
    """
    found = check(document)
    _add_environment(found, environ)
    settings = build(found.values, found.tables, sources=MappingProxyType(found.sources))
    return settings, [*found.problems, *_check_combinations(settings, found)]


def store_url(path: Path | str | None, environ: Mapping[str, str]) -> str | None:
    """Returns the place of the store, which must be known before a project's file can be trusted.

    Problems of other keys are not raised here: `load` reports them.
    """
    document = _own_file(path, environ)
    found = FoundValues() if document is None else check(document)
    _add_environment(found, environ)
    own = [problem for problem in found.problems if problem.path == ("store", "url")]
    if own:
        raise InvalidSettings(own)
    return build(found.values, found.tables).store.url


def _own_file(path: Path | str | None, environ: Mapping[str, str]) -> Document | None:
    """Returns the user's file; None if it is missing and was not named explicitly."""
    place = config_path(environ) if path is None else Path(path)
    named = path is not None or bool(environ.get("ULLAGE_CONFIG"))
    try:
        return read_file(place)
    except FileNotFoundError as error:
        if not named:
            return None
        path = show_path(place)
        raise ConfigurationError(
            f"{path} does not exist. To create it, run: ullage config init --config {path}"
        ) from error


def _overlay(cwd: Path, environ: Mapping[str, str], files: list[Path], notices: list[str]) -> Document | None:
    """Returns the project's file; a file that cannot be read is only a notice, as nobody has trusted it."""
    home = environ.get("HOME")
    place = find_overlay(cwd, Path(home) if home else None)
    if place is None or any(place.resolve() == each.resolve() for each in files):
        return None
    try:
        return read_file(place, regular=True)
    except (ConfigurationError, FileNotFoundError):
        notices.append(f"{show_path(place)} cannot be read and is ignored")
        return None


def _add_environment(found: FoundValues, environ: Mapping[str, str]) -> None:
    """Adds the values of environment variables."""
    known = dict(variables())
    sections = tuple(f"ULLAGE_{name.partition('.')[0].upper()}_" for name in SECTIONS)
    for variable, text in sorted(environ.items()):
        row = known.get(variable)
        if row is None:
            if variable.startswith(sections):
                found.problems.append(Problem(variable, (), _unknown_variable(variable, known)))
            continue
        if not text:  # an empty variable counts as not set
            continue
        try:
            found.values[row.path] = kinds.parse(text, row)
            found.sources[row.path] = variable
        except Wrong as error:
            found.problems.append(Problem(variable, row.path, str(error)))


def _unknown_variable(variable: str, known: Mapping[str, object]) -> str:
    import difflib  # noqa: PLC0415 - only needed for a problem

    near = difflib.get_close_matches(variable, list(known), 1, 0.6)
    return "unknown variable: it sets no key" + (f"; did you mean {near[0]}?" if near else "")


# Problems of several values together


def _check_combinations(settings: Settings, found: FoundValues) -> Iterator[Problem]:
    """Yields problems of values that are valid alone but not together; skips tables with other problems."""
    wrong = {problem.path[:2] for problem in found.problems}

    def problem(path: Keys, text: str) -> Iterator[Problem]:
        if path[:2] not in wrong:
            yield Problem(found.sources.get(path, "default"), path, text)

    for path, name in (
        (("model",), settings.default_model),
        *((("routing", "models", each), name) for each, name in settings.routing.models.items()),
    ):
        reason = None if name in settings.models else _unknown_model(name, settings)
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


def _unknown_model(name: str, settings: Settings) -> str | None:
    if kinds.leads_somewhere(name) is None:
        return None
    import difflib  # noqa: PLC0415 - only needed for a problem

    near = difflib.get_close_matches(name, list(settings.models), 1, 0.6)
    if near:
        return f"unknown model; did you mean {near[0]}?"
    return (
        "unknown model: name one of your [models], or a model as for `ullage model use`, such as "
        "embedded, openai/gpt-4o or http://127.0.0.1:8080"
    )


def _routing_problems(settings: Settings) -> Iterator[tuple[Keys, str]]:
    routing = settings.routing
    if MAIN in routing.models:
        yield ("routing", "models", MAIN), "set the key `model` instead: it is the model of ordinary turns"
    for category in routing.rules:
        if category in FIXED_CATEGORIES:
            yield (
                ("routing", "rules", category),
                f"a rule cannot choose this category: {FIXED_CATEGORIES[category]}",
            )
        elif category not in {*routing.models, *routing.system_prompts}:
            model = join_key(("routing", "models", category))
            prompt = join_key(("routing", "system_prompts", category))
            yield (
                ("routing", "rules", category),
                f"the category has no model and no prompt: set {model} or {prompt}",
            )


def _model_problems(model: ModelSettings, settings: Settings) -> Iterator[tuple[Keys, str]]:
    reserved, window = settings.context.reserved_output, model.window
    if window is not None and reserved is not None and reserved >= window:
        text = f"is {window:,} tokens, and context.reserved_output is {reserved:,}: no room for a question"
        yield ("window",), text
    spec = model.model or model.name
    if model.endpoint is None and kinds.leads_somewhere(spec) is not None:
        if model.model is None:
            yield (), "the provider is not known: set endpoint, and model to the provider's name for it"
        else:
            yield ("model",), "the provider is not known: set endpoint"
    elif model.endpoint is None and model.key is not None and runs_here(spec):
        yield ("key",), "a model that runs in this process needs no key: remove this line"


def _server_problems(server: McpSettings) -> Iterator[str]:
    if not kinds.SERVER_NAME.fullmatch(server.name):
        yield kinds.NO_SERVER_NAME
    if (server.command is None) == (server.url is None):
        yield "set either command or url" + ("" if server.command is None else ", not both")
    elif server.command is None and (server.args or server.env):
        yield "args and env work only with command, and this server has url"
    elif server.url is None and server.headers:
        yield "headers work only with url, and this server has command"


def _unsafe(settings: Settings) -> Iterator[str]:
    """Yields warnings about valid settings that are unsafe."""
    for model in settings.models.values():
        address = model.endpoint or ""
        if model.key is not None and address.startswith("http://") and not _is_here(address):
            yield f"the key of models.{model.name} is sent to {address} unencrypted: use https:// if possible"
    for server in settings.mcp.values():
        address = server.url or ""
        if server.headers and address.startswith("http://") and not _is_here(address):
            yield f"headers of mcp.{server.name} are sent to {address} unencrypted: use https:// if possible"


def _is_here(address: str) -> bool:
    from urllib.parse import urlsplit  # noqa: PLC0415 - only needed for an http address

    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
