"""Writes the tree as text: as many levels as fit, each complete before the next."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ullage.project.folders import FolderReader, TreeOptions, top_folder
from ullage.project.names import show

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from ullage.project.folders import Folder, Listing

CLOSING_CHARS = 80
"""Characters that are kept free for the last line of a cut tree, with its newline."""


@dataclass(frozen=True)
class Tree:
    """A project's tree as text, with the number of folders and entries that were read."""

    text: str
    """The tree in at most `max_chars` characters; its first line is the project's name."""
    entries: int
    """Number of files and folders that the text shows below the first line."""
    cut: bool
    """True if `max_chars`, `max_entries` or `max_read` left something out; the last line then says so."""
    folders_read: int
    entries_read: int
    """Number of directory entries that were read, ignored ones included."""


def tree(root: str | os.PathLike[str], options: TreeOptions | None = None) -> Tree:
    """Returns the tree of the files under `root`, within the options.

    Raises ConfigurationError if `root` is not a folder.
    """
    options = options or TreeOptions()
    top = top_folder(root, options)
    reader = FolderReader(options)
    drawing = _Drawing(top, reader, options.max_chars)
    closing = drawing.closing()
    if closing:
        # Draw again with room for the last line; the reader does not read a folder twice.
        drawing = _Drawing(top, reader, options.max_chars - CLOSING_CHARS)
        closing = drawing.closing()
    text = "\n".join((*drawing.lines(), *closing))
    return Tree(text, drawing.entries, bool(closing), reader.folders, reader.entries)


class _Node:
    """A line of the tree, and the lines below it."""

    def __init__(self, label: str, depth: int, folder: Folder | None, *, entry: bool = True) -> None:
        self.label = label
        self.depth = depth
        self.folder = folder
        self.entry = entry
        self.note = ""
        self.below: list[_Node] = []
        self.gone = False

    @property
    def cost(self) -> int:
        """Length of the line in characters, with its indent and its newline."""
        return 2 * self.depth + len(self.label) + 1

    def lines(self) -> Iterator[str]:
        """Yields the line and the lines below it."""
        if not self.gone:
            yield "  " * self.depth + self.label + self.note
            yield from chain.from_iterable(node.lines() for node in self.below)


class _Drawing:
    """Draws the tree level by level, as far as it fits."""

    def __init__(self, top: Folder, reader: FolderReader, room: int) -> None:
        self.reader = reader
        self.options = reader.options
        self.top = _Node(show(top.path.name) + "/" if top.path.name else "/", 0, top)
        self.room = room - self.top.cost + 1
        self.entries = 0
        self.left_out = 0
        self.unread = 0
        level = [self.top]
        while level and level[0].depth < self.options.depth and not self.left_out:
            read = [(node, listing) for node in level if (listing := self._listing(node)) is not None]
            self._open(read, self._most(read))
            level = [below for node, _ in read for below in node.below if below.folder]
        self._close(level)

    def lines(self) -> Iterator[str]:
        """Returns the lines of the tree, without the last line that `closing` returns."""
        return self.top.lines()

    def closing(self) -> tuple[str, ...]:
        """Returns the last line of a cut tree, which counts the entries or folders left out; else nothing."""
        if self.left_out:
            return (f"… at least {self.left_out} more {_entries(self.left_out)} left out: the tree is full",)
        if self.unread:
            folders = "folder" if self.unread == 1 else "folders"
            return (f"… {self.unread} {folders} not read: the project has too many entries",)
        return ()

    def _listing(self, node: _Node) -> Listing | None:
        """Returns the entries of a folder; None, with a note on its line, if it has none to show."""
        listing = self.reader.read(node.folder) if node.folder else None
        if listing is None:
            self.unread += 1
        elif not listing.readable:
            self._note(node, " (unreadable)")
        elif listing.entries:
            return listing
        elif listing.all_ignored and listing.complete and node.depth:
            node.gone = True
            self.entries -= 1
            self.room += node.cost
        else:
            self._note(node, " (empty)" if listing.complete else _number(listing))
        return None

    def _most(self, read: Sequence[tuple[_Node, Listing]]) -> int:
        """Returns the most entries that each folder of a level may show so that the level fits."""
        allowed = self.options.max_entries - self.entries
        for most in range(self.options.max_in_folder, 0, -1):
            if sum(min(most, len(listing.entries)) for _, listing in read) > allowed:
                continue
            lines = (line for node, listing in read for line in _make_nodes(node, listing, most))
            if sum(line.cost for line in lines) <= self.room:
                return most
        return 0

    def _open(self, read: Sequence[tuple[_Node, Listing]], most: int) -> None:
        for node, listing in read:
            if most < self.options.max_in_folder:
                self.left_out += max(0, len(listing.entries) - most)
            if most:
                node.below = _make_nodes(node, listing, most)
                self.entries += sum(line.entry for line in node.below)
                self.room -= sum(line.cost for line in node.below)
        if not most:
            self._close([node for node, _ in read])

    def _close(self, level: Sequence[_Node]) -> None:
        """Writes the number of entries beside the folders of the deepest level, which are not opened."""
        for node in level:
            if self.room < len(" (empty)"):
                break
            listing = self._listing(node)
            if listing is not None:
                self._note(node, _number(listing))

    def _note(self, node: _Node, note: str) -> None:
        if len(note) <= self.room:
            node.note = note
            self.room -= len(note)


def _number(listing: Listing) -> str:
    number = len(listing.entries)
    least = "" if listing.complete else "at least "
    return f" ({least}{number} {_entries(number)})"


def _entries(number: int) -> str:
    return "entry" if number == 1 else "entries"


def _make_nodes(node: _Node, listing: Listing, most: int) -> list[_Node]:
    """Returns the lines for a folder's first entries, and one for the rest.

    If they do not all fit, files get up to half of the lines.
    """
    entries = listing.entries
    hidden = len(entries) - most
    if hidden > 0:
        folders = [entry for entry in entries if entry.folder]
        files = entries[len(folders) :]
        folders = folders[: max(most - len(files), most - most // 2)]
        entries = (*folders, *files[: most - len(folders)])
    nodes = [_Node(entry.label, node.depth + 1, entry.folder) for entry in entries]
    if hidden > 0 or not listing.complete:
        least = "" if listing.complete else "at least "
        rest = f"… {least}{max(hidden, 1)} more"
        nodes.append(_Node(rest, node.depth + 1, None, entry=False))
    return nodes
