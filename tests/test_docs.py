"""The documentation is true: its Python runs, its commands print what it shows, its links lead somewhere."""
# ruff: noqa: S602 - the commands are those of our own documents

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from bench import results
from scripts.docs import anchors, broken_links, commands_under, documents

from tests.llama import missing
from tests.world import environment
from ullage.broker.embedded.runtime import INSTALL
from ullage.broker.embedded.weights import GET

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = documents()
INSTALLS = re.compile(rf"{re.escape(INSTALL)}|{re.escape(GET)}")
"""How a command says that it needs the embedded model."""
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


def program_of(path: Path) -> str:
    """All Python of a document, each block at its own line, so that a traceback names it."""
    program = ""
    for block in blocks(path, "python"):
        if "no-run" not in block.info:
            program += "\n" * (block.line - 1 - program.count("\n")) + block.body
    return program


def commands_of(path: Path) -> list[Command]:
    """The commands of a document that run ullage."""
    shown = [each for block in blocks(path, "console") for each in commands(block.body)]
    return [each for each in shown if re.search(r"\bullage\b", each.text)]


def each_with(part: Callable[[Path], object]) -> pytest.MarkDecorator:
    """The documents that have such a part."""
    found = [path for path in DOCUMENTS if part(path)]
    return pytest.mark.parametrize("path", found, ids=lambda path: path.relative_to(ROOT).as_posix())


@each_with(program_of)
def test_the_python_of_a_document_runs(path: Path) -> None:
    code = f"exec(compile({program_of(path)!r}, {path.name!r}, 'exec'))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=environment(COLUMNS="100", NO_COLOR="1"),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, f"{path.name}\n{done.stderr}"


@each_with(commands_of)
def test_the_commands_of_a_document_print_what_it_shows(path: Path) -> None:
    skipped: list[str] = []
    for command in commands_of(path):
        done = subprocess.run(
            command.text,
            shell=True,
            cwd=ROOT,
            env=environment(COLUMNS="100", NO_COLOR="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
        )
        if not command.printed:
            assert done.returncode == 0, f"{path.name}: $ {command.text}\n{done.stdout}"
            continue
        as_shown = re.fullmatch(pattern_of(command.printed), done.stdout.rstrip("\n") + "\n")
        if as_shown is None and missing() and INSTALLS.search(done.stdout):
            skipped.append(command.text)
            continue
        assert as_shown, (
            f"{path.name}: $ {command.text}\nshown:\n{command.printed}\n\nprinted:\n{done.stdout}"
        )
    if skipped:
        pytest.skip(f"{missing()}; not run: {', '.join(skipped)}")


@pytest.mark.parametrize("script", ["scripts/docs.py", "scripts/pictures.py"])
def test_the_generated_parts_and_the_pictures_are_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, script, "--check"],
        cwd=ROOT,
        env=environment(COLUMNS="100", NO_COLOR="1"),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_the_readme_quotes_the_saved_benchmarks() -> None:
    figures = {name: each["figures"] for name, each in results.saved().items()}
    memory, text = figures["memory"], (ROOT / "README.md").read_text("utf-8")
    ours, newest = (memory[name]["0.1"]["answer"] for name in ("ullage.fit", "the newest messages"))
    assert f"{ours:.0%} of answers".replace("%", " %") in text
    assert f"{newest:.0%} if the newest".replace("%", " %") in text
    assert f"{figures['accuracy']['all']['openai.chat text']['exact']} % of OpenAI text counts exact" in text
    assert [each["invalid"] for each in figures["peers"]["ullage_window"].values()] == [0, 0]
    assert f"{len(figures['clients'])} set-ups of real clients" in text
    assert [each["overflows"] for each in figures["clients"].values() if each["overflows"]] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/*/*.md")]
    assert [page for page in pages if f"]({page})" not in index] == []


def test_every_picture_is_shown_on_a_page() -> None:
    shown = "".join(path.read_text("utf-8") for path in DOCUMENTS)
    assert [path.name for path in ROOT.glob("docs/pictures/*") if f"pictures/{path.name})" not in shown] == []


def test_a_picture_loads_nothing_from_elsewhere() -> None:
    for path in ROOT.glob("docs/pictures/*.svg"):
        text = path.read_text("utf-8")
        assert not re.search(r"""(?:src|href|url)\s*[=(:]\s*["']?https?:""", text), path.name


def test_a_link_to_a_missing_file_or_heading_is_reported() -> None:
    text = (
        "[a](docs/README.md) [b](docs/none.md) [c](#here) [d](#not-here) [e](https://example.org)\n"
        "# Here\n`[f](code.md)`\n```\n[g](fenced.md)\n```\n"
    )
    page = ROOT / "README.md"
    found = list(broken_links(page, text))
    assert found[0] == "README.md: there is no file docs/none.md"
    assert found[1:] == ["README.md: README.md has no heading #not-here"]
    assert anchors("# What `fit` does, and why\n") == {"what-fit-does-and-why"}


def test_the_reference_has_every_command_and_action() -> None:
    text = (ROOT / "docs" / "use" / "commands.md").read_text("utf-8")
    known = commands_under()
    assert ("sessions", "prune") in known
    assert [each for each in known if f"# {' '.join(('ullage', *each))}\n" not in text] == []


def test_an_ellipsis_stands_for_the_rest_of_a_line_or_for_lines() -> None:
    assert re.fullmatch(pattern_of("one …\n…\nlast"), "one and more\ntwo\nthree\nlast\n")
    assert not re.fullmatch(pattern_of("one …\nlast"), "one and more\ntwo\nlast\n")
