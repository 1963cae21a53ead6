"""Programs and paths that begin with what is typed.

Names of files are other people's texts: one that a terminal might obey is not offered at all, and one that
a program would take for an option gets `./` in front.
"""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ullage.shell.prompt import Suggestion
from ullage.shell.running.programs import MOST_READ, names_in
from ullage.shell.screen import neutral

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ullage.shell.running import Runner

MOST = 500
"""How many are offered at once; nobody looks through more."""

_T = TypeVar("_T")


def is_harmless(text: str) -> bool:
    """Whether a terminal shows every character of it as what it is."""
    return neutral(text) == text and not ("\n" in text or "\t" in text)


# Programs ---------------------------------------------------------------------------------------------------


def programs(runner: Runner, word: str) -> Sequence[Suggestion]:
    """What a command may be called: what bash knows by itself, and the programs on the PATH."""
    if not word or _read(word, runner.environ).value != word:
        return ()
    found: dict[str, Path | None] = {each: None for each in runner.names if each.startswith(word)}
    for folder in runner.environ.get("PATH", "").split(os.pathsep):
        place = runner.cwd / folder
        names = names_in(place)
        found |= {each: place / each for each in names if each.startswith(word) and each not in found}

    def suits(name: str) -> bool:
        path = found[name]
        return is_harmless(name) and (path is None or (path.is_file() and os.access(path, os.X_OK)))

    few = _few(sorted(found), suits)
    return [_inserted(word, _escaped(each, ""), each, is_last=len(few) == 1) for each in few]


def _few(found: Sequence[_T], suits: Callable[[_T], bool]) -> Sequence[_T]:
    """No more of a sorted list than are offered: the first and the last, as these begin with what all do."""
    few = list(itertools.islice(filter(suits, found), MOST))
    return few if len(few) < MOST else [*few[:-1], next(filter(suits, reversed(found)))]


def _inserted(typed: str, text: str, shown: str, *, is_last: bool) -> Suggestion:
    return Suggestion(f"{text} " if is_last else text, len(typed), display=shown)


# Paths ------------------------------------------------------------------------------------------------------

_HOME = re.compile(r"~[\w.-]*(?=/|$)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_SIGNS = {
    "": re.compile(r"""[\s'"\\$`&|;<>()*?\[\]{}!^]|^[~#]"""),
    '"': re.compile(r'["\\$`]'),
    "'": re.compile("'"),
}
"""What needs an escape, by the quotation mark that is open."""


class _Read(NamedTuple):
    """A word as bash would understand it."""

    value: str | None
    """None where only bash can tell."""
    quote: str = ""
    """The quotation mark that is still open."""
    expanded: int = 0
    """Up to where in the typed word something stands for something else."""


def _read(word: str, environ: Mapping[str, str]) -> _Read:
    value, quote, at = "", "", 0
    if home := _HOME.match(word):
        known = os.path.expanduser(home[0])  # noqa: PTH111 - a pathlib.Path raises where there is no such user
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


def _escaped(text: str, quote: str) -> str:
    return _SIGNS[quote].sub(lambda found: r"'\''" if quote == "'" else f"\\{found[0]}", text)


def paths(runner: Runner, word: str, wanted: Callable[[os.DirEntry[str]], bool]) -> Sequence[Suggestion]:
    """The paths that begin with a word of a command line; what is typed stays as it is."""
    read = _read(word, runner.environ)
    typed = word.rpartition("/")[2]
    if read.value is None:
        return ()
    folder, slash, begins = read.value.rpartition("/")
    whole = read.expanded > len(word) - len(typed)  # `~` and `$HOME` alone do not begin another name
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
        text = stem + guard + (_escaped(rest, read.quote) if start else _escaped("/" + rest, read.quote)[1:])
        text += "/" if enters else read.quote
        if text.startswith(typed):
            is_last = len(found) == 1 and not enters
            shown = f"{each.name}/" if enters else each.name
            offered.append(_inserted(typed, text, shown, is_last=is_last))
    if begins == ".." and not whole:
        offered.append(Suggestion(f"{typed}/", len(typed), display="../"))
    return offered


def plain_paths(runner: Runner, word: str) -> Iterator[Suggestion]:
    """The paths that begin with a word in which no sign means anything but itself, except `~/`."""
    home = runner.environ.get("HOME")
    value = home + word[1:] if home and word.startswith("~/") else word
    folder, slash, begins = value.rpartition("/")
    for each in _beginning(runner, folder + slash, begins, is_any):
        name = f"{each.name}/" if is_folder(each) else each.name
        yield Suggestion(name, len(begins), display=name)


def _beginning(
    runner: Runner, folder: str, begins: str, wanted: Callable[[os.DirEntry[str]], bool]
) -> Sequence[os.DirEntry[str]]:
    """The entries of a folder whose names begin so; those with a dot only after a dot."""
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
    except (OSError, ValueError):  # not to be read, or no name that a folder can have
        return ()
    return found if len(found) <= MOST_READ else ()


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it can be entered."""
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def is_runnable(entry: os.DirEntry[str]) -> bool:
    """Whether it can be run, or leads to what can."""
    return is_folder(entry) or os.access(entry.path, os.X_OK)


def is_any(_: os.DirEntry[str]) -> bool:
    """Anything will do."""
    return True
