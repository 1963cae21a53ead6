"""TypedDicts that go in come out, and mypy and pyright check the names of APIs and passes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TYPED = Path(__file__).parent / "typed"
WRONG = {
    number
    for number, line in enumerate((TYPED / "wrong.py").read_text("utf-8").splitlines(), 1)
    if line.endswith("# wrong")
}
MYPY = (sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir")


def mypy(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    # An empty configuration file: the project's own names the packages to check.
    command = (*MYPY, str(folder), "--config-file", os.devnull, str(TYPED / name))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def pyright(name: str, folder: Path) -> list[tuple[int, str]]:
    """The lines of a file that pyright complains about in strict mode."""
    program = shutil.which("pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("pyright is not installed: pip install pyright")
    shutil.copy(TYPED / name, folder)
    settings = {"typeCheckingMode": "strict", "include": [name], "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    command = (program, "--project", str(folder), "--pythonpath", sys.executable, "--outputjson")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright could not be started: {done.stderr.strip()[-200:]}")
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(each["range"]["start"]["line"] + 1, each["message"]) for each in found]


def test_the_typed_example_runs() -> None:
    subprocess.run([sys.executable, str(TYPED / "library.py")], check=True)


def test_mypy_accepts_the_typed_example_and_finds_every_mistake(tmp_path: Path) -> None:
    good = mypy("library.py", tmp_path)
    assert good.returncode == 0, good.stdout
    bad = mypy("wrong.py", tmp_path)
    assert {int(line.split(":")[1]) for line in bad.stdout.splitlines() if ": error:" in line} == WRONG


def test_pyright_accepts_the_typed_example_and_finds_every_mistake(tmp_path: Path) -> None:
    assert pyright("library.py", tmp_path) == []
    assert {line for line, _ in pyright("wrong.py", tmp_path)} == WRONG
