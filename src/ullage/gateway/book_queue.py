"""The queue of changes of the book: one thread writes all that wait, in one transaction.

A transaction waits for the disk, and costs much more than a change in it. While one is written, the changes
of other calls collect, and the next transaction writes them together. A call waits until its own change is
written, so that caps hold and no booked call is lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ullage.errors import StoreError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ullage.cost.book import Book, BookChange, BookOutcome


class BookQueue:
    """Collects the changes of an event loop, and writes them on the thread of the bill."""

    def __init__(self, book: Book, thread: Executor) -> None:
        self._book = book
        self._thread = thread
        self._waiting: list[tuple[BookChange, asyncio.Future[BookOutcome]]] = []
        self._is_writing = False

    def add(self, change: BookChange) -> asyncio.Future[BookOutcome]:
        """Returns the outcome of a change, which is done even if nobody waits for it."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[BookOutcome] = loop.create_future()
        self._waiting.append((change, outcome))
        if not self._is_writing:
            self._is_writing = True
            loop.call_soon(self._write, loop)  # with the changes that come in this turn of the loop
        return outcome

    def close(self) -> None:
        """Writes the rest."""
        batch, self._waiting = self._waiting, []
        if batch:
            self._thread.submit(self._book.change, [change for change, _ in batch]).result()

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            self._is_writing = False
            return
        changes = [change for change, _ in batch]
        work = loop.run_in_executor(self._thread, self._book.change, changes)
        work.add_done_callback(lambda done: self._deliver(loop, done, [each for _, each in batch]))

    def _deliver(
        self,
        loop: asyncio.AbstractEventLoop,
        done: asyncio.Future[list[BookOutcome]],
        waiting: list[asyncio.Future[BookOutcome]],
    ) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        outcomes: list[BookOutcome] = [] if error is not None else done.result()
        for place, each in enumerate(waiting):
            if each.cancelled():
                continue
            if error is not None:
                each.set_exception(error if isinstance(error, Exception) else StoreError("the gateway stops"))
            else:
                each.set_result(outcomes[place])
        self._write(loop)
