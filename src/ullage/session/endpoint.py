"""The endpoint and the provider of a configured model.

A reference to a key is resolved here and nowhere else, when the endpoint is made.
"""
# ruff: noqa: PLC0415 - a model in this process needs no HTTP client, and a remote model needs no runtime

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.broker.embedded_info import EMBEDDED
from ullage.config.documents import contents
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.endpoint import Endpoint, Key
    from ullage.broker.endpoint_counter import EndpointCounter
    from ullage.broker.resolve import Opened
    from ullage.config.settings import ModelSettings

LONGEST_KEY = 10_000
"""Largest size of a key file, in bytes."""


def endpoint_of(model: ModelSettings, environ: Mapping[str, str]) -> Endpoint:
    """Returns a model's address with its key; raises ConfigurationError if either cannot be found."""
    from ullage.broker.endpoint import Timeouts
    from ullage.broker.registry import endpoint_for

    if model.runs_here:
        raise ConfigurationError(
            f"{model.name} runs in this process and has no address: open it with open_provider_of()"
        )
    made = endpoint_for(
        model.endpoint or model.spec,
        model=None if model.endpoint is None else model.spec,
        key=_key(model, environ),
        api=model.api,
        environ=environ,
    )
    return replace(
        made,
        window=model.window,
        # A configured price applies even to a server on this machine.
        local=made.local and not model.prices.is_given,
        timeouts=Timeouts(**asdict(model.timeouts)),
    )


def open_provider_of(
    model: ModelSettings, environ: Mapping[str, str], counter: EndpointCounter | None = None
) -> Opened:
    """Opens the provider of a model; raises the errors of `broker.resolve.open_provider`.

    `counter` holds the counts that servers have returned in this session.
    """
    from ullage.broker.resolve import MOST_WINDOWS, Opened, open_provider

    if model.runs_here:
        place = model.spec if model.spec == EMBEDDED else str(_expand_home(model.spec, environ))
        return open_provider(place, environ=environ, window=model.window)
    from ullage.broker.remote import RemoteProvider

    endpoint = endpoint_of(model, environ)
    return Opened(RemoteProvider(endpoint, counter=counter), endpoint.local, MOST_WINDOWS.get(endpoint.api))


def _key(model: ModelSettings, environ: Mapping[str, str]) -> Key | None:
    from ullage.broker.endpoint import Key

    if model.key is None:
        return None
    kind, _, name = model.key.partition(":")
    if kind == "env":
        secret = environ.get(name, "").strip()
        if not secret:
            raise ConfigurationError(f"the key of {model.name!r} is missing: set {name} in the environment")
        return Key(secret, name)
    return Key(_secret(_expand_home(name, environ), model.name), name)


def _secret(path: Path, name: str) -> str:
    """Returns the key in a private file; no error shows the content of the file."""
    if not path.is_absolute():
        raise ConfigurationError(
            f"the key file of {name!r} is {path}: give an absolute path, or one that begins with ~/"
        )
    try:
        content, status = contents(path, LONGEST_KEY, regular=True)
    except OSError as error:
        raise ConfigurationError(
            f"the key file of {name!r} cannot be read: {path}: {error.strerror}"
        ) from error
    if status.st_mode & 0o077:
        raise ConfigurationError(f"other users can read the key file of {name!r}: run chmod 600 {path}")
    secret = content.decode("utf-8", "replace").strip()
    if not secret or not secret.isprintable() or " " in secret:
        raise ConfigurationError(f"{path} contains no key for {name!r}: write only the key, on one line")
    return secret


def _expand_home(name: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME")
    return Path(home) / name[2:] if home and name.startswith("~/") else Path(name)
