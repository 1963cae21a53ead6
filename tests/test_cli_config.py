"""`ullage config`: the file that it writes, what it shows and checks, and what a project may say."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pexpect
import pytest

from ullage import cli, store
from ullage.config.keys import ROWS
from ullage.config.writer import initial


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has configured nothing, in a project."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ULLAGE_CONFIG", raising=False)
    (tmp_path / "project" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    """The lines that a command prints."""
    assert cli.main(["config", *arguments]) == code
    return capsys.readouterr().out.splitlines()


def own(home: Path, text: str) -> Path:
    path = home / "config" / "ullage" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_init_writes_a_private_file_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "config" / "ullage" / "config.toml"
    assert told(capsys, "init") == [f"wrote {path}; every key in it is a comment"]
    assert path.read_text() == initial()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("goal.max_steps = 1")
    assert cli.main(["config", "init"]) == 2
    assert "--force overwrites it" in capsys.readouterr().err
    assert path.read_text() == "goal.max_steps = 1"
    told(capsys, "init", "--force")
    assert told(capsys, "check") == [f"{path}: no problems"]


def test_init_writes_where_it_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "init", "--config", str(home / "other.toml"))
    assert (home / "other.toml").read_text() == initial()


@pytest.mark.usefixtures("home")
def test_show_tells_every_setting_and_where_it_comes_from(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own(home, '[goal]\nmax_steps = 3\n[models.a]\nendpoint = "openai"\nkey = "env:MY_KEY"\n')
    monkeypatch.setenv("ULLAGE_COST_CAP_AT_DOLLARS", "2")
    monkeypatch.setenv("MY_KEY", "sk-secret")
    shown = [line.split("  # ") for line in told(capsys, "show")]
    rows = {line[0].strip(): line[1] for line in shown}
    assert rows["goal.max_steps = 3"] == f"{path}:2"
    assert rows["cost.cap_at_dollars = 2"] == "ULLAGE_COST_CAP_AT_DOLLARS"
    assert rows['context.token_budget = "auto"'] == "default"
    assert rows['models.a.key = "env:MY_KEY"'] == f"{path}:5"
    keys = [line[0].partition(" = ")[0] for line in shown]
    assert keys == [
        row.name.replace("<name>", "a") for row in ROWS if not row.is_named or row.name.startswith("models.")
    ]
    assert "sk-secret" not in str(shown)
    (row,) = [
        each
        for line in told(capsys, "show", "--json")
        if (each := json.loads(line))["key"] == "goal.max_steps"
    ]
    assert row == {"key": "goal.max_steps", "value": "3", "source": f"{path}:2"}


def test_check_tells_each_problem_in_a_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = own(home, "[context]\nmax_turn = 3\n\nmax_turns = 0\n")
    lines = told(capsys, "check", code=1)
    assert lines == [
        f"{path}:2: context.max_turn: unknown key; did you mean context.max_turns?",
        f'{path}:4: context.max_turns: must be a whole number from 1 to 1,000,000, or "none", not 0',
    ]
    assert told(capsys, "show", code=1) == lines
    first = json.loads(told(capsys, "check", "--json", code=1)[0])
    assert first["key"] == "context.max_turn"
    assert first["place"] == f"{path}:2"


def test_check_tells_of_a_key_that_is_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(home, '[models.a]\nendpoint = "openai"\nkey = "env:NO_SUCH_KEY"\n')
    assert cli.main(["config", "check"]) == 0
    assert "set NO_SUCH_KEY in the environment" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_without_a_file_check_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ullage config init" in told(capsys, "check")[0]


@pytest.mark.usefixtures("home")
def test_a_named_file_that_is_missing_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "check", "--config", "none.toml"]) == 2
    assert "none.toml does not exist" in capsys.readouterr().err


def test_a_project_s_file_is_left_out_until_it_is_trusted_and_when_it_changes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "project" / ".ullage.toml"
    path.write_text("goal.max_steps = 2\n")
    assert cli.main(["config", "show"]) == 0
    printed = capsys.readouterr()
    assert "goal.max_steps = 20 " in printed.out
    assert f"{path} is not trusted" in printed.err
    assert not (home / "state").exists(), "looking makes nothing"

    assert cli.main(["config", "trust"]) == 2, "there is no terminal to ask on"
    assert "add --yes" in capsys.readouterr().err
    assert not (home / "state").exists()
    assert told(capsys, "trust", "--yes") == [
        f"{path}:",
        "  | goal.max_steps = 2",
        "This file sets:",
        "  goal.max_steps = 2",
        f"{path} is trusted until it changes",
    ]
    assert any(line.startswith("goal.max_steps = 2 ") for line in told(capsys, "show"))
    with store.open() as kept:
        assert kept.preferences.get(f"trusted:{path}")

    path.write_text("goal.max_steps = 1\n")
    assert any(line.startswith("goal.max_steps = 20 ") for line in told(capsys, "show"))
    told(capsys, "trust", "--yes", str(path.parent))
    assert any(line.startswith("goal.max_steps = 1 ") for line in told(capsys, "show"))
    assert told(capsys, "trust", "--forget") == [f"{path} is no longer trusted"]
    assert any(line.startswith("goal.max_steps = 20 ") for line in told(capsys, "show"))


def test_a_project_s_file_that_loosens_anything_is_not_trusted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "project" / ".ullage.toml"
    path.write_text('goal.max_steps = 99\nmcp.a.command = "sh"\n')
    lines = told(capsys, "trust", "--yes", code=1)
    assert [line.split(": ")[:2] for line in lines] == [
        [f"{path}:1", "goal.max_steps"],
        [f"{path}:2", "mcp.a.command"],
    ]
    assert not (home / "state").exists()


@pytest.mark.parametrize(("typed", "trusted"), [("yes", True), ("y", False), ("", False)])
def test_a_project_s_file_is_shown_before_it_is_asked_about(
    home: Path, capfd: pytest.CaptureFixture[str], typed: str, trusted: bool
) -> None:
    path = home / "project" / ".ullage.toml"
    path.write_text("goal.max_steps = 2  # a\u200db\u202e\n", encoding="utf-8")
    program = Path(sys.executable).with_name("ullage")
    child = pexpect.spawn(str(program), ["config", "trust"], encoding="utf-8", timeout=60, cwd=path.parent)
    child.expect("Trust this file\\? Type yes: ")
    assert "| goal.max_steps = 2  # a<U+200D>b<U+202E>" in child.before
    child.sendline(typed)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == (0 if trusted else 1)
    with store.open() as kept:
        assert bool(kept.preferences.get(f"trusted:{path}")) is trusted
    capfd.readouterr()


@pytest.mark.parametrize(
    ("given", "says"), [([], "no .ullage.toml in this folder"), (["a.toml"], "not a project's file")]
)
@pytest.mark.usefixtures("home")
def test_there_must_be_something_to_trust(
    capsys: pytest.CaptureFixture[str], given: list[str], says: str
) -> None:
    assert cli.main(["config", "trust", *given]) == 2
    assert says in capsys.readouterr().err


def test_what_is_printed_cannot_harm_a_terminal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(home, '[routing.system_prompts]\na = "\\u001b[2J\\u202e"\n')
    printed = "\n".join(told(capsys, "show"))
    assert 'routing.system_prompts.a = "\\u001B[2J\\u202E"' in printed
    assert "\x1b" not in printed
