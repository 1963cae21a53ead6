"""Reserves the worst-case cost before a call, and books the actual cost after it.

The worst case is the ceiling of the prompt plus the full output limit, each at the highest price that its
tokens can have. A call belongs to the day, in UTC, on which it was reserved.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from os import urandom
from typing import TYPE_CHECKING, NamedTuple

from ullage.categories import MAIN
from ullage.cost.book import Account, Cap, MemoryBook, Reservation
from ullage.cost.keys import GatewayKey, caps_of
from ullage.cost.prices import cost_of, prices_of, worst_case
from ullage.errors import BudgetExceeded, ConfigurationError, NotBooked, RateLimited
from ullage.intake import check_function, check_member, check_text, kind_of, shown, whole_number
from ullage.models import model_info
from ullage.usage import MONEY, LedgerEntry, dollars, entry_of, read_usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.cost.book import Book, Refusal
    from ullage.cost.prices import Prices
    from ullage.usage import Usage

PICODOLLAR = Decimal("1e-12")
"""Smallest unit of amounts in a book, so that any book can store them exactly."""


_BOOK = ("book", "a Book, such as the book of ullage.store.open(path)", "reserve", "settle", "release")


class PlannedCall(NamedTuple):
    """A call that is to be reserved."""

    reservation: Reservation
    caps: tuple[Cap, ...]
    output: int | None
    """Most tokens of the answer; None if unknown."""
    moment: float
    """Seconds since the epoch."""


class Ledger:
    """Keeps the bill of one session in a book, and refuses calls that could exceed a cap."""

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
        key: GatewayKey | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens a ledger; the default is a book in memory and a new session.

        `cap_at_dollars` is the cap of this session. The caps of the day and of the project apply to the whole
        book. `prices` take precedence over the model table. With a gateway key, all calls are booked under
        it, and its own caps apply too.
        """
        if cap_at_dollars_a_project is not None and not project:
            raise ConfigurationError("cap_at_dollars_a_project needs the name of the project: pass project=…")
        if prices is not None and not isinstance(prices, Mapping):
            raise ConfigurationError(
                f"prices must be a mapping from model names to Prices, not {kind_of(prices)}"
            )
        self.book: Book = MemoryBook() if book is None else check_member(book, *_BOOK)
        self.session = uuid.uuid4().hex if session is None else check_text(session, "session")
        self.project = check_text(project, "project")
        self.prices = dict(prices or {})
        self._limits = {
            "session": _limit(cap_at_dollars, "cap_at_dollars"),
            "day": _limit(cap_at_dollars_a_day, "cap_at_dollars_a_day"),
            "project": _limit(cap_at_dollars_a_project, "cap_at_dollars_a_project"),
        }
        if key is not None and not isinstance(key, GatewayKey):
            raise ConfigurationError(f"key must be a GatewayKey, not {kind_of(key)}")
        self.key = key
        self._clock = check_function(clock, "clock")

    def reserve(
        self,
        model: str,
        prompt: int,
        output: int | None = None,
        *,
        least_output: int | None = None,
        category: str = MAIN,
        local: bool = False,
    ) -> Reservation:
        """Reserves the worst-case cost of a call with at most `prompt` and `output` tokens.

        The reservation lasts until it is settled or released, or until this process ends or closes its store.

        Raises BudgetExceeded if the call could exceed a cap, RateLimited if the key has made its requests of
        this minute, and ConfigurationError if there is a cap and the worst case is unknown. The default of
        `output` is the model's limit. A local model has no known cost, so no cap in dollars applies to it.

        With `least_output`, a call that could exceed a cap is reserved with the longest answer that fits
        every cap, and refused only if that is shorter than `least_output`. The field `tokens` of the
        reservation is then the prompt plus that answer.
        """
        if least_output is not None:
            whole_number(least_output, "least_output")
        planned = self.plan(model, prompt, output, category=category, local=local)
        shortest: int | None = None
        while (refusal := self.book.reserve(planned.reservation, planned.caps)) is not None:
            if least_output is None or planned.output is None or planned.output <= least_output:
                raise self.refused(planned, refusal, shortest)
            # Another cap may be narrower still, and another process may have reserved since.
            shortest = max(least_output, self._longest_within(planned, refusal, prompt))
            planned = self.plan(model, prompt, shortest, category=category, local=local)
        return planned.reservation

    def plan(
        self,
        model: str,
        prompt: int,
        output: int | None = None,
        *,
        category: str = MAIN,
        local: bool = False,
    ) -> PlannedCall:
        """Returns what `reserve` would reserve, for a caller that changes the book together with others."""
        for name, value in (("model", model), ("category", category)):
            check_text(value, name)
        whole_number(prompt, "prompt")
        if output is not None:
            whole_number(output, "output")
        now = self._clock()
        key = "" if self.key is None else self.key.id
        account = Account(self.session, model, category, self.project, day_of(now), key)
        if output is None:
            output = _longest_answer(model)
        caps = self.caps(now)
        self._check_output(model, output, caps, local=local)
        amount = None if local else self._worst(model, prompt, output, caps)
        reservation = Reservation(_new_id(), account, amount, prompt + (output or 0))
        return PlannedCall(reservation, caps, output, now)

    def refused(
        self, planned: PlannedCall, refusal: Refusal, shortest: int | None = None
    ) -> BudgetExceeded | RateLimited:
        """Returns the error for a call that could exceed a cap, also with an answer of `shortest` tokens."""
        held, now = planned.reservation, planned.moment
        cap = refusal.cap
        if cap.unit == "requests" and self.key is not None:
            return RateLimited(self.key.name, int(cap.limit), 60 - now % 60)
        worst = Decimal(held.tokens) if cap.unit == "tokens" else held.amount or Decimal(0)
        limit, spent, reserved, most = map(_tidy, (cap.limit, refusal.spent, refusal.reserved, worst))
        return BudgetExceeded(cap.scope, cap.name, limit, spent, reserved, most, cap.unit, shortest)

    def settle(
        self, reservation: Reservation, usage: Usage | None, estimate: int = 0, *, estimated: bool = False
    ) -> LedgerEntry | None:
        """Books the actual usage of a call, even above its reservation, and returns the booked entry.

        Returns None and books nothing if the reservation had ended before.

        A broken stream is settled with the known usage. If nothing is known, pass None: the worst case is
        then booked, because it may have been spent, and the call counts as unpriced. `estimated` is True if
        some of the usage is our own estimate.

        Raises NotBooked if the store cannot be written. Its `entry` is booked as soon as the store can be.
        """
        entry = self.entry(reservation, usage, estimate, estimated=estimated)
        try:
            tokens = reservation.tokens if usage is None else None
            return entry if self.book.settle(reservation, entry, tokens) else None
        except NotBooked as error:
            error.entry = entry
            raise

    def release(self, reservation: Reservation) -> bool:
        """Ends the reservation of a call that was not made; returns False if it had ended before."""
        return self.book.release(_check_reservation(reservation))

    def used(self, scope: str = "session") -> tuple[Decimal, Decimal]:
        """Returns the dollars spent in the session, day or project, and those reserved for running calls."""
        names = self._names(self._clock())
        if scope not in names:
            raise ConfigurationError(f"scope must be one of {', '.join(names)}, not {shown(scope)}")
        spent, held = self.book.used(scope, names[scope])
        return _tidy(spent), _tidy(held)

    def caps(self, now: float | None = None) -> tuple[Cap, ...]:
        """Returns the caps that apply to a call now, the narrowest first."""
        moment = self._clock() if now is None else now
        names = self._names(moment)
        own = tuple(
            Cap(scope, names[scope], limit) for scope, limit in self._limits.items() if limit is not None
        )
        return own if self.key is None else own + caps_of(self.key, moment)

    def _names(self, now: float) -> dict[str, str]:
        return {"session": self.session, "day": day_of(now), "project": self.project}

    def _check_output(self, model: str, output: int | None, caps: tuple[Cap, ...], *, local: bool) -> None:
        """Raises ConfigurationError if a cap depends on an output limit that is unknown."""
        units = {"tokens"} if local else {"dollars", "tokens"}
        if output is None and any(cap.unit in units for cap in caps):
            raise ConfigurationError(
                f"the output limit of {model!r} is unknown, so a cap cannot be checked: pass output=N tokens"
            )

    def _worst(self, model: str, prompt: int, output: int | None, caps: tuple[Cap, ...]) -> Decimal | None:
        """Returns the worst-case cost of a call, rounded up; without a cap, None if it is unknown."""
        amount = worst_case(prices_of(model, self.prices), prompt, output or 0)
        if amount is None and any(cap.unit == "dollars" for cap in caps):
            raise ConfigurationError(
                f"the price of {model!r} is unknown, so a cap cannot be checked: pass it in dollars per "
                f"million tokens, prices={{{model!r}: Prices.a_million(input=…, output=…)}}, or pass "
                "local=True for a model that costs nothing"
            )
        return None if amount is None else amount.quantize(PICODOLLAR, ROUND_CEILING, MONEY)

    def _longest_within(self, planned: PlannedCall, refusal: Refusal, prompt: int) -> int:
        """Returns the longest shorter answer for which the refusing cap has room; 0 if there is none."""
        cap, most = refusal.cap, (planned.output or 0) - 1
        room = cap.limit - refusal.spent - refusal.reserved
        if cap.unit == "requests":
            return 0
        if cap.unit == "tokens":
            return max(0, min(most, int(room) - prompt))
        model, least, above = planned.reservation.account.model, 0, most + 1
        while above - least > 1:  # the worst case grows with the length of the answer
            middle = (least + above) // 2
            amount = self._worst(model, prompt, middle, planned.caps)
            least, above = (middle, above) if amount is not None and amount <= room else (least, middle)
        return least

    def entry(
        self, reservation: Reservation, usage: Usage | None, estimate: int, *, estimated: bool
    ) -> LedgerEntry:
        """Returns what `settle` would book."""
        _check_reservation(reservation)
        if usage is None:
            calls = int(estimated)
            return LedgerEntry(
                calls=1, estimate=estimate, cost=reservation.amount, unpriced=1, estimated_calls=calls
            )
        used = read_usage(usage)
        return entry_of(used, self._cost(reservation, used), estimate, estimated=estimated)

    def _cost(self, reservation: Reservation, used: Usage) -> Decimal | None:
        # Nothing was reserved for a local model. Its name may be the same as that of a model with a price.
        unpriced = reservation.amount is None
        cost = used.cost if unpriced else cost_of(used, prices_of(reservation.account.model, self.prices))
        return None if cost is None else _tidy(cost.quantize(PICODOLLAR, ROUND_HALF_EVEN, MONEY))


