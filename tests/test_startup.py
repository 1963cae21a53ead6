"""Opening a shell: what is behind the prompt arrives, fails or is left behind, and nothing stays open."""

from __future__ import annotations

import asyncio
import gc
import io
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from bench.startup import started, starts
from rich.console import Console

from tests import world
from tests.llama import needs_local
from tests.terminal import PROGRAM, opened
from ullage import store
from ullage.cli import main
from ullage.config import defaults
from ullage.errors import ConfigurationError
from ullage.session.model_choice import choose_model
from ullage.session.preferences import CHOSEN_MODEL
from ullage.shell.detached import is_running, run_detached
from ullage.shell.screen import Screen
from ullage.shell.startup import Startup

if TYPE_CHECKING:
    from pathlib import Path


def environment(folder: Path) -> dict[str, str]:
    return world.environment(folder, XDG_STATE_HOME=str(folder), NO_PROXY="*")


def remember(folder: Path, model: str) -> None:
    with store.open(folder / "kept.db") as kept:
        CHOSEN_MODEL.set(kept.preferences, model)


def shell(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments, "--store", str(folder / "kept.db")],
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        env=environment(folder),
        cwd=folder,
    )


@pytest.mark.parametrize("model", ["embedded", "http://127.0.0.1:9/v1"])
def test_leaving_while_it_is_opened_is_quiet(model: str, tmp_path: Path) -> None:
    arguments = ("--model", model, "--store", str(tmp_path / "kept.db"))
    with opened(*arguments, env=environment(tmp_path), cwd=tmp_path) as terminal:
        greeted = terminal.ready().rstrip().splitlines()
        assert terminal.leave() == 0
        told = "http://127.0.0.1:9 does not answer"  # it may be said in this moment
        left = [line for line in terminal.text.rstrip().splitlines() if told not in line]
        assert left == greeted[: len(left)]


def test_a_loop_does_not_wait_for_work_that_was_left_behind() -> None:
    over = threading.Event()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_detached(over.wait), 0.01)

    asyncio.run(leave())  # would not return before the work does
    assert is_running()
    over.set()


def test_work_apart_gives_what_it_gives_and_raises_what_it_raises() -> None:
    assert asyncio.run(run_detached(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_detached(lambda: 1 // 0))


@needs_local
def test_a_shell_that_cannot_be_made_leaves_no_model_open(tmp_path: Path) -> None:
    with store.open(tmp_path / "kept.db") as kept:
        screen = Screen(Console(file=io.StringIO()), keyboard=io.StringIO())
        opening = Startup(defaults(), kept, screen, {"PATH": "/nowhere"}, tmp_path)

        async def go() -> None:
            with pytest.raises(ConfigurationError, match="bash"):
                await opening.wait_until_open()
            await opening.close()

        asyncio.run(go())
    assert not [each.name for each in threading.enumerate() if each.name.startswith("ullage-embedded")]


@needs_local
@pytest.mark.parametrize("last", ["gone", "/nowhere/model.gguf"])
def test_a_model_that_was_chosen_and_is_gone_locks_nobody_out(last: str, tmp_path: Path) -> None:
    remember(tmp_path, last)
    done = shell(tmp_path, "-c", ":model")
    assert done.returncode == 0
    assert done.stdout.startswith("embedded ")
    assert f"the model chosen last, {last}, cannot be found: embedded answers" in done.stderr
    assert "ullage model use NAME" in done.stderr
    with opened("--store", str(tmp_path / "kept.db"), env=environment(tmp_path), cwd=tmp_path) as terminal:
        assert "cannot be found: embedded answers instead" in terminal.ready()


def test_a_model_that_is_named_and_leads_nowhere_is_wrong_usage(tmp_path: Path) -> None:
    remember(tmp_path, "gone")
    done = shell(tmp_path, "--model=lost", "-c", ":model")
    assert done.returncode == 2
    assert "lost" in done.stderr
    assert "gone" not in done.stderr


def test_a_model_that_was_chosen_and_is_there_answers(tmp_path: Path) -> None:
    file = tmp_path / "large.gguf"
    file.touch()
    with store.open(tmp_path / "kept.db") as kept:
        for last in (str(file), "openai/gpt-4o", "embedded", "http://127.0.0.1:9/v1"):
            CHOSEN_MODEL.set(kept.preferences, last)
            assert choose_model(defaults(), kept.preferences) == (defaults().model(last), "")


def test_the_collector_is_on_again_after_a_configuration_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("modell = 1\n")
    assert main(["--config", str(file), "--store", str(tmp_path / "kept.db")]) == 2
    assert "modell" in capsys.readouterr().err
    assert gc.isenabled()


@needs_local
@pytest.mark.parametrize("arguments", [("--model=embedded", "-c", ":model"), ("-c:model",), ("-c=:model",)])
def test_an_option_and_its_value_may_be_one_argument(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = shell(tmp_path, *arguments)
    assert done.stderr == ""
    assert done.stdout.startswith("embedded ")


def test_the_benchmark_of_the_start_finds_the_prompt(tmp_path: Path) -> None:
    taken = started(starts(tmp_path, "http://127.0.0.1:9/v1")["ullage, remote"])
    assert 0 < taken.cpu <= taken.rest
