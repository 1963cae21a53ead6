"""The usage of a request as a value, and the meter that sums usage by model and category."""

from __future__ import annotations

import decimal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ullage.categories import MAIN
from ullage.errors import ConfigurationError
from ullage.intake import NotPlain, check_text, kind_of, plain, shown, whole_number
from ullage.wire import usage_counts
from ullage.wire.api import MOST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ullage.target import ApiName

MONEY = decimal.Context(prec=100)
"""Decimal context for sums of money: exact, independent of the caller's own context."""
MOST_DOLLARS = 10**6
"""Highest price of one request in dollars that is accepted."""
MOST_MONEY = 10**15
"""Highest cap in dollars that is accepted: all sums below it are exact."""
NOBODY = "?"
"""Model name for calls that name no model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of one request, as the provider reported them."""

    prompt: int = 0
    """Tokens of the whole prompt, including cached parts."""
    completion: int = 0
    """Tokens of the whole output, including reasoning."""
    cached_read: int = 0
    """Prompt tokens that were read from the provider's cache."""
    cache_write: int = 0
    """Prompt tokens that were written to the provider's cache."""
    reasoning: int = 0
    """Output tokens that were reasoning."""
    cost: Decimal | None = None
    """Dollars that the provider says it charged; None if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One call, or the sum of many: its tokens and its cost. Meters and books both sum these."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    cached_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimate: int = 0
    """Prompt tokens as estimated before sending."""
    cost: Decimal | None = None
    """Sum of the known costs in dollars; None if no cost is known."""
    unpriced: int = 0
    """Number of calls whose cost is unknown, those of local models included."""
    estimated_calls: int = 0
    """Number of calls with a figure of our own, because the provider reported none that is plausible."""


@dataclass(frozen=True, slots=True)
class Crossed:
    """A threshold that the session has reached; reported once."""

    kind: str
    """dollars or tokens."""
    threshold: Decimal | int
    figure: Decimal | int
    """Dollars or tokens used so far."""

    @property
    def text(self) -> str:
        """The warning, as a line for people."""
        if isinstance(self.figure, Decimal):
            return f"This session has cost ${self.figure:f}; the warning is set at ${self.threshold:f}."
        return f"This session has used {self.figure:,} tokens; the warning is set at {self.threshold:,}."


# Usage as providers report it -------------------------------------------------------------------------

SUMMED = tuple(field.name for field in fields(Usage) if field.name != "cost")
"""The fields of Usage that are token counts."""
_NONE = dict.fromkeys(SUMMED, 0)
PARTS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("cached_read", "cache_write"),
    "completion": ("reasoning",),
}
"""Total in Usage → the fields that are parts of it."""


def read_usage(reported: Any, api: ApiName | None = None) -> Usage:
    """Reads a provider's usage object; without `api`, OpenAI's (chat or responses) or Anthropic's.

    An SDK object with `model_dump` is accepted too. A field that is missing, not a whole number or impossible
    (below 0, above a billion tokens or a million dollars) counts as 0. Some providers report parts in
    addition to the total, for example reasoning. If a part is larger than its total, the parts are added to
    the total. The same rules apply to a Usage.
    """
    if reported is None:
        return Usage()
    if not isinstance(reported, Usage):
        try:
            reported = plain(reported)
        except NotPlain as error:
            raise ConfigurationError(f"usage must be the object that a provider returns: {error}") from None
        if not isinstance(reported, Mapping):
            raise ConfigurationError(
                f"usage must be the object that a provider returns, not {kind_of(reported)}"
            )
    if isinstance(reported, Usage):
        return usage_from({name: _count(getattr(reported, name)) for name in SUMMED}, reported.cost)
    return usage_from(usage_counts(reported, api or _api(reported)) or {}, reported.get("cost"))


def usage_from(counts: Mapping[str, int], cost: object) -> Usage:
    """Returns the usage of these counts, by the fields of Usage, and of a reported cost."""
    counted = {**_NONE, **counts}
    for whole, parts in PARTS.items():
        sizes = [counted[part] for part in parts]
        if max(sizes) > counted[whole]:
            counted[whole] += sum(sizes)
    return Usage(**counted, cost=_read_cost(cost))


def _api(reported: Mapping[str, Any]) -> ApiName:
    """Returns the API that uses these field names."""
    if "prompt_tokens" in reported or "completion_tokens" in reported:
        return "openai.chat"
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return "anthropic.messages" if any(name in reported for name in cached) else "openai.responses"


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= MOST_TOKENS else 0


def _read_cost(value: object) -> Decimal | None:
    if value is None or isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    cost = Decimal(str(value))
    return cost if cost.is_finite() and 0 <= cost <= MOST_DOLLARS else None


def dollars(value: Decimal | float | str, what: str) -> Decimal:
    """Returns an amount of money as an exact Decimal; `what` names the amount in the error.

    A float is read by its shortest decimal text.
    """
    try:
        amount = Decimal(str(value) if isinstance(value, Decimal | int | float | str) else "NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= MOST_MONEY:
        raise ConfigurationError(f"{what} must be an amount of dollars, 0 or more, not {shown(value)}")
    return amount


# Sums -------------------------------------------------------------------------------------------------


def entry_of(used: Usage, cost: Decimal | None, estimate: int = 0, *, estimated: bool = False) -> LedgerEntry:
    """Returns one call as an entry."""
    return LedgerEntry(
        calls=1,
        prompt=used.prompt,
        completion=used.completion,
        cached_read=used.cached_read,
        cache_write=used.cache_write,
        reasoning=used.reasoning,
        estimate=estimate,
        cost=cost,
        unpriced=int(cost is None),
        estimated_calls=int(estimated),
    )


_COUNTS = tuple(field.name for field in fields(LedgerEntry) if field.name != "cost")


def add_entries(one: LedgerEntry, other: LedgerEntry) -> LedgerEntry:
    """Returns both entries as one: all tokens, and the costs that are known."""
    counts = {name: getattr(one, name) + getattr(other, name) for name in _COUNTS}
    return LedgerEntry(**counts, cost=add_money(one.cost, other.cost))


def sum_entries(entries: Iterable[LedgerEntry]) -> LedgerEntry:
    """Returns all entries as one; an empty one if there are none."""
    return reduce(add_entries, entries, LedgerEntry())


def add_money(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """Returns the sum of the known amounts; None if both are unknown."""
    if one is None or other is None:
        return one if other is None else other
    return MONEY.add(one, other)


# The meter -------------------------------------------------------------------------------------------


class Meter:
    """Sums the usage of one session by model and category, and warns once at each threshold."""

    def __init__(
        self,
        *,
        warn_at_dollars: Decimal | float | str | None = None,
        warn_at_tokens: int | None = None,
    ) -> None:
        if warn_at_tokens is not None:
            whole_number(warn_at_tokens, "warn_at_tokens")
        self.warn_at_dollars = (
            None if warn_at_dollars is None else dollars(warn_at_dollars, "warn_at_dollars")
        )
        self.warn_at_tokens = warn_at_tokens
        self._lock = threading.Lock()
        self._slots: dict[tuple[str, str], LedgerEntry] = {}
        self._warned: set[str] = set()
        self._unreported: list[Crossed] = []

    def add_usage(
        self,
        model: str | None = None,
        usage: Any = None,
        category: str | None = None,
        *,
        cost: Decimal | None = None,
        estimate: int = 0,
        estimated: bool = False,
    ) -> tuple[Crossed, ...]:
        """Adds one call, and returns the thresholds that it is the first to reach.

        This is for a program without a ledger. `model` is the caller's own name for the model. `cost` is the
        caller's figure. Without it the provider's figure counts; a call without any figure is counted as
        unpriced. `estimated` is True if some of the usage is our own estimate.
        """
        used = read_usage(usage)
        paid = used.cost if cost is None else dollars(cost, "cost")
        entry = entry_of(used, paid, _count(estimate), estimated=estimated)
        return self.add_entry(model or NOBODY, category or MAIN, entry)

    def add_entry(self, model: str, category: str, entry: LedgerEntry) -> tuple[Crossed, ...]:
        """Adds what `Ledger.settle` has booked, so that the meter and the ledger show the same sums.

        Returns the thresholds that it is the first to reach.
        """
        key = (check_text(model, "model"), check_text(category, "category"))
        with self._lock:
            self._slots[key] = add_entries(self._slots.get(key, LedgerEntry()), entry)
            crossed = tuple(self._pop_crossed())
            self._unreported += crossed
            return crossed

    def pop_warnings(self) -> tuple[Crossed, ...]:
        """Returns the thresholds that were reached since the last call of this method."""
        with self._lock:
            crossed = tuple(self._unreported)
            self._unreported.clear()
            return crossed

    def _pop_crossed(self) -> Iterator[Crossed]:
        """Yields the thresholds that are reached now and were not before."""
        prompt, completion = _tokens(self._slots)
        for kind, threshold, figure in (
            ("dollars", self.warn_at_dollars, _cost(self._slots)),
            ("tokens", self.warn_at_tokens, prompt + completion),
        ):
            if threshold is None or figure is None or figure < threshold or kind in self._warned:
                continue
            self._warned.add(kind)
            yield Crossed(kind, threshold, figure)

    @property
    def slots(self) -> Mapping[tuple[str, str], LedgerEntry]:
        """A copy of the usage by (model, category), in the order of first use."""
        with self._lock:
            return MappingProxyType(dict(self._slots))

    def total_cost(self) -> Decimal | None:
        """Returns the sum of the known costs in dollars, or None if no cost is known."""
        return _cost(self.slots)

    def total_tokens(self) -> tuple[int, int]:
        """Returns the sum of all prompt tokens, and of all completion tokens."""
        return _tokens(self.slots)

    def reset(self) -> None:
        """Forgets all usage; the warnings will appear again."""
        with self._lock:
            self._slots.clear()
            self._warned.clear()
            self._unreported.clear()


def _cost(slots: Mapping[tuple[str, str], LedgerEntry]) -> Decimal | None:
    total = None
    for slot in slots.values():
        total = add_money(total, slot.cost)
    return total


def _tokens(slots: Mapping[tuple[str, str], LedgerEntry]) -> tuple[int, int]:
    return sum(slot.prompt for slot in slots.values()), sum(slot.completion for slot in slots.values())


# The meter in detail ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeterRow:
    """One model and category of a meter, as `:cost detail` shows it."""

    model: str
    category: str
    slot: LedgerEntry
    estimate: int | None
    """Estimated prompt tokens, if the estimate was wrong by more than a tenth; else None."""

    @property
    def text(self) -> str:
        """The row as a line for people."""
        slot, estimated = self.slot, "" if self.estimate is None else f" ~est={self.estimate}"
        paid = [] if slot.cost is None else [f"${slot.cost:f}"]
        paid += ["local"] if slot.unpriced else []
        calls = f"{slot.calls} call{'s' if slot.calls != 1 else ''}"
        calls += f" ({slot.estimated_calls} estimated)" if slot.estimated_calls else ""
        figures = f"prompt={slot.prompt}{estimated} completion={slot.completion}"
        return f"{self.model} [{self.category}] {calls} {figures} {' + '.join(paid)}"


def detail(meter: Meter) -> tuple[MeterRow, ...]:
    """Returns a row for each model and category, in the order of first use."""
    return tuple(
        MeterRow(model, category, slot, notable_estimate(slot.prompt, slot.estimate))
        for (model, category), slot in meter.slots.items()
    )


def notable_estimate(actual: int, estimate: int) -> int | None:
    """Returns the estimate if it differs from the actual figure by more than a tenth, else None."""
    if not actual or not estimate:
        return None
    return estimate if 10 * abs(actual - estimate) > actual else None
