"""Optional packages: which extra brings each of them, and the error with the command that installs it.

The core needs orjson and splintr-rs only. Every module that imports another package calls `require` first, or
is reached only through a function that does.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple

from ullage.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping

ExtraName = Literal["client", "shell", "gateway", "local", "mcp", "postgres", "otel", "batch", "ray"]


class Extra(NamedTuple):
    """An extra: its purpose, and the modules that it brings."""

    purpose: str
    """The start of the error message, before the names of packages."""
    modules: tuple[str, ...]


EXTRAS: Mapping[ExtraName, Extra] = {
    "client": Extra("Requests to models and a store in its default place need", ("aiohttp", "platformdirs")),
    "shell": Extra(
        "The shell and its commands need",
        (
            "rich",
            "prompt_toolkit",
            "tree_sitter",
            "tree_sitter_bash",
            "pathspec",
            "tomlkit",
            "aiohttp",
            "platformdirs",
        ),
    ),
    "gateway": Extra(
        "The gateway needs",
        ("uvicorn", "httptools", "starlette", "zstandard", "aiohttp", "platformdirs"),
    ),
    "local": Extra("The embedded model needs", ("xllamacpp", "platformdirs")),
    "mcp": Extra("MCP servers need", ("mcp",)),
    "postgres": Extra("A store in PostgreSQL needs", ("psycopg",)),
    "otel": Extra(
        "OpenTelemetry needs",
        ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    ),
    "batch": Extra("Parquet files need", ("pyarrow",)),
    "ray": Extra("The engine ray needs", ("ray", "pyarrow")),
}
"""The extras of `pyproject.toml`. uvloop is not listed under `gateway`, because Windows does without it."""


def require(extra: ExtraName, *modules: str) -> None:
    """Raises MissingExtra, with the command that installs it, if a module of the extra is missing.

    If modules are named, only these are needed.
    """
    missing = [module for module in modules or EXTRAS[extra].modules if not is_there(module)]
    if missing:
        raise MissingExtra(EXTRAS[extra].purpose, extra, missing)


def is_there(module: str) -> bool:
    """Returns True if a module can be imported, without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that contains it
        return False
