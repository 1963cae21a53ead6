"""The status line: a template filled with what is known, honest about what is estimated or unknown."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ullage.config.problems import InvalidSettings, Problem
from ullage.errors import ConfigurationError
from ullage.shell.screen import neutral

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ullage.config import Settings

DEFAULT = "{model} · {ctx_used}/{ctx_max} {ctx_percent} · {session_cost} · {cwd} {git}"
UNKNOWN = "?"
LONGEST_HEAD = 1_024
"""Bytes of a HEAD that are read; a real one is a hundred."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A value that knows whether it was measured."""

    value: object
    """None where it is unknown."""
    estimate: bool = False


class Variable(NamedTuple):
    """How a variable of the template is shown."""

    about: str
    form: Callable[[object], str]
    unknown: str = ""
    """What stands for None; nothing where it leaves the line together with its separators."""


def tokens(value: object) -> str:
    """A count in at most four digits: 999, 12.3k, 128k, 1M."""
    count = int(str(value))
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size * 0.9995:
            scaled = count / size
            return (f"{scaled:.1f}" if scaled < 99.95 else f"{scaled:.0f}").removesuffix(".0") + unit
    return str(count)


def written(value: object) -> str:
    """A count of tokens that come out, which stands beside one of those that went in."""
    return f"{tokens(value)} out"


def dollars(value: object) -> str:
    """An amount with two digits, or four where nothing is before them; never rounded down to nothing."""
    amount = Decimal(str(value))
    if amount == 0:
        return "$0"
    if amount < Decimal("0.0001"):
        return "<$0.0001"
    return f"${amount:,.2f}" if amount >= Decimal("0.995") else f"${amount:.4f}"


def percent(value: object) -> str:
    """A share of a hundred; full only when it is full."""
    share = float(str(value))
    if 0 < share < 1:
        return "<1%"
    return f"{int(share) if 99 < share < 100 else round(share)}%"


def place(value: object) -> str:
    """A folder, with ~ for the user's own."""
    folder, home = Path(str(value)), Path.home()
    return f"~/{folder.relative_to(home)}".removesuffix("/.") if folder.is_relative_to(home) else str(folder)


VARIABLES: Mapping[str, Variable] = {
    "model": Variable("the model that answers", str),
    "ctx_used": Variable("tokens that the next request begins with", tokens, UNKNOWN),
    "ctx_max": Variable("the most tokens that a request may have", tokens, UNKNOWN),
    "ctx_free": Variable("tokens that are left of them", tokens, UNKNOWN),
    "ctx_percent": Variable("how full that is", percent),
    "output_tokens": Variable("tokens of the answer so far, while it comes", written),
    "cost": Variable("dollars of the last answer", dollars, UNKNOWN),
    "session_cost": Variable("dollars of the session", dollars, UNKNOWN),
    "session": Variable("the session's name", str),
    "mode": Variable("what the shell is at, such as a goal", str),
    "cwd": Variable("the working folder", place),
    "git": Variable("the branch there", str),
}


def render(template: str, values: Mapping[str, object]) -> str:
    """The template with these values; what is missing goes, and the separators around it with it.

    A value is plain or a Figure. One that is not in `values` is missing; None is unknown: `?` for sums.
    """
    shown: list[tuple[str, str]] = []
    """Each part with the separator before it."""
    between = ""
    for separator, part in _parts(check(template)):
        between = max(between, separator, key=_weight)
        text = _filled(part, values)
        if text:
            shown.append((between if shown else "", text))
            between = ""
    return neutral("".join(separator + text for separator, text in shown)).replace("\n", "␊")


def check_settings(settings: Settings) -> None:
    """Raises InvalidSettings, with its place, where the template of the configuration cannot be filled."""
    try:
        check(settings.shell.status)
    except ConfigurationError as error:
        path = ("shell", "status")
        raise InvalidSettings([Problem(settings.source(*path), path, str(error))]) from error


