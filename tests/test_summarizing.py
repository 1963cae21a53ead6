"""Summaries in the shell: written by the model that is named for it, on the bill, and never in the way."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.player import Player, Request, Script, answered, playing, sent_json
from ullage import store
from ullage.config import load
from ullage.shell.desk import Desk
from ullage.shell.loop import Shell
from ullage.shell.running import Runner
from ullage.shell.screen import Screen
from ullage.shell.summarizing import PROMPT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.enable_socket

NOTES = "The user counts boats; seven are at the quay."
FILE = """
model = "main"
[models.main]
endpoint = "{url}/v1"
model = "gpt-4o"
[models.notes]
endpoint = "{url}/v1"
model = "{notes}"
window = 3_000
prices = {{ input = 0.10, output = 0.30 }}
[routing.models]
summarize = "notes"
[context]
token_budget = 1_200
reserved_output = 200
max_summary_chars = 300
"""


def play(request: Request) -> Script:
    if not request.path.endswith("/chat/completions"):
        return sent_json({"error": {"message": "not found"}}, 404)
    body = request.json()
    if body["model"] == "refused-notes":
        return sent_json({"error": {"message": "no such model"}}, 404)
    text = f"Boat {len(body['messages'])} is at the quay. " * 5
    return Script(body=answered(NOTES if body["model"] == "notes" else text))


@pytest.fixture
def player() -> Iterator[Player]:
    with playing(play) as played:
        yield played


def talk(player: Player, folder: Path, notes: str, questions: int) -> tuple[Shell, str]:
    """A shell after a number of questions, and all that it has shown."""
    file = folder / "config.toml"
    file.write_text(FILE.format(url=player.url, notes=notes))
    shown = io.StringIO()

    async def go() -> Shell:
        desk = await Desk.open(load(file, environ={}, cwd=folder), kept, {}, folder)
        shell = Shell(desk, Screen(Console(file=shown, width=110), keyboard=io.StringIO()), runner)
        for number in range(questions):
            await shell.act(f"?Question {number}: how many boats are at the quay? Tell all of them, please.")
        await shell.close()
        return shell

    runner = Runner(cwd=folder, environ={})
    try:
        with store.open(folder / "kept.db") as kept:
            return asyncio.run(go()), shown.getvalue()
    finally:
        runner.close()


def sent_to(player: Player, model: str) -> list[Any]:
    asked = [request.json() for request in player.requests if request.path.endswith("/chat/completions")]
    return [body["messages"] for body in asked if body["model"] == model]


def test_what_leaves_the_window_stands_in_the_summary(player: Player, tmp_path: Path) -> None:
    shell, shown = talk(player, tmp_path, "notes", 20)
    system, asked = sent_to(player, "notes")[0]
    assert system["content"] == PROMPT
    assert "in at most 300 characters" in asked["content"]
    assert "[user] Question 0:" in asked["content"]
    assert "[assistant] Boat 2 is at the quay." in asked["content"]
    assert NOTES in sent_to(player, "notes")[1][1]["content"]
    assert f"[earlier conversation summary]\n{NOTES}" in sent_to(player, "gpt-4o")[-1][0]["content"]
    assert shell.desk.context.summary == NOTES
    assert "left the window" in shown
    assert "no summary" not in shown


def test_summaries_are_on_the_bill_of_the_conversation(player: Player, tmp_path: Path) -> None:
    shell, _ = talk(player, tmp_path, "notes", 20)
    slot = shell.desk.context.meter.slots["notes", "summarize"]
    assert slot.calls == len(sent_to(player, "notes")) >= 2
    assert slot.cost
    with store.open(tmp_path / "kept.db") as kept:
        booked = {(account.model, account.category): entry.calls for account, entry in kept.book.entries()}
    assert booked["notes", "summarize"] == slot.calls


def test_a_summarizer_that_fails_is_told_once_and_stops_nothing(player: Player, tmp_path: Path) -> None:
    shell, shown = talk(player, tmp_path, "refused-notes", 20)
    assert len(shell.desk.context) == 40
    assert shell.desk.context.summary == ""
    assert shown.count("no summary was written of it:") == 1
    assert "no such model" in shown
