"""Finds, reads and parses a settings file, and checks it against the table of keys."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.config import kinds
from ullage.config.keys import ROWS, below, find
from ullage.config.lines import lines_of
from ullage.config.problems import InvalidSettings, Problem, Wrong, join_key, show_path, show_value
from ullage.errors import ConfigurationError
from ullage.extras import require

if TYPE_CHECKING:
    from collections.abc import Mapping

Keys = tuple[str, ...]

VARIABLE = "ULLAGE_CONFIG"
"""The environment variable that names the user's file."""
LARGEST = 1_000_000
"""Largest size of a settings file, in bytes."""
LONGEST_NAME = 200
"""Longest name of a model, a category or a server, in characters."""
_AT = re.compile(r" ?\(at (?:line (\d+), column (\d+)|end of document)\)")
_BEGIN = re.compile(r"[ \t]*([A-Za-z0-9_.-]+)[ \t]*=")


@dataclass(slots=True)
class FoundValues:
    """Values, sources and problems that were read so far."""

    values: dict[Keys, Any] = field(default_factory=dict)
    tables: list[Keys] = field(default_factory=list)
    """Tables with names of the user, such as `models.fast`, which exist even if they are empty."""
    sources: dict[Keys, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Document:
    """A settings file with the content that was read."""

    path: Path
    content: bytes = field(repr=False)
    is_open: bool = False
    """True if other users than its owner can write it."""

    @property
    def sha256(self) -> str:
        """The hash of the content; the user trusts a project's file with this hash."""
        import hashlib  # noqa: PLC0415 - most folders have no such file

        return hashlib.sha256(self.content).hexdigest()


def config_path(environ: Mapping[str, str]) -> Path:
    """Returns the path of the user's file, which may not exist."""
    named = environ.get(VARIABLE)
    if named:
        return _expand_home(named, environ)
    base = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # noqa: PTH117 - a text of the environment
        return Path(base) / "ullage" / "config.toml"
    require("client", "platformdirs")
    import platformdirs  # noqa: PLC0415 - the import takes 10 ms, and a named file does not need it

    return platformdirs.user_config_path("ullage") / "config.toml"


def _expand_home(name: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME")
    if home and (name == "~" or name.startswith("~/")):
        return Path(home) / name[2:]
    return Path(name)


def read_file(path: Path, *, regular: bool = False) -> Document:
    """Reads a file; raises FileNotFoundError if it does not exist, ConfigurationError if it is unreadable."""
    try:
        content, status = contents(path, LARGEST + 1, regular=regular)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(
            f"{show_path(path)} cannot be read: {error.strerror}. Make it readable, or name another file"
        ) from error
    if len(content) > LARGEST:
        raise ConfigurationError(
            f"{show_path(path)} is larger than {LARGEST:,} bytes: name a configuration file"
        )
    return Document(path, content, is_open=stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o022))


def contents(path: Path, most: int, *, regular: bool) -> tuple[bytes, os.stat_result]:
    """Returns up to `most` bytes of a file, and the status of the same open file; raises OSError.

    With `regular`, anything but a regular file is an error.
    """
    # Without O_NONBLOCK, opening a pipe that has no writer would wait for ever.
    handle = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if regular else 0))
    try:
        status = os.fstat(handle)
        if regular and not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        content = b""
        while len(content) < most and (more := os.read(handle, most - len(content))):
            content += more
    finally:
        os.close(handle)
    return content, status


def check(document: Document) -> FoundValues:
    """Returns the values of a file by key, and all problems in it."""
    found = FoundValues()
    try:
        data, text = _parse_document(document)
    except InvalidSettings as error:
        found.problems += error.problems
        return found
    _Check(found, show_path(document.path), lines_of(text)).table(data, ())
    return found


def _parse_document(document: Document) -> tuple[dict[str, Any], str]:
    place = show_path(document.path)
    try:
        text = document.content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = document.content.count(b"\n", 0, error.start) + 1
        raise InvalidSettings(
            [Problem(f"{place}:{line}", (), "invalid UTF-8: save the file as UTF-8")]
        ) from error
    try:
        return tomllib.loads(text, parse_float=kinds.number), text
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings([_syntax(place, text, str(error))]) from error
    except (RecursionError, ValueError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise InvalidSettings([Problem(place, (), reason)]) from error


def _syntax(place: str, text: str, message: str) -> Problem:
    """Returns the problem for invalid TOML, with the key at the beginning of the line."""
    lines = text.split("\n")
    match = _AT.search(message)
    number = int(match[1]) if match and match[1] else len(text.rstrip("\n").split("\n"))
    line = lines[number - 1] if number <= len(lines) else ""
    key = _BEGIN.match(line)
    column = f" in column {match[2]}" if match and match[2] else ""
    reason = _AT.sub("", message) or "it cannot be parsed"
    advice = ": put texts in quotes" if reason == "Invalid value" else ""
    path = tuple(key[1].split(".")) if key else ()
    return Problem(f"{place}:{number}", path, f"invalid TOML{column}: {reason}{advice}")


@dataclass(slots=True)
class _Check:
    found: FoundValues
    file: str
    lines: Mapping[Keys, int]

    def table(self, data: Mapping[str, Any], path: Keys) -> None:
        """Checks every key of a table, and of the tables in it."""
        for name, value in data.items():
            self._entry((*path, name), value)

    def _entry(self, path: Keys, value: object) -> None:
        inside = below(path[:-1])
        own = bool(inside) and inside[0].startswith("<")
        if own and not (path[-1].strip() and path[-1].isprintable() and len(path[-1]) <= LONGEST_NAME):
            self._problem(path, f"invalid name: use 1 to {LONGEST_NAME} visible characters")
            return
        row = find(path)
        if row is not None:
            self._value(path, value, row)
        elif not below(path):
            self._problem(path, unknown(path))
        elif isinstance(value, dict):
            if own:
                self.found.tables.append(path)
                self.found.sources[path] = self._place(path)
            self.table(value, path)
        else:
            self._problem(
                path, f"must be a table, which begins with [{join_key(path)}], not {show_value(value)}"
            )

    def _value(self, path: Keys, value: object, row: Any) -> None:
        try:
            self.found.values[path] = kinds.read(value, row)
            self.found.sources[path] = self._place(path)
        except Wrong as error:
            self._problem(path, str(error))

    def _problem(self, path: Keys, text: str) -> None:
        self.found.problems.append(Problem(self._place(path), path, text))

    def _place(self, path: Keys) -> str:
        return f"{self.file}:{self.lines[path]}" if path in self.lines else self.file


def unknown(path: Keys) -> str:
    """Returns the message for an unknown key, with the most similar key: in the same table, else anywhere."""
    import difflib  # noqa: PLC0415 - only needed for a problem

    table, name = path[:-1], path[-1]
    beside = difflib.get_close_matches(name, [each for each in below(table) if each[0] != "<"], 1, 0.6)
    if beside:
        return f"unknown key; did you mean {join_key((*table, beside[0]))}?"
    ends = {row.path[-1]: row.name for row in reversed(ROWS) if row.path[-1][0] != "<"}
    elsewhere = difflib.get_close_matches(name, list(ends), 1, 0.8)
    if elsewhere:
        return f"unknown key; did you mean {ends[elsewhere[0]]}?"
    whole = difflib.get_close_matches(join_key(path), [row.name for row in ROWS], 1, 0.8)
    return f"unknown key; did you mean {whole[0]}?" if whole else "unknown key"
