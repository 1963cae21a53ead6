"""The confirmation of suggested commands, and the rules for when it is needed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ullage.safety import classify
from ullage.session.allowances import COMMAND, allows_command, keep_allowance, project_of
from ullage.shell.approval import approve, fold
from ullage.shell.interrupts import leave, nothing
from ullage.shell.screen import NO, YES
from ullage.text import show_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ullage.safety import Verdict
    from ullage.shell.screen import Screen
    from ullage.store.settings import PreferenceStore

SKIPPED = "[command skipped by the user] {}"
ASKED: Mapping[str, frozenset[str]] = {
    "destructive": frozenset({"destructive", "unknown", "sends"}),
    "writes": frozenset({"destructive", "unknown", "sends", "writes"}),
    "always": frozenset({"destructive", "unknown", "sends", "writes", "read-only"}),
}
"""Value of `shell.confirm` → classes of commands that need a confirmation. Destructive commands always do."""

CONFIRMED = "yes"
"""The word that the user types before a destructive command runs."""
RUN, EDIT, SKIP, FOR_GOOD, GRANT, PAUSE = YES, "e", NO, "a", "k", "p"
IRREVERSIBLE = frozenset({"destructive", "sends"})
"""Classes of commands whose effect cannot be taken back. Enter skips such a command, and runs any other."""
LABELS = {
    RUN: "run",
    EDIT: "edit",
    SKIP: "skip",
    FOR_GOOD: "always in this folder",
    GRANT: "every “{kind}” command of this goal",
    PAUSE: "pause",
}
OPEN_TO: Mapping[str, frozenset[str]] = {
    FOR_GOOD: frozenset({"read-only", "writes"}),
    GRANT: frozenset({"read-only", "writes"}),
}
"""Choice → the only classes of commands that it is offered for. Other choices are offered for every class.

An unknown command, such as a script, may do something else tomorrow, so it needs a confirmation each time."""


def offer_command(
    screen: Screen,
    preferences: PreferenceStore,
    command: str,
    choices: str,
    *,
    folder: Path,
    confirm: str,
    shadows: Mapping[str, str | None],
    refuse: str | None = SKIP,
    granted: set[str] | None = None,
    waiting: Callable[[], AbstractContextManager[None]] | None = None,
) -> str:
    """Returns the user's choice for a suggested command, or RUN without a question if the rules allow it.

    `choices` are the keys of the choices. `refuse` is the choice that Ctrl-C stands for; None to raise
    KeyboardInterrupt. `confirm` is the setting `shell.confirm`, and `shadows` are the aliases and functions
    of bash. If the user chooses FOR_GOOD, the command is stored as allowed; with GRANT, its class is added to
    `granted`. The question is asked inside the context manager `waiting`. Without a terminal, a command that
    needs a confirmation is skipped.
    """
    if "\0" in command:
        screen.error(f"refused, because the command contains a NUL character: {show_hidden(command)}")
        return SKIP
    verdict = classify(command, cwd=folder, shadows=shadows)
    if _runs_unasked(confirm, verdict, granted or frozenset()):
        screen.dim(f"$ {show_hidden(command)}")
        return RUN
    if verdict.kind in OPEN_TO[FOR_GOOD] and allows_command(preferences, command, folder):
        why = "because you chose “always in this folder” (:always lists these)"
        screen.dim(f"runs without a question, {why}: {show_hidden(command)}")
        return RUN
    labels = {
        key: LABELS[key].format(kind=verdict.kind)
        for key in choices
        if key not in OPEN_TO or verdict.kind in OPEN_TO[key]
    }
    screen.dim(f"{verdict.kind}: {verdict.reason}{_deciding_part(command, verdict, screen.width)}")
    if not screen.is_interactive:
        screen.dim(f"not run, because it needs a confirmation in a terminal: {show_hidden(command)}")
        return SKIP
    with (waiting or nullcontext)():
        chosen = approve(
            screen,
            f"$ {command}",
            labels,
            approving={RUN, FOR_GOOD, GRANT},
            refuse=refuse,
            default=SKIP if verdict.kind in IRREVERSIBLE else RUN,
        )
        if chosen == RUN and verdict.kind == "destructive":
            # A destructive command cannot be taken back, and a single key is easily pressed by mistake.
            stop = leave if refuse is None else nothing
            typed = screen.line(f"  type {CONFIRMED} to run it → ", is_stopped=stop)
            chosen = RUN if typed == CONFIRMED else refuse or SKIP
    if chosen == FOR_GOOD:
        keep_allowance(preferences, COMMAND, command, str(folder), str(project_of(folder)))
    elif chosen == GRANT and granted is not None:
        granted.add(verdict.kind)
    return RUN if chosen in {FOR_GOOD, GRANT} else chosen


def _deciding_part(command: str, verdict: Verdict, width: int) -> str:
    """Returns the part of a long command that decided its class, as folding could hide it; else empty."""
    if verdict.part in {"", command} or len(command) < width:
        return ""
    return f" in: {fold(show_hidden(verdict.part), 2 * width)}"


def _runs_unasked(confirm: str, verdict: Verdict, granted: set[str] | frozenset[str]) -> bool:
    """Returns True if the settings or a grant let the command run; never for a destructive command."""
    if verdict.kind == "destructive":
        return False
    return verdict.kind not in ASKED[confirm] or verdict.kind in granted
