"""Asks the user to approve a command or a tool call, and makes sure that the user can see all of it.

Invisible characters are shown as escapes, and a long run of blanks as a mark with their number. A text of
more than a few rows is folded. Then the user can refuse it, but approve it only after seeing all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.text import show_hidden

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ullage.shell.screen import Screen

SHOW = "v"
"""Key that shows all of a folded text."""
ROWS = 6
"""The most rows of a text that are shown without folding."""


def fold(text: str, most: int) -> str:
    """Shortens a text of over `most` characters to its head and tail, and counts the characters between."""
    if len(text) <= most:
        return text
    head, tail = max(1, most * 2 // 3), max(1, most // 4)
    return f"{text[:head]} <… {len(text) - head - tail:,} more characters …> {text[-tail:]}"


def approve(
    screen: Screen,
    text: str,
    choices: Mapping[str, str],
    *,
    approving: Container[str],
    refuse: str | None,
    default: str | None = None,
) -> str:
    """Asks the user about a text and returns the chosen key; `default` is the key that Enter stands for.

    The `approving` keys are offered only if the whole text was shown. Before that, Enter shows it.
    """
    shown = show_hidden(text)
    room = ROWS * max(20, screen.width)
    if len(shown) <= room:
        return screen.ask(shown, choices, refuse=refuse, default=default)
    before = {SHOW: f"show all {len(shown):,} characters"}
    before |= {key: label for key, label in choices.items() if key not in approving}
    chosen = screen.ask(fold(shown, room), before, refuse=refuse, default=SHOW)
    if chosen != SHOW:
        return chosen
    screen.say(shown)
    return screen.ask("this is the whole text:", choices, refuse=refuse, default=default)
