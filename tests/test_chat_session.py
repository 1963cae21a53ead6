"""The chat: each model is opened once, all are closed, and what is under way is settled first."""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.benches import answer
from tests.llama import needs_local
from tests.player import Player, Request, Script, answered, playing, sent_json
from ullage import store
from ullage.broker.resolve import Opened
from ullage.config import defaults, load
from ullage.config.builder import plain_model
from ullage.context import DEFAULT_PROMPT
from ullage.context.journal import JournalEvent
from ullage.cost import Ledger
from ullage.errors import InvalidConversation
from ullage.session.accounts import ledger_for
from ullage.session.chat import MOST_STEPS, CallsStopped, ChatSession
from ullage.session.model_pool import PROMPTS, ModelPool, open_model_for, open_model_on
from ullage.testing import ScriptedProvider
from ullage.tokens.calibration import Calibration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ullage.config import Settings
    from ullage.store import Store

pytestmark = pytest.mark.enable_socket

FILE = """
model = "large"

[models.large]
endpoint = "{url}/v1"
model = "gpt-4o"
window = 64_000

[models.middle]
endpoint = "{url}/v1"
model = "mistral-small"
window = 8_000

[routing.models]
write = "middle"
check = "middle"
plan = "large"

[routing.system_prompts]
write = "Write."
check = "Check."
"""


@pytest.fixture
def player() -> Iterator[Player]:
    def play(request: Request) -> Script:
        asked = request.path.endswith("/chat/completions")
        return Script(body=answered("Seven.")) if asked else sent_json({"error": {"message": "no"}}, 404)

    with playing(play) as played:
        yield played


@pytest.fixture
def settings(player: Player, tmp_path: Path) -> Settings:
    file = tmp_path / "config.toml"
    file.write_text(FILE.format(url=player.url))
    return load(file, environ={}, cwd=tmp_path)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    with store.open(tmp_path / "kept.db") as opened:
        yield opened


async def allow(_: str, __: str) -> bool:
    return True


async def ask(chat: ChatSession) -> list[Any]:
    chat.context.append_user("How many boats?")
    return [event async for event in chat.answer(allow)]


def loaded() -> int:
    """How many models run in this process."""
    return len({each.name for each in threading.enumerate() if each.name.startswith("ullage-embedded")})


def test_a_model_is_opened_once_however_many_classes_have_it(
    settings: Settings, kept: Store, tmp_path: Path
) -> None:
    async def go() -> None:
        chat = await ChatSession.open(settings, kept, {}, tmp_path)
        main, seen = chat.client, []
        for kind in ("write", "check", "plan", "main"):
            async with chat.routed(kind):
                seen.append((chat.client, chat.open_model.prompt))
        write, check, plan, usual = seen
        assert write[0] is check[0] is not main
        assert (write[1], check[1]) == ("Write.", "Check.")
        assert plan[0] is usual[0] is main
        await chat.close()

    asyncio.run(go())


def test_a_model_that_a_class_has_stays_open_when_another_one_answers(
    settings: Settings, kept: Store, tmp_path: Path
) -> None:
    async def go() -> None:
        chat = await ChatSession.open(settings, kept, {}, tmp_path)
        large = chat.client
        await chat.use_model("middle")
        async with chat.routed("plan"):
            assert chat.client is large
            await ask(chat)
        middle = chat.client
        async with chat.routed("write"):
            assert chat.client is middle
        await chat.use_model("middle")
        await ask(chat)
        await chat.close()

    asyncio.run(go())


@needs_local
def test_a_model_in_this_process_is_loaded_once_also_for_another_loop() -> None:
    settings = defaults()
    model = settings.model("embedded")

    async def go() -> None:
        ledger, calibration = Ledger(), Calibration()
        first = await open_model_for(model, settings, environ={}, ledger=ledger, calibration=calibration)
        pool = ModelPool(first, settings, {})

        async def elsewhere() -> object:
            async with AsyncExitStack() as closing:
                open_model = await pool.open_for_other_loop(model, closing)
                assert open_model.client is not first.client
                return open_model.client.provider

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) is first.client.provider
        assert first.client.provider.status != "closed"  # type: ignore[attr-defined]
        await pool.close()
        assert first.client.provider.status == "closed"  # type: ignore[attr-defined]

    asyncio.run(go())


