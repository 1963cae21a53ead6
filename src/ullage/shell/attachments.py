"""Files in a question: `@file` and `@folder/` put the text of files in front of it.

`@"a name"` quotes a name with blanks, and `\\@name` is sent as it is. A word such as `@property` that is
neither an existing path nor looks like one is part of the question.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ullage.errors import ConfigurationError
from ullage.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 4_000_000
"""The most bytes of a file, and of all files of a folder."""
MOST_FILES = 200
"""The most files of a folder."""
START = 8_000
"""Bytes at the start of a file that show if it is text."""

_REFERENCE = re.compile(
    r"(?<![\w@.\\])@(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)'|(?P<plain>[^\s\"']+))"
)
_ENDS = ".,;:!?)]}>"
_PATH = re.compile(r"/|^~|\.[A-Za-z][A-Za-z0-9]{0,3}$")


class Attachment(NamedTuple):
    """The text of a file or of a folder's files."""

    name: str
    """The path as the user wrote it."""
    text: str
    """The text for the model: a line with the name before the content of each file."""
    left_out: int = 0
    """The number of a folder's files that are not text, or too large."""


def read_attachments(question: str, folder: Path) -> tuple[str, list[Attachment]]:
    """Returns the question without escapes, and the files that it names, each once.

    Raises ConfigurationError if a file is missing, is not text, or is too large.
    """
    found: dict[Path, Attachment] = {}
    for reference in _REFERENCE.finditer(question):
        quoted = reference["double"] or reference["single"]
        name, path = _path_of(quoted or reference["plain"], folder, is_quoted=bool(quoted))
        if path is not None and path not in found:
            found[path] = _read_folder(name, path) if path.is_dir() else _read_file(name, path)
    return re.sub(r"(?<!\S)\\@", "@", question), list(found.values())


def attach_text(name: str, content: str) -> Attachment:
    """Returns a text that is not from a file, such as piped input, as an attachment."""
    return Attachment(name, f"{name}:\n{content.rstrip()}")


def _path_of(written: str, folder: Path, *, is_quoted: bool) -> tuple[str, Path | None]:
    """Returns the name and the existing path of a reference; None if it is a word of the question."""
    names = [written] if is_quoted else list(dict.fromkeys((written, written.rstrip(_ENDS))))
    for name in filter(None, names):
        try:
            path = folder / Path(name).expanduser()
            if path.exists():
                return name, path.resolve()
        except (OSError, ValueError, RuntimeError):  # no valid path, or the home of an unknown user
            continue
    name = names[-1]
    if is_quoted or _PATH.search(name):
        raise ConfigurationError(
            f"@{one_line(name)}: there is no such file or folder here. Nothing was sent. "
            f"Correct the path, or write \\@{one_line(name)} to send it as text."
        )
    return name, None


def _read_file(name: str, path: Path) -> Attachment:
    return Attachment(name, _add_title(name, _content(name, path)))


def _read_folder(name: str, path: Path) -> Attachment:
    """Returns the text files below a folder that no ignore rule of the project leaves out."""
    texts: list[str] = []
    size = left_out = 0
    for inside in _files_below(path):
        if len(texts) + left_out >= MOST_FILES:
            raise ConfigurationError(
                f"@{name} has more than {MOST_FILES} files. Name a smaller folder or the files."
            )
        shown = str(Path(name, inside.relative_to(path)))
        try:
            texts.append(_add_title(shown, _content(shown, inside)))
        except ConfigurationError:
            left_out += 1
            continue
        size += len(texts[-1])
        if size > MOST_BYTES:
            raise ConfigurationError(
                f"@{name} has more than {MOST_BYTES // 1_000_000} MB of text. "
                "Name a smaller folder or the files."
            )
    if not texts:
        raise ConfigurationError(f"@{name} has no text files. Nothing was sent.")
    return Attachment(name, "\n\n".join(texts), left_out)


def _files_below(path: Path) -> Iterator[Path]:
    """Yields the files below a folder, in order, without links and without what the project ignores."""
    from ullage.project.folders import FolderReader, TreeOptions, top_folder  # noqa: PLC0415 - rarely needed

    options = TreeOptions()
    reader = FolderReader(options)
    waiting = [top_folder(path, options)]
    while waiting:
        folder = waiting.pop()
        listing = reader.read(folder)
        if listing is None:
            return
        waiting += [each.folder for each in reversed(listing.entries) if each.folder is not None]
        for each in listing.entries:
            file = folder.path / each.name
            if each.folder is None and file.is_file() and not file.is_symlink():
                yield file


def _add_title(name: str, content: str) -> str:
    return f"file {one_line(name)}:\n{content.rstrip()}"


def _content(name: str, path: Path) -> str:
    """Returns the text of a file; raises ConfigurationError if it cannot be read, is too large or no text."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a pipe would block
            raise ConfigurationError(f"@{name} is not a regular file, so it cannot be sent.")
        if found.st_size > MOST_BYTES:
            raise ConfigurationError(
                f"@{name} has {found.st_size / 1_000_000:.1f} MB; the most is {MOST_BYTES // 1_000_000} MB. "
                "Send a part of it, for example with head or grep."
            )
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"@{name} cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if b"\0" in data[:START] or "\0" in text:
        raise ConfigurationError(f"@{name} is not a text file, so it cannot be sent.")
    return text
