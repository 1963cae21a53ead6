"""The table of commands: a module a command, loaded only if that command is given."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from ullage.batch.fitted_request import fit_body
from ullage.batch.job import Job
from ullage.cli.command_table import COMMANDS, spec_of
from ullage.cli.explain_view import print_explanation
from ullage.cli.verdicts import as_json, verdicts
from ullage.fitting import FitPolicy

TALK = [
    {"role": "user", "content": "How many boats are at the quay?"},
    {"role": "assistant", "content": "Seven."},
    {"role": "user", "content": "And at the pier?"},
]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_one_module_with_its_specification(name: str) -> None:
    spec = spec_of(name)
    assert spec.name == name
    assert COMMANDS[name] == spec.run.__module__
    assert spec.brief
    assert spec.examples.startswith("examples:\n")
    assert spec.exit_codes.startswith("exit codes:\n")
    assert len({action.name for action in spec.actions}) == len(spec.actions)


def test_only_the_command_that_is_given_is_loaded() -> None:
    program = (
        "import sys; from ullage.cli.parser import parse; parse(['memory', 'list']); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(loaded.stdout.split()) & set(COMMANDS.values())
    assert modules == {COMMANDS["memory"]}


def test_explain_shows_the_change_of_a_pass_of_the_callers_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = fit_body(Job("explain", limit=2_000), {"messages": TALK, "model": "gpt-4o"})
    fitted = line.done.fitted
    record = fitted.record._replace(log=(("translate", 1, 7, 3, "mfrggzdf"),))
    fitted = replace(fitted, changed=True, record=record)
    changed = line._replace(done=replace(line.done, fitted=fitted))
    told = list(verdicts(changed, FitPolicy()))
    assert (told[1].what, told[1].why) == ("translate", "changed by the pass 'translate'")
    assert json.loads(json.dumps(as_json(changed, told)))["messages"][1]["what"] == "translate"
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    print_explanation("talk.json", changed, told, digest="", conclusion="It fits.")
    assert "translate" in shown.getvalue()
