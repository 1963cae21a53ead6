"""Directives in an answer: lines that suggest a command or end a goal.

A line inside a code block or a quotation, such as a file that the answer shows, is never a directive.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARK = "CMD: "
"""Beginning of a line that suggests a command."""
_GOAL = re.compile(r"GOAL: (complete|blocked)\b[ \t]*[:.—-]*[ \t]*(.*)$")
_FENCE = re.compile(r"[ \t>]*(`{3,}(?=[^`]*$)|~{3,})")
_STRING = re.compile("\"\"\"|'''")
_OPEN_TAG = re.compile(r"[ \t>]*<(pre|code|blockquote|q|xmp|textarea)\b[^>]*>", re.IGNORECASE)
PARAGRAPH = 40
"""The most lines before and after a directive that are searched for quotation marks around it."""


class _Line(NamedTuple):
    text: str
    end: int
    """Offset in the answer after the line and its line break."""


def commands_in(answer: str) -> tuple[str, ...]:
    """Returns the commands that an answer suggests, in order: the texts after MARK."""
    lines = (line.text.removeprefix(MARK).strip() for line in _own_lines(answer) if _is_command(line.text))
    return tuple(line for line in lines if line)


class GoalEnding(NamedTuple):
    """The end of a goal, as the model states it."""

    complete: bool
    """True if the goal is complete, False if it is blocked."""
    text: str
    """The model's summary of a complete goal, or its reason for a blocked one; may be empty."""


def ending_in(answer: str) -> GoalEnding | None:
    """Returns the end of the goal that the answer states; None if it states no end."""
    for line in _own_lines(answer):
        found = _GOAL.match(line.text)
        if found is not None:
            rest = answer[line.end :].strip()
            complete = found[1] == "complete"
            reason = found[2].strip()
            return GoalEnding(
                complete, "\n".join(filter(None, (reason, rest))) if complete else reason or rest[:200]
            )
    return None


def _is_command(line: str) -> bool:
    return line.startswith(MARK)


def _own_lines(answer: str) -> Iterator[_Line]:
    """Yields the lines of an answer that are neither in a code block nor in a quotation."""
    lines: list[_Line] = []
    at = 0
    for written in answer.splitlines(keepends=True):
        at += len(written)
        lines.append(_Line(written.splitlines()[0], at))
    closing: re.Pattern[str] | None = None
    for index, line in enumerate(lines):
        if closing is not None:
            closing = None if closing.search(line.text) else closing
        elif (fence := _FENCE.match(line.text)) is not None:
            closing = re.compile(rf"^[ \t>]*{re.escape(fence[1])}{re.escape(fence[1][0])}*[ \t]*$")
        elif len(strings := _STRING.findall(line.text)) % 2 and not _is_command(line.text):
            closing = re.compile(strings[-1])
        elif (tag := _OPEN_TAG.match(line.text)) is not None:
            end = re.compile(rf"</{tag[1]}\s*>", re.IGNORECASE)
            closing = None if end.search(line.text, tag.end()) else end
        elif not (line.text.startswith((MARK, "GOAL: ")) and _is_quoted(lines, index)):
            yield line


def _is_quoted(lines: list[_Line], index: int) -> bool:
    """Returns True if a line is between an opening and a closing quotation mark of its paragraph."""
    above, below = lines[max(0, index - PARAGRAPH) : index], lines[index + 1 : index + 1 + PARAGRAPH]
    before, behind = _paragraph_text(reversed(above)), _paragraph_text(below)
    straight = before.count('"') % 2 == 1 and '"' in behind
    curly = before.count("“") > before.count("”") and "”" in behind
    return straight or curly or (before.count("«") > before.count("»") and "»" in behind)


def _paragraph_text(lines: Iterable[_Line]) -> str:
    """Returns the text of the lines up to the end of the paragraph, without commands."""
    paragraph = itertools.takewhile(lambda line: line.text.strip(), lines)
    return "\n".join(line.text for line in paragraph if not _is_command(line.text))
