"""What the folders of a project have, each read once, no more of them than is allowed."""

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
"""What version control keeps for itself, as a folder or as a file that points to one."""

SMALLEST = 200
"""The least `max_chars` in which the first and the last line always have room."""


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """How much of a project is looked at, and how much of that is told."""

    depth: int = 3
    """How many levels are shown; 0 is the first line alone."""
    max_chars: int = 2_000
    """The longest text: 500 to 800 tokens of o200k."""
    max_entries: int = 200
    """The most files and folders that are named."""
    max_in_folder: int = 40
    """The most that are named of one folder."""
    max_read: int = 20_000
    """The most directory entries that are looked at, a tenth of them in any one folder."""
    ignore: tuple[str, ...] = ("__pycache__/", "node_modules/", ".venv/", ".DS_Store")
    """Patterns as in a `.gitignore`, weaker than the project's own."""

    def __post_init__(self) -> None:
        least = {"depth": 0, "max_chars": SMALLEST, "max_entries": 1, "max_in_folder": 1, "max_read": 10}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value < smallest:
                raise ConfigurationError(
                    f"{name} is {value}: give {smallest} or more, or turn the tree off with :tree off"
                )


class Folder(NamedTuple):
    """A folder that may be read."""

    path: Path
    inside: str
    """Its path from where the patterns begin, with a slash at its end; empty for that place itself."""
    rules: tuple[Rules, ...]
    """Those of the folders above it, the nearest last."""


class Entry(NamedTuple):
    """What a folder has."""

    name: str
    label: str
    """How the tree names it."""
    folder: Folder | None


class Listing(NamedTuple):
    """What a folder has, without what is ignored; folders first, both by code point."""

    entries: tuple[Entry, ...]
    all_ignored: bool = False
    complete: bool = True
    """False where it has more entries than are looked at."""
    readable: bool = True


def top_folder(root: str | os.PathLike[str], options: TreeOptions) -> Folder:
    """The project's own folder with the patterns of the repository above it."""
    try:
        path = Path(root).resolve()
        is_folder = path.is_dir()
    except (OSError, ValueError, RuntimeError):  # a name that cannot be, or links that go round
        is_folder = False
    if not is_folder:
        raise ConfigurationError(
            f"the project folder {os.fspath(root)!r} is not a folder that can be found: "
            "start in the project's own folder, or turn the tree off with :tree off"
        )
    home = next((folder for folder in (path, *path.parents) if _is_repository(folder)), path)
    rules = _first_rules(home, 0, options)
    inside = ""
    for part in path.relative_to(home).parts:
        rules += rules_of(lines_of(Path(home, inside, ".gitignore")), len(inside))
        inside += part + "/"
    return Folder(path, inside, rules)


class Reader:
    """Reads each folder once, and no more entries than the options allow."""

    def __init__(self, options: TreeOptions) -> None:
        self.options = options
        self.folders = 0
        self.entries = 0
        self._known: dict[Path, Listing] = {}

    def read(self, folder: Folder) -> Listing | None:
        """What the folder has; None where the most entries have been looked at already."""
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

    def _entries(self, folder: Folder, found: Iterable[os.DirEntry[str]]) -> Iterator[Entry]:
        path, inside, rules = folder
        if inside and _is_repository(path):
            # A repository inside another knows its own patterns only.
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
                yield Entry(entry.name, label + "/", below)
            else:
                yield Entry(entry.name, label + _target(entry), None)


def _is_repository(folder: Path) -> bool:
    return os.path.lexists(folder / ".git")


def _first_rules(repository: Path, start: int, options: TreeOptions) -> tuple[Rules, ...]:
    """The weakest patterns of all, and those of the repository that are not in its tree."""
    own = lines_of(repository / ".git" / "info" / "exclude")
    return (*rules_of(options.ignore, start), *rules_of(own, start))


def _order(entry: Entry) -> tuple[bool, str]:
    return entry.folder is None, entry.name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _target(entry: os.DirEntry[str]) -> str:
    """Where a link goes, said from where it stands; an absolute path is the machine's own affair."""
    try:
        if not entry.is_symlink():
            return ""
        target = Path(entry.path).readlink()
    except OSError:
        return " -> (unreadable)"
    return " -> (absolute path)" if target.is_absolute() else f" -> {show(target.as_posix())}"
