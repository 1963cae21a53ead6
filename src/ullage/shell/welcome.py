"""The first lines of the shell: the model, and at the very first start what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.broker.embedded_info import ABOUT, EMBEDDED

if TYPE_CHECKING:
    from collections.abc import Iterator

TRY = (
    ("ls -l", "a command runs"),
    ("why is the sky blue?", "any other line is a question to the model"),
    (":demo", "shows suggested commands and a full window, in a minute"),
    (":help", "lists the commands; Ctrl-D leaves"),
)
"""Line to type → what it does."""
NARROW = 60
"""Columns below which the two parts of such a line stand close together."""


def greeting(model: str, *, is_first: bool, width: int) -> Iterator[str]:
    """Yields the lines; `is_first` is True if no conversation was saved before."""
    if model == EMBEDDED:
        yield from ABOUT.splitlines()
    if not is_first:
        yield f"model: {model}. :help lists the commands; Ctrl-D leaves."
        return
    yield f"model: {model}. Try these:"
    column = 0 if width < NARROW else max(len(line) for line, _ in TRY)
    for line, does in TRY:
        yield f"  {line:<{column}}  {does}"
