"""The wheel, installed into fresh environments: the core alone with every Python at hand, and each extra."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.world import environment
from ullage.extras import EXTRAS

pytestmark = [pytest.mark.packages, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parent.parent
SESSION = ROOT / "examples" / "session.json"
HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)
"""The real home: pip reads its settings there, and keeps its cache."""
MINORS = (11, 12, 13, 14)
MOST_MEGABYTES = 43
"""The size of the core with all that it needs."""
MOST_BEYOND = {"gateway": 60}
"""Extra → the most megabytes of packages that it brings beyond the core."""
CORE_PARTS = ("ullage", "splintr", "orjson")

CORE = """
import json, sys
import ullage
given = json.loads(open(sys.argv[1], encoding="utf-8").read())
messages = given["messages"]
assert ullage.count(messages, "gpt-4o").tokens > 3000
fitted = ullage.fit(messages, "gpt-4o", limit=3000)
assert fitted.changed and fitted.count.ceiling <= 3000
window = ullage.Window(model="gpt-4o", limit=3000)
for each in messages:
    window.append(each)
assert list(window.fitted().messages) == list(fitted.messages)
context = ullage.Context(model="gpt-4o", system_prompt="Be brief.", token_budget=None, max_turns=None)
context.append_user("How long is the Nile?")
assert [each["role"] for each in context.to_messages()] == ["system", "user"]
assert context.estimate_tokens() > 10
optional = {"aiohttp", "rich", "prompt_toolkit", "platformdirs", "pyarrow", "mcp", "xllamacpp"}
assert not optional & set(sys.modules)
"""


class Python(NamedTuple):
    minor: int
    path: Path


def pythons() -> list[Python]:
    """One interpreter of each version: from the search path, else from pyenv."""
    found = []
    for minor in MINORS:
        name = f"python3.{minor}"
        there = shutil.which(name)
        known = sorted((HOME / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/{name}"))
        candidates = [*known, *([Path(there)] if there else [])]
        working = [path for path in candidates if _works(path)]
        if working:
            found.append(Python(minor, working[0]))
    return found


def _works(python: Path) -> bool:
    """Whether an interpreter runs and can make environments; a shim of pyenv may do neither."""
    return (
        subprocess.run([python, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0
    )


PYTHONS = pythons()


def say(line: str) -> None:
    """Prints a figure; `make packages` shows it."""
    sys.stdout.write(f"\n{line}\n")


def run(*command: object) -> str:
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        list(map(str, command)),
        env={**environment(), "HOME": str(HOME), **pip},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("ullage-*.whl")
    return built


def install(python: Path, place: Path, what: str) -> Path:
    """Makes a fresh environment with this package, and returns its folder of programs."""
    run(python, "-m", "venv", place)
    run(place / "bin" / "python", "-m", "pip", "install", "--quiet", what)
    return place / "bin"


def packages(programs: Path) -> list[str]:
    listed = run(programs / "python", "-m", "pip", "list", "--format=freeze").splitlines()
    return [each for each in listed if each.partition("==")[0] not in {"pip", "setuptools"}]


def megabytes(place: Path, *without: str) -> float:
    """The size of what was installed, without pip itself, these packages and compiled bytecode."""
    (site,) = place.glob("lib/python3.*/site-packages")
    files = [path for path in site.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    own = ("pip", "setuptools", "_distutils_hack", "pkg_resources", "distutils-precedence", *without)
    size = sum(path.stat().st_size for path in files if not path.relative_to(site).parts[0].startswith(own))
    return size / 1_000_000


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: f"3.{python.minor}")
def test_the_core_alone_counts_fits_and_holds_a_conversation(
    python: Python, wheel: Path, tmp_path: Path
) -> None:
    programs = install(python.path, tmp_path / "bare", str(wheel))
    run(programs / "python", "-I", "-W", "error", "-c", CORE, SESSION)
    assert "tokens" in run(programs / "ullage", "count", SESSION)
    assert "evicted" in run(programs / "ullage", "fit", SESSION, "--limit", 3000)
    assert "placeholder" in run(programs / "ullage", "explain", SESSION, "--limit", 3000)
    assert run(programs / "ullage", "--version").startswith("ullage ")
    assert "commands:" in run(programs / "ullage", "--help")
    names = sorted(each.partition("==")[0] for each in packages(programs))
    size = megabytes(tmp_path / "bare")
    say(f"the core with Python 3.{python.minor}: {len(names)} packages, {size:.1f} MB")
    assert names == ["orjson", "splintr-rs", "ullage"]
    assert size <= MOST_MEGABYTES


@pytest.mark.parametrize("extra", [*EXTRAS, "all"])
def test_an_extra_brings_its_modules(extra: str, wheel: Path, tmp_path: Path) -> None:
    programs = install(Path(sys.executable), tmp_path / extra, f"{wheel}[{extra}]")
    wanted = [name for name in EXTRAS if extra in {name, "all"} and (extra != "all" or name not in APART)]
    for each in wanted:
        code = (
            f"from ullage.extras import require; require({each!r}); import {', '.join(EXTRAS[each].modules)}"
        )
        run(programs / "python", "-I", "-c", code)
    beyond = megabytes(tmp_path / extra, *CORE_PARTS)
    say(f"{extra}: {len(packages(programs))} packages, {beyond:.0f} MB beyond the core")
    assert beyond <= MOST_BEYOND.get(extra, beyond)


APART = ("batch", "otel", "ray")
"""Extras that `all` leaves out, because few people need them."""


def test_the_pythons_of_the_classifiers_are_those_that_are_tried() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    named = [minor for minor in range(8, 30) if f'"Programming Language :: Python :: 3.{minor}"' in text]
    assert named == list(MINORS)
    say(f"Pythons at hand: {', '.join(f'3.{each.minor} ({each.path})' for each in PYTHONS)}")
