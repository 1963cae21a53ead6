"""Summaries in the shell: written by the model that is named for it, on the bill, and never in the way."""

from __future__ import annotations

import asyncio
import io
import threading
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.player import Player, Request, Script, answered, playing, sent_json
from tests.world import PATIENCE
from ullage import store
from ullage.config import load
from ullage.session.chat import ChatSession
from ullage.session.summarizer import PROMPT
from ullage.shell.loop import Shell
from ullage.shell.screen import Screen
from ullage.terminal import Runner
from ullage.tokens import count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ullage.store import Store

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


def talk(
    player: Player, folder: Path, notes: str, questions: int, configured: str = FILE
) -> tuple[Shell, str]:
    """A shell after a number of questions, and all that it has shown."""
    file = folder / "config.toml"
    file.write_text(configured.format(url=player.url, notes=notes))
    shown = io.StringIO()

    async def go() -> Shell:
        chat = await ChatSession.open(load(file, environ={}, cwd=folder), kept, {}, folder)
        shell = Shell(
            chat, Screen(Console(file=shown, width=110), keyboard=io.StringIO(), errors=shown), runner
        )
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


def test_a_model_without_a_known_window_writes_summaries_too(player: Player, tmp_path: Path) -> None:
    shell, shown = talk(player, tmp_path, "notes", 30, FILE.replace("window = 3_000\n", ""))
    assert shell.chat.context.summary == NOTES
    assert "no summary" not in shown


def test_what_leaves_the_window_stands_in_the_summary(player: Player, tmp_path: Path) -> None:
    shell, shown = talk(player, tmp_path, "notes", 30)
    system, asked = sent_to(player, "notes")[0]
    assert system["content"] == PROMPT
    assert "in at most 300 characters" in asked["content"]
    assert "[user] Question 0:" in asked["content"]
    assert "[assistant] Boat 2 is at the quay." in asked["content"]
    assert NOTES in sent_to(player, "notes")[1][1]["content"]
    assert f"[earlier conversation summary]\n{NOTES}" in sent_to(player, "gpt-4o")[-1][0]["content"]
    assert shell.chat.context.summary == NOTES
    assert "no longer sent" in shown
    assert "no summary" not in shown


def test_summaries_are_on_the_bill_of_the_conversation(player: Player, tmp_path: Path) -> None:
    shell, _ = talk(player, tmp_path, "notes", 30)
    slot = shell.chat.context.meter.slots["notes", "summarize"]
    assert slot.calls == len(sent_to(player, "notes")) >= 2
    assert slot.cost
    with store.open(tmp_path / "kept.db") as kept:
        booked = {(account.model, account.category): entry.calls for account, entry in kept.book.entries()}
    assert booked["notes", "summarize"] == slot.calls


def test_a_summarizer_that_fails_is_told_once_and_stops_nothing(player: Player, tmp_path: Path) -> None:
    shell, shown = talk(player, tmp_path, "refused-notes", 30)
    assert len(shell.chat.context) == 60
    assert shell.chat.context.summary == ""
    assert shown.count("no summary of the removed turns was written:") == 1
    assert "no such model" in shown


SLOW = Script(body=answered(NOTES), piece=20, pause=0.1)
LATE = FILE.replace("[context]", "[cost]\nwarn_at_tokens = 30_000\n[context]")


def play_slowly(request: Request) -> Script:
    """Answers that tell what they used, so that a summary is begun before it is needed; and slow notes."""
    script = play(request)
    if not request.path.endswith("/chat/completions"):
        return script
    body = request.json()
    if body["model"] == "notes":
        return SLOW
    prompt = count(body["messages"], "gpt-4o", body.get("tools")).tokens
    return Script(body=answered("Boats are at the quay. " * 5, prompt=prompt))


def writing() -> bool:
    """Whether there is a thread for summaries; each test ends its own."""
    return any(each.name == "ullage-notes" for each in threading.enumerate())


async def until_written(chat: ChatSession, player: Player) -> None:
    """Talks until a summary is being written, and no answer waits for it."""
    while not writing():
        chat.context.append_user("How many boats are at the quay? Tell all of them, please.")
        async for _ in chat.answer(allow):
            pass
    async with asyncio.timeout(PATIENCE):
        while not sent_to(player, "notes"):
            await asyncio.sleep(0.01)


async def allow(_: str, __: str) -> bool:
    return False


def held(kept: Store, session: str) -> tuple[int, Any]:
    """How many summaries are on the bill, and what is held for calls that have not ended."""
    calls = sum(entry.calls for account, entry in kept.book.entries() if account.category == "summarize")
    return calls, kept.book.used("session", session)[1]


@pytest.mark.parametrize("how", ["close", "resume", "undo", "reset"])
def test_a_summary_that_is_broken_off_is_on_the_bill_and_nothing_is_held(how: str, tmp_path: Path) -> None:
    async def go(player: Player, kept: Store) -> None:
        file = tmp_path / "config.toml"
        file.write_text(FILE.format(url=player.url, notes="notes"))
        settings = load(file, environ={}, cwd=tmp_path)
        other = await ChatSession.open(settings, kept, {}, tmp_path)
        other.context.append_user("Another conversation.")
        await other.close()
        chat = await ChatSession.open(settings, kept, {}, tmp_path)
        session = chat.context.session
        await until_written(chat, player)
        calls, dollars = held(kept, session)
        assert calls == 0 < dollars
        if how == "resume":
            chat.resume(other.context.session)
            assert held(kept, session) == (1, 0)
        elif how != "close":
            getattr(chat.context, how)()
            assert await asyncio.to_thread(player.wait_left)
        await chat.close()
        assert held(kept, session) == (1, 0)
        assert not writing()

    with playing(play_slowly) as player, store.open(tmp_path / "kept.db") as kept:
        asyncio.run(go(player, kept))


def test_a_warning_that_a_summary_is_the_first_to_reach_is_shown(tmp_path: Path) -> None:
    def play_dearly(request: Request) -> Script:
        script = play(request)
        if request.path.endswith("/chat/completions") and request.json()["model"] == "notes":
            return Script(body=answered(NOTES, prompt=20_000))
        return script

    with playing(play_dearly) as player:
        _, shown = talk(player, tmp_path, "notes", 30, LATE)
    assert shown.count("the warning is set at 30,000") == 1


def test_the_model_that_writes_is_opened_once(player: Player, tmp_path: Path) -> None:
    known = FILE.replace('model = "gpt-4o"', 'model = "gpt-4o"\nwindow = 128_000')
    talk(player, tmp_path, "notes", 40, known)
    assert len(sent_to(player, "notes")) > 2
    assert player.connections == 2
