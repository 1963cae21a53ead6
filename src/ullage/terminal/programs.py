"""Lists the names in the folders of a PATH; a folder is read again only if it has changed."""

from __future__ import annotations

import functools
import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_READ = 200_000
"""Most entries of a folder; a folder with more is treated as empty."""


def names_in(folder: Path) -> Sequence[str]:
    """Returns the names in a folder, executable or not; empty if there is no such folder."""
    try:
        return _names(folder, folder.stat().st_mtime_ns)
    except (OSError, ValueError):  # unreadable, or not a valid name of a folder
        return ()


@functools.lru_cache(maxsize=256)
def _names(folder: Path, _changed: int) -> Sequence[str]:
    with os.scandir(folder) as entries:
        found = [entry.name for entry in itertools.islice(entries, MOST_READ + 1)]
    return found if len(found) <= MOST_READ else ()
