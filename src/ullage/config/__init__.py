"""The configuration: files and the environment become frozen Settings.

    settings = load(environ=os.environ, cwd=Path.cwd())
    settings.context.max_turns, settings.models["fast"].window, settings.model()

`ullage.session` opens models and conversations from it.
"""

from __future__ import annotations

from ullage.config.builder import defaults
from ullage.config.loader import load, store_url
from ullage.config.problems import InvalidSettings, Problem
from ullage.config.settings import McpSettings, ModelSettings, Route, Settings

__all__ = [
    "InvalidSettings",
    "McpSettings",
    "ModelSettings",
    "Problem",
    "Route",
    "Settings",
    "defaults",
    "load",
    "store_url",
]
