"""Opens the store for a command; a missing store is reported, not created."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ullage import store
from ullage.cli.complaint import complain
from ullage.store import locate_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.store import Store

STORE_EXIT_CODES = """\
exit codes:
  0  done
  1  nothing was found
  2  wrong usage: an unknown option, an unusable store"""
"""The exit codes of commands that read the store."""
MISSING = 1
"""The exit code of a command that found nothing."""


@contextmanager
def open_store(url: str | None, *, make: bool = False) -> Iterator[Store | None]:
    """Opens the store; if it is missing and `make` is False, prints a message and yields None."""
    path = locate_file(url)
    if path is not None and not path.exists() and not make:
        complain(f"nothing is saved yet: the store {path} does not exist")
        yield None
        return
    with store.open(url) as kept:
        yield kept
