"""`ullage config set`, `unset` and `edit`: one key changes, comments stay, invalid files are not saved."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import world
from ullage.config import InvalidSettings
from ullage.config.changes import parse_key, set_key, unset_key, value_of
from ullage.config.writer import initial
from ullage.errors import ConfigurationError

PROGRAM = str(Path(sys.executable).with_name("ullage"))
FILE = """# mine
model = "fast" # the quick one

[context]
max_turns = 30 # enough

# Money is scarce.
[cost]
cap_at_dollars = 0.50

[models.fast]
endpoint = "http://127.0.0.1:8080"
prices = { input = 1 }
"""


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "config", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        cwd=folder,
        env={**world.environment(), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder), **variables},
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ullage" / "config.toml"
    path.parent.mkdir()
    path.write_text(FILE)
    path.chmod(0o640)
    return path


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("context.max_turns", "7", "max_turns = 30 # enough", "max_turns = 7 # enough"),
        ("context.max_turns", '"none"', "max_turns = 30 # enough", 'max_turns = "none" # enough'),
        ("context.rolling", "false", "# enough\n", "# enough\nrolling = false\n"),
        ("cost.warn_at_tokens", "9", "= 0.50\n", "= 0.50\nwarn_at_tokens = 9\n"),
        ("store.url", '"x.db"', "input = 1 }\n", 'input = 1 }\n\n[store]\nurl = "x.db"\n'),
        ("models.fast.window", "9", "input = 1 }\n", "input = 1 }\nwindow = 9\n"),
        ("models.fast.prices.output", "2", "{ input = 1 }", "{ input = 1, output = 2}"),
        ('models."a b".window', "9", "input = 1 }\n", 'input = 1 }\n\n[models."a b"]\nwindow = 9\n'),
    ],
)
def test_one_key_changes_and_everything_else_stays(key: str, value: str, old: str, new: str) -> None:
    assert set_key(FILE, parse_key(key), value) == FILE.replace(old, new)


def test_a_key_of_the_initial_file_takes_the_place_of_its_comment() -> None:
    changed = set_key(initial(), ("context", "max_turns"), "12")
    assert changed == initial().replace('#max_turns = "none"', "max_turns = 12")
    assert set_key(changed, ("model",), '"a"') == changed.replace('#model = "embedded"', 'model = "a"')


def test_a_key_beside_dotted_ones_is_set_too() -> None:
    changed = set_key("cost.cap_at_dollars = 1\n[context]\nrolling = true\n", ("cost", "warn_at_tokens"), "2")
    assert tomllib.loads(changed) == {
        "cost": {"cap_at_dollars": 1, "warn_at_tokens": 2},
        "context": {"rolling": True},
    }


KEYS = ["model", "context.max_turns", "cost.cap_at_dollars", "models.fast.window", "goal.max_steps"]


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 9)), max_size=6), st.booleans())
def test_any_series_of_changes_leaves_the_last_values_and_every_comment(
    changes: list[tuple[str, int]], from_initial: bool
) -> None:
    begin = initial() if from_initial else FILE
    text, wanted = begin, {}
    for key, number in changes:
        text = set_key(text, parse_key(key), str(number))
        wanted[key] = number
    data = tomllib.loads(text)
    for key, number in wanted.items():
        there = data
        for part in key.split("."):
            there = there[part]
        assert there == number
    if not from_initial:
        assert [line.partition("#")[2] for line in text.splitlines() if "#" in line] == [
            line.partition("#")[2] for line in begin.splitlines() if "#" in line
        ]
    for key in wanted:
        text = unset_key(text, parse_key(key))
    assert "max_steps = " not in text or from_initial


@pytest.mark.parametrize(
    ("key", "words", "value"),
    [
        ("cost.cap_at_dollars", ["2.50"], "2.50"),
        ("context.token_budget", ["auto"], '"auto"'),
        ("context.rolling", ["off"], "false"),
        ("routing.rules.code", ["refactor", "write a test"], '["refactor", "write a test"]'),
        ("routing.rules.code", ['["a", "b"]'], '["a", "b"]'),
        ("mcp.git.env", ['{ A = "b" }'], '{ A = "b" }'),
    ],
)
def test_words_of_a_command_line_become_values(key: str, words: list[str], value: str) -> None:
    assert value_of(words, parse_key(key)) == value


@pytest.mark.parametrize(
    ("key", "words", "says"),
    [
        ("context.max_turns", ["few"], "must be a whole number"),
        ("context.max_turns", ["1", "2"], "takes one value, not 2"),
        ("context.max_turn", ["1"], "did you mean context.max_turns"),
        ("context", ["1"], "is a table"),
        ("models.a.key", ["sk-123456789012345678"], "env:NAME"),
        ("mcp.git.env", ["A=b"], "written as in TOML"),
    ],
)
def test_what_is_no_value_is_refused_with_the_reason(key: str, words: list[str], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says) as caught:
        value_of(words, parse_key(key))
    assert "sk-1234" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "a b", "a = 1\nb", "a.", "[a]", "a = 1 #"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a key"):
        parse_key(key)


def test_set_writes_the_file_and_keeps_its_permissions(file: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "set", "context.max_turns", "12")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("context.max_turns = 12 ")
    assert f"{file}:5" in done.stdout
    assert file.read_text() == FILE.replace("max_turns = 30", "max_turns = 12")
    assert file.stat().st_mode & 0o777 == 0o640
    told = run(tmp_path, "set", "context.max_turns", "13", ULLAGE_CONTEXT_MAX_TURNS="5")
    assert "ULLAGE_CONTEXT_MAX_TURNS overrides your file" in told.stderr
    assert "max_turns = 13" in file.read_text()
    assert "is not set" in run(tmp_path, "unset", "context.rolling").stderr
    assert run(tmp_path, "unset", "context.max_turns").stdout.startswith('context.max_turns = "none" ')
    assert "max_turns" not in file.read_text()


def test_set_makes_a_private_file_with_all_comments_if_there_is_none(tmp_path: Path) -> None:
    assert run(tmp_path, "set", "goal.max_steps", "3").returncode == 0
    made = tmp_path / "ullage" / "config.toml"
    assert made.read_text() == initial().replace("#max_steps = 20", "max_steps = 3")
    assert made.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("set", "context.max_turns", "few"), "must be a whole number"),
        (("set", "model", "slow"), "unknown model"),
        (("set", "shell.status", "{nothing}"), "shell.status"),
        (("unset", "models.fast.endpoint"), "set endpoint"),
    ],
)
def test_a_change_that_makes_the_file_invalid_changes_nothing(
    file: Path, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 1
    assert says in done.stdout
    assert file.read_text() == FILE


def test_one_problem_of_several_can_be_mended(file: Path, tmp_path: Path) -> None:
    file.write_text('[context]\nmax_turns = "few"\nrollin = true\n')
    assert run(tmp_path, "set", "context.max_turns", "3").returncode == 0
    assert run(tmp_path, "unset", "context.rollin").returncode == 0
    assert run(tmp_path, "check").returncode == 0


def editor(folder: Path, script: str) -> str:
    program = folder / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return str(program)


def test_edit_saves_a_valid_copy(file: Path, tmp_path: Path) -> None:
    visual = editor(tmp_path, 'sed -i "s/= 30/= 31/" "$2"')
    done = run(tmp_path, "edit", VISUAL=f"'{visual}' --wait", EDITOR="false")
    assert (done.returncode, done.stdout, done.stderr) == (0, "saved, no problems\n", "")
    assert file.read_text() == FILE.replace("= 30", "= 31")
    assert run(tmp_path, "edit", EDITOR="true").stdout == "no changes\n"


def test_edit_saves_no_invalid_copy_and_tells_where_it_is(file: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "edit", EDITOR=editor(tmp_path, 'echo "oops = 1" >> "$1"'), TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert f"{file}:14: models.fast.oops: unknown key" in done.stdout
    assert file.read_text() == FILE
    copy = Path(done.stdout.split("copy is ")[1].strip())
    assert copy.read_text() == FILE + "oops = 1\n"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "failed with exit code 3"),
        ('printf "\\377" >> "$1"', "not UTF-8"),
        ('echo >> "$1"; echo "# other" >> "$HOME/ullage/config.toml"', "changed by another program"),
    ],
)
def test_edit_tells_what_went_wrong(file: Path, tmp_path: Path, script: str, says: str) -> None:
    done = run(tmp_path, "edit", EDITOR=editor(tmp_path, script), TMPDIR=str(tmp_path))
    assert done.returncode == 2
    assert says in done.stderr
    assert file.read_text().startswith(FILE)


def test_an_editor_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "edit", EDITOR="no-such-editor", TMPDIR=str(tmp_path))
    assert done.returncode == 2
    assert "Set VISUAL or EDITOR" in done.stderr