def check(template: str) -> list[Piece]:
    """The pieces of a template; raises ConfigurationError for one that cannot be filled."""
    known = ", ".join(VARIABLES)
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(
            f"status template {template!r}: {error}; write {{{{ and }}}} for braces"
        ) from None
    pieces: list[Piece] = []
    for literal, name, spec, conversion in parsed:
        if literal:
            pieces.append(Piece(literal))
        if name is None:
            continue
        if name not in VARIABLES:
            raise ConfigurationError(f"status template: unknown variable {{{name}}}; known are {known}")
        if spec or conversion:
            raise ConfigurationError(
                f"status template: {{{name}}} takes no format; write it as it stands here"
            )
        pieces.append(Piece(name, is_variable=True))
    return pieces


class Piece(NamedTuple):
    """A variable's name, or text between variables."""

    text: str
    is_variable: bool = False


# A part is what stands or goes together: a variable with the signs and words that touch it.

_SEPARATOR = re.compile(r"(\s*[·•|│┃‖—–]\s*|\s+)")


def _weight(separator: str) -> tuple[bool, int]:
    """A sign separates more than blanks, and more blanks more than fewer."""
    return bool(separator.strip()), len(separator)


def _parts(pieces: Sequence[Piece]) -> Iterator[tuple[str, list[Piece]]]:
    """The template's parts, each with the separator before it.

    Words without a variable belong to the next part, up to a sign that separates; or to the last, before one.
    """
    groups = _split(pieces)
    part: list[Piece] = []
    before = ""
    for index, (separator, words) in enumerate(groups):
        if part and (separator.strip() or any(each.is_variable for each in part)):
            rest = _until_sign(groups[index:])
            if separator.strip() or any(each.is_variable for group in rest for each in group[1]):
                yield before, part
                part = []
        if part:
            part = [*part, Piece(separator), *words]
        else:
            before, part = separator, words
    if part:
        yield before, part


def _split(pieces: Sequence[Piece]) -> list[tuple[str, list[Piece]]]:
    groups: list[tuple[str, list[Piece]]] = [("", [])]
    for piece in pieces:
        if piece.is_variable:
            groups[-1][1].append(piece)
            continue
        for index, text in enumerate(_SEPARATOR.split(piece.text)):
            if index % 2:
                groups.append((text, []))
            elif text:
                groups[-1][1].append(Piece(text))
    return [group for group in groups if group[1]]


def _until_sign(groups: Sequence[tuple[str, list[Piece]]]) -> Sequence[tuple[str, list[Piece]]]:
    end = next((at for at, (separator, _) in enumerate(groups) if separator.strip()), len(groups))
    return groups[:end]


def _filled(part: Sequence[Piece], values: Mapping[str, object]) -> str:
    """The part; empty when none of its variables has a value."""
    said: list[Piece] = []
    for piece in part:
        if not piece.is_variable:
            said.append(piece)
        elif text := _shown(piece.text, values):
            said.append(Piece(text, is_variable=True))
        elif said and not said[-1].is_variable and any(each.is_variable for each in said):
            said.pop()  # the sign between the value before and the one that is missing
        else:
            said.append(Piece(""))
    if not any(piece.is_variable for piece in part):
        return "".join(piece.text for piece in part)
    if not any(piece.is_variable for piece in said):
        return ""
    while said and not said[0].text:  # the first value is missing: the sign after it goes
        del said[:2]
    return "".join(piece.text for piece in said)


def _shown(name: str, values: Mapping[str, object]) -> str:
    if name not in values:
        return ""
    given = values[name]
    figure = given if isinstance(given, Figure) else Figure(given)
    variable = VARIABLES[name]
    if figure.value is None:
        return variable.unknown
    text = variable.form(figure.value)
    return f"~{text}" if figure.estimate and text else text


def git_branch(folder: Path) -> str | None:
    """The branch checked out there, or the start of the commit; None outside a repository. Runs nothing."""
    for parent in (folder, *folder.parents):
        entry = parent / ".git"
        try:
            if entry.is_dir():
                return _head(entry)
            if entry.is_file():  # a worktree or a submodule names its own folder
                named = _start(entry).partition("gitdir:")[2].strip()
                return _head(parent / named) if named else None
        except OSError:
            return None
    return None


def _head(folder: Path) -> str | None:
    head = _start(folder / "HEAD").strip()
    reference = head.partition("ref:")[2].strip()
    return (reference.removeprefix("refs/heads/") or head[:8]) or None


def _start(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(LONGEST_HEAD).decode(errors="replace")
