"""A bounded way from a blocking thread to a task; either end may leave at any time."""

from __future__ import annotations

import asyncio
import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Channel(Generic[T]):
    """Made in the task that reads; the thread that writes waits while `most` items are unread."""

    def __init__(self, most: int = 64) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[T | None] = asyncio.Queue()
        self._room = threading.Semaphore(most)
        self.closed = False

    def put(self, item: T) -> bool:
        """Hands an item over, and says whether the reader has left."""
        if not self.closed:
            self._room.acquire()
        return self.closed or not self._send(item)

    def end(self) -> None:
        """Nothing more will come."""
        if not self.closed:
            self._send(None)

    async def get(self) -> T | None:
        """The next item; None at the end."""
        item = await self._items.get()
        self._room.release()
        return item

    def close(self) -> None:
        """The reader leaves: a writer that waits goes on at once, and is told."""
        self.closed = True
        self._room.release()

    def cut(self, last: T) -> None:
        """Somebody else ends it: the reader gets this as the last item, the writer is told to stop."""
        self._send(last)
        self.close()

    def _send(self, item: T | None) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop is closed: nobody reads any more
            self.closed = True
        return not self.closed
