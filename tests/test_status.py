"""The status line: what is known, what is estimated, what is unknown, and nothing around what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import ConfigurationError
from ullage.shell.status import (
    VARIABLES,
    Figure,
    check,
    dollars,
    git_branch,
    percent,
    render,
    render_within,
    tokens,
)

LONG = "{model} · {ctx_used}/{ctx_max} {ctx_percent} · {session_cost} · {cwd} {git}"
VALUES = {
    "model": "gpt-4o",
    "ctx_used": Figure(12_345, estimate=True),
    "ctx_max": 128_000,
    "ctx_percent": Figure(9.6, estimate=True),
    "cost": Figure(Decimal("0.0042")),
    "session_cost": Figure(Decimal("1.5"), estimate=True),
    "cwd": Path("/srv/boats"),
    "git": "main",
}


def test_a_template_is_filled_and_estimates_are_marked() -> None:
    assert render(LONG, VALUES) == "gpt-4o · ~12.3k/128k ~10% · ~$1.50 · /srv/boats main"


def test_an_unknown_cost_is_said_to_have_no_price_and_is_never_zero() -> None:
    for unknown in (None, Figure(None), Figure(None, estimate=True)):
        assert render("{model} {cost}", {**VALUES, "cost": unknown}) == "gpt-4o no price"
    assert render("{cost}", {"cost": 0}) == "$0"


@pytest.mark.parametrize(
    ("template", "missing", "line"),
    [
        (LONG, "git", "gpt-4o · ~12.3k/128k ~10% · ~$1.50 · /srv/boats"),
        (LONG, "cwd git", "gpt-4o · ~12.3k/128k ~10% · ~$1.50"),
        (LONG, "model", "~12.3k/128k ~10% · ~$1.50 · /srv/boats main"),
        (LONG, "ctx_used ctx_max ctx_percent", "gpt-4o · ~$1.50 · /srv/boats main"),
        (LONG, "ctx_max", "gpt-4o · ~12.3k ~10% · ~$1.50 · /srv/boats main"),
        (LONG, "ctx_used", "gpt-4o · 128k ~10% · ~$1.50 · /srv/boats main"),
        ("{model} on {git} | {cwd}", "git", "gpt-4o | /srv/boats"),
        ("[{git}] {cwd} ({cost})", "git cost", "/srv/boats"),
        ("{ctx_used} tokens | {git}", "git", "~12.3k tokens"),
        ("{ctx_used} tokens | {git}", "ctx_used", "main"),
        ("ullage | {git}", "git", "ullage"),
        ("{{{model}}}", "", "{gpt-4o}"),
        (LONG, " ".join(VALUES), ""),
    ],
)
def test_what_is_missing_takes_its_separators_with_it(template: str, missing: str, line: str) -> None:
    values = {name: value for name, value in VALUES.items() if name not in missing.split()}
    assert render(template, values) == line


@given(
    names=st.lists(st.sampled_from(sorted(VARIABLES)), max_size=6),
    between=st.lists(st.sampled_from([" ", " · ", "/", " | ", "  ", " of ", ":"]), min_size=6, max_size=6),
    given=st.sets(st.sampled_from(sorted(VARIABLES))),
)
def test_no_separator_is_left_at_an_end_or_doubled(
    names: list[str], between: list[str], given: set[str]
) -> None:
    template = "".join(f"{{{name}}}{sign}" for name, sign in zip(names, between, strict=False))
    template = template.rstrip(" ·|/:") + ("" if names else "plain")
    line = render(template, dict.fromkeys(given, 7))
    assert line == line.strip(" ·|")
    assert "·  ·" not in line
    assert "| |" not in line
    for name in set(names) & given - {"model"}:
        assert "7" in line, name


@pytest.mark.parametrize(
    "template", ["{modl}", "{model!r}", "{model:>9}", "{model", "model}", "{}", "{model.x}"]
)
def test_a_template_that_cannot_be_filled_is_refused_when_it_is_read(template: str) -> None:
    with pytest.raises(ConfigurationError, match="status template"):
        check(template)


def test_on_a_narrow_screen_the_gauge_makes_room_for_the_figures() -> None:
    template = "{model} {gauge} {ctx_used} {cost}"
    values = {"model": "gpt-4o", "gauge": "█" * 10, "ctx_used": 900, "cost": Decimal("0.02")}
    assert render_within(40, template, values) == "gpt-4o ██████████ 900 $0.0200"
    assert render_within(29, template, values) == "gpt-4o 900 $0.0200"


def test_an_unknown_variable_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as caught:
        check("{model} {modl}")
    assert all(name in str(caught.value) for name in ("modl", *VARIABLES))


def test_figures_are_short_and_never_say_less_than_there_is() -> None:
    counts = (0, 999, 1_000, 12_345, 99_949, 128_000, 999_499, 999_600, 1_048_576, 2_500_000)
    written = ["0", "999", "1k", "12.3k", "99.9k", "128k", "999k", "1M", "1M", "2.5M"]
    assert [tokens(count) for count in counts] == written
    amounts = ["0", "0.00001", "0.0042", "0.25", "0.996", "12.3", "1234.5"]
    written = ["$0", "<$0.0001", "$0.0042", "$0.2500", "$1.00", "$12.30", "$1,234.50"]
    assert [dollars(Decimal(amount)) for amount in amounts] == written
    assert [percent(share) for share in (0, 0.2, 9.6, 99.7, 100)] == ["0%", "<1%", "10%", "99%", "100%"]


def test_values_move_no_cursor() -> None:
    assert render("{model} {git}", {"model": "a\x1b[2J", "git": "b\nc"}) == "a␛[2J b␊c"


def test_a_home_folder_is_a_tilde() -> None:
    assert render("{cwd}", {"cwd": Path.home() / "boats"}) == "~/boats"
    assert render("{cwd}", {"cwd": Path.home()}) == "~"


def git(*arguments: str, folder: Path) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_branch_is_what_git_says(tmp_path: Path) -> None:
    boats = tmp_path / "boats"
    (boats / "deep" / "er").mkdir(parents=True)
    assert git_branch(tmp_path) is None
    git("init", "-q", "-b", "feature/sails", folder=boats)
    assert git_branch(boats / "deep" / "er") == "feature/sails"
    git("commit", "-q", "--allow-empty", "-m", "first", folder=boats)
    git("worktree", "add", "-q", "-b", "other", "../tree", folder=boats)
    assert git_branch(tmp_path / "tree") == "other"
    git("checkout", "-q", "--detach", folder=boats)
    assert git_branch(boats) == git("rev-parse", "HEAD", folder=boats)[:8]


def test_a_broken_repository_has_no_branch(tmp_path: Path) -> None:
    (tmp_path / ".git").write_bytes(b"gitdir: /nowhere/at/all\xff")
    assert git_branch(tmp_path) is None
    (tmp_path / ".git").write_bytes(b"")
    assert git_branch(tmp_path) is None


def test_a_pipe_in_the_place_of_a_head_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    program = (
        "import pathlib, sys; from ullage.shell.status import git_branch; "
        "print(git_branch(pathlib.Path(sys.argv[1])))"
    )
    for folder in (tmp_path, tmp_path / "worktree"):
        folder.mkdir(exist_ok=True)
        if folder != tmp_path:
            (folder / ".git").write_text(f"gitdir: {tmp_path / '.git'}")
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == "None\n"
