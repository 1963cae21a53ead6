"""The bill: every call is reserved before it is sent and settled after it, on a thread of its own.

The store is synchronous and may wait for other processes. One thread does all of its work in order, so the
event loop never waits for a disk. Calls that no cap concerns are booked together, a moment later.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ullage.categories import MAIN
from ullage.config.prices import prices_by_name
from ullage.cost.book import Account, Refusal, Reserving, Settling
from ullage.cost.ledger import day_of
from ullage.errors import NotBooked, StoreError
from ullage.gateway.book_queue import BookQueue
from ullage.gateway.free_calls import FreeCalls
from ullage.session.accounts import ledger_for
from ullage.tokens import counter_for
from ullage.turn.counts import OwnCount, believable
from ullage.usage import entry_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from ullage.config import Settings
    from ullage.cost import Ledger, Reservation
    from ullage.cost.book import BookOutcome
    from ullage.cost.keys import GatewayKey
    from ullage.gateway.tally import Tally
    from ullage.store import Store
    from ullage.target import Target
    from ullage.tokens.request_count import Count
    from ullage.usage import Usage

T = TypeVar("T")

OFF_LOOP = 64 * 1024
"""Most bytes of an answer whose usage is read on the event loop."""
MOST_LEDGERS = 1_000
"""Most conversations whose ledgers are remembered."""
BYTES_A_TOKEN = 400
"""Bytes of an answer for one token, its event included. An answer with fewer tokens by its own figure is
counted here, because some servers report nothing, or 0."""


@dataclass(slots=True, kw_only=True)
class Charge:
    """The most that a call may use.

    Nobody changes it. The class is not frozen, because a frozen one takes three times as long to make.
    """

    session: str
    project: str
    model: str
    """The name on the bill."""
    target: Target
    count: Count
    most_output: int | None
    local: bool
    key: GatewayKey | None = None
    """The gateway key of the caller, whose caps apply too."""


class Held(NamedTuple):
    """A call that is within all caps and whose worst case is reserved."""

    charge: Charge
    ledger: Ledger | None = None
    """None for a call that costs nothing. No cap applies to it, so it is booked at its end alone."""
    reservation: Reservation | None = None


class BookedCall(NamedTuple):
    """The usage and the cost of a call."""

    usage: Usage
    estimated: tuple[str, ...]
    """The figures that are our own count."""
    cost: Decimal | None


class GatewayBill:
    """Books the calls of a gateway in its store."""

    def __init__(self, settings: Settings, kept: Store) -> None:
        self._settings = settings
        self._kept = kept
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ullage-bill")
        self._free_calls = FreeCalls(kept, self._thread)
        self._queue = BookQueue(kept.book, self._thread)
        self._prices = prices_by_name(settings)
        self._ledgers: dict[tuple[str, str, GatewayKey | None], Ledger] = {}

    async def reserve(self, charge: Charge) -> Held:
        """Reserves the worst case of a call; raises BudgetExceeded if it could exceed a cap."""
        if charge.local and charge.key is None:
            return Held(charge)
        ledger = self._ledger(charge)
        planned = ledger.plan(charge.model, charge.count.ceiling, charge.most_output, local=charge.local)
        held = Held(charge, ledger, planned.reservation)
        work = self._queue.add(Reserving(planned.reservation, planned.caps))
        try:
            outcome = await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(partial(self._release_unused, held))
            raise
        if isinstance(outcome, StoreError):
            raise outcome
        if isinstance(outcome, Refusal):
            raise ledger.refused(planned, outcome)
        return held

    async def release(self, held: Held) -> None:
        """Ends the reservation of a call that was not made."""
        if held.ledger is not None and held.reservation is not None:
            await self._to_the_end(partial(held.ledger.release, held.reservation))

    async def settle(self, held: Held, tally: Tally) -> BookedCall:
        """Books the usage of an answer, whole or broken off; our own count replaces missing figures.

        Raises StoreError if the store cannot be written. NotBooked is no error here: the store writes the
        entry as soon as it can.
        """
        charge = held.charge
        if tally.size > OFF_LOOP:
            usage, estimated = await self._to_the_end(partial(_find_usage, charge, tally))
        else:
            usage, estimated = _find_usage(charge, tally)
        if held.ledger is not None and held.reservation is not None:
            return await self._settle(held.ledger, held.reservation, charge, usage, estimated)
        entry = entry_of(usage, usage.cost, charge.count.tokens, estimated=bool(estimated))
        self._free_calls.add(_account(charge), entry)
        return BookedCall(usage, estimated, usage.cost)

    def close(self) -> None:
        """Waits until all is booked."""
        self._queue.close()
        self._free_calls.close()
        self._thread.shutdown(wait=True)

    async def _to_the_end(self, work: Callable[[], T]) -> T:
        """Runs work that is completed even if the caller is cancelled."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def _ledger(self, charge: Charge) -> Ledger:
        """Returns the ledger of a conversation; the newest are remembered."""
        name = (charge.session, charge.project, charge.key)
        found = self._ledgers.get(name)
        if found is None:
            if len(self._ledgers) >= MOST_LEDGERS:
                self._ledgers.clear()
            found = self._ledgers[name] = self._new_ledger(charge)
        return found

    def _new_ledger(self, charge: Charge) -> Ledger:
        return ledger_for(
            self._settings, self._kept, charge.session, charge.project, key=charge.key, prices=self._prices
        )

    def _release_unused(self, held: Held, work: asyncio.Future[BookOutcome]) -> None:
        """Ends the reservation of a client that went away while it was made."""
        if (
            not work.cancelled()
            and work.exception() is None
            and work.result() is None
            and held.ledger is not None
            and held.reservation is not None
        ):
            self._thread.submit(held.ledger.release, held.reservation)

    async def _settle(
        self,
        ledger: Ledger,
        reservation: Reservation,
        charge: Charge,
        usage: Usage,
        estimated: tuple[str, ...],
    ) -> BookedCall:
        entry = ledger.entry(reservation, usage, charge.count.tokens, estimated=bool(estimated))
        outcome = await asyncio.shield(self._queue.add(Settling(reservation, entry)))
        if isinstance(outcome, StoreError) and not isinstance(outcome, NotBooked):
            raise outcome
        return BookedCall(usage, estimated, entry.cost if outcome else None)


def _account(charge: Charge) -> Account:
    return Account(charge.session, charge.model, MAIN, charge.project, day_of(time.time()))


def _find_usage(charge: Charge, tally: Tally) -> tuple[Usage, tuple[str, ...]]:
    """Returns the upstream's figures, each replaced by our own count if it is impossible or too early."""
    reported = tally.usage()
    is_complete = tally.is_complete()
    completion = 0
    if reported is None or not is_complete or reported.completion * BYTES_A_TOKEN < tally.size:
        completion = counter_for(charge.target).text(tally.text()).tokens + tally.unread
    own = OwnCount(
        prompt=charge.count.tokens,
        ceiling=charge.count.ceiling,
        completion=completion,
        max_output=charge.most_output,
    )
    usage, estimated = believable(reported, own)
    if is_complete or completion <= usage.completion:
        return usage, estimated
    # Anthropic reports the output first at its beginning, so the figure of a broken answer is too low.
    return replace(usage, completion=completion, reasoning=0, cost=None), (*estimated, "completion")
