"""`ullage completions`: the scripts complete in real shells, and the manual page has every option."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from tests import world
from tests.terminal import close
from ullage.cli.command_tree import command_tree
from ullage.cli.completion_scripts import SHELLS, completion_script
from ullage.cli.completions import NAMES
from ullage.cli.manual import manual_page

PROGRAM = str(Path(sys.executable).with_name("ullage"))


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        cwd=cwd,
        env={**world.environment(), "LANG": "C.UTF-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


CASES = [
    ("ullage con", {"config"}),
    ("ullage config se", {"set"}),
    ("ullage config set context.max_t", {"context.max_turns"}),
    ("ullage count --eng", {"--engine"}),
    ("ullage count --engine ", {"processes", "ray"}),
    ("ullage --mod", {"--model"}),
    ("ullage completions ", {"bash", "zsh", "fish", "man"}),
    ("ullage memory x", set()),
]
"""A line, and the words that may stand in the place of its last word."""


@pytest.mark.parametrize(("line", "words"), CASES)
def test_bash_completes(tmp_path: Path, line: str, words: set[str]) -> None:
    (tmp_path / "script").write_text(completion_script("bash"))
    given = " ".join(f"'{word}'" for word in line.split(" "))
    ask = f"COMP_WORDS=({given}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _ullage"
    shown = run(
        "bash", "--norc", "-c", f'source ./script; {ask}; printf "%s\\n" "${{COMPREPLY[@]}}"', cwd=tmp_path
    )
    assert set(shown.split()) == words


def test_bash_completes_files_as_a_user_types(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(completion_script("bash"))
    (tmp_path / "a harbour.json").write_text("")
    env = {**world.environment(), "PS1": "$ ", "TERM": "dumb", "HOME": str(tmp_path)}
    child = pexpect.spawn("bash", ["--norc", "-i"], cwd=str(tmp_path), env=env, timeout=world.PATIENCE)
    child.sendline("source ./script; echo rea''dy")
    child.expect("ready")
    child.send("ullage count a\t")
    child.expect(re.escape("ullage count a\\ harbour.json"))
    child.sendline("\x03exit")
    close(child)


@needs("fish")
@pytest.mark.parametrize(("line", "words"), CASES)
def test_fish_completes(tmp_path: Path, line: str, words: set[str]) -> None:
    (tmp_path / "script").write_text(completion_script("fish"))
    shown = run("fish", "-N", "-c", f"source ./script; complete -C '{line}'", cwd=tmp_path)
    assert {each.split("\t")[0] for each in shown.splitlines()} == words


@needs("zsh")
@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("ullage conf\t", "ullage config"),
        ("ullage config uns\t", "ullage config unset"),
        ("ullage config set context.max_t\t", "ullage config set context.max_turns"),
        ("ullage count --eng\t", "ullage count --engine"),
        ("ullage count --engine p\t", "ullage count --engine processes"),
        ("ullage count har\t", "ullage count harbour.json"),
    ],
)
def test_zsh_completes(tmp_path: Path, typed: str, whole: str) -> None:
    (tmp_path / "script").write_text(completion_script("zsh"))
    (tmp_path / "harbour.json").write_text("")
    env = {**world.environment(), "TERM": "dumb", "HOME": str(tmp_path)}
    child = pexpect.spawn("zsh", ["-f", "-i"], cwd=str(tmp_path), env=env, timeout=world.PATIENCE)
    child.sendline("autoload -U compinit; compinit -u -D; source ./script; PS1='$ '; echo rea''dy")
    child.expect("ready")
    child.send(typed)
    child.expect(re.escape(whole))
    child.sendline("\x03exit")
    close(child)


def test_every_option_of_the_help_is_in_every_script_and_in_the_manual() -> None:
    assert tuple(SHELLS) == NAMES
    scripts = {shell: completion_script(shell) for shell in SHELLS}
    page = manual_page().replace("\\-", "-")
    nodes = list(command_tree().walk())
    assert len(nodes) > 30
    for node in nodes:
        assert " ".join(node.path) in page
        for flag in (flag for each in node.arguments for flag in each.flags):
            assert all(
                re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", scripts[each]) for each in ("bash", "zsh")
            )
            assert flag.lstrip("-") in scripts["fish"]
            assert flag in page or flag in ("-h", "--help")
    shown = run(PROGRAM, "count", "--help").partition("options:")[2].partition("examples:")[0]
    (count,) = (node for node in nodes if node.path == ("count",))
    own = {flag for each in count.arguments for flag in each.flags}
    assert own == set(re.findall(r"(?:^  |, )(--?[a-z-]+)", shown, re.MULTILINE))


@needs("man")
def test_man_reads_the_page_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "ullage.1").write_text(run(PROGRAM, "completions", "man"))
    done = subprocess.run(
        ["man", "--warnings", "-l", "ullage.1"],  # noqa: S607 - the one on the PATH
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        cwd=tmp_path,
        env={**world.environment(), "MANWIDTH": "90", "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "ullage config set KEY" in done.stdout.replace("\n", " ") or "ullage config set" in done.stdout
    assert "--cap" in done.stdout
