"""A file of settings: found, read once, parsed, and checked against the table of keys."""

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
from ullage.config.problems import InvalidSettings, Problem, Wrong, clean, dotted, shown
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

Keys = tuple[str, ...]

VARIABLE = "ULLAGE_CONFIG"
"""The environment variable that names the file."""
LARGEST = 1_000_000
"""Bytes of a file; a longer one is no configuration."""
LONGEST_NAME = 200
_AT = re.compile(r" ?\(at (?:line (\d+), column (\d+)|end of document)\)")
_BEGIN = re.compile(r"[ \t]*([A-Za-z0-9_.-]+)[ \t]*=")


@dataclass(slots=True)
class Found:
    """What was read so far."""

    values: dict[Keys, Any] = field(default_factory=dict)
    tables: list[Keys] = field(default_factory=list)
    """Tables under names of the user's own, which are there even where they are empty."""
    sources: dict[Keys, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Document:
    """A file as it was when it was read."""

    path: Path
    content: bytes = field(repr=False)
    is_open: bool = False
    """Whether others than its owner can write it."""

    @property
    def sha256(self) -> str:
        """What is trusted, or not."""
        import hashlib  # noqa: PLC0415 - most folders have no such file

        return hashlib.sha256(self.content).hexdigest()


def config_path(environ: Mapping[str, str]) -> Path:
    """Where the user's own file is, or would be."""
    named = environ.get(VARIABLE)
    if named:
        return _expanded(named, environ)
    base = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # noqa: PTH117 - a text of the environment
        return Path(base) / "ullage" / "config.toml"
    import platformdirs  # noqa: PLC0415 - 10 ms that a named file need not pay

    return platformdirs.user_config_path("ullage") / "config.toml"


def _expanded(name: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME")
    if home and (name == "~" or name.startswith("~/")):
        return Path(home) / name[2:]
    return Path(name)


def read_file(path: Path, *, regular: bool = False) -> Document:
    """The file; raises ConfigurationError where it cannot be read, FileNotFoundError where there is none."""
    try:
        content, status = contents(path, LARGEST + 1, regular=regular)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(
            f"{clean(path)} cannot be read: {error.strerror}. Allow reading it, or name another"
        ) from error
    if len(content) > LARGEST:
        raise ConfigurationError(f"{clean(path)} is longer than {LARGEST:,} bytes: that is no configuration")
    return Document(path, content, is_open=stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o022))


def contents(path: Path, most: int, *, regular: bool) -> tuple[bytes, os.stat_result]:
    """At most so many bytes of a file, and what is known of the very file that was read; raises OSError."""
    # Opening a pipe that nobody writes to would wait for ever.
    handle = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if regular else 0))
    try:
        status = os.fstat(handle)
        if regular and not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        content = b""
        while len(content) < most and (more := os.read(handle, most - len(content))):
            content += more
    finally:
        os.close(handle)
    return content, status


def check(document: Document) -> Found:
    """What the file says, by key, with all that is wrong with it."""
    found = Found()
    try:
        data, text = _parsed(document)
    except InvalidSettings as error:
        found.problems += error.problems
        return found
    _Check(found, clean(document.path), lines_of(text)).table(data, ())
    return found


def _parsed(document: Document) -> tuple[dict[str, Any], str]:
    place = clean(document.path)
    try:
        text = document.content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = document.content.count(b"\n", 0, error.start) + 1
        raise InvalidSettings(
            [Problem(f"{place}:{line}", (), "this is no UTF-8: save it as that")]
        ) from error
    try:
        return tomllib.loads(text, parse_float=kinds.number), text
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings([_syntax(place, text, str(error))]) from error
    except (RecursionError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise InvalidSettings([Problem(place, (), reason)]) from error


def _syntax(place: str, text: str, told: str) -> Problem:
    """What TOML itself does not allow, with the key that the line begins with."""
    lines = text.split("\n")
    match = _AT.search(told)
    number = int(match[1]) if match and match[1] else len(text.rstrip("\n").split("\n"))
    line = lines[number - 1] if number <= len(lines) else ""
    key = _BEGIN.match(line)
    column = f" in column {match[2]}" if match and match[2] else ""
    reason = _AT.sub("", told) or "it cannot be understood"
    advice = ": texts stand in quotes" if reason == "Invalid value" else ""
    path = tuple(key[1].split(".")) if key else ()
    return Problem(f"{place}:{number}", path, f"this is no TOML{column}: {reason}{advice}")


@dataclass(slots=True)
class _Check:
    found: Found
    file: str
    lines: Mapping[Keys, int]

    def table(self, data: Mapping[str, Any], path: Keys) -> None:
        """Every key of a table, and of those in it."""
        for name, value in data.items():
            self._entry((*path, name), value)

    def _entry(self, path: Keys, value: object) -> None:
        inside = below(path[:-1])
        own = bool(inside) and inside[0].startswith("<")
        if own and not (path[-1].strip() and path[-1].isprintable() and len(path[-1]) <= LONGEST_NAME):
            self._problem(path, f"this is no name: give one of 1 to {LONGEST_NAME} characters that print")
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
            self._problem(path, f"is a table, which begins with [{dotted(path)}]; {shown(value)} is not")

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
    """That there is no such key, and the nearest that there is: in the same table, else anywhere."""
    import difflib  # noqa: PLC0415 - only for what is wrong

    table, name = path[:-1], path[-1]
    beside = difflib.get_close_matches(name, [each for each in below(table) if each[0] != "<"], 1, 0.6)
    if beside:
        return f"there is no such key; did you mean {dotted((*table, beside[0]))}?"
    ends = {row.path[-1]: row.name for row in reversed(ROWS) if row.path[-1][0] != "<"}
    elsewhere = difflib.get_close_matches(name, list(ends), 1, 0.8)
    if elsewhere:
        return f"there is no such key; did you mean {ends[elsewhere[0]]}?"
    whole = difflib.get_close_matches(dotted(path), [row.name for row in ROWS], 1, 0.8)
    return f"there is no such key; did you mean {whole[0]}?" if whole else "there is no such key"