def _check_reservation(given: Reservation) -> Reservation:
    if not isinstance(given, Reservation):
        raise ConfigurationError(
            f"reservation must be what Ledger.reserve has returned, not {kind_of(given)}"
        )
    return given


def _new_id() -> str:
    """Returns a random name, as `uuid.uuid4().hex` has it, in a quarter of the time."""
    return urandom(16).hex()


def day_of(moment: float) -> str:
    """Returns the date in UTC of a time in seconds since the epoch, such as 2026-11-16."""
    return _date(moment // 86_400)


@lru_cache(maxsize=16)
def _date(day: float) -> str:
    """Returns the date of a day since the epoch, which all calls of the day ask for."""
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


def _longest_answer(model: str) -> int | None:
    info = model_info(model)
    return None if info is None else info.max_output or info.window


def _limit(cap: Decimal | float | str | None, what: str) -> Decimal | None:
    return None if cap is None else dollars(cap, what).quantize(PICODOLLAR, ROUND_FLOOR, MONEY)


def _tidy(amount: Decimal) -> Decimal:
    """Returns the same amount without trailing zeros, and never with a positive exponent."""
    whole = amount.to_integral_value()
    return whole.quantize(Decimal(1), context=MONEY) if amount == whole else amount.normalize(MONEY)
