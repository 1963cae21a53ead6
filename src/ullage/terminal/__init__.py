"""Runs command lines like the user's own shell, in one state that lasts from line to line."""

from __future__ import annotations

from ullage.terminal.runner import Ran, Runner

__all__ = ["Ran", "Runner"]
