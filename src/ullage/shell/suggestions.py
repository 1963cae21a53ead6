"""What an answer asks for in lines of its own: commands to run, and the end of a goal."""

from __future__ import annotations

import re
from typing import NamedTuple

MARK = "CMD: "
_GOAL = re.compile(r"^GOAL: (complete|blocked)\b[ \t]*[:.—-]*[ \t]*(.*)$", re.MULTILINE)


def commands_in(answer: str) -> tuple[str, ...]:
    """The commands of an answer, in order: what follows the mark at the beginning of a line."""
    lines = (line.removeprefix(MARK).strip() for line in answer.splitlines() if line.startswith(MARK))
    return tuple(line for line in lines if line)


class Ending(NamedTuple):
    """How a goal has ended."""

    complete: bool
    """Else the model could not go on."""
    text: str
    """The summary of a goal that is complete, the reason of one that is blocked; may be empty."""


def ending_in(answer: str) -> Ending | None:
    """The end of a goal, where the answer tells it on a line of its own."""
    found = _GOAL.search(answer)
    if found is None:
        return None
    rest = answer[found.end() :].strip()
    complete = found[1] == "complete"
    text = "\n".join(filter(None, (found[2].strip(), rest))) if complete else found[2].strip() or rest[:200]
    return Ending(complete, text)
