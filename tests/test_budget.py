"""The budget of a conversation: it follows the model, in the shell, after a switch, and in routed turns."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tests.player import Player, Request, Script, answered, playing, sent_json
from ullage import Context, store
from ullage.config import load
from ullage.session.budget import budget_for, describe_limit
from ullage.session.chat import ChatSession
from ullage.shell.screen import Screen
from ullage.shell.views import window
from ullage.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.enable_socket

FILE = """
model = "known"
routing.models.other = "unknown"

[models.known]
endpoint = "{url}/v1"
model = "gpt-4o"

[models.unknown]
endpoint = "{url}/v1"
model = "harbour-7"

[models.stated]
endpoint = "{url}/v1"
model = "harbour-7"
window = 10_000
"""
LIMITS = {"known": 128_000 - 16_384, "unknown": 4_096, "stated": 7_500}
REASONS = {
    "known": "limit: a window of 128,000 tokens less 16,384 for the answer",
    "unknown": "limit: the window of harbour-7 is not known. Set the window of the model in [models], or "
    "context.token_budget",
    "stated": "limit: a window of 10,000 tokens less 2,500 for the answer",
}


@pytest.fixture
def player() -> Iterator[Player]:
    def play(request: Request) -> Script:
        if not request.path.endswith("/chat/completions"):
            return sent_json({"error": {"message": "not found"}}, 404)
        return Script(body=answered("Seven.", prompt=1_000, completion=100))

    with playing(play) as played:
        yield played


async def opened(kept: store.Store, folder: Path, player: Player, more: str = "") -> ChatSession:
    file = folder / "config.toml"
    # A server on this machine has no price, and its reserve is smaller; a price makes it a remote one.
    priced = FILE.replace("[models.stated]", "prices.input = 1\n\n[models.stated]")
    text = priced.replace('"gpt-4o"', '"gpt-4o"\nprices.input = 1') + "prices.input = 1\n"
    file.write_text(more + text.format(url=player.url))
    return await ChatSession.open(load(file, environ={}, cwd=folder), kept, {}, folder)


def test_the_budget_follows_the_model_through_switches(player: Player, tmp_path: Path) -> None:
    async def go() -> None:
        with store.open(tmp_path / "kept.db") as kept:
            chat = await opened(kept, tmp_path, player)
            for name in ("known", "unknown", "known", "stated", "unknown", "stated"):
                await chat.use_model(name)
                assert chat.context.limit == LIMITS[name]
                assert chat.describe_limit() == REASONS[name]
            await chat.close()

    asyncio.run(go())


def test_a_routed_turn_has_the_budget_of_its_model_and_the_next_turn_its_own(
    player: Player, tmp_path: Path
) -> None:
    async def go() -> None:
        with store.open(tmp_path / "kept.db") as kept:
            chat = await opened(kept, tmp_path, player)
            async with chat.routed("other"):
                assert chat.context.limit == LIMITS["unknown"]
                assert chat.context.token_budget == LIMITS["unknown"]
            assert chat.context.limit == LIMITS["known"]
            assert chat.context.token_budget is None
            await chat.close()

    asyncio.run(go())


def test_a_configured_budget_holds_for_every_model(player: Player, tmp_path: Path) -> None:
    async def go() -> None:
        with store.open(tmp_path / "kept.db") as kept:
            chat = await opened(kept, tmp_path, player, "context.token_budget = 5_000\n")
            for name in LIMITS:
                await chat.use_model(name)
                assert chat.context.limit == 5_000
                assert "context.token_budget = 5,000" in chat.describe_limit()
            chat.context.lower_limit(3_000)
            assert "3,000 tokens, lowered when the server refused" in chat.describe_limit()
            await chat.close()

    asyncio.run(go())


def test_no_turn_leaves_for_its_number(player: Player, tmp_path: Path) -> None:
    async def go() -> None:
        with store.open(tmp_path / "kept.db") as kept:
            chat = await opened(kept, tmp_path, player)
            for number in range(60):
                chat.context.append_user(f"Question {number}?")
                chat.context.append({"role": "assistant", "content": f"Answer {number}."})
            assert len(chat.context.to_messages()) == 1 + 120
            await chat.close()

    asyncio.run(go())


def test_the_window_view_names_the_next_to_go_only_if_a_trim_may_be_near(
    player: Player, tmp_path: Path
) -> None:
    def shown(chat: ChatSession) -> str:
        out = Console(file=io.StringIO(), width=90)
        out.print(window(chat, Screen(out, keyboard=io.StringIO())))
        return out.file.getvalue()  # type: ignore[attr-defined]

    async def go() -> None:
        with store.open(tmp_path / "kept.db") as kept:
            chat = await opened(kept, tmp_path, player)
            for number in range(60):
                chat.context.append_user(f"Question {number}: {'how many boats are there? ' * 5}")
                chat.context.append({"role": "assistant", "content": f"Answer {number}."})
            assert "next trim" not in shown(chat)
            assert REASONS["known"] in shown(chat)
            await chat.use_model("unknown")
            assert "the next trim removes" in shown(chat)
            await chat.close()

    asyncio.run(go())


def test_only_a_model_without_a_window_gets_the_small_budget() -> None:
    unknown, known = Target(model="harbour-7"), Target(model="gpt-4o")
    assert budget_for(None, unknown, None) == 4_096
    assert budget_for(None, unknown, 9_000) is None
    assert budget_for(None, known, None) is None
    assert budget_for(9_000, unknown, None) == 9_000


def test_a_provider_that_takes_less_input_than_its_window_is_described() -> None:
    context = Context(model="gpt-5", token_budget=None)
    assert context.limit == 272_000
    assert describe_limit(context.bounds, None) == "limit: the most input tokens of a window of 400,000"
