"""The transport to a client: what one turn of the event loop writes is sent together.

The server writes the head of an answer and each piece of its body by itself, and each of them would cost a
call of the system, more than all our work for a small answer.
"""

from __future__ import annotations

import asyncio
from typing import Any


class CollectingTransport:
    """A transport that sends at the end of the loop's turn."""

    __slots__ = ("_loop", "_pieces", "_transport")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the transport below: reading, its state and its addresses."""
        return getattr(self._transport, name)

    def write(self, piece: bytes) -> None:
        """Sends a piece, together with the others of this turn."""
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(piece)

    def close(self) -> None:
        """Closes the transport after all that was written is sent."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._transport.is_closing():
            self._transport.writelines(pieces)
