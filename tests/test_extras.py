"""The core works without optional packages; a missing one is reported with the command that installs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.world import PATIENCE, environment
from ullage.cli.command_table import COMMANDS, spec_of
from ullage.errors import MissingExtra
from ullage.extras import EXTRAS, ExtraName, is_there, require

ROOT = Path(__file__).resolve().parent.parent
SESSION = ROOT / "examples" / "session.json"
CORE_ALONE = """
import sys
from ullage.extras import EXTRAS
for extra in EXTRAS.values():
    sys.modules.update(dict.fromkeys(extra.modules))  # None: importing it fails
"""
"""The start of a program for which no optional package is installed."""
REQUEST = """
import asyncio
from ullage.broker.http import Transport
async def ask():
    async with Transport() as transport:
        await transport.json("GET", "http://127.0.0.1:9/", {})
asyncio.run(ask())
"""


def without_extras(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CORE_ALONE + program, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        check=False,
        text=True,
    )


def ullage(*arguments: object) -> subprocess.CompletedProcess[str]:
    return without_extras("from ullage.cli import main; sys.exit(main())", *arguments)


def brought_by(extra: str) -> set[str]:
    """The modules of an extra in pyproject.toml, with those of the extras that it includes."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    found: set[str] = set()
    for package in extras[extra]:
        name, within = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", package).groups()  # type: ignore[union-attr]
        if name == "ullage":
            found |= set().union(*map(brought_by, within.split(",")))
        elif ";" not in package:
            found.add(name.replace("-", "_"))
    return found


def test_the_table_of_extras_is_that_of_the_package() -> None:
    for extra, row in EXTRAS.items():
        assert brought_by(extra) == {module.replace(".", "_") for module in row.modules}, extra
    apart = {"batch", "otel", "ray"}
    most = set().union(*(set(row.modules) for extra, row in EXTRAS.items() if extra not in apart))
    assert brought_by("all") == most


def test_what_is_there_is_not_missing() -> None:
    require("shell")
    require("batch")
    assert is_there("rich")
    assert not is_there("no_such_package")


@pytest.mark.parametrize("command", ["count", "fit", "explain"])
def test_the_core_counts_fits_and_explains_for_people(command: str) -> None:
    done = ullage(command, SESSION, "--limit", 3000)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{SESSION} · tidebook-TB-2291 · gpt-4o · ")
    shown = {"count": "system [1-9]", "fit": "evicted", "explain": r"placeholder: \w"}
    assert re.search(shown[command], done.stdout)


def test_the_core_says_the_same_to_programs(tmp_path: Path) -> None:
    with_all = subprocess.run(
        [str(Path(sys.executable).with_name("ullage")), "fit", "--json", "--limit", "3000", str(SESSION)],
        env=environment(),
        capture_output=True,
        check=True,
        text=True,
    )
    assert ullage("fit", "--json", "--limit", 3000, SESSION).stdout == with_all.stdout
    out = tmp_path / "out.jsonl"
    assert ullage("fit", "--limit", 3000, SESSION, "-o", out).returncode == 0
    assert out.read_text() == with_all.stdout


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish", "man"])
def test_the_core_prints_completions_and_the_manual(kind: str) -> None:
    done = ullage("completions", kind)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ullage" in done.stdout


def test_the_core_reports_bad_and_large_requests() -> None:
    done = ullage("explain", SESSION, "--limit", 60)
    assert done.returncode == 3
    assert done.stdout.startswith("The part that must be sent does not fit into 60 tokens:\n  system ")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_needs_no_extra(arguments: list[str]) -> None:
    done = ullage(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ullage" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-c", "ls"],
        ["ask", "Hello?"],
        ["model", "list"],
        ["config", "show"],
        ["demo", "--fast"],
        ["cost"],
        ["memory", "list"],
        ["recall", "x"],
        ["sessions", "list"],
    ],
)
def test_a_command_that_needs_an_extra_says_how_to_get_it(arguments: list[str]) -> None:
    done = ullage(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"ullage: The shell and its commands need the packages rich, .*\. "
        r"Install with: pip install 'ullage\[shell\]'\n",
        done.stderr,
    )


