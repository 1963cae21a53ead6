"""Whether a suggested command runs: one rule, wherever the suggestion comes from."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.benches import new_bench, script
from ullage import store
from ullage.shell import goal, loop
from ullage.shell.offering import ALWAYS, ASKED, PAUSE, RUN, SKIP, offer
from ullage.shell.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ullage.shell.loop import Shell

COMMANDS = {
    "read-only": "cat boats",
    "writes": "touch new",
    "unknown": "no-such-program-at-all",
    "destructive": "rm -rf boats",
}


class Chosen(Screen):
    """A screen at which somebody always presses the same key, where it is offered."""

    def __init__(self, key: str) -> None:
        super().__init__(Console(file=io.StringIO(), width=110), keyboard=io.StringIO())
        self.key = key
        self.asked: list[Mapping[str, str]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.typed = "yes"
        self.is_there = True

    @property
    def is_interactive(self) -> bool:
        return self.is_there

    def line(self, question: str) -> str:  # noqa: ARG002 - what it overrides has it
        return self.typed

    def ask(self, question: str, choices: Mapping[str, str], *, refuse: str | None = None) -> str:  # noqa: ARG002 - what it overrides has it
        self.asked.append(choices)
        self.meanwhile()
        return self.key if self.key in choices else str(refuse)


Open = Any


@pytest.fixture
def open_shell(tmp_path: Path) -> Iterator[Open]:
    shells: list[Shell] = []
    with store.open(tmp_path / "kept.db") as kept:

        def opened(key: str = SKIP, confirm: str = "writes") -> tuple[Shell, Chosen]:
            screen = Chosen(key)
            shells.append(new_bench(kept, tmp_path, script(), confirm=confirm, screen=screen).shell)
            return shells[-1], screen

        yield opened
        for shell in shells:
            shell.runner.close()


@pytest.mark.parametrize("choices", [loop.CHOICES, goal.CHOICES])
@pytest.mark.parametrize("confirm", ASKED)
@pytest.mark.parametrize("kind", COMMANDS)
def test_what_is_asked_about_goes_by_the_settings_and_a_destructive_command_always_is(
    open_shell: Open, kind: str, confirm: str, choices: str
) -> None:
    shell, screen = open_shell(confirm=confirm)
    chosen = offer(shell, COMMANDS[kind], choices, granted=set())
    assert (chosen == SKIP) is (kind in ASKED[confirm]) is bool(screen.asked)
    assert kind != "destructive" or screen.asked


@pytest.mark.parametrize(
    ("choices", "kind", "offered"),
    [
        (loop.CHOICES, "writes", ["run", "edit", "skip", "always"]),
        (loop.CHOICES, "unknown", ["run", "edit", "skip", "always"]),
        (loop.CHOICES, "destructive", ["run", "edit", "skip"]),
        (goal.CHOICES, "writes", ["run", "skip", "always", "all writes ones of this goal", "pause"]),
        (goal.CHOICES, "unknown", ["run", "skip", "always", "pause"]),
        (goal.CHOICES, "destructive", ["run", "skip", "pause"]),
    ],
)
def test_a_destructive_command_can_be_allowed_once_only_and_an_unknown_one_not_by_its_kind(
    open_shell: Open, choices: str, kind: str, offered: list[str]
) -> None:
    shell, screen = open_shell()
    offer(shell, COMMANDS[kind], choices, granted=set())
    assert [list(asked.values()) for asked in screen.asked] == [offered]


def test_what_is_allowed_for_good_runs_unasked_but_for_what_destroys(open_shell: Open) -> None:
    shell, screen = open_shell("a")
    assert offer(shell, "touch new", loop.CHOICES) == RUN
    assert offer(shell, "touch new", goal.CHOICES) == RUN
    assert len(screen.asked) == 1
    assert offer(shell, "touch other", loop.CHOICES) == RUN
    assert len(screen.asked) == 2
    shell.desk.kept.preferences.set(ALWAYS, ["rm -rf boats"])
    assert offer(shell, "rm -rf boats", loop.CHOICES, granted={"destructive"}) == SKIP


def test_a_destructive_command_runs_after_a_word_and_not_after_a_key(open_shell: Open) -> None:
    shell, screen = open_shell(RUN)
    assert offer(shell, "rm -rf boats", loop.CHOICES) == RUN
    screen.typed = "y"
    assert offer(shell, "rm -rf boats", loop.CHOICES) == SKIP
    assert offer(shell, "rm -rf boats", goal.CHOICES, refuse=PAUSE) == PAUSE
    assert offer(shell, "touch new", loop.CHOICES) == RUN


def test_without_a_terminal_nothing_is_asked_and_that_is_said(open_shell: Open) -> None:
    shell, screen = open_shell(RUN)
    screen.is_there = False
    assert offer(shell, "rm -rf boats", goal.CHOICES, refuse=PAUSE) == SKIP
    assert screen.asked == []
    assert "no terminal to confirm it on: rm -rf boats" in screen.console.file.getvalue()
    assert offer(shell, "cat boats", loop.CHOICES) == RUN


def test_a_grant_holds_for_its_kind_and_only_where_it_was_given(open_shell: Open) -> None:
    shell, screen = open_shell("k")
    granted: set[str] = set()
    assert offer(shell, "touch new", goal.CHOICES, granted=granted) == RUN
    assert granted == {"writes"}
    screen.key = SKIP
    assert offer(shell, "touch other", goal.CHOICES, granted=granted) == RUN
    assert offer(shell, "touch other", goal.CHOICES, granted=set()) == SKIP
    assert offer(shell, "touch other", loop.CHOICES) == SKIP


def test_what_another_shell_allows_while_this_one_asks_stays(open_shell: Open) -> None:
    here, screen = open_shell("a")
    there, _ = open_shell("a")
    screen.meanwhile = lambda: offer(there, "touch there", loop.CHOICES)
    offer(here, "touch here", loop.CHOICES)
    assert here.desk.kept.preferences.get(ALWAYS) == ["touch here", "touch there"]
