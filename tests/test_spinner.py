"""The spinner: what is waited for stands on the row of the cursor, and nothing of it is left."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tests.player import Script, answered, playing, sent_json
from ullage.broker.ask import Ask
from ullage.broker.endpoint import Endpoint
from ullage.broker.events import Retrying, Text
from ullage.broker.remote import RemoteProvider
from ullage.broker.retry import Retries
from ullage.shell.screen import Screen
from ullage.shell.spinner import FRAMES, PLAIN_FRAMES, frames_for, spin

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def terminal(out: io.StringIO) -> Iterator[Screen]:
    hand, keyboard = pty.openpty()
    with closing(os.fdopen(keyboard, encoding="utf-8")) as typed:
        yield Screen(Console(file=out, force_terminal=True, width=60, color_system=None), keyboard=typed)
    os.close(hand)


async def until_shown(out: io.StringIO, pattern: str) -> int:
    while not re.search(pattern, out.getvalue()):
        await asyncio.sleep(0.01)
    return 7


def test_a_wait_is_told_in_a_terminal_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    with terminal(out) as screen:
        work = until_shown(out, r"connecting to the MCP server tides · \d+ s")
        assert asyncio.run(spin(screen, "connecting to the MCP server tides", work)) == 7
    assert out.getvalue().endswith("\r\x1b[K")
    assert any(frame in out.getvalue() for frame in FRAMES + PLAIN_FRAMES)


def test_what_is_waited_for_can_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out, said = io.StringIO(), ["opening the model"]

    async def work() -> None:
        await until_shown(out, "opening the model · ")
        said[0] = "bash runs your start-up files"
        await until_shown(out, "bash runs your start-up files · ")

    with terminal(out) as screen:
        asyncio.run(spin(screen, lambda: said[0], work()))


def test_no_spinner_without_a_terminal() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=60), keyboard=io.StringIO())
    asyncio.run(spin(screen, "opening", asyncio.sleep(0.5)))
    assert not out.getvalue()


def test_frames_are_those_that_the_encoding_has() -> None:
    assert frames_for("utf-8") == FRAMES
    assert frames_for("ascii") == PLAIN_FRAMES
    assert frames_for(None) == PLAIN_FRAMES


@pytest.mark.enable_socket
@pytest.mark.parametrize("wanted", [True, False])
def test_a_retry_is_an_event_if_it_is_asked_for(wanted: bool) -> None:
    later = sent_json({"error": {"message": "later"}}, 503)
    with playing(later, Script(body=answered("Seven."))) as player:

        async def main() -> list[object]:
            endpoint = Endpoint(url=f"{player.url}/v1", model="gpt-4o", api="openai.chat")
            provider = RemoteProvider(endpoint, retries=Retries(base=0.0))
            try:
                ask = Ask(messages=({"role": "user", "content": "How many?"},), tell_retries=wanted)
                return [event async for event in provider.stream(ask)]
            finally:
                await provider.close()

        events = asyncio.run(main())
    retries = [each for each in events if isinstance(each, Retrying)]
    assert [each.attempt for each in retries] == ([1] if wanted else [])
    assert any(isinstance(each, Text) for each in events)
