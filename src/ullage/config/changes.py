"""Changes one key in the text of a settings file, and keeps all comments and the rest of the text.

A new key replaces its own commented line, as in the file of `ullage config init`, or comes after the last key
of its table. Every changed text is parsed again: it must differ from the old one in that key alone.
"""

from __future__ import annotations

import copy
import re
import tomllib
from typing import TYPE_CHECKING, Any

from ullage.config import kinds
from ullage.config.documents import unknown
from ullage.config.keys import below, find
from ullage.config.problems import InvalidSettings, Problem, Wrong, join_key
from ullage.config.writer import toml_of
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.config.key_row import KeyRow

    Keys = tuple[str, ...]
    Change = Callable[[str, Keys, str], str]

LISTS = ("texts", "phrases")
"""Types of values that consist of several texts."""
TABLES = ("pairs", "headers")
"""Types of values that are written as a TOML table."""


def parse_key(key: str) -> Keys:
    """Returns the parts of a key with dots, as in TOML; raises ConfigurationError if it is no key."""
    try:
        there: Any = tomllib.loads(f"{key} = 0") if "\n" not in key and key.strip() else None
    except tomllib.TOMLDecodeError:
        there = None
    path: Keys = ()
    while isinstance(there, dict) and len(there) == 1:
        (part,) = there
        path, there = (*path, part), there[part]
    if there != 0 or not path:
        raise ConfigurationError(
            f"{key!r} is not a key. Write it with dots, and put a name with other characters in quotes: "
            'models."my model".window'
        )
    return path


def row_of(path: Keys) -> KeyRow:
    """Returns the row of a key; raises InvalidSettings if the key is unknown or a table."""
    row = find(path)
    if row is not None:
        return row
    inside = below(path)
    text = f"is a table: name one of its keys, such as {inside[0]}" if inside else unknown(path)
    raise InvalidSettings([Problem("", path, text)])


def value_of(words: Sequence[str], path: Keys) -> str:
    """Returns the words of a command line as the value of a key in TOML; raises InvalidSettings.

    A list takes one word for each text, or a list in TOML. A table is written in TOML.
    """
    row = row_of(path)
    try:
        return toml_of(_read(words, row), row)
    except Wrong as error:
        raise InvalidSettings([Problem("", path, str(error))]) from error


def _read(words: Sequence[str], row: KeyRow) -> Any:
    if row.kind in LISTS:
        is_toml = len(words) == 1 and words[0].lstrip().startswith("[")
        return kinds.read(_toml(words[0], row) if is_toml else list(words), row)
    if len(words) != 1:
        raise Wrong(f"takes one value, not {len(words)}: put a text with blanks in quotes")
    return kinds.read(_toml(words[0], row), row) if row.kind in TABLES else kinds.parse(words[0], row)


def _toml(text: str, row: KeyRow) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        example = '{ NAME = "value" }' if row.kind in TABLES else '["a text", "another"]'
        raise Wrong(f"must be {kinds.allowed(row)}, written as in TOML: {example}") from error


def set_key(text: str, path: Keys, value: str) -> str:
    """Returns the text with a key set to a value in TOML."""
    wanted = _with(_data(text), path, _data(f"value = {value}")["value"])
    return _first(CHANGES, text, path, value, wanted)


def unset_key(text: str, path: Keys) -> str:
    """Returns the text without a key or a table of the user; raises ConfigurationError if it is not set."""
    wanted = _data(text)
    there: Any = wanted
    for part in path[:-1]:
        there = there.get(part, {}) if isinstance(there, dict) else {}
    if not isinstance(there, dict) or path[-1] not in there:
        raise ConfigurationError(f"{join_key(path)} is not set in this file")
    del there[path[-1]]
    return _first((_delete,), text, path, "", wanted)


def _first(changes: tuple[Change, ...], text: str, path: Keys, value: str, wanted: dict[str, Any]) -> str:
    """Returns the first changed text whose data are the wanted ones."""
    for change in changes:
        changed = change(text, path, value)
        try:
            if _drop_empty_tables(_data(changed)) == _drop_empty_tables(wanted):
                return changed
        except tomllib.TOMLDecodeError:
            continue
    raise ConfigurationError(
        f"{join_key(path)} cannot be changed in this file without changing more. Run: ullage config edit"
    )


