"""The connections of one request, so that they can be closed at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class Connections:
    """The connections that a request has opened or taken from the pool."""

    __slots__ = ("is_new", "transports")

    def __init__(self) -> None:
        self.transports: list[asyncio.BaseTransport] = []
        self.is_new = False
        """True if the request has opened a connection."""
