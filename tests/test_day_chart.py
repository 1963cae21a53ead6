"""Costs by day as bars: one scale, nothing hidden, and no bar where there is no room."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from ullage.cost.book import Account
from ullage.cost.report import add_bars, as_table, bars_of, draw_days, report
from ullage.usage import LedgerEntry

COSTS = st.lists(st.none() | st.decimals(0, 10**6, places=6), min_size=1, max_size=20)


@given(COSTS, st.integers(-5, 100))
def test_bars_have_one_scale_and_every_cost_is_seen_if_there_is_room(
    costs: list[Decimal | None], room: int
) -> None:
    bars = bars_of(costs, room)
    assert len(bars) == len(costs)
    assert all(len(bar) <= max(0, min(40, room)) for bar in bars)
    if room >= 6:
        assert all(bool(bar) == bool(cost) for bar, cost in zip(bars, costs, strict=True))
        largest = max(filter(None, costs), default=None)
        assert largest is None or len(bars[costs.index(largest)]) == min(40, room)


def test_a_report_by_day_has_bars_behind_its_days() -> None:
    made = report([(account(day), LedgerEntry(calls=1, cost=Decimal(cost))) for day, cost in DAYS], ("day",))
    heads, first, second, total = add_bars(as_table(made), made, 100).splitlines()
    assert first.endswith("1.0000  " + "█" * 10)
    assert second.endswith("4.0000  " + "█" * 40)
    assert "█" not in heads + total
    assert add_bars(as_table(made), made, 40) == as_table(made)


def test_the_last_days_are_all_listed() -> None:
    made = report([(account(day), LedgerEntry(calls=1, cost=Decimal(cost))) for day, cost in DAYS], ("day",))
    lines = list(draw_days(made, "2026-11-18", 4, 40))
    assert lines == [
        "2026-11-15  0.0000",
        "2026-11-16  1.0000  █████",
        "2026-11-17  0.0000",
        "2026-11-18  4.0000  ████████████████████",
    ]


DAYS = (("2026-11-16", "1"), ("2026-11-18", "4"))


def account(day: str) -> Account:
    return Account("a session", "gpt-4o", "main", "harbour", day)
