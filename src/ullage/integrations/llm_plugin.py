"""The entry point that `llm` loads, if Ullage is installed beside it.

An error here would stop every command of `llm`. So a version of `llm` that is too old gets a warning only.
"""

from __future__ import annotations

import warnings

from ullage.errors import MissingHost

__all__ = ["register_commands", "register_models"]

try:
    from ullage.integrations.llm import register_commands, register_models
except MissingHost as error:
    warnings.warn(str(error), stacklevel=1)
