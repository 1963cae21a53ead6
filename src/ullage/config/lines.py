"""Finds the line of each key in a TOML text, because `tomllib` does not return it.

The text was parsed before and is valid, so the scan only has to find the keys and the ends of the values.
"""

from __future__ import annotations

import re
import tomllib

_BLANK = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
_TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}\n#]+")

KeyPath = tuple[str, ...]
"""The parts of a key, such as `("context", "max_turns")`."""

DEEPEST = 32
"""Maximum number of parts of a key that are recorded; no key of the configuration has as many."""


def lines_of(text: str) -> dict[KeyPath, int]:
    """Returns the line of each key and each table at its first occurrence; the first line is 1."""
    scan = _Scan(text.replace("\r\n", "\n"))
    scan.statements()
    return scan.lines


class _Scan:
    """A position that moves through a TOML text, and the lines of the keys found so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._line, self._counted = 1, 0

    def statements(self) -> None:
        """Reads all table headers and pairs of the text."""
        table: KeyPath = ()
        while self._next():
            if self._next() == "[":
                self.at += 2 if self.text.startswith("[[", self.at) else 1
                table = self._key(())
                self.at = self.text.find("\n", self.at)
                if self.at < 0:
                    return
            else:
                self._pair(table)

    def _next(self) -> str:
        """Skips blanks and comments and returns the next character; empty at the end."""
        self.at = self._end(_BLANK)
        return self.text[self.at : self.at + 1]

    def _end(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        return self.at if match is None else match.end()

    def _key(self, table: KeyPath) -> KeyPath:
        """Reads a key, dotted or not, and records the line of the key and of each table in its path."""
        path = table
        while match := _KEY.match(self.text, self.at):
            if len(path) < DEEPEST:
                path = (*path, _plain(match[1]))
                self.lines.setdefault(path, self._number())
            self.at = match.end()
            if self.text[self.at : self.at + 1] != ".":
                break
            self.at += 1
        return path

    def _number(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def _pair(self, table: KeyPath) -> None:
        path = self._key(table)
        self.at += 1  # the equals sign; in an invalid text, this step prevents an endless loop
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        begin = self._next()
        if begin in ("[", "{"):
            self.at += 1
            while self._next() not in ("]", "}", ""):
                if begin == "{":
                    self._pair(path)
                else:
                    self._value(path)
                if self._next() == ",":
                    self.at += 1
            self.at += 1
        else:
            self.at = max(self._end(_TEXT if begin in ('"', "'") else _PLAIN), self.at + 1)


def _plain(key: str) -> str:
    """Returns a key without its quotes and with its escapes resolved."""
    if key[0] == "'":
        return key[1:-1]
    if key[0] == '"' and "\\" in key:
        (meant,) = tomllib.loads(f"{key} = 0")
        return meant
    return key.strip('"')
