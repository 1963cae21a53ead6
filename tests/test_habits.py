"""Lines that mean the same in every shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ullage.shell.commands import COMMANDS
from ullage.shell.loop import decide_by_habit

if TYPE_CHECKING:
    from pathlib import Path

    from ullage.safety.input_line import InputDecision


def decide(text: str, folder: Path, *, has_jobs: bool = False, last: str = "") -> InputDecision | None:
    return decide_by_habit(text, metas=COMMANDS, folder=folder, has_jobs=has_jobs, last=last)


@pytest.mark.parametrize("line", ["#", "# list the files", "#!/bin/bash"])
def test_a_comment_does_nothing(line: str, tmp_path: Path) -> None:
    decision = decide(line, tmp_path)
    assert decision is not None
    assert decision.kind == "nothing"


@pytest.mark.parametrize("line", [".", "..", "~", "~/quay/", "./missing", "../missing --now", "/", "/ -l"])
def test_a_path_is_left_to_bash(line: str, tmp_path: Path) -> None:
    decision = decide(line, tmp_path)
    assert decision is not None
    assert (decision.kind, decision.text) == ("shell", line)


@pytest.mark.parametrize(
    "line", ["", "...", "/context", "/no-such-folder", "./quay is full", "~ is home", "wait", "!!", "# a\nls"]
)
def test_other_lines_are_decided_by_how_they_read(line: str, tmp_path: Path) -> None:
    assert decide(line, tmp_path) is None


def test_wait_runs_if_there_is_something_to_wait_for(tmp_path: Path) -> None:
    decision = decide("wait", tmp_path, has_jobs=True)
    assert decision is not None
    assert decision.kind == "shell"
    assert decide("wait for me", tmp_path, has_jobs=True) is None


@pytest.mark.parametrize(("line", "runs"), [("!!", "ls /root"), ("sudo !!", "sudo ls /root")])
def test_two_exclamation_marks_run_the_last_command_again(line: str, runs: str, tmp_path: Path) -> None:
    decision = decide(line, tmp_path, last="ls /root")
    assert decision is not None
    assert (decision.kind, decision.text, decision.hint) == ("shell", runs, f"$ {runs}")
