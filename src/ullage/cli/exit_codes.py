"""The exit code for each error, the same for every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage import errors
from ullage.errors import (
    BudgetExceeded,
    ConfigurationError,
    ContextOverflowError,
    LocalModelError,
    StoreError,
    StreamBroken,
    UllageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILED, USAGE, OVERFLOW, CAPPED, BROKEN = 1, 2, 3, 4, 5

CODES: Mapping[type[UllageError], int] = {
    StreamBroken: BROKEN,
    ContextOverflowError: OVERFLOW,
    BudgetExceeded: CAPPED,
    ConfigurationError: USAGE,
    LocalModelError: USAGE,
    StoreError: USAGE,
    UllageError: FAILED,
}
"""Exit codes by class of error; the first class that matches decides."""


def code_named(problem: str) -> int:
    """Returns the exit code for the name of a class of errors; for an unknown name that of a bad line."""
    kind = getattr(errors, problem, UllageError)
    return next(code for each, code in CODES.items() if issubclass(kind, each))


def code_of(error: UllageError) -> int:
    """Returns the exit code of a command that ended with this error."""
    return next(code for kind, code in CODES.items() if isinstance(error, kind))
