"""What requests used: a value for each, and the meter that sums them by model and category."""

from __future__ import annotations

import decimal
import threading
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ullage.classes import MAIN
from ullage.errors import ConfigurationError
from ullage.wire.usage import MOST_TOKENS, counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MONEY = decimal.Context(prec=100)
"""Sums of money are exact, whatever precision the caller's own decimal context has."""
MOST_DOLLARS = 10**6
"""A figure above this is no price of one request."""
NOBODY = "?"
"""The model where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of one request, as the provider told them."""

    prompt: int = 0
    """The whole prompt, cached parts included."""
    completion: int = 0
    """The whole output, reasoning included."""
    cached_read: int = 0
    """What of the prompt was read from the provider's cache."""
    cache_write: int = 0
    """What of the prompt was written to it."""
    reasoning: int = 0
    """What of the output was reasoning."""
    cost: Decimal | None = None
    """What the provider says that it charged, in dollars, where it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What one model used in one category."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    cached_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimate: int = 0
    """The prompt tokens as they were estimated before sending."""
    cost: Decimal | None = None
    """The costs that are known, in dollars; None where none was."""
    local: bool = False
    """Whether the cost of a call was not known, as a local model's is not; once true, it stays."""


@dataclass(frozen=True, slots=True)
class Crossed:
    """A threshold that the session has reached; each is crossed once."""

    kind: str
    """dollars or tokens."""
    threshold: Decimal | int
    figure: Decimal | int
    """What is used by now."""

    @property
    def text(self) -> str:
        """The warning, as a line for people."""
        if isinstance(self.figure, Decimal):
            return f"This session has cost ${self.figure:f}; the warning is set at ${self.threshold:f}."
        return f"This session has used {self.figure:,} tokens; the warning is set at {self.threshold:,}."


# Reading what providers tell -------------------------------------------------------------------------

