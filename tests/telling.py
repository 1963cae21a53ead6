"""A player that tells whatever JSON it is given, with a transport beside it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from tests.llama import llama_server
from tests.player import Player, Request, Script, playing
from ullage.broker.endpoint import Endpoint, Key
from ullage.broker.http import Transport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

STALL = Script(silent=True)
"""An answer that never comes."""

Told: TypeAlias = Any
"""A script; a number for a status without an answer; anything else is sent as JSON."""


def raw(body: bytes, status: int = 200, **headers: str) -> Script:
    """An answer byte for byte, on a connection of its own: none of these tests is about reusing one."""
    return Script(body=body, status=status, headers=headers, kind="application/json", framing="close")


def run(
    answer: Callable[[Request], Told], main: Callable[[Player, Transport], Awaitable[None]]
) -> list[Request]:
    """Runs `main` beside a server that answers so; gives what the server was asked."""

    def script(request: Request) -> Script:
        told = answer(request)
        if isinstance(told, Script):
            return told
        if told.__class__ is int:
            return raw(b'{"error": {"message": "no"}}', told)
        return raw(orjson.dumps(told))

    async def beside(player: Player) -> None:
        async with Transport() as transport:
            await main(player, transport)

    with playing(script) as player:
        asyncio.run(beside(player))
        return player.requests


def at(url: str, model: str = "some-model", **more: Any) -> Endpoint:
    """An endpoint there."""
    return Endpoint(url=url, model=model, **more)


def real_llama() -> Iterator[Endpoint]:
    """A llama.cpp server with a window of 512 tokens; a fixture's body."""
    with llama_server(512) as server:
        yield at(server.url, "SmolLM2", key=Key("s3cret"))
