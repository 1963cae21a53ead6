"""The names in the folders of a PATH, read again only when a folder has changed."""

from __future__ import annotations

import functools
import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_READ = 200_000
"""A folder with more entries than this has none."""


def names_in(folder: Path) -> Sequence[str]:
    """What is in a folder, whether it can be run or not; nothing where there is no such folder."""
    try:
        return _names(folder, folder.stat().st_mtime_ns)
    except (OSError, ValueError):  # not to be read, or no name that a folder can have
        return ()


@functools.lru_cache(maxsize=256)
def _names(folder: Path, _changed: int) -> Sequence[str]:
    with os.scandir(folder) as entries:
        found = [entry.name for entry in itertools.islice(entries, MOST_READ + 1)]
    return found if len(found) <= MOST_READ else ()
