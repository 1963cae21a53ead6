"""Error messages for the shell: advice from the core is replaced by the shell's own commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import REMEDIES as LIBRARY
from ullage.errors import ContextOverflowError

if TYPE_CHECKING:
    from collections.abc import Mapping

REMEDIES: Mapping[str, str] = {
    **LIBRARY,
    "tools": "disconnect a server with :mcp disconnect",
    "summary": ":reset clears the summary",
    "memory": ":memory clear",
    "project": ":tree off",
    "rolling": ":rolling-context on trims older turns",
}
"""Block of the window → advice on how to shrink it with the shell's commands."""


def error_text(error: Exception) -> str:
    """Returns the message of an error, with the shell's own advice."""
    return error.advise(REMEDIES) if isinstance(error, ContextOverflowError) else str(error)
