"""The status line: a template with variables. `~` marks estimates and `?` unknown values."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ullage.config.documents import contents
from ullage.config.problems import InvalidSettings, Problem
from ullage.errors import ConfigurationError
from ullage.text import mark_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ullage.config import Settings

UNKNOWN = "?"
NO_PRICE = "no price"
"""Shown instead of a cost that is unknown: a local model, or one whose price is not known."""
LONGEST_HEAD = 1_024
"""The most bytes that are read of git's file HEAD; a real one has about a hundred."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A value of the status line, with a mark if it is an estimate."""

    value: object
    """None if the value is unknown."""
    estimate: bool = False
    """True if the value is an estimate."""


class StatusVariable(NamedTuple):
    """A variable of the template: its description for the documentation, and its format."""

    about: str
    form: Callable[[object], str]
    unknown: str = ""
    """The text for None. If it is empty, the variable disappears together with its separators."""


def tokens(value: object) -> str:
    """Formats a count with at most four characters and a unit: 999, 12.3k, 128k, 1M."""
    count = int(str(value))
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size * 0.9995:
            scaled = count / size
            return (f"{scaled:.1f}" if scaled < 99.95 else f"{scaled:.0f}").removesuffix(".0") + unit
    return str(count)


def format_output(value: object) -> str:
    """Formats a count of output tokens; "out" distinguishes it from the input tokens beside it."""
    return f"{tokens(value)} out"


def dollars(value: object) -> str:
    """Formats an amount with two decimals, or four below a dollar; never rounds a cost down to $0."""
    amount = Decimal(str(value))
    if amount == 0:
        return "$0"
    if amount < Decimal("0.0001"):
        return "<$0.0001"
    return f"${amount:,.2f}" if amount >= Decimal("0.995") else f"${amount:.4f}"


def percent(value: object) -> str:
    """Formats a percentage; rounds up to 100% only if the value is 100."""
    share = float(str(value))
    if 0 < share < 1:
        return "<1%"
    return f"{int(share) if 99 < share < 100 else round(share)}%"


def folder(value: object) -> str:
    """Formats a path, with ~ for the user's home folder."""
    path, home = Path(str(value)), Path.home()
    return f"~/{path.relative_to(home)}".removesuffix("/.") if path.is_relative_to(home) else str(path)


GAUGE = 10
"""Cells of the gauge in the status line."""
USED, WAITING, FREE = "█", "▒", "·"
"""Signs of a gauge; they differ without colour."""


def share_of(used: Decimal | float, limit: Decimal | float) -> float:
    """Returns the used share of a limit; 1 if the limit is 0."""
    return float(used) / float(limit) if limit else 1.0


def draw_gauge(used: float, waiting: float, cells: int = GAUGE) -> str:
    """Draws two shares of a whole as a bar. A share above 0 has at least one sign, if there is room."""
    filled = _cells_of(used, cells)
    more = max(_cells_of(used + waiting, cells) - filled, int(waiting > 0 and filled < cells))
    return USED * filled + WAITING * more + FREE * (cells - filled - more)


def _cells_of(share: float, cells: int) -> int:
    if share >= 1:
        return cells
    return min(cells - 1, max(int(share > 0), round(share * cells)))


VARIABLES: Mapping[str, StatusVariable] = {
    "model": StatusVariable("name of the current model", str),
    "gauge": StatusVariable("bar of the used share of the limit; `▒` is command output that waits", str),
    "ctx_used": StatusVariable("tokens of the next request, without your question", tokens, UNKNOWN),
    "ctx_pending": StatusVariable("the part of them that is output of commands, not sent yet", tokens),
    "ctx_max": StatusVariable("limit: the most input tokens of a request", tokens, UNKNOWN),
    "ctx_free": StatusVariable("tokens that are free below the limit", tokens, UNKNOWN),
    "ctx_percent": StatusVariable("used share of the limit, in percent", percent),
    "output_tokens": StatusVariable("tokens of the answer so far, while it arrives", format_output),
    "cost": StatusVariable("cost of the last answer, in dollars", dollars, NO_PRICE),
    "session_cost": StatusVariable("cost of the session, in dollars", dollars, NO_PRICE),
    "cap": StatusVariable("dollars spent against the fullest cap, if there is a cap", str),
    "session": StatusVariable("first 8 characters of the session's id", str),
    "mode": StatusVariable("`goal` and the use of its bounds, while the shell works on a goal", str),
    "cwd": StatusVariable("working folder", folder),
    "git": StatusVariable("git branch of the working folder", str),
}
"""Name → variable that a template may contain."""


def render(template: str, values: Mapping[str, object]) -> str:
    """Fills the template. A variable that is not in `values` disappears together with its separators.

    A value is a plain value or a Figure. None means unknown: `?` for a count, `no price` for a cost.
    """
    shown: list[tuple[str, str]] = []
    """Pairs of a separator and the part after it."""
    between = ""
    for separator, part in _parts(check(template)):
        between = max(between, separator, key=_weight)
        text = _fill_part(part, values)
        if text:
            shown.append((between if shown else "", text))
            between = ""
    return mark_unsafe("".join(separator + text for separator, text in shown)).replace("\n", "␊")


