"""The project's files in the prompt: each folder remembers whether they are sent, and how deep."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ullage import store
from ullage.broker.resolve import Opened
from ullage.config.builder import defaults, plain_model
from ullage.session.accounts import ledger_for
from ullage.session.chat import ChatSession
from ullage.session.model_pool import open_model_on
from ullage.session.preferences import PROJECT_TREES
from ullage.shell.project_tree import leave_out_tree, restore_tree, send_tree
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


def send(chat: ChatSession, folder: Path, depth: int | None = None) -> str:
    return send_tree(chat.context, chat.kept.preferences, chat.settings.project, folder, depth)


@pytest.fixture
def open_at(kept: Store) -> Callable[..., ChatSession]:
    """A shell's chat in a folder, as it is when the shell has just been opened there."""

    def opened(folder: Path, *, auto: bool = False) -> ChatSession:
        settings = defaults()
        settings = replace(settings, project=replace(settings.project, auto_tree=auto))
        provider = ScriptedProvider([])
        ledger = ledger_for(settings, kept, "s", folder.name)
        open_model = asyncio.run(
            open_model_on(
                Opened(provider, local=True),
                plain_model(provider.target.model),
                settings,
                ledger=ledger,
                calibration=Calibration(kept.calibration),
            )
        )
        chat = ChatSession(settings, kept, {}, folder, open_model, session="s")
        restore_tree(chat.context, kept.preferences, settings.project, folder)
        return chat

    return opened


def test_files_are_sent_where_that_is_asked_for_or_configured(
    open_at: Callable[..., ChatSession], harbour: Path
) -> None:
    assert open_at(harbour).context.project == ""
    assert "heron.txt" in open_at(harbour, auto=True).context.project


def test_what_was_asked_for_holds_when_a_shell_opens_there_again(
    open_at: Callable[..., ChatSession], harbour: Path
) -> None:
    shown = send(open_at(harbour), harbour, 1)
    assert shown == "harbour/\n  quay/ (1 entry)"
    assert open_at(harbour).context.project == shown
    assert open_at(harbour / "quay").context.project == ""

    (harbour / "crane.txt").write_text("for cargo")
    assert "crane.txt" in open_at(harbour).context.project
    assert "heron.txt" not in send(open_at(harbour), harbour)
    assert "heron.txt" in send(open_at(harbour), harbour, 3)
    assert "heron.txt" in open_at(harbour).context.project


def test_off_holds_against_the_configuration_and_the_depth_comes_back_with_on(
    open_at: Callable[..., ChatSession], harbour: Path
) -> None:
    chat = open_at(harbour, auto=True)
    send(chat, harbour, 1)
    leave_out_tree(chat.context, chat.kept.preferences, harbour)
    assert chat.context.project == ""
    assert open_at(harbour, auto=True).context.project == ""
    assert "heron.txt" not in send(open_at(harbour), harbour)
    assert "quay" in open_at(harbour).context.project


def test_two_shells_that_remember_at_the_same_time_forget_nothing(
    open_at: Callable[..., ChatSession], harbour: Path, kept: Store
) -> None:
    def ask(name: str) -> None:
        chat = open_at(harbour)
        for number in range(25):
            leave_out_tree(chat.context, chat.kept.preferences, harbour / f"{name}{number}")

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("north", "south")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(PROJECT_TREES.get(kept.preferences)) == 50
