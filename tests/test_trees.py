"""The project's files in the prompt: each folder remembers whether they are sent, and how deep."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ullage import store
from ullage.broker.opening import Opened
from ullage.config.building import defaults, plain_model
from ullage.config.seats import seated
from ullage.shell import trees
from ullage.shell.desk import Desk, ledger_of
from ullage.testing import ScriptedProvider
from ullage.tokens.calibration import Calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ullage.store import Store


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    with store.open(tmp_path / "kept.db") as opened:
        yield opened


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    folder = tmp_path / "harbour"
    (folder / "quay" / "north").mkdir(parents=True)
    (folder / "quay" / "north" / "heron.txt").write_text("a boat")
    return folder


@pytest.fixture
def open_at(kept: Store) -> Callable[..., Desk]:
    """A shell's desk in a folder, as it is when the shell has just been opened there."""

    def opened(folder: Path, *, auto: bool = False) -> Desk:
        settings = defaults()
        settings = replace(settings, project=replace(settings.project, auto_tree=auto))
        provider = ScriptedProvider([])
        ledger = ledger_of(settings, kept, "s", folder)
        seat = asyncio.run(
            seated(
                Opened(provider, local=True),
                plain_model(provider.model),
                settings,
                ledger=ledger,
                calibration=Calibration(kept.calibration),
            )
        )
        desk = Desk(settings, kept, {}, folder, seat, session="s")
        trees.take_up(desk, folder)
        return desk

    return opened


def test_files_are_sent_where_that_is_asked_for_or_configured(
    open_at: Callable[..., Desk], harbour: Path
) -> None:
    assert open_at(harbour).context.project == ""
    assert "heron.txt" in open_at(harbour, auto=True).context.project


def test_what_was_asked_for_holds_when_a_shell_opens_there_again(
    open_at: Callable[..., Desk], harbour: Path
) -> None:
    shown = trees.send(open_at(harbour), harbour, 1)
    assert shown == "harbour/\n  quay/ (1 entry)"
    assert open_at(harbour).context.project == shown
    assert open_at(harbour / "quay").context.project == ""

    (harbour / "crane.txt").write_text("for cargo")
    assert "crane.txt" in open_at(harbour).context.project
    assert "heron.txt" not in trees.send(open_at(harbour), harbour)
    assert "heron.txt" in trees.send(open_at(harbour), harbour, 3)
    assert "heron.txt" in open_at(harbour).context.project


def test_off_holds_against_the_configuration_and_the_depth_comes_back_with_on(
    open_at: Callable[..., Desk], harbour: Path
) -> None:
    desk = open_at(harbour, auto=True)
    trees.send(desk, harbour, 1)
    trees.leave_out(desk, harbour)
    assert desk.context.project == ""
    assert open_at(harbour, auto=True).context.project == ""
    assert "heron.txt" not in trees.send(open_at(harbour), harbour)
    assert "quay" in open_at(harbour).context.project


def test_two_shells_that_remember_at_the_same_time_forget_nothing(
    open_at: Callable[..., Desk], harbour: Path, kept: Store
) -> None:
    def ask(name: str) -> None:
        desk = open_at(harbour)
        for number in range(25):
            trees.leave_out(desk, harbour / f"{name}{number}")

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("north", "south")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept.preferences.get(trees.TREES)) == 50
