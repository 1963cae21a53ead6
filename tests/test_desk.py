"""The desk: each model is opened once, all are closed, and what is under way is settled first."""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.player import Player, Request, Script, answered, playing, sent_json
from ullage import store
from ullage.broker.opening import Opened
from ullage.config import defaults, load
from ullage.config.building import plain_model
from ullage.config.seats import Seats, seat_for, seated
from ullage.context.journal import Event
from ullage.cost import Ledger
from ullage.errors import InvalidConversation
from ullage.shell.desk import MOST_STEPS, Desk, Stopped, ledger_of
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


async def ask(desk: Desk) -> list[Any]:
    desk.context.append_user("How many boats?")
    return [event async for event in desk.answer(allow)]


def loaded() -> int:
    """How many models run in this process."""
    return len({each.name for each in threading.enumerate() if each.name.startswith("ullage-embedded")})


def test_a_model_is_opened_once_however_many_classes_have_it(
    settings: Settings, kept: Store, tmp_path: Path
) -> None:
    async def go() -> None:
        desk = await Desk.open(settings, kept, {}, tmp_path)
        main, seen = desk.client, []
        for kind in ("write", "check", "plan", "main"):
            async with desk.routed(kind):
                seen.append((desk.client, desk.seat.prompt))
        write, check, plan, usual = seen
        assert write[0] is check[0] is not main
        assert (write[1], check[1]) == ("Write.", "Check.")
        assert plan[0] is usual[0] is main
        await desk.close()

    asyncio.run(go())


def test_a_model_that_a_class_has_stays_open_when_another_one_answers(
    settings: Settings, kept: Store, tmp_path: Path
) -> None:
    async def go() -> None:
        desk = await Desk.open(settings, kept, {}, tmp_path)
        large = desk.client
        await desk.use_model("middle")
        async with desk.routed("plan"):
            assert desk.client is large
            await ask(desk)
        middle = desk.client
        async with desk.routed("write"):
            assert desk.client is middle
        await desk.use_model("middle")
        await ask(desk)
        await desk.close()

    asyncio.run(go())


def test_a_model_in_this_process_is_loaded_once_also_for_another_loop() -> None:
    settings = defaults()
    model = settings.model("embedded")

    async def go() -> None:
        ledger, calibration = Ledger(), Calibration()
        first = await seat_for(model, settings, environ={}, ledger=ledger, calibration=calibration)
        seats = Seats(first, settings, {})

        async def elsewhere() -> object:
            async with AsyncExitStack() as closing:
                seat = await seats.elsewhere(model, closing)
                assert seat.client is not first.client
                return seat.client.provider

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) is first.client.provider
        assert first.client.provider.status != "closed"  # type: ignore[attr-defined]
        await seats.close()
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
        seat = await seated(
            Opened(Stubborn([]), local=True),
            plain_model("stubborn"),
            settings,
            ledger=ledger_of(settings, kept, "s", tmp_path),
            calibration=Calibration(kept.calibration),
        )
        desk = Desk(settings, kept, {}, tmp_path, seat, session="s")
        async with desk.routed("write"):
            await ask(desk)
            await ask(desk)
            assert player.connections == 1
        with pytest.raises(OSError, match="reset"):
            await desk.close()
        async with desk.routed("write"):
            await ask(desk)
            assert player.connections == 2
            await desk.seat.close()

    asyncio.run(go())


def test_a_conversation_that_cannot_be_taken_up_leaves_no_model_open(kept: Store, tmp_path: Path) -> None:
    session = uuid.uuid4().hex
    kept.journal.append(session, 0, Event("from a later version", {}))
    before = loaded()
    with pytest.raises(InvalidConversation):
        asyncio.run(Desk.open(defaults(), kept, {}, tmp_path, session=session))
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
            desk = await Desk.open(load(file, environ={}, cwd=tmp_path), kept, {}, tmp_path)
            assert (await ask(desk))[-1] == Stopped(MOST_STEPS)
            await desk.close()

        asyncio.run(go())
        assert len(player.requests) == MOST_STEPS
