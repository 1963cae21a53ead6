"""A bounded queue from a blocking thread to a task; each side may leave at any time."""

from __future__ import annotations

import asyncio
import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Channel(Generic[T]):
    """Created in the task that reads; the thread that writes waits while `most` items are unread."""

    def __init__(self, most: int = 64) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[T | None] = asyncio.Queue()
        self._room = threading.Semaphore(most)
        self.closed = False

    def put(self, item: T) -> bool:
        """Adds an item; returns True if the reader has left."""
        if not self.closed:
            self._room.acquire()
        return self.closed or not self._send(item)

    def end(self) -> None:
        """Marks the end of the items."""
        if not self.closed:
            self._send(None)

    async def get(self) -> T | None:
        """Returns the next item; None at the end."""
        item = await self._items.get()
        self._room.release()
        return item

    def close(self) -> None:
        """Closes the channel as its reader: a waiting writer goes on at once, and its `put` returns True."""
        self.closed = True
        self._room.release()

    def cut(self, last: T) -> None:
        """Ends the channel from outside: the reader gets `last` as its last item, and the writer stops."""
        self._send(last)
        self.close()

    def _send(self, item: T | None) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop is closed, so there is no reader any more
            self.closed = True
        return not self.closed
