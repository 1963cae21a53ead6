"""Whether a command that the model suggests may run: the one rule, and the one question."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ullage.shell.safety import classify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ullage.shell.loop import Shell
    from ullage.shell.safety import Verdict

ALWAYS = "always-run"
"""The preference with the commands that the user lets run unasked."""
SKIPPED = "[command skipped by the user] {}"
ASKED: Mapping[str, frozenset[str]] = {
    "destructive": frozenset({"destructive", "unknown"}),
    "writes": frozenset({"destructive", "unknown", "writes"}),
    "always": frozenset({"destructive", "unknown", "writes", "read-only"}),
}
"""What `shell.confirm` asks about, by class; destructive commands are asked about in any case."""

CONFIRMED = "yes"
"""What is typed, in letters and with Enter, before a destructive command runs."""
RUN, EDIT, SKIP, FOR_GOOD, GRANT, PAUSE = "r", "e", "s", "a", "k", "p"
LABELS = {
    RUN: "run",
    EDIT: "edit",
    SKIP: "skip",
    FOR_GOOD: "always",
    GRANT: "all {kind} ones of this goal",
    PAUSE: "pause",
}
OPEN_TO: Mapping[str, frozenset[str]] = {
    FOR_GOOD: frozenset({"read-only", "writes", "unknown"}),
    GRANT: frozenset({"read-only", "writes"}),
}
"""The kinds of command for which a choice is there at all; the other choices are there for every kind."""


def offer(
    shell: Shell,
    command: str,
    choices: str,
    *,
    refuse: str = SKIP,
    granted: set[str] | None = None,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> str:
    """What becomes of a suggested command: RUN, unasked or because the user says so, or what else they chose.

    `choices` are the keys of those that are offered, and `refuse` is the one that Ctrl-C stands for. What the
    user allows for good is kept, what they grant is added to `granted`; `waiting` is around the question.
    Without a terminal what needs a question is skipped.
    """
    verdict = classify(command, cwd=shell.runner.cwd)
    if may_run(shell, command, verdict, granted or frozenset()):
        return RUN
    open_to = [key for key in choices if key not in OPEN_TO or verdict.kind in OPEN_TO[key]]
    labels = {key: LABELS[key].format(kind=verdict.kind) for key in open_to}
    screen = shell.screen
    screen.dim(f"{verdict.kind}: {verdict.reason}")
    if not screen.is_interactive:
        screen.dim(f"not run, as there is no terminal to confirm it on: {command}")
        return SKIP
    with waiting():
        chosen = screen.ask(f"$ {command}", labels, refuse=refuse)
        if chosen == RUN and verdict.kind == "destructive":
            # One key is pressed by mistake too easily for what cannot be taken back.
            chosen = RUN if screen.line(f"  type {CONFIRMED} to run it → ") == CONFIRMED else refuse
    if chosen == FOR_GOOD:
        shell.desk.kept.preferences.change(ALWAYS, lambda known: sorted({*known, command}), [])
    elif chosen == GRANT and granted is not None:
        granted.add(verdict.kind)
    return RUN if chosen in {FOR_GOOD, GRANT} else chosen


def may_run(shell: Shell, command: str, verdict: Verdict, granted: set[str] | frozenset[str]) -> bool:
    """Whether it runs unasked, which a destructive one never does."""
    if verdict.kind == "destructive":
        return False
    return (
        verdict.kind not in ASKED[shell.desk.settings.shell.confirm]
        or verdict.kind in granted
        or command in shell.desk.kept.preferences.get(ALWAYS, [])
    )