ALLOWED = """
import sys
from ullage.extras import EXTRAS
kept = set(EXTRAS["gateway"].modules)
sys.modules.update(dict.fromkeys(each for row in EXTRAS.values() for each in row.modules if each not in kept))
from ullage.cli import main
sys.exit(main())
"""
"""The command, for which only the packages of the gateway are installed."""


@pytest.mark.enable_socket
def test_the_gateway_and_its_keys_need_no_package_of_the_shell(tmp_path: Path) -> None:
    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", ALLOWED, *arguments, "--store", str(tmp_path / "ullage.db")]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment(tmp_path), stdout=pipe, stderr=pipe, text=True)

    made = start("keys", "create", "team")
    assert made.communicate(timeout=PATIENCE)[0].startswith("ullage-")
    serving = start("serve", "--port", "0", "--upstream", "http://127.0.0.1:9")
    assert serving.stderr is not None
    assert any("listening on" in line for line in serving.stderr)
    serving.terminate()
    serving.communicate(timeout=PATIENCE)
    assert serving.returncode == 0
    assert "The gateway needs the packages uvicorn" in ullage("serve").stderr
    assert "The gateway needs the packages uvicorn" in ullage("run", "claude").stderr


def test_every_command_is_of_the_core_or_is_tried_here() -> None:
    assert {name for name in COMMANDS if spec_of(name).extra is None} == {
        "count", "fit", "explain", "completions",
    }  # fmt: skip


def test_files_and_engines_that_need_an_extra_say_how_to_get_it(tmp_path: Path) -> None:
    table = tmp_path / "some.parquet"
    pq.write_table(pa.table({"messages": ["[]"]}), table)
    expected = "ullage: Parquet files need the package pyarrow. Install with: pip install 'ullage[batch]'\n"
    assert ullage("count", table).stderr == expected
    assert ullage("count", SESSION, "-o", tmp_path / "out.parquet").stderr == expected
    assert "pip install 'ullage[ray]'" in ullage("count", SESSION, "--engine", "ray").stderr


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("client", "import ullage.store; ullage.store.open()"),
        (
            "client",
            REQUEST,
        ),
        ("local", "from ullage.broker.embedded import weights; weights.locate_download()"),
        ("shell", "from ullage.safety.parse import parse; parse('ls')"),
    ],
)
def test_a_library_call_that_needs_an_extra_raises_a_typed_error(extra: ExtraName, program: str) -> None:
    done = without_extras(program)
    assert done.returncode == 1
    assert f"ullage.errors.MissingExtra: {EXTRAS[extra].purpose} the package" in done.stderr
    assert done.stderr.endswith(f"Install with: pip install 'ullage[{extra}]'\n")


def test_the_error_has_the_names_and_the_command() -> None:
    error = MissingExtra("Parquet files need", "batch", ["pyarrow"])
    assert (error.extra, error.modules, error.command) == (
        "batch",
        ("pyarrow",),
        "pip install 'ullage[batch]'",
    )


def test_a_count_in_the_core_is_that_of_the_whole() -> None:
    import ullage as whole

    session = json.loads(SESSION.read_text())
    counted = without_extras(
        "import json, ullage\n"
        "given = json.loads(open(sys.argv[1]).read())\n"
        "window = ullage.Window(model='gpt-4o', limit=3000)\n"
        "for each in given['messages']: window.append(each)\n"
        "context = ullage.Context(model='gpt-4o')\n"
        "context.append_user('Hello')\n"
        "print(ullage.count(given['messages'], 'gpt-4o').tokens, len(window.fitted().messages),"
        " len(context.to_messages()))",
        SESSION,
    )
    assert counted.stderr == ""
    tokens, messages, turns = map(int, counted.stdout.split())
    assert tokens == whole.count(session["messages"], "gpt-4o").tokens
    assert messages == len(whole.fit(session["messages"], "gpt-4o", limit=3000).messages)
    assert turns == 2
