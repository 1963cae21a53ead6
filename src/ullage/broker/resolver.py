"""Looks up host names in threads that never delay the end of the program.

The event loop waits for its own pool of threads when it closes. A name server that does not answer would then
delay a program that has already given up on the request.

Import this module only to open a connection: it loads aiohttp.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp.abc import AbstractResolver, ResolveResult

if TYPE_CHECKING:
    from collections.abc import Callable

NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
"""Flags which say that the host and the port are already numbers."""


class DaemonResolver(AbstractResolver):
    """Asks the system for a host's addresses, in a new daemon thread for each lookup."""

    def __init__(self, look_up: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._look_up = look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Returns the host's addresses; raises OSError if there are none."""
        found = await self._in_thread(host, port, family)
        return [
            ResolveResult(
                hostname=host, host=place[0], port=place[1], family=kind, proto=proto, flags=NUMERIC
            )
            for kind, _, proto, _, place in found
            if kind in {socket.AF_INET, socket.AF_INET6}
        ]

    async def close(self) -> None:
        """Does nothing: a thread that is still waiting ends by itself."""

    async def _in_thread(self, host: str, port: int, family: socket.AddressFamily) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(give: Callable[[Any], None], value: Any) -> None:
            if not answer.done():  # it is done if the caller has stopped waiting
                give(value)

        def ask() -> None:
            try:
                outcome = answer.set_result, self._look_up(host, port, family, socket.SOCK_STREAM)
            except (OSError, ValueError) as error:  # ValueError: the name cannot be encoded
                outcome = answer.set_exception, OSError(*error.args)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, *outcome)

        threading.Thread(target=ask, name="ullage-resolver", daemon=True).start()
        return await answer