class Stubborn(ScriptedProvider):
    """A provider that cannot be closed."""

    async def close(self) -> None:
        raise OSError("the connection was reset")


def test_every_model_is_closed_whatever_one_of_them_does(
    player: Player, settings: Settings, kept: Store, tmp_path: Path
) -> None:
    async def go() -> None:
        open_model = await open_model_on(
            Opened(Stubborn([]), local=True),
            plain_model("stubborn"),
            settings,
            ledger=ledger_for(settings, kept, "s", tmp_path.name),
            calibration=Calibration(kept.calibration),
        )
        chat = ChatSession(settings, kept, {}, tmp_path, open_model, session="s")
        async with chat.routed("write"):
            await ask(chat)
            await ask(chat)
            assert player.connections == 1
        with pytest.raises(OSError, match="reset"):
            await chat.close()
        async with chat.routed("write"):
            await ask(chat)
            assert player.connections == 2
            await chat.open_model.close()

    asyncio.run(go())


@needs_local
def test_a_conversation_that_cannot_be_taken_up_leaves_no_model_open(kept: Store, tmp_path: Path) -> None:
    session = uuid.uuid4().hex
    kept.journal.append(session, 0, JournalEvent("from a later version", {}))
    before = loaded()
    with pytest.raises(InvalidConversation):
        asyncio.run(ChatSession.open(defaults(), kept, {}, tmp_path, session=session))
    assert loaded() == before


def test_a_model_that_calls_without_end_is_stopped_and_that_is_told(tmp_path: Path, kept: Store) -> None:
    call = {
        "index": 0,
        "id": "c",
        "type": "function",
        "function": {"name": "recall", "arguments": '{"handle":"abcdefgh"}'},
    }
    events = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    body = b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events) + b"data: [DONE]\n\n"
    with playing(Script(body=body)) as player:
        file = tmp_path / "config.toml"
        file.write_text(FILE.format(url=player.url))

        async def go() -> None:
            chat = await ChatSession.open(load(file, environ={}, cwd=tmp_path), kept, {}, tmp_path)
            assert (await ask(chat))[-1] == CallsStopped(MOST_STEPS)
            await chat.close()

        asyncio.run(go())
        assert len(player.requests) == MOST_STEPS


# The prompt of the embedded model ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        ("embedded", "main", {}, PROMPTS["embedded"]),
        ("embedded", "goal", {}, DEFAULT_PROMPT),
        ("embedded", "main", {"main": "Be short."}, "Be short."),
        ("embedded", "write", {"write": "Write."}, "Write."),
        ("another", "main", {}, DEFAULT_PROMPT),
    ],
)
def test_only_the_embedded_model_is_not_asked_for_commands(
    kept: Store, tmp_path: Path, case: tuple[str, str, dict[str, str], str]
) -> None:
    name, category, configured, prompt = case
    settings = replace(defaults(), routing=replace(defaults().routing, system_prompts=configured))
    ledger = ledger_for(settings, kept, "s", tmp_path.name)
    provider = ScriptedProvider([answer("Seven.")])
    calibration = Calibration(kept.calibration)
    opening = open_model_on(
        Opened(provider, True), plain_model(name), settings, ledger=ledger, calibration=calibration
    )

    async def sent() -> str:
        chat = ChatSession(settings, kept, {}, tmp_path, await opening, session="s")
        chat.context.append_user("How many boats?")
        async with chat.routed(category):
            async for _ in chat.answer(allow, category=category):
                pass
        return str(provider.asked[0].messages[0]["content"])

    assert asyncio.run(sent()) == prompt
