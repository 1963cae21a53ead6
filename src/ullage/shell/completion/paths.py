"""Completion of program names and paths.

File names are foreign text. A name with control characters is not offered. A name that a program would take
for an option gets `./` in front.
"""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ullage.shell.prompt import Suggestion
from ullage.terminal.programs import MOST_READ, names_in
from ullage.text import mark_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ullage.terminal import Runner

MOST = 500
"""The most completions that are offered at once."""

_T = TypeVar("_T")


def is_harmless(text: str) -> bool:
    """Returns True if the text has no control or hidden characters."""
    return mark_unsafe(text) == text and not ("\n" in text or "\t" in text)


# Programs ---------------------------------------------------------------------------------------------------


def programs(runner: Runner, word: str) -> Sequence[Suggestion]:
    """Returns the names of commands that begin with the word: bash's own and the programs on the PATH."""
    if not word or _read(word, runner.environ).value != word:
        return ()
    found: dict[str, Path | None] = {each: None for each in runner.names if each.startswith(word)}
    for folder in runner.environ.get("PATH", "").split(os.pathsep):
        directory = runner.cwd / folder
        names = names_in(directory)
        found |= {each: directory / each for each in names if each.startswith(word) and each not in found}

    def suits(name: str) -> bool:
        path = found[name]
        return is_harmless(name) and (path is None or (path.is_file() and os.access(path, os.X_OK)))

    few = _few(sorted(found), suits)
    return [_make_suggestion(word, _escape_text(each, ""), each, is_last=len(few) == 1) for each in few]


def _few(found: Sequence[_T], suits: Callable[[_T], bool]) -> Sequence[_T]:
    """Returns at most MOST suitable entries of a sorted list, the last one included.

    The beginning that the first and the last entry share is the one that all entries share.
    """
    few = list(itertools.islice(filter(suits, found), MOST))
    return few if len(few) < MOST else [*few[:-1], next(filter(suits, reversed(found)))]


def _make_suggestion(typed: str, text: str, shown: str, *, is_last: bool) -> Suggestion:
    return Suggestion(f"{text} " if is_last else text, len(typed), display=shown)


# Paths ------------------------------------------------------------------------------------------------------

_HOME = re.compile(r"~[\w.-]*(?=/|$)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_SIGNS = {
    "": re.compile(r"""[\s'"\\$`&|;<>()*?\[\]{}!^]|^[~#]"""),
    '"': re.compile(r'["\\$`]'),
    "'": re.compile("'"),
}
"""Open quotation mark → the characters that need an escape after it."""


class _Read(NamedTuple):
    """A typed word after bash's expansion."""

    value: str | None
    """None if only bash itself can expand the word."""
    quote: str = ""
    """The quotation mark that is still open; empty if none is."""
    expanded: int = 0
    """Offset in the typed word after the last `~` or variable."""


def _read(word: str, environ: Mapping[str, str]) -> _Read:
    value, quote, at = "", "", 0
    if home := _HOME.match(word):
        known = os.path.expanduser(home[0])  # noqa: PTH111 - pathlib raises an error for an unknown user
        value = environ.get("HOME", known) if home[0] == "~" else known
        at = home.end()
    expanded = at
    while at < len(word):
        sign = word[at]
        variable = _VARIABLE.match(word, at)
        if quote == "'" or sign not in "\\'\"$`":
            value, quote = (value, "") if sign == quote == "'" else (value + sign, quote)
        elif sign == "\\":
            at += 1
            plain = quote and word[at : at + 1] not in {"", "$", "`", '"', "\\"}
            value += f"\\{word[at : at + 1]}" if plain else word[at : at + 1]
        elif variable is not None and (variable[1] or variable[2]) in environ:
            value += environ[variable[1] or variable[2]]
            at = expanded = variable.end()
            continue
        elif sign in "$`":
            return _Read(None)
        elif sign == "'" and quote:
            value += sign
        else:
            quote = "" if quote else sign
        at += 1
    return _Read(value, quote, expanded)


def _escape_text(text: str, quote: str) -> str:
    return _SIGNS[quote].sub(lambda found: r"'\''" if quote == "'" else f"\\{found[0]}", text)


def escape_name(text: str, *, start: bool) -> str:
    """Returns a part of a file name as it is typed without quotation marks; `start` is True for its start."""
    return _escape_text(text, "") if start else _escape_text("/" + text, "")[1:]


def paths(runner: Runner, word: str, wanted: Callable[[os.DirEntry[str]], bool]) -> Sequence[Suggestion]:
    """Returns the paths that begin with a word of a command line; the typed text does not change.

    `wanted` returns True for the entries to offer.
    """
    read = _read(word, runner.environ)
    typed = word.rpartition("/")[2]
    if read.value is None:
        return ()
    folder, slash, begins = read.value.rpartition("/")
    whole = read.expanded > len(word) - len(typed)  # a lone `~` or `$HOME` is a whole name
    dangling = len(typed) - len(typed.rstrip("\\")) if read.quote != "'" else 0
    stem = typed[:-1] if dangling % 2 else typed
    found = [
        each
        for each in _beginning(runner, folder + slash, begins, wanted)
        if (not whole or each.name == begins) and (slash or not each.name.startswith("-") or not typed)
    ]
    offered = []
    for each in found:
        guard = "./" if each.name.startswith("-") and not slash else ""
        enters = is_folder(each)
        start = not (stem or guard or slash)
        rest = each.name[len(begins) :]
        text = (
            stem
            + guard
            + (_escape_text(rest, read.quote) if start else _escape_text("/" + rest, read.quote)[1:])
        )
        text += "/" if enters else read.quote
        if text.startswith(typed):
            is_last = len(found) == 1 and not enters
            shown = f"{each.name}/" if enters else each.name
            offered.append(_make_suggestion(typed, text, shown, is_last=is_last))
    if begins == ".." and not whole:
        offered.append(Suggestion(f"{typed}/", len(typed), display="../"))
    return offered


def plain_paths(runner: Runner, word: str) -> Iterator[Suggestion]:
    """Yields the paths that begin with a word outside a command line; only `~/` has a special meaning."""
    home = runner.environ.get("HOME")
    value = home + word[1:] if home and word.startswith("~/") else word
    folder, slash, begins = value.rpartition("/")
    for each in _beginning(runner, folder + slash, begins, is_any):
        name = f"{each.name}/" if is_folder(each) else each.name
        yield Suggestion(name, len(begins), display=name)


def _beginning(
    runner: Runner, folder: str, begins: str, wanted: Callable[[os.DirEntry[str]], bool]
) -> Sequence[os.DirEntry[str]]:
    """Returns the wanted entries whose names begin with `begins`; hidden files only if `begins` has a dot."""
    found = [
        each
        for each in _entries(runner.cwd / folder)
        if each.name.startswith(begins) and (begins or not each.name.startswith("."))
    ]
    found.sort(key=lambda each: each.name)
    return _few(found, lambda each: is_harmless(each.name) and wanted(each))


def _entries(folder: Path) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = list(itertools.islice(entries, MOST_READ + 1))
    except (OSError, ValueError):  # the folder is unreadable, or its name is invalid
        return ()
    return found if len(found) <= MOST_READ else ()


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Returns True if the entry is a folder, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a circular link
        return False


def is_runnable(entry: os.DirEntry[str]) -> bool:
    """Returns True if the entry is an executable file or a folder."""
    return is_folder(entry) or os.access(entry.path, os.X_OK)


def is_any(_: os.DirEntry[str]) -> bool:
    """Returns True for every entry."""
    return True
