"""The input of a batch: files, folders and standard input, in a fixed order."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ullage.errors import ConfigurationError
from ullage.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STDIN = "-"
SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet")
"""Files of a folder that are read; files that are named one by one may have any suffix."""
MAGIC = b"PAR1"
"""The first bytes of a Parquet file."""


class Source(NamedTuple):
    """One file of a batch, or standard input."""

    name: str
    """The name for messages, as the user wrote it; `-` for standard input."""
    path: str
    """The absolute path; `-` for standard input."""
    below: str
    """The path of its results below an output folder."""
    folder: str
    """The absolute path of the folder that the user named; empty for a file that was named itself."""
    size: int | None
    """Size in bytes; None if it is unknown."""
    is_parquet: bool


def find_sources(names: Sequence[str]) -> list[Source]:
    """Returns the files to read, those of a folder sorted by their paths.

    Raises ConfigurationError if one of them cannot be read.
    """
    found = [source for name in names or [STDIN] for source in _sources(name)]
    if any(source.is_parquet for source in found):
        require("batch")
    return found


def total_bytes(sources: Sequence[Source]) -> int | None:
    """Returns the total size of the files in bytes; None if it is unknown."""
    total = 0
    for source in sources:
        if source.size is None:
            return None
        total += source.size
    return total


def _sources(name: str) -> Iterator[Source]:
    if name == STDIN:
        status = os.fstat(sys.stdin.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        yield Source(STDIN, STDIN, "stdin.jsonl", "", size, is_parquet=False)
        return
    path = Path(name)
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    if not is_folder:
        yield _file(path, path.name, "")
        return
    files = sorted(_walk(path))
    if not files:
        raise ConfigurationError(f"{name}: this folder has no file that ends with {', '.join(SUFFIXES)}")
    for each in files:
        yield _file(path / each, each, str(path.absolute()))


def _walk(folder: Path) -> Iterator[str]:
    """Yields the paths of all requests below a folder; hidden files and folders are left out."""
    for parent, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for each in files:
            if each.endswith(SUFFIXES) and not each.startswith("."):
                yield (Path(parent) / each).relative_to(folder).as_posix()


def _refuse(error: OSError) -> None:
    raise ConfigurationError(f"{error.filename}: {error.strerror}")


def _file(path: Path, below: str, folder: str) -> Source:
    if not os.access(path, os.R_OK):
        raise ConfigurationError(f"{path}: you have no permission to read this file")
    status = path.stat()
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    is_parquet = size is not None and _begins_with(path, MAGIC)
    return Source(str(path), str(path.absolute()), below, folder, size, is_parquet)


def _begins_with(path: Path, start: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(start)) == start
