"""Calls that no cap concerns: they cost nothing, so one transaction books many of them.

A call of a local model without a gateway key needs no reservation. A transaction for each of them would take
longer than all other work of the gateway. So entries are collected for a moment and written together. A
process that is killed loses the entries of that moment, which have no cost.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from ullage.cost.book import Account, Reservation
from ullage.errors import StoreError, StoreLost
from ullage.intake import plural
from ullage.usage import LedgerEntry, add_entries

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ullage.store import Store

Booking: TypeAlias = tuple[Account, LedgerEntry]

PAUSE = 0.25
"""Seconds between two transactions."""


class FreeCalls:
    """Collects the entries of an event loop, and writes them on the thread of the bill."""

    def __init__(self, kept: Store, thread: Executor) -> None:
        self._kept = kept
        self._thread = thread
        self._new: list[Booking] = []
        self._writer: asyncio.Task[None] | None = None
        self._is_told = False

    def add(self, account: Account, entry: LedgerEntry) -> None:
        """Books a call within a moment."""
        self._new.append((account, entry))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_on())

    def close(self) -> None:
        """Writes the rest."""
        if self._writer is not None:
            self._writer.cancel()
        if left := self._thread.submit(self._write_batch, self._new).result():
            calls = sum(entry.calls for _, entry in left)
            sys.stderr.write(f"ullage: {plural(calls, 'call')} of local models could not be booked\n")

    async def _write_on(self) -> None:
        """Writes as long as there is something to write."""
        while self._new:
            batch, self._new = self._new, []
            left = await asyncio.get_running_loop().run_in_executor(self._thread, self._write_batch, batch)
            self._new = [*left, *self._new]
            await asyncio.sleep(PAUSE)
        self._writer = None

    def _write_batch(self, batch: list[Booking]) -> list[Booking]:
        """Writes a batch in one transaction; returns the entries that must be written again."""
        sums: dict[Account, LedgerEntry] = {}
        for account, entry in batch:
            sums[account] = add_entries(sums[account], entry) if account in sums else entry
        book = self._kept.book
        try:
            with self._kept.transaction():
                for account, entry in sums.items():
                    reservation = Reservation(uuid4().hex, account, None)
                    book.reserve(reservation, ())
                    book.settle(reservation, entry)
        except StoreError as error:
            if not self._is_told:
                self._is_told = True
                sys.stderr.write(f"ullage: calls of local models cannot be booked now: {error}\n")
            # They may be booked already if nobody saw the end of the transaction.
            return [] if isinstance(error, StoreLost) and error.is_unknown else [*sums.items()]
        self._is_told = False
        return []
