"""What each error is as an exit code, for every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
"""Exit codes by what went wrong; the first that fits counts."""


def code_of(error: UllageError) -> int:
    """The exit code of a command that ended so."""
    return next(code for kind, code in CODES.items() if isinstance(error, kind))
