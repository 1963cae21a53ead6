"""From Settings to what turns need: endpoints, prices, and the options of contexts, ledgers and meters.

A reference to a key is resolved here and nowhere else, when the endpoint is made.
"""
# ruff: noqa: PLC0415 - who asks for an endpoint need not load the conversation, nor the other way round

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.broker import about
from ullage.config.documents import contents
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.endpoint import Endpoint, Key
    from ullage.broker.opening import Opened
    from ullage.config.settings import McpSettings, ModelSettings, Settings
    from ullage.context import Compress
    from ullage.cost import Prices
    from ullage.project import TreeOptions
    from ullage.store.settings import Preferences

CHOSEN = "model"
"""The preference with the name of the model that was chosen last."""
LONGEST_KEY = 10_000
"""Bytes of a file with a key in it."""


class Chosen(NamedTuple):
    """A model, and what the user should know of how it was chosen."""

    model: ModelSettings
    notice: str = ""


def chosen_model(settings: Settings, preferences: Preferences, name: str | None = None) -> Chosen:
    """The model that answers: as it is named here, as it was chosen last, or as it is configured.

    One that was chosen last and is not to be found any more is passed over, or nobody would get in again.
    """
    last = None if name else preferences.get(CHOSEN)
    if last and not _leads_somewhere(last, settings):
        usual = settings.model()
        notice = (
            f"{last}, which was chosen last, is not to be found: {usual.name} answers. "
            ":model NAME chooses another, as `ullage model use NAME` does"
        )
        return Chosen(usual, notice)
    return Chosen(settings.model(name or last))


def _leads_somewhere(name: object, settings: Settings) -> bool:
    from ullage.config.kinds import leads_somewhere

    if not isinstance(name, str):
        return False
    if name in settings.models or name == about.EMBEDDED:
        return True
    if about.runs_here(name):
        return Path(name).expanduser().is_file()
    return leads_somewhere(name) is None


def runs_here(model: ModelSettings) -> bool:
    """Whether it is the embedded model or a GGUF file, which have no endpoint."""
    return model.endpoint is None and about.runs_here(_spec(model))


def endpoint_of(model: ModelSettings, environ: Mapping[str, str]) -> Endpoint:
    """Where the model is, with its key; raises ConfigurationError where that, or the key, is not there."""
    from ullage.broker.providers import endpoint_for

    if runs_here(model):
        raise ConfigurationError(
            f"{model.name} runs in this process and has no endpoint: open it with opened()"
        )
    made = endpoint_for(
        model.endpoint or _spec(model),
        model=None if model.endpoint is None else _spec(model),
        key=_key(model, environ),
        api=model.api,
        environ=environ,
    )
    # Where the user gives a price there is one, even behind an address of this machine.
    return replace(made, window=model.window, local=made.local and not model.prices.is_given)


def opened(model: ModelSettings, environ: Mapping[str, str]) -> Opened:
    """A provider that can be asked; raises as `broker.opening.open_provider` does."""
    from ullage.broker.opening import MOST_WINDOWS, Opened, open_provider

    if runs_here(model):
        spec = _spec(model)
        place = spec if spec == about.EMBEDDED else str(_at_home(spec, environ))
        return open_provider(place, environ=environ, window=model.window)
    from ullage.broker.remote import RemoteProvider

    endpoint = endpoint_of(model, environ)
    return Opened(RemoteProvider(endpoint), endpoint.local, MOST_WINDOWS.get(endpoint.api))


def _spec(model: ModelSettings) -> str:
    return model.model or model.name


def _key(model: ModelSettings, environ: Mapping[str, str]) -> Key | None:
    from ullage.broker.endpoint import Key

    if model.key is None:
        return None
    kind, _, name = model.key.partition(":")
    if kind == "env":
        secret = environ.get(name, "").strip()
        if not secret:
            raise ConfigurationError(f"the key of {model.name!r} is not there: set {name} in the environment")
        return Key(secret, name)
    return Key(_secret(_at_home(name, environ), model.name), name)


