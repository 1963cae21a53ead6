"""Reads the folders of a project: each folder once, and no more entries than the options allow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ullage.errors import ConfigurationError
from ullage.project.ignored import is_ignored, lines_of, rules_of
from ullage.project.names import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ullage.project.ignored import Rules

ALWAYS_LEFT_OUT = frozenset({".git", ".hg", ".svn", ".jj", ".bzr", ".sl", "_darcs", "CVS"})
"""Names of the folders and files in which version control systems keep their own data."""

SMALLEST = 200
"""Smallest `max_chars`, in characters: the first and the last line always fit into it."""


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """Limits on the entries that are read and on the entries that are shown."""

    depth: int = 3
    """Number of levels that are shown; with 0 only the first line."""
    max_chars: int = 2_000
    """Longest text, in characters; 2,000 characters are 500 to 800 tokens of o200k."""
    max_entries: int = 200
    """Maximum number of files and folders that are shown."""
    max_in_folder: int = 40
    """Maximum number of entries of one folder that are shown."""
    max_read: int = 20_000
    """Maximum number of directory entries that are read; one folder may use a tenth of them."""
    ignore: tuple[str, ...] = ("__pycache__/", "node_modules/", ".venv/", ".DS_Store")
    """Patterns as in a `.gitignore`; the project's own patterns override them."""

    def __post_init__(self) -> None:
        least = {"depth": 0, "max_chars": SMALLEST, "max_entries": 1, "max_in_folder": 1, "max_read": 10}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value < smallest:
                raise ConfigurationError(
                    f"{name} is {value}: set it to {smallest} or more, or turn the tree off with :tree off"
                )


class Folder(NamedTuple):
    """A folder that may be read."""

    path: Path
    inside: str
    """Its path relative to the repository's root, with a final slash; empty for the root itself."""
    rules: tuple[Rules, ...]
    """Ignore rules of the folders above it, the nearest folder last."""


class FolderEntry(NamedTuple):
    """One file, folder or link in a folder."""

    name: str
    label: str
    """Its name in the tree, escaped and with a slash or the link's target."""
    folder: Folder | None
    """The folder to read; None for a file or a link."""


class Listing(NamedTuple):
    """The entries of a folder that are not ignored; folders first, both sorted by code point."""

    entries: tuple[FolderEntry, ...]
    all_ignored: bool = False
    """True if the folder has entries and all of them are ignored."""
    complete: bool = True
    """False if the folder has more entries than were read."""
    readable: bool = True


def top_folder(root: str | os.PathLike[str], options: TreeOptions) -> Folder:
    """Returns the project's folder, with the ignore patterns of the repository that contains it."""
    try:
        path = Path(root).resolve()
        is_folder = path.is_dir()
    except (OSError, ValueError, RuntimeError):  # an invalid name, or links that form a circle
        is_folder = False
    if not is_folder:
        raise ConfigurationError(
            f"the project folder {os.fspath(root)!r} cannot be found or is not a folder: "
            "start ullage in the project's folder, or turn the tree off with :tree off"
        )
    home = next((folder for folder in (path, *path.parents) if _is_repository(folder)), path)
    rules = _first_rules(home, 0, options)
    inside = ""
    for part in path.relative_to(home).parts:
        rules += rules_of(lines_of(Path(home, inside, ".gitignore")), len(inside))
        inside += part + "/"
    return Folder(path, inside, rules)


class FolderReader:
    """Reads each folder once, and no more entries than the options allow."""

    def __init__(self, options: TreeOptions) -> None:
        self.options = options
        self.folders = 0
        self.entries = 0
        self._known: dict[Path, Listing] = {}

    def read(self, folder: Folder) -> Listing | None:
        """Returns the entries of a folder; None if `max_read` is used up."""
        known = self._known.get(folder.path)
        if known is not None:
            return known
        most = min(self.options.max_read // 10, self.options.max_read - self.entries)
        if most <= 0:
            return None
        self.folders += 1
        try:
            with os.scandir(folder.path) as scan:
                found = [*islice(scan, most)]
                complete = next(scan, None) is None
        except OSError:
            listing = Listing((), readable=False)
        else:
            self.entries += len(found)
            entries = tuple(sorted(self._entries(folder, found), key=_order))
            listing = Listing(entries, bool(found) and not entries, complete)
        self._known[folder.path] = listing
        return listing

    def _entries(self, folder: Folder, found: Iterable[os.DirEntry[str]]) -> Iterator[FolderEntry]:
        path, inside, rules = folder
        if inside and _is_repository(path):
            # In a repository inside another one, only its own patterns apply.
            rules = _first_rules(path, len(inside), self.options)
        rules += rules_of(lines_of(path / ".gitignore"), len(inside))
        for entry in found:
            if entry.name in ALWAYS_LEFT_OUT:
                continue
            is_folder = _is_folder(entry)
            if is_ignored(inside + entry.name, rules, folder=is_folder):
                continue
            label = show(entry.name)
            if is_folder:
                below = Folder(path / entry.name, f"{inside}{entry.name}/", rules)
                yield FolderEntry(entry.name, label + "/", below)
            else:
                yield FolderEntry(entry.name, label + _target(entry), None)


def _is_repository(folder: Path) -> bool:
    return os.path.lexists(folder / ".git")


def _first_rules(repository: Path, start: int, options: TreeOptions) -> tuple[Rules, ...]:
    """Returns the weakest patterns: the configured ones, then those of `.git/info/exclude`."""
    own = lines_of(repository / ".git" / "info" / "exclude")
    return (*rules_of(options.ignore, start), *rules_of(own, start))


def _order(entry: FolderEntry) -> tuple[bool, str]:
    return entry.folder is None, entry.name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _target(entry: os.DirEntry[str]) -> str:
    """Returns the relative target of a link; an absolute path is private to the machine and not shown."""
    try:
        if not entry.is_symlink():
            return ""
        target = Path(entry.path).readlink()
    except OSError:
        return " -> (unreadable)"
    return " -> (absolute path)" if target.is_absolute() else f" -> {show(target.as_posix())}"