def _data(text: str) -> dict[str, Any]:
    return tomllib.loads(text, parse_float=str)  # exact, and equal to itself


def _with(data: dict[str, Any], path: Keys, value: object) -> dict[str, Any]:
    made = copy.deepcopy(data)
    there = made
    for part in path[:-1]:
        there = there.setdefault(part, {})
    there[path[-1]] = value
    return made


def _drop_empty_tables(value: Any) -> Any:
    """Returns the data without empty tables, which may come and go with their keys."""
    if not isinstance(value, dict):
        return value
    inner = {name: _drop_empty_tables(each) for name, each in value.items()}
    return {name: each for name, each in inner.items() if each != {}}


# Ways to change a text; a way that does not apply returns the text unchanged.


def _replace(text: str, path: Keys, value: str) -> str:
    """Replaces the value of a key that is set; a comment after it stays."""
    import tomlkit  # noqa: PLC0415 - takes 30 ms

    document = tomlkit.parse(text)
    there: Any = document
    for part in path[:-1]:
        if part not in there:
            return text
        there = there[part]
    if path[-1] in there:
        there[path[-1]] = tomlkit.value(value)
    return tomlkit.dumps(document)


def _uncomment(text: str, path: Keys, value: str) -> str:
    """Replaces the commented line of a key in its table."""
    lines = text.split("\n")
    commented = re.compile(rf"#[ \t]?{re.escape(join_key(path[-1:]))}[ \t]*=")
    for number in _section(lines, path[:-1]):
        if commented.match(lines[number]):
            lines[number] = f"{join_key(path[-1:])} = {value}"
            break
    return "\n".join(lines)


def _insert(text: str, path: Keys, value: str) -> str:
    """Adds a line after the last key of the table; the comments before the next table stay with it."""
    lines = text.split("\n")
    section = _section(lines, path[:-1])
    if not section and path[:-1]:
        return text
    at = section.stop
    while at > section.start and (not lines[at - 1].strip() or lines[at - 1].lstrip().startswith("#")):
        at -= 1
    lines.insert(at, f"{join_key(path[-1:])} = {value}")
    return "\n".join(lines)


def _append(text: str, path: Keys, value: str) -> str:
    """Adds the table with the key at the end."""
    *table, name = path
    before = f"{text.rstrip()}\n\n" if text.strip() else ""
    return f"{before}[{join_key(table)}]\n{join_key([name])} = {value}\n" if table else text


def _assign(text: str, path: Keys, value: str) -> str:
    """Adds a key to a table that is written in one line or with dots."""
    import tomlkit  # noqa: PLC0415 - takes 30 ms

    document = tomlkit.parse(text)
    there: Any = document
    for part in path[:-1]:
        there = there.setdefault(part, tomlkit.table())
    there[path[-1]] = tomlkit.value(value)
    return tomlkit.dumps(document)


CHANGES: tuple[Change, ...] = (_replace, _uncomment, _insert, _append, _assign)
"""The ways to set a key, in the order in which they are tried."""


def _delete(text: str, path: Keys, _: str) -> str:
    import tomlkit  # noqa: PLC0415 - takes 30 ms

    document = tomlkit.parse(text)
    there: Any = document
    for part in path[:-1]:
        there = there[part]
    del there[path[-1]]
    return tomlkit.dumps(document)


def _section(lines: Sequence[str], table: Keys) -> range:
    """Returns the lines of a table after its header; those before the first header for an empty name."""
    headers = [(number, _header(line)) for number, line in enumerate(lines) if line.startswith("[")]
    ends = [number for number, _ in headers] + [len(lines)]
    if not table:
        return range(ends[0])
    for place, (number, found) in enumerate(headers):
        if found == table:
            return range(number + 1, ends[place + 1])
    return range(0)


def _header(line: str) -> Keys | None:
    match = re.match(r"\[([^\[\]]+)\]", line)
    try:
        return None if match is None else parse_key(match[1])
    except ConfigurationError:
        return None
