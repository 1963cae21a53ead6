"""The kind of a line while it is typed: whether Enter would run it, ask it, or run a command of the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.safety.input_line import is_unfinished
from ullage.safety.parse import parses

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.safety.input_line import InputDecision

LONGEST = 4_000
"""The most characters of a line that is decided about while it is typed; a longer line takes too long."""


def kind_while_typed(
    text: str, decide: Callable[[str], InputDecision], resolves: Callable[[str], bool]
) -> str:
    """Returns the kind of a line; empty if the line is empty or too long to decide.

    A command that is not complete yet, such as `echo "hello`, is a command: Enter would not ask it.
    """
    if not text.strip() or len(text) > LONGEST:
        return ""
    kind = decide(text).kind
    if kind == "ask" and is_unfinished(text, resolves=resolves, reads_on=_is_incomplete):
        return "shell"
    return kind


def _is_incomplete(text: str) -> bool:
    """Tells without bash if a text is no complete shell syntax; bash would take too long for each key."""
    return not parses(text)
