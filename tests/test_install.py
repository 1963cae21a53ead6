"""`make install` touches only what is its own, and says what to do if it cannot go on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.world import environment

ROOT = Path(__file__).resolve().parent.parent


def make(target: str, prefix: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", target, f"PREFIX={prefix}"],  # noqa: S607 - the one on the PATH
        cwd=ROOT,
        env=environment(**variables),
        capture_output=True,
        check=False,
        text=True,
    )


def installed_in(prefix: Path) -> tuple[Path, Path]:
    """The traces of an installation: an environment, and the link into it."""
    home = prefix / "lib" / "ullage"
    (home / "bin").mkdir(parents=True)
    (home / "pyvenv.cfg").touch()
    (home / "bin" / "ullage").touch()
    link = prefix / "bin" / "ullage"
    link.parent.mkdir()
    link.symlink_to(home / "bin" / "ullage")
    return home, link


@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_a_program_of_somebody_else_is_left_alone(target: str, tmp_path: Path) -> None:
    other = tmp_path / "with a blank" / "bin" / "ullage"
    other.parent.mkdir(parents=True)
    other.write_text("somebody else's")
    done = make(target, other.parent.parent)
    assert other.read_text() == "somebody else's"
    if target == "install":
        assert done.returncode != 0
        assert f"{other} exists already" in done.stderr
        assert "make install PREFIX=" in done.stderr
    else:
        assert done.returncode == 0
        assert "is not installed" in done.stdout


def test_a_folder_that_is_no_environment_is_not_replaced(tmp_path: Path) -> None:
    kept = tmp_path / "lib" / "ullage" / "notes.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    done = make("install", tmp_path)
    assert done.returncode != 0
    assert "is not a virtual environment" in done.stderr
    assert kept.read_text() == "mine"


def test_an_old_python_is_refused_with_the_way_to_name_another(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")  # as one does that is asked whether it is new enough
    old.chmod(0o755)
    done = make("install", tmp_path / "prefix", PYTHON=str(old))
    assert done.returncode != 0
    assert "make install PYTHON=" in done.stderr
    assert not (tmp_path / "prefix").exists()


def test_uninstalling_removes_the_program_and_nothing_else_and_may_be_repeated(tmp_path: Path) -> None:
    home, link = installed_in(tmp_path)
    beside = tmp_path / "bin" / "other"
    beside.touch()
    page = tmp_path / "share" / "man" / "man1" / "ullage.1"
    page.parent.mkdir(parents=True)
    page.touch()
    done = make("uninstall", tmp_path)
    assert done.returncode == 0, done.stderr
    assert not page.exists()
    assert not link.is_symlink()
    assert not home.exists()
    assert beside.exists()
    assert "were not touched" in done.stdout
    again = make("uninstall", tmp_path)
    assert (again.returncode, again.stdout) == (0, f"ullage is not installed in {tmp_path}.\n")


def test_an_interrupted_removal_can_be_repeated(tmp_path: Path) -> None:
    home, _ = installed_in(tmp_path)
    stopping = tmp_path / "path" / "rm"  # removes the first thing that it is given, and is then interrupted
    stopping.parent.mkdir()
    stopping.write_text(
        '#!/bin/sh\n[ "$1" = -rf ] || exec /bin/rm "$@"\n/bin/rm -rf "$2"/*\nkill -INT $PPID\nexit 130\n'
    )
    stopping.chmod(0o755)
    path = f"{stopping.parent}:{environment()['PATH']}"
    assert make("uninstall", tmp_path, PATH=path).returncode != 0
    assert home.exists()
    done = make("uninstall", tmp_path)
    assert "Removed" in done.stdout
    assert not home.exists()