def render_within(width: int, template: str, values: Mapping[str, object]) -> str:
    """Fills the template; if the line is too long, the gauge is left out, as the figures say the same."""
    line = render(template, values)
    if len(line) < width:
        return line
    return render(template, {name: value for name, value in values.items() if name != "gauge"})


def check_settings(settings: Settings) -> None:
    """Raises InvalidSettings, with the position in the file, if the configured template is invalid."""
    try:
        check(settings.shell.status)
    except ConfigurationError as error:
        path = ("shell", "status")
        raise InvalidSettings([Problem(settings.source(*path), path, str(error))]) from error


def check(template: str) -> list[TemplatePiece]:
    """Returns the pieces of a template; raises ConfigurationError if the template is invalid."""
    known = ", ".join(VARIABLES)
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(
            f"invalid status template {template!r}: {error}; write {{{{ and }}}} for braces"
        ) from None
    pieces: list[TemplatePiece] = []
    for literal, name, spec, conversion in parsed:
        if literal:
            pieces.append(TemplatePiece(literal))
        if name is None:
            continue
        if name not in VARIABLES:
            raise ConfigurationError(
                f"status template: unknown variable {{{name}}}; the variables are {known}"
            )
        if spec or conversion:
            raise ConfigurationError(f"status template: {{{name}}} takes no format; write {{{name}}} alone")
        pieces.append(TemplatePiece(name, is_variable=True))
    return pieces


class TemplatePiece(NamedTuple):
    """The name of a variable, or text between variables."""

    text: str
    is_variable: bool = False


# A part is a variable with the signs and words that touch it. All of a part is shown, or nothing of it.

_SEPARATOR = re.compile(r"(\s*[·•|│┃‖—–]\s*|\s+)")


def _weight(separator: str) -> tuple[bool, int]:
    """Returns a sort key: a separator with a sign comes after blanks, and a longer one after a shorter."""
    return bool(separator.strip()), len(separator)


def _parts(pieces: Sequence[TemplatePiece]) -> Iterator[tuple[str, list[TemplatePiece]]]:
    """Yields the parts of a template, each with the separator before it.

    Words without a variable belong to the next part. If a separating sign comes before that part, they belong
    to the previous one.
    """
    groups = _split(pieces)
    part: list[TemplatePiece] = []
    before = ""
    for index, (separator, words) in enumerate(groups):
        if part and (separator.strip() or any(each.is_variable for each in part)):
            rest = _until_sign(groups[index:])
            if separator.strip() or any(each.is_variable for group in rest for each in group[1]):
                yield before, part
                part = []
        if part:
            part = [*part, TemplatePiece(separator), *words]
        else:
            before, part = separator, words
    if part:
        yield before, part


def _split(pieces: Sequence[TemplatePiece]) -> list[tuple[str, list[TemplatePiece]]]:
    groups: list[tuple[str, list[TemplatePiece]]] = [("", [])]
    for piece in pieces:
        if piece.is_variable:
            groups[-1][1].append(piece)
            continue
        for index, text in enumerate(_SEPARATOR.split(piece.text)):
            if index % 2:
                groups.append((text, []))
            elif text:
                groups[-1][1].append(TemplatePiece(text))
    return [group for group in groups if group[1]]


def _until_sign(
    groups: Sequence[tuple[str, list[TemplatePiece]]],
) -> Sequence[tuple[str, list[TemplatePiece]]]:
    end = next((at for at, (separator, _) in enumerate(groups) if separator.strip()), len(groups))
    return groups[:end]


def _fill_part(part: Sequence[TemplatePiece], values: Mapping[str, object]) -> str:
    """Returns the part with its values; empty if none of its variables has a value."""
    said: list[TemplatePiece] = []
    for piece in part:
        if not piece.is_variable:
            said.append(piece)
        elif text := _format_variable(piece.text, values):
            said.append(TemplatePiece(text, is_variable=True))
        elif said and not said[-1].is_variable and any(each.is_variable for each in said):
            said.pop()  # the sign between the previous value and the missing one
        else:
            said.append(TemplatePiece(""))
    if not any(piece.is_variable for piece in part):
        return "".join(piece.text for piece in part)
    if not any(piece.is_variable for piece in said):
        return ""
    while said and not said[0].text:  # the first value is missing: the sign after it is removed as well
        del said[:2]
    return "".join(piece.text for piece in said)


def _format_variable(name: str, values: Mapping[str, object]) -> str:
    if name not in values:
        return ""
    given = values[name]
    figure = given if isinstance(given, Figure) else Figure(given)
    variable = VARIABLES[name]
    if figure.value is None:
        return variable.unknown
    text = variable.form(figure.value)
    return f"~{text}" if figure.estimate and text and not text.startswith("<") else text


def git_branch(folder: Path) -> str | None:
    """Returns the branch of a folder, or 8 digits of its commit; None outside a repository.

    It reads git's files and runs no program.
    """
    for parent in (folder, *folder.parents):
        entry = parent / ".git"
        try:
            if entry.is_dir():
                return _head(entry)
            if entry.is_file():  # in a worktree or a submodule, .git is a file that names the real folder
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
    content, _ = contents(file, LONGEST_HEAD, regular=True)  # reading a pipe would block
    return content.decode(errors="replace")