SUMMED = tuple(field.name for field in fields(Usage) if field.name != "cost")
"""The counts of a Usage."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("cached_read", "cache_write"),
    "completion": ("reasoning",),
}
"""What of Usage is a part of what."""


def read_usage(told: Usage | Mapping[str, Any] | None, api: str | None = None) -> Usage:
    """The usage in a provider's own object; without `api`, OpenAI's (chat or responses) or Anthropic's.

    What is missing, is no whole number or cannot be true (below 0, above a billion tokens or a million
    dollars) adds nothing. Where a part is more than its whole, the provider tells the parts beside it, as
    some do with reasoning: then the whole is the sum. A Usage is held to the same.
    """
    if told is None:
        return Usage()
    counted = dict.fromkeys(SUMMED, 0)
    if isinstance(told, Usage):
        counted |= {name: _count(getattr(told, name)) for name in SUMMED}
        cost = told.cost
    else:
        counted |= counts(told, api or _api(told)) or {}
        cost = told.get("cost")
    for whole, parts in PARTS.items():
        if max(counted[part] for part in parts) > counted[whole]:
            counted[whole] += sum(counted[part] for part in parts)
    return Usage(**counted, cost=_told_cost(cost))


def _api(told: Mapping[str, Any]) -> str:
    """The API whose words these are."""
    if "prompt_tokens" in told or "completion_tokens" in told:
        return "openai.chat"
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return "anthropic.messages" if any(name in told for name in cached) else "openai.responses"


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= MOST_TOKENS else 0


def _told_cost(value: object) -> Decimal | None:
    if value is None or isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    cost = Decimal(str(value))
    return cost if cost.is_finite() and 0 <= cost <= MOST_DOLLARS else None


def dollars(value: Decimal | float | str, what: str) -> Decimal:
    """An amount of money as a Decimal, a float by the digits that it shows; `what` names it in the error."""
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0:
        raise ConfigurationError(f"{what} is an amount of dollars, 0 or more; {value!r} is not")
    return amount


# The meter -------------------------------------------------------------------------------------------


class Meter:
    """Sums what one session uses by model and category, and warns once at each threshold."""

    def __init__(
        self,
        *,
        warn_at_dollars: Decimal | float | str | None = None,
        warn_at_tokens: int | None = None,
    ) -> None:
        if warn_at_tokens is not None and warn_at_tokens < 0:
            raise ConfigurationError(f"warn_at_tokens is 0 or more; {warn_at_tokens} is not")
        self.warn_at_dollars = (
            None if warn_at_dollars is None else dollars(warn_at_dollars, "warn_at_dollars")
        )
        self.warn_at_tokens = warn_at_tokens
        self._lock = threading.Lock()
        self._slots: dict[tuple[str, str], Slot] = {}
        self._warned: set[str] = set()
        self._untold: list[Crossed] = []

    def add_usage(
        self,
        model: str | None = None,
        usage: Usage | Mapping[str, Any] | None = None,
        category: str | None = None,
        *,
        cost: Decimal | None = None,
        estimate: int = 0,
    ) -> tuple[Crossed, ...]:
        """Adds one call, and returns the thresholds that it is the first to reach.

        The model is the caller's name for it. `cost` is what the caller reckoned; without it, what the
        provider told counts, and where nobody told any the slot is marked as local.
        """
        used = read_usage(usage)
        paid = used.cost if cost is None else cost
        key = (model or NOBODY, category or MAIN)
        with self._lock:
            self._slots[key] = _plus(self._slots.get(key, Slot()), used, paid, _count(estimate))
            crossed = tuple(self._crossed())
            self._untold += crossed
            return crossed

    def untold(self) -> tuple[Crossed, ...]:
        """What was crossed since the last time that this was asked, whoever added it."""
        with self._lock:
            told = tuple(self._untold)
            self._untold.clear()
            return told

    def _crossed(self) -> Iterator[Crossed]:
        """The thresholds that are reached now and were not before."""
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
    def slots(self) -> Mapping[tuple[str, str], Slot]:
        """What was used by (model, category), as it stands now, in the order of first use."""
        with self._lock:
            return MappingProxyType(dict(self._slots))

    def total_cost(self) -> Decimal | None:
        """The costs that are known, in dollars; None where none is."""
        return _cost(self.slots)

    def total_tokens(self) -> tuple[int, int]:
        """All prompt tokens, and all completion tokens."""
        return _tokens(self.slots)

    def reset(self) -> None:
        """Forgets what was used; the warnings will be given again."""
        with self._lock:
            self._slots.clear()
            self._warned.clear()
            self._untold.clear()


def _plus(slot: Slot, used: Usage, cost: Decimal | None, estimate: int) -> Slot:
    sums = {name: getattr(slot, name) + getattr(used, name) for name in SUMMED}
    return replace(
        slot,
        calls=slot.calls + 1,
        estimate=slot.estimate + estimate,
        cost=add_money(slot.cost, cost),
        local=slot.local or cost is None,
        **sums,
    )


def add_money(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """The sum of what is known; None where neither is."""
    if one is None or other is None:
        return one if other is None else other
    return MONEY.add(one, other)


def _cost(slots: Mapping[tuple[str, str], Slot]) -> Decimal | None:
    total = None
    for slot in slots.values():
        total = add_money(total, slot.cost)
    return total


def _tokens(slots: Mapping[tuple[str, str], Slot]) -> tuple[int, int]:
    return sum(slot.prompt for slot in slots.values()), sum(slot.completion for slot in slots.values())


# The meter in detail ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One model and category of a meter, as `:cost detail` shows it."""

    model: str
    category: str
    slot: Slot
    estimate: int | None
    """The estimate of the prompt tokens, where it was off by more than a tenth of them."""

    @property
    def text(self) -> str:
        """The row as a line for people."""
        slot, estimated = self.slot, "" if self.estimate is None else f" ~est={self.estimate}"
        paid = [] if slot.cost is None else [f"${slot.cost:f}"]
        paid += ["local"] if slot.local else []
        calls = f"{slot.calls} call{'s' if slot.calls != 1 else ''}"
        figures = f"prompt={slot.prompt}{estimated} completion={slot.completion}"
        return f"{self.model} [{self.category}] {calls} {figures} {' + '.join(paid)}"


def detail(meter: Meter) -> tuple[Row, ...]:
    """A row for each model and category, in the order of first use."""
    return tuple(
        Row(model, category, slot, notable_estimate(slot.prompt, slot.estimate))
        for (model, category), slot in meter.slots.items()
    )


def notable_estimate(actual: int, estimate: int) -> int | None:
    """The estimate, where one was made and is off by more than a tenth of the actual figure."""
    if not actual or not estimate:
        return None
    return estimate if 10 * abs(actual - estimate) > actual else None
