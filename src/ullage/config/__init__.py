"""The configuration: files and the environment become frozen Settings.

    settings = load(environ=os.environ, cwd=Path.cwd(), trusted=trust_in(kept.preferences))
    settings.context.max_turns, settings.models["fast"].window, settings.model()

What turns need of it is in `ullage.config.using`.
"""

from __future__ import annotations

from ullage.config.building import defaults
from ullage.config.overlay import trust, trust_in
from ullage.config.problems import InvalidSettings, Problem
from ullage.config.reading import load
from ullage.config.settings import McpSettings, ModelSettings, Route, Settings
from ullage.config.using import context_options, endpoint_of, opened

__all__ = [
    "InvalidSettings",
    "McpSettings",
    "ModelSettings",
    "Problem",
    "Route",
    "Settings",
    "context_options",
    "defaults",
    "endpoint_of",
    "load",
    "opened",
    "trust",
    "trust_in",
]
