"""What the documentation shows is what happens: its Python runs, its commands print what it says."""
# ruff: noqa: S602 - the commands are those of our own documents

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))) if path.exists()]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    info: str
    body: str
    line: int


class Command(NamedTuple):
    text: str
    printed: str


def blocks(path: Path, language: str) -> list[Block]:
    text = path.read_text("utf-8")
    found = [
        Block(match["info"].strip(), match["body"], text.count("\n", 0, match.start("body")) + 1)
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if block.info.split(" ")[0] == language]


def commands(body: str) -> list[Command]:
    """The `$ …` lines of a console block, each with what stands below it; a backslash continues a line."""
    found: list[Command] = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = 1
        while lines[length - 1].endswith("\\"):
            length += 1
        found.append(Command("\n".join(lines[:length]), "\n".join(lines[length:]).rstrip()))
    return found


def pattern_of(printed: str) -> str:
    """A pattern for what is shown: an ellipsis is the rest of a line, alone on a line any number of lines."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", ".*") + r"[ ]*\n"
        for line in printed.splitlines()
    ]
    return "".join(lines)


def environment() -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "PYTHONWARNINGS")
    }
    path = os.pathsep.join((str(Path(sys.executable).parent), inherited.get("PATH", "")))
    return {**inherited, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}


named = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


@named
def test_the_python_of_a_document_runs(path: Path) -> None:
    # One process a document; each block stands at its own line, so that a traceback names it.
    program = ""
    for block in blocks(path, "python"):
        if "no-run" not in block.info:
            program += "\n" * (block.line - 1 - program.count("\n")) + block.body
    if not program:
        pytest.skip("nothing to run in it")
    code = f"exec(compile({program!r}, {path.name!r}, 'exec'))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, f"{path.name}\n{done.stderr}"


@named
def test_the_commands_of_a_document_print_what_it_shows(path: Path) -> None:
    shown = [each for block in blocks(path, "console") for each in commands(block.body)]
    ours = [each for each in shown if re.search(r"\bullage\b", each.text)]
    if not ours:
        pytest.skip("no commands of ours in it")
    for command in ours:
        done = subprocess.run(
            command.text,
            shell=True,
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
        )
        if not command.printed:
            assert done.returncode == 0, f"{path.name}: $ {command.text}\n{done.stdout}"
            continue
        assert re.fullmatch(pattern_of(command.printed), done.stdout.rstrip("\n") + "\n"), (
            f"{path.name}: $ {command.text}\nshown:\n{command.printed}\n\nprinted:\n{done.stdout}"
        )


def test_the_generated_parts_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/docs.py", "--check"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_ellipsis_stands_for_the_rest_of_a_line_or_for_lines() -> None:
    assert re.fullmatch(pattern_of("one …\n…\nlast"), "one and more\ntwo\nthree\nlast\n")
    assert not re.fullmatch(pattern_of("one …\nlast"), "one and more\ntwo\nlast\n")
