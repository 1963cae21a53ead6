"""Money is asked for before it is spent: a call reserves its worst case and settles with what it used.

The worst case is the ceiling of the prompt and all of the output limit, each at the dearest price that its
tokens can have. A call belongs to the day, in UTC, on which it was reserved.
"""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING

from ullage.classes import MAIN
from ullage.cost.book import Account, Cap, Entry, Reservation
from ullage.cost.memory import MemoryBook
from ullage.cost.prices import cost_of, prices_of, worst_case
from ullage.errors import BudgetExceeded, ConfigurationError
from ullage.models import model_info
from ullage.usage import MONEY, dollars, read_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.cost.book import Book
    from ullage.cost.prices import Prices
    from ullage.usage import Usage

PICODOLLAR = Decimal("1e-12")
"""Amounts in a book are whole multiples of this, so that any book can keep them exactly."""


class Ledger:
    """Keeps the bill of one session in a book that others may share, and refuses what a cap cannot bear."""

    def __init__(
        self,
        *,
        book: Book | None = None,
        session: str | None = None,
        project: str = "",
        prices: Mapping[str, Prices] | None = None,
        cap_at_dollars: Decimal | float | str | None = None,
        cap_at_dollars_a_day: Decimal | float | str | None = None,
        cap_at_dollars_a_project: Decimal | float | str | None = None,
        hold_seconds: float = 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A ledger; without a book it is kept in memory, without a session it is a new one.

        `cap_at_dollars` is for this session; the caps of the day and of the project are for all that is in
        the book. `prices` go before the model table's. A call that has not settled after `hold_seconds` is
        taken for dead: it holds nothing any more, but can still be settled.
        """
        if cap_at_dollars_a_project is not None and not project:
            raise ConfigurationError("cap_at_dollars_a_project needs to know which: give project=…")
        if not hold_seconds > 0:
            raise ConfigurationError(f"hold_seconds is above 0; {hold_seconds!r} is not")
        self.book: Book = MemoryBook() if book is None else book
        self.session = uuid.uuid4().hex if session is None else session
        self.project = project
        self.prices = dict(prices or {})
        self.hold_seconds = hold_seconds
        self._limits = {
            "session": _limit(cap_at_dollars, "cap_at_dollars"),
            "day": _limit(cap_at_dollars_a_day, "cap_at_dollars_a_day"),
            "project": _limit(cap_at_dollars_a_project, "cap_at_dollars_a_project"),
        }
        self._clock = clock

    def reserve(
        self,
        model: str,
        prompt: int,
        output: int | None = None,
        *,
        category: str = MAIN,
        local: bool = False,
    ) -> Reservation:
        """Holds the worst case of a call: a prompt of at most so many tokens, and an output.

        Raises BudgetExceeded where it could cross a cap, and ConfigurationError where there is a cap and
        the worst case is not known. Without `output` it is the model's limit. A local model costs nothing
        that could be known, so no cap stands against it.
        """
        now = self._clock()
        account = Account(self.session, model, category, self.project, day_of(now))
        amount = None if local else self._worst(model, prompt, output)
        held = Reservation(uuid.uuid4().hex, account, amount, now + self.hold_seconds)
        # What costs nothing crosses no cap, not even one that is crossed already.
        refusal = self.book.reserve(held, self.caps(now) if amount else (), now)
        if refusal is not None and amount is not None:
            cap = refusal.cap
            raise BudgetExceeded(
                cap.scope, cap.name, *map(_tidy, (cap.limit, refusal.spent, refusal.reserved, amount))
            )
        return held

    def settle(self, reservation: Reservation, usage: Usage | None, estimate: int = 0) -> bool:
        """Books what a call really used, above its reservation or not; False where it had ended before.

        A stream that broke is settled with what is known of it. Where nothing is known, usage is None: then
        the worst case is booked, as it may have been spent, and the call is marked as unpriced.
        """
        return self.book.settle(reservation, self._entry(reservation, usage, estimate))

    def release(self, reservation: Reservation) -> bool:
        """Gives back what was held for a call that was not made; False where it had ended before."""
        return self.book.release(reservation)

    def used(self, scope: str = "session") -> tuple[Decimal, Decimal]:
        """What is spent in the session, the day or the project, and what is held for calls under way."""
        now = self._clock()
        spent, held = self.book.used(scope, self._names(now)[scope], now)
        return _tidy(spent), _tidy(held)

    def caps(self, now: float | None = None) -> tuple[Cap, ...]:
        """The caps that a call has to stay under now, the narrowest first."""
        names = self._names(self._clock() if now is None else now)
        return tuple(
            Cap(scope, names[scope], limit) for scope, limit in self._limits.items() if limit is not None
        )

    def _names(self, now: float) -> dict[str, str]:
        return {"session": self.session, "day": day_of(now), "project": self.project}

    def _worst(self, model: str, prompt: int, output: int | None) -> Decimal | None:
        """The worst case of a call, rounded up; where no cap asks for it, what is known of it, or None."""
        capped = any(limit is not None for limit in self._limits.values())
        if output is None:
            output = _longest_answer(model)
        if output is None and capped:
            raise ConfigurationError(
                f"the longest answer of {model!r} is not known, so no cap can be kept: give output=N tokens"
            )
        amount = worst_case(prices_of(model, self.prices), prompt, output or 0)
        if amount is None and capped:
            raise ConfigurationError(
                f"the price of {model!r} is not known, so no cap can be kept: give it in dollars a million "
                f"tokens, prices={{{model!r}: Prices.a_million(input=…, output=…)}}, or say local=True of a "
                "model that costs nothing"
            )
        return None if amount is None else amount.quantize(PICODOLLAR, ROUND_CEILING, MONEY)

    def _entry(self, reservation: Reservation, usage: Usage | None, estimate: int) -> Entry:
        if usage is None:
            return Entry(calls=1, estimate=estimate, cost=reservation.amount, unpriced=1)
        used = read_usage(usage)
        cost = self._cost(reservation, used)
        return Entry(
            calls=1,
            prompt=used.prompt,
            completion=used.completion,
            cached_read=used.cached_read,
            cache_write=used.cache_write,
            reasoning=used.reasoning,
            estimate=estimate,
            cost=cost,
            unpriced=int(cost is None),
        )

    def _cost(self, reservation: Reservation, used: Usage) -> Decimal | None:
        # Nothing was held for a local model, whose name may well be that of one with a price.
        unpriced = reservation.amount is None
        cost = used.cost if unpriced else cost_of(used, prices_of(reservation.account.model, self.prices))
        return None if cost is None else cost.quantize(PICODOLLAR, ROUND_HALF_EVEN, MONEY)


def day_of(moment: float) -> str:
    """The date in UTC of a moment in seconds since the epoch, as 2026-11-16."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def _longest_answer(model: str) -> int | None:
    info = model_info(model)
    return None if info is None else info.max_output or info.window


def _limit(cap: Decimal | float | str | None, what: str) -> Decimal | None:
    return None if cap is None else dollars(cap, what).quantize(PICODOLLAR, ROUND_FLOOR, MONEY)


def _tidy(amount: Decimal) -> Decimal:
    """The same amount without the zeros at its end, and never with an exponent above 0."""
    whole = amount.to_integral_value()
    return whole.quantize(Decimal(1), context=MONEY) if amount == whole else amount.normalize(MONEY)
