"""The store as a command opens it: one that is not there yet is told of, not made."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ullage import store
from ullage.store.files import located

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.store import Store

MISSING = 1
"""The exit code where what was asked for is not there."""


@contextmanager
def opened(url: str | None, *, make: bool = False) -> Iterator[Store | None]:
    """The store; None, and a line that says so, where there is none and none is to be made."""
    path = located(url)
    if path is not None and not path.exists() and not make:
        complain(f"nothing is kept yet: there is no store {path}")
        yield None
        return
    with store.open(url) as kept:
        yield kept


def complain(text: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"ullage: {text}\n")
