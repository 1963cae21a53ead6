"""Whether a suggested command runs: one rule, wherever the suggestion comes from."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.benches import new_bench, script
from ullage import store
from ullage.errors import ConfigurationError
from ullage.session.allowances import COMMAND, TOOL, keep_allowance, list_allowances, list_allowed_tools
from ullage.shell import goal, offers
from ullage.shell.approval import ROWS, SHOW
from ullage.shell.commands import command_named
from ullage.shell.confirmation import ASKED, PAUSE, RUN, SKIP
from ullage.shell.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ullage.shell.loop import Shell

COMMANDS = {
    "read-only": "cat boats",
    "writes": "touch new",
    "sends": "whois boats.example",
    "unknown": "no-such-program-at-all",
    "destructive": "rm -rf boats",
}


class Chosen(Screen):
    """A screen at which somebody always presses the same key, where it is offered."""

    def __init__(self, key: str) -> None:
        shown = io.StringIO()
        super().__init__(Console(file=shown, width=110), keyboard=io.StringIO(), errors=shown)
        self.key = key
        self.asked: list[Mapping[str, str]] = []
        self.questions: list[str] = []
        self.defaults: list[str | None] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.typed = "yes"
        self.is_there = True

    @property
    def is_interactive(self) -> bool:
        return self.is_there

    def line(self, question: str, **_: object) -> str:  # noqa: ARG002 - what it overrides has it
        return self.typed

    def ask(
        self,
        question: str,
        choices: Mapping[str, str],
        *,
        refuse: str | None = None,
        default: str | None = None,
    ) -> str:
        self.defaults.append(default)
        self.asked.append(choices)
        self.questions.append(question)
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


@pytest.mark.parametrize("choices", [offers.CHOICES, goal.CHOICES])
@pytest.mark.parametrize("confirm", ASKED)
@pytest.mark.parametrize("kind", COMMANDS)
def test_what_is_asked_about_goes_by_the_settings_and_a_destructive_command_always_is(
    open_shell: Open, kind: str, confirm: str, choices: str
) -> None:
    shell, screen = open_shell(confirm=confirm)
    chosen = shell.workplace.offer(COMMANDS[kind], choices, granted=set())
    assert (chosen == SKIP) is (kind in ASKED[confirm]) is bool(screen.asked)
    assert kind != "destructive" or screen.asked


@pytest.mark.parametrize(
    ("choices", "kind", "offered"),
    [
        (offers.CHOICES, "writes", ["run", "edit", "skip", "always in this folder"]),
        (offers.CHOICES, "sends", ["run", "edit", "skip"]),
        (offers.CHOICES, "unknown", ["run", "edit", "skip"]),
        (offers.CHOICES, "destructive", ["run", "edit", "skip"]),
        (
            goal.CHOICES,
            "writes",
            ["run", "skip", "always in this folder", "every “writes” command of this goal", "pause"],
        ),
        (goal.CHOICES, "unknown", ["run", "skip", "pause"]),
        (goal.CHOICES, "destructive", ["run", "skip", "pause"]),
    ],
)
def test_a_destructive_or_unknown_command_can_be_allowed_once_only(
    open_shell: Open, choices: str, kind: str, offered: list[str]
) -> None:
    shell, screen = open_shell()
    shell.workplace.offer(COMMANDS[kind], choices, granted=set())
    assert [list(asked.values()) for asked in screen.asked] == [offered]


def shown_on(screen: Chosen) -> str:
    return " ".join(screen.console.file.getvalue().split())


def in_folder(shell: Shell, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shell.runner.run(f"cd {folder}", show=False)


def test_what_is_allowed_for_good_runs_unasked_but_for_what_destroys(open_shell: Open) -> None:
    shell, screen = open_shell("a")
    assert shell.workplace.offer("touch new", offers.CHOICES) == RUN
    assert "without a question" not in shown_on(screen)
    assert shell.workplace.offer("touch new", goal.CHOICES) == RUN
    assert "runs without a question, because you chose “always in this folder”" in shown_on(screen)
    assert len(screen.asked) == 1
    assert shell.workplace.offer("touch other", offers.CHOICES) == RUN
    assert len(screen.asked) == 2
    place = str(shell.runner.cwd)
    keep_allowance(shell.chat.kept.preferences, COMMAND, "rm -rf boats", place, place)
    assert shell.workplace.offer("rm -rf boats", offers.CHOICES, granted={"destructive"}) == SKIP


def test_always_holds_for_one_command_in_one_folder_of_one_project(open_shell: Open, tmp_path: Path) -> None:
    shell, screen = open_shell("a")
    in_folder(shell, tmp_path / "one")
    assert shell.workplace.offer("touch new", offers.CHOICES) == RUN
    screen.key = SKIP
    assert shell.workplace.offer("touch new", offers.CHOICES) == RUN
    assert shell.workplace.offer("touch  new", offers.CHOICES) == SKIP
    in_folder(shell, tmp_path / "two")
    assert shell.workplace.offer("touch new", offers.CHOICES) == SKIP
    in_folder(shell, tmp_path / "one")
    (tmp_path / ".git").mkdir()  # the folder now belongs to another project
    assert shell.workplace.offer("touch new", offers.CHOICES) == SKIP


def test_always_does_not_outlive_a_change_of_class(open_shell: Open, tmp_path: Path) -> None:
    shell, screen = open_shell("a")
    in_folder(shell, tmp_path / "one")
    assert shell.workplace.offer("cp a b", offers.CHOICES) == RUN
    screen.key = SKIP
    assert shell.workplace.offer("cp a b", offers.CHOICES) == RUN
    (tmp_path / "one" / "b").write_text("mine")
    assert shell.workplace.offer("cp a b", offers.CHOICES) == SKIP


def test_a_script_is_asked_about_each_time(open_shell: Open, tmp_path: Path) -> None:
    shell, screen = open_shell("a")
    in_folder(shell, tmp_path / "one")
    place = str(shell.runner.cwd)
    keep_allowance(shell.chat.kept.preferences, COMMAND, "./run.sh", place, place)
    assert shell.workplace.offer("./run.sh", offers.CHOICES) == SKIP
    assert "a" not in screen.asked[-1]


def test_what_is_allowed_for_good_is_listed_and_taken_back(open_shell: Open) -> None:
    shell, screen = open_shell("a")
    shell.workplace.offer("touch new", offers.CHOICES)
    shell.workplace.offer("touch other", offers.CHOICES)
    keep_allowance(shell.chat.kept.preferences, TOOL, "files__read", "npx files .")
    run = command_named("always").run
    asyncio.run(run(shell.workplace, ""))
    shown = shown_on(screen)
    assert f"1 touch new in {shell.runner.cwd} 2 touch other in" in shown
    assert "3 files__read in the server npx files ." in shown
    asyncio.run(run(shell.workplace, "forget 1"))
    assert "you will be asked again about touch new" in shown_on(screen)
    screen.key = SKIP
    assert shell.workplace.offer("touch new", offers.CHOICES) == SKIP
    assert shell.workplace.offer("touch other", offers.CHOICES) == RUN
    asyncio.run(run(shell.workplace, "forget 9"))
    assert "no entry has that number" in shown_on(screen)
    assert list_allowed_tools(shell.chat.kept.preferences, "npx files .") == {"files__read"}
    assert list_allowed_tools(shell.chat.kept.preferences, "npx other .") == set()
    asyncio.run(run(shell.workplace, "clear"))
    assert list_allowances(shell.chat.kept.preferences) == []


def test_a_preference_that_somebody_changed_by_hand_allows_nothing(open_shell: Open) -> None:
    shell, _ = open_shell()
    for rows in (["touch new"], "touch new", [["x", 1]], None, [[1, "command", "touch new"]]):
        shell.chat.kept.preferences.set("always", rows)
        assert shell.workplace.offer("touch new", offers.CHOICES) == SKIP


def test_nothing_of_a_command_is_hidden_from_who_approves_it(open_shell: Open) -> None:
    shell, screen = open_shell()
    shell.workplace.offer("touch new" + " " * 7_000 + "; rm -rf boats", offers.CHOICES)
    assert screen.questions == ["$ touch new<7,000 blanks>; rm -rf boats"]
    shell.workplace.offer("touch a\u200db\u3164\u202ec\U000e0041", offers.CHOICES)
    assert screen.questions[-1] == "$ touch a<U+200D>b<U+3164><U+202E>c<U+E0041>"


def test_a_long_command_is_folded_and_runs_only_after_all_of_it_was_shown(open_shell: Open) -> None:
    shell, screen = open_shell(RUN)
    command = f"touch {'boat ' * 400}; rm -rf harbour; touch {'crew ' * 400}"
    assert shell.workplace.offer(command, offers.CHOICES) == SKIP
    assert [*screen.asked[0]] == [SHOW, "e", "s"]
    assert "more characters" in screen.questions[0]
    assert len(screen.questions[0]) < (ROWS + 1) * screen.width
    assert "destructive: rm deletes files in: rm -rf harbour" in shown_on(screen)
    keys = iter([SHOW, RUN])
    screen.meanwhile = lambda: setattr(screen, "key", next(keys))
    assert shell.workplace.offer(command, offers.CHOICES) == RUN
    assert shown_on(screen).count("boat") >= 400
    assert shown_on(screen).count("crew") >= 400


def test_all_arguments_of_a_tool_are_shown_before_it_is_called(open_shell: Open) -> None:
    shell, screen = open_shell(RUN)
    assert asyncio.run(shell.workplace.tools.allow("files__write", '{"path": "a"}'))
    assert screen.questions == ['files__write {"path": "a"}']
    arguments = f'{{"path": "{"a" * 3_000}", "run": "rm -rf /"}}'
    assert not asyncio.run(shell.workplace.tools.allow("files__write", arguments))
    assert "3,0" in screen.asked[-1][SHOW]
    assert screen.questions[-1].endswith('"run": "rm -rf /"}')
    keys = iter([SHOW, RUN])
    screen.meanwhile = lambda: setattr(screen, "key", next(keys))
    assert asyncio.run(shell.workplace.tools.allow("files__write", arguments))
    assert "a" * 3_000 in "".join(screen.console.file.getvalue().split())


def test_a_command_with_a_nul_character_is_refused(open_shell: Open) -> None:
    shell, screen = open_shell(RUN, confirm="destructive")
    assert shell.workplace.offer("ls\0; rm -rf boats", offers.CHOICES) == SKIP
    assert screen.asked == []
    assert "contains a NUL character: ls<U+0000>; rm -rf boats" in shown_on(screen)
    with pytest.raises(ConfigurationError, match="NUL"):
        asyncio.run(shell.workplace.execute("ls\0"))


@pytest.mark.parametrize("kind", COMMANDS)
def test_enter_runs_a_command_unless_its_effect_cannot_be_taken_back(kind: str, open_shell: Open) -> None:
    shell, screen = open_shell(RUN, confirm="always")
    shell.workplace.offer(COMMANDS[kind], offers.CHOICES)
    assert screen.defaults == [SKIP if kind in {"destructive", "sends"} else RUN]


def test_a_destructive_command_runs_after_a_word_and_not_after_a_key(open_shell: Open) -> None:
    shell, screen = open_shell(RUN)
    assert shell.workplace.offer("rm -rf boats", offers.CHOICES) == RUN
    screen.typed = "y"
    assert shell.workplace.offer("rm -rf boats", offers.CHOICES) == SKIP
    assert shell.workplace.offer("rm -rf boats", goal.CHOICES, refuse=PAUSE) == PAUSE
    assert shell.workplace.offer("touch new", offers.CHOICES) == RUN


def test_without_a_terminal_nothing_is_asked_and_that_is_said(open_shell: Open) -> None:
    shell, screen = open_shell(RUN)
    screen.is_there = False
    assert shell.workplace.offer("rm -rf boats", goal.CHOICES, refuse=PAUSE) == SKIP
    assert screen.asked == []
    assert "needs a confirmation in a terminal: rm -rf boats" in screen.console.file.getvalue()
    assert shell.workplace.offer("cat boats", offers.CHOICES) == RUN


def test_a_grant_holds_for_its_kind_and_only_where_it_was_given(open_shell: Open) -> None:
    shell, screen = open_shell("k")
    granted: set[str] = set()
    assert shell.workplace.offer("touch new", goal.CHOICES, granted=granted) == RUN
    assert granted == {"writes"}
    screen.key = SKIP
    assert shell.workplace.offer("touch other", goal.CHOICES, granted=granted) == RUN
    assert shell.workplace.offer("touch other", goal.CHOICES, granted=set()) == SKIP
    assert shell.workplace.offer("touch other", offers.CHOICES) == SKIP


def test_what_another_shell_allows_while_this_one_asks_stays(open_shell: Open) -> None:
    here, screen = open_shell("a")
    there, _ = open_shell("a")
    screen.meanwhile = lambda: there.workplace.offer("touch there", offers.CHOICES)
    here.workplace.offer("touch here", offers.CHOICES)
    kept = list_allowances(here.chat.kept.preferences)
    assert [(each.number, each.text) for each in kept] == [(1, "touch there"), (2, "touch here")]