def _secret(path: Path, name: str) -> str:
    """What a private file holds; its content is in no error."""
    if not path.is_absolute():
        raise ConfigurationError(f"the key of {name!r} is in {path}: give the whole path, or one from ~/ on")
    try:
        content, status = contents(path, LONGEST_KEY, regular=True)
    except OSError as error:
        raise ConfigurationError(f"the key of {name!r} cannot be read: {path}: {error.strerror}") from error
    if status.st_mode & 0o077:
        raise ConfigurationError(f"the key of {name!r} is not read, as others could: chmod 600 {path}")
    secret = content.decode("utf-8", "replace").strip()
    if not secret or not secret.isprintable() or " " in secret:
        raise ConfigurationError(f"{path} holds no key for {name!r}: put it there, alone, on one line")
    return secret


def _at_home(name: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME")
    return Path(home) / name[2:] if home and name.startswith("~/") else Path(name)


def environment_of(server: McpSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """What is given to an MCP server, with the user's own variables where it refers to them."""
    return _resolved(f"mcp.{server.name}.env", server.env, environ)


def headers_of(server: McpSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """What each request to an MCP server carries, with the user's own variables where it refers to them."""
    from ullage.config.kinds import is_header_value

    place = f"mcp.{server.name}.headers"
    headers = {name: value.strip() for name, value in _resolved(place, server.headers, environ).items()}
    for name, value in headers.items():
        if not is_header_value(value):
            raise ConfigurationError(
                f"{place}.{name} is taken from a variable that no header can hold: one line of plain ASCII"
            )
    return headers


def _resolved(place: str, pairs: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Texts by name, each `env:NAME` among them replaced by what the user's environment has."""
    given: dict[str, str] = {}
    for name, value in pairs.items():
        kind, _, source = value.partition(":")
        if kind != "env":
            given[name] = value
        elif source in environ:
            given[name] = environ[source]
        else:
            raise ConfigurationError(f"{place}.{name} is taken from {source}: set it in the environment")
    return given


# Options


def prices_by_name(settings: Settings) -> dict[str, Prices]:
    """The prices of all configured models, by the names that the user gives them."""
    from ullage.cost.prices import Prices, prices_of

    return {
        name: Prices.a_million(**asdict(model.prices)) if model.prices.is_given else prices_of(_spec(model))
        for name, model in settings.models.items()
    }


def context_options(settings: Settings, model: ModelSettings) -> dict[str, Any]:
    """Keyword arguments of `Context` for a conversation with this model; the provider tells its `model`.

    `settings.context.rolling` is no option: `Context.roll` sets it.
    """
    context = settings.context
    return {
        "max_turns": context.max_turns,
        "token_budget": context.token_budget,
        "window": model.window,
        "reserved_output": context.reserved_output,
        "max_summary_chars": context.max_summary_chars,
        "memory_max_chars": settings.memory.inject_max_chars,
        "use_tool_role": model.use_tool_role,
    }


def compress_of(settings: Settings, model: ModelSettings) -> Compress | None:
    """How the conversation is shortened for this model; None for one that gets it whole."""
    from ullage.context import Compress

    return Compress(**asdict(settings.context.compress)) if model.local_compress else None


def ledger_options(settings: Settings) -> dict[str, Any]:
    """Keyword arguments of `Ledger`: caps and prices; the cap of a project needs its `project`, too."""
    cost = settings.cost
    return {
        "prices": prices_by_name(settings),
        "cap_at_dollars": cost.cap_at_dollars,
        "cap_at_dollars_a_day": cost.cap_at_dollars_a_day,
        "cap_at_dollars_a_project": cost.cap_at_dollars_a_project,
    }


def meter_options(settings: Settings) -> dict[str, Any]:
    """Keyword arguments of `Meter`: the warnings."""
    return {
        "warn_at_dollars": settings.cost.warn_at_dollars,
        "warn_at_tokens": settings.cost.warn_at_tokens,
    }


def tree_options(settings: Settings) -> TreeOptions:
    """How the project's files are listed."""
    from ullage.project import TreeOptions

    return TreeOptions(depth=settings.project.depth, max_chars=settings.project.max_chars)
