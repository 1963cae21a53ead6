"""Money: the costs of the last days by model and by key, and the caps, from the ledger in the store.

The ledger is read in a thread, one day at a time, so that no booking waits for it long. Days that are over
are read once. The rest is read again only while somebody watches, and for a small share of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ullage.cost.book import Cap
from ullage.cost.keys import caps_of, check_time
from ullage.cost.report import report
from ullage.errors import KeyRefused
from ullage.usage import LedgerEntry, sum_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal
    from typing import TypeAlias

    from ullage.config import Settings
    from ullage.cost.keys import GatewayKey
    from ullage.store import Store

    DaySums: TypeAlias = Mapping[tuple[str, ...], LedgerEntry]
    """Model and key → the sum of a day."""

DAYS = 30
SETTLED = 2
"""Newest days that are read again each time; a call is booked on the day of its beginning."""
SOONEST, LATEST = 2.0, 15.0
"""Seconds until the ledger is read again, if there are new requests here, and if there are none."""
SHARE = 50
"""The ledger is read for at most one part in so many of the time."""
MOST_NAMES = 7
"""Most models or keys with a colour of their own; the others are summed."""
MOST_KEYS = 50
"""Most keys whose caps are shown: those with the highest costs, then the newest."""
MOST_SESSIONS = 10
"""Most conversations whose cap is shown."""
GATEWAY = "gateway:"
"""The beginning of the names of the gateway's conversations in the ledger."""
OTHERS = ""
"""The name of the sum of all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """The costs of one model or key, day by day."""

    name: str
    """Empty for the sum of all others, and for calls without a key."""
    is_rest: bool
    calls: Sequence[int]
    tokens: Sequence[int]
    dollars: Sequence[Decimal | None]
    """None if no cost is known, as for a local model."""
    unpriced: int
    """Calls whose cost is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapLine:
    """One cap with the sums that count against it."""

    scope: str
    whose: str
    unit: str
    limit: Decimal
    spent: Decimal
    reserved: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyView:
    """The costs and caps at one time."""

    days: Sequence[str]
    by_model: Sequence[CostLine]
    by_key: Sequence[CostLine]
    caps: Sequence[CapLine]
    hidden_keys: int
    """Valid keys whose caps are not shown."""
    key_names: Mapping[str, str]


class Money:
    """Reads the costs and caps of a store; used on one event loop."""

    def __init__(self, settings: Settings, kept: Store) -> None:
        self._settings = settings
        self._kept = kept
        self._lock = asyncio.Lock()
        self._past: dict[str, DaySums] = {}
        self._view: MoneyView | None = None
        self._number = -1
        self._due = {True: 0.0, False: 0.0}
        """The earliest time of the next reading: with new requests, and without."""

    async def view(self, number: int, sessions: Sequence[str]) -> MoneyView:
        """Returns the newest costs and caps: the same object until they are read again.

        `number` is that of the newest request, and `sessions` are the conversations whose caps are shown.
        """
        async with self._lock:
            if self._view is None or time.monotonic() >= self._due[number != self._number]:
                begun = time.monotonic()
                view = await asyncio.to_thread(self._read, sessions)
                if view != self._view:
                    self._view = view
                now = time.monotonic()
                rest = (now - begun) * SHARE
                self._due = {True: now + max(SOONEST, rest), False: now + max(LATEST, rest)}
                self._number = number
            return self._view

    def _read(self, sessions: Sequence[str]) -> MoneyView:
        today = datetime.now(UTC).date()
        days = [(today - timedelta(days=back)).isoformat() for back in range(DAYS - 1, -1, -1)]
        self._past = {
            day: self._past[day] if day in self._past else self._day(day) for day in days[:-SETTLED]
        }
        sums = self._past | {day: self._day(day) for day in days[-SETTLED:]}
        keys = self._kept.keys.all()
        by_key = _lines(days, sums, 1)
        shown, hidden = _choose_keys(keys, by_key)
        return MoneyView(
            days=days,
            by_model=_lines(days, sums, 0),
            by_key=by_key,
            caps=[self._make_cap_line(cap, whose) for cap, whose in self._caps(shown, sessions, days[-1])],
            hidden_keys=hidden,
            key_names={key.id: key.name for key in keys},
        )

    def _day(self, day: str) -> DaySums:
        entries = self._kept.book.entries(since=day, until=day)
        ours = [each for each in entries if each[0].session.startswith(GATEWAY)]
        return {line.group: line.entry for line in report(ours, by=("model", "key")).lines}

    def _caps(
        self, keys: Sequence[GatewayKey], sessions: Sequence[str], day: str
    ) -> Iterator[tuple[Cap, str]]:
        """Yields the caps, each with its owner: a key, a conversation, or nobody."""
        cost = self._settings.cost
        if cost.cap_at_dollars_a_day is not None:
            yield Cap("day", day, cost.cap_at_dollars_a_day), ""
        for key in keys:
            for cap in caps_of(key):
                yield cap, key.name
        if cost.cap_at_dollars is not None:
            for session in sessions:
                yield Cap("session", session, cost.cap_at_dollars), session

    def _make_cap_line(self, cap: Cap, whose: str) -> CapLine:
        spent, reserved = self._kept.book.used(cap.scope, cap.name, cap.unit)
        return CapLine(
            scope=cap.scope, whose=whose, unit=cap.unit, limit=cap.limit, spent=spent, reserved=reserved
        )


def _choose_keys(keys: Sequence[GatewayKey], lines: Sequence[CostLine]) -> tuple[list[GatewayKey], int]:
    """Returns the valid keys to show, and the number of the others."""
    valid = []
    for key in keys:
        with suppress(KeyRefused):
            check_time(key)
            valid.append(key)
    known = {line.name: place for place, line in enumerate(lines)}
    valid.sort(key=lambda key: (known.get(key.id, len(known)), -key.created))
    return valid[:MOST_KEYS], max(0, len(valid) - MOST_KEYS)


def _lines(days: Sequence[str], sums: Mapping[str, DaySums], part: int) -> list[CostLine]:
    """Returns the costs by one part of the groups, the highest first."""
    found: dict[str, dict[str, list[LedgerEntry]]] = defaultdict(lambda: defaultdict(list))
    for day in days:
        for group, entry in sums[day].items():
            found[group[part]][day].append(entry)
    lines = [_line(name, days, each) for name, each in found.items()]
    lines.sort(key=lambda line: (sum(filter(None, line.dollars)), sum(line.tokens)), reverse=True)
    if len(lines) <= MOST_NAMES + 1:
        return lines
    named = {line.name for line in lines[:MOST_NAMES]}
    rest: dict[str, list[LedgerEntry]] = defaultdict(list)
    for name, each in found.items():
        if name not in named:
            for day, entries in each.items():
                rest[day] += entries
    return [*lines[:MOST_NAMES], _line(OTHERS, days, rest, is_rest=True)]


def _line(
    name: str, days: Sequence[str], entries: Mapping[str, list[LedgerEntry]], *, is_rest: bool = False
) -> CostLine:
    empty = LedgerEntry()
    sums = [sum_entries(entries[day]) if day in entries else empty for day in days]
    return CostLine(
        name=name,
        is_rest=is_rest,
        calls=[each.calls for each in sums],
        tokens=[each.prompt + each.completion for each in sums],
        dollars=[each.cost for each in sums],
        unpriced=sum(each.unpriced for each in sums),
    )
