from __future__ import annotations

import csv
import io
import json
import threading
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from ullage.cost import (
    Account,
    Ledger,
    MemoryBook,
    Prices,
    Reservation,
    cost_of,
    day_of,
    prices_of,
    worst_case,
)
from ullage.cost.report import GROUPS, as_csv, as_json, as_table, describe_cost, report
from ullage.errors import BudgetExceeded, ConfigurationError
from ullage.usage import LedgerEntry, Usage, add_entries, read_usage, sum_entries

PRICES = Prices.a_million(input=2, output=10, cached_read=1, cache_write="2.5", reasoning=12)
OWN = {"dear": PRICES, "free": Prices.a_million(input=0, output=0)}
NOON = 1_794_830_400.0  # 2026-11-16 12:00 UTC


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


# Prices

TOKENS = st.integers(0, 10**6)
PRICE = st.none() | st.decimals(0, 1, places=12)
ANY_PRICES = st.builds(
    Prices, input=PRICE, output=PRICE, cached_read=PRICE, cache_write=PRICE, reasoning=PRICE
)


@st.composite
def usages(draw: st.DrawFn, most: int = 10**6) -> Usage:
    prompt, completion = draw(st.integers(0, most)), draw(st.integers(0, most))
    read = draw(st.integers(0, prompt))
    write = draw(st.integers(0, prompt - read))
    reasoning = draw(st.integers(0, completion))
    return Usage(
        prompt=prompt, completion=completion, cached_read=read, cache_write=write, reasoning=reasoning
    )


def test_each_part_is_charged_once_at_its_own_price() -> None:
    usage = Usage(prompt=100, cached_read=60, cache_write=30, completion=50, reasoning=20)
    dollars = (10 * 2 + 60 * 1 + 30 * Decimal("2.5") + 30 * 10 + 20 * 12) / Decimal(10**6)
    assert cost_of(usage, PRICES) == dollars


@given(usages(), ANY_PRICES)
def test_a_cost_is_the_sum_of_its_parts_and_no_more_than_the_worst_case(usage: Usage, prices: Prices) -> None:
    cost, worst = cost_of(usage, prices), worst_case(prices, usage.prompt, usage.completion)
    plain = usage.prompt - usage.cached_read - usage.cache_write
    parts = [
        Usage(prompt=plain),
        Usage(prompt=usage.cached_read, cached_read=usage.cached_read),
        Usage(prompt=usage.cache_write, cache_write=usage.cache_write),
        Usage(completion=usage.completion - usage.reasoning),
        Usage(completion=usage.reasoning, reasoning=usage.reasoning),
    ]
    costs = [cost_of(part, prices) for part in parts]
    if cost is None:
        assert None in costs
        assert worst is None
    else:
        assert cost == sum(each for each in costs if each is not None)
        assert None not in costs
        assert worst is None or cost <= worst


@given(usages(), ANY_PRICES)
def test_one_price_for_all_makes_parts_cost_what_the_whole_does(usage: Usage, prices: Prices) -> None:
    plain = Prices(input=prices.input, output=prices.output)
    whole = Usage(prompt=usage.prompt, completion=usage.completion)
    assert cost_of(usage, plain) == cost_of(whole, plain)


@pytest.mark.parametrize(
    ("usage", "prices", "cost"),
    [
        (Usage(prompt=10), Prices(), None),
        (Usage(prompt=10), Prices(output=Decimal(1)), None),
        (Usage(completion=10), Prices(input=Decimal(1)), None),
        (Usage(completion=10), Prices(output=Decimal(1)), 10),
        (Usage(prompt=10, completion=10), Prices(input=Decimal(0), output=Decimal(0)), 0),
        (Usage(), Prices(), 0),
        (Usage(prompt=10, cost=Decimal("0.5")), Prices(), Decimal("0.5")),
        (Usage(prompt=10, cost=Decimal(0)), PRICES, 0),
        (Usage(prompt=10, cost=Decimal("NaN")), Prices(input=Decimal(1)), 10),
        # read and written: seven tokens of the prompt were neither
        (Usage(prompt=107, cached_read=100, cache_write=100), Prices(input=Decimal(1)), 207),
    ],
)
def test_a_cost_is_known_where_all_that_it_takes_is(usage: Usage, prices: Prices, cost: object) -> None:
    assert cost_of(usage, prices) == cost


def test_costs_are_exact_in_a_caller_s_rough_context() -> None:
    with localcontext() as rough:
        rough.prec = 2
        assert cost_of(Usage(prompt=123_457), PRICES) == Decimal("0.246914")


def test_prices_come_from_the_table_unless_the_caller_has_his_own() -> None:
    prices = prices_of("gpt-4o")
    assert (prices.input, prices.output) == (Decimal("2.5e-6"), Decimal("1e-5"))
    assert prices_of("GPT-4o", {"gpt-4o": PRICES}) is PRICES
    assert prices_of("nobody-s-model") == Prices()


@pytest.mark.parametrize("wrong", [-1, "dear", float("nan")])
def test_a_price_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="the price output"):
        Prices.a_million(output=wrong)
    with pytest.raises(ConfigurationError, match="a_million"):
        Prices(input=wrong)


# Reserve and settle


def test_a_call_holds_its_worst_case_and_settles_with_what_it_used() -> None:
    ledger = Ledger(session="s", prices=OWN, cap_at_dollars=1, clock=Clock())
    held = ledger.reserve("dear", 10_000, 1_000)
    assert held.amount == 10_000 * Decimal("2.5e-6") + 1_000 * Decimal("12e-6")
    assert ledger.used() == (0, held.amount)
    assert ledger.settle(held, Usage(prompt=9_000, completion=10), estimate=8_888)
    assert ledger.used() == (Decimal("0.0181"), 0)
    ((account, entry),) = ledger.book.entries()
    assert account == Account("s", "dear", "main", "", "2026-11-16")
    assert entry == LedgerEntry(calls=1, prompt=9_000, completion=10, estimate=8_888, cost=Decimal("0.0181"))


def test_a_call_that_could_cross_the_cap_is_refused_with_the_numbers() -> None:
    ledger = Ledger(session="s", prices=OWN, cap_at_dollars="0.05", clock=Clock())
    first = ledger.reserve("dear", 0, 2_000)
    ledger.settle(first, Usage(completion=1_000))
    second = ledger.reserve("dear", 0, 2_000)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve("dear", 0, 2_000)
    error = caught.value
    assert (error.scope, error.name, error.cap) == ("session", "s", Decimal("0.05"))
    assert (error.spent, error.reserved, error.worst) == (
        Decimal("0.01"),
        Decimal("0.024"),
        Decimal("0.024"),
    )
    assert ledger.used() == (Decimal("0.01"), Decimal("0.024"))
    ledger.release(second)
    ledger.reserve("dear", 0, 2_000)


def test_a_call_that_reaches_the_cap_exactly_is_allowed() -> None:
    ledger = Ledger(prices=OWN, cap_at_dollars="0.024")
    ledger.reserve("dear", 0, 2_000)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("dear", 0, 1)


@pytest.mark.parametrize(
    ("caps", "scope"),
    [
        ({"cap_at_dollars": 1, "cap_at_dollars_a_day": 9}, None),
        ({"cap_at_dollars_a_day": 1}, "day"),
        ({"cap_at_dollars_a_project": 1}, "project"),
        ({"cap_at_dollars": 1, "cap_at_dollars_a_day": 1, "cap_at_dollars_a_project": 1}, "day"),
    ],
)
def test_the_caps_of_day_and_project_are_shared_by_sessions(caps: dict[str, Any], scope: str | None) -> None:
    book, clock = MemoryBook(), Clock()
    one = Ledger(book=book, session="one", project="p", prices=OWN, clock=clock, **caps)
    other = Ledger(book=book, session="other", project="p", prices=OWN, clock=clock, **caps)
    one.settle(one.reserve("dear", 0, 80_000), Usage(completion=90_000))
    if scope is None:
        other.reserve("dear", 0, 80_000)
        return
    with pytest.raises(BudgetExceeded) as caught:
        other.reserve("dear", 0, 80_000)
    assert caught.value.scope == scope


def test_a_call_belongs_to_the_day_in_utc_on_which_it_was_reserved() -> None:
    clock = Clock(NOON + 12 * 3600 - 1)
    ledger = Ledger(prices=OWN, cap_at_dollars_a_day=1, clock=clock)
    late = ledger.reserve("dear", 0, 80_000)
    clock.now += 2
    ledger.reserve("dear", 0, 80_000)
    ledger.settle(late, Usage(completion=80_000))
    assert [account.day for account, _ in ledger.book.entries()] == ["2026-11-16"]
    assert ledger.used("day") == (0, Decimal("0.96"))
    assert day_of(clock.now) == "2026-11-17"


def test_the_truth_is_booked_even_above_the_reservation_and_the_cap() -> None:
    ledger = Ledger(prices=OWN, cap_at_dollars="0.1")
    ledger.settle(ledger.reserve("dear", 0, 1_000), Usage(completion=50_000))
    assert ledger.used() == (Decimal("0.5"), 0)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("dear", 1, 0)
    assert ledger.reserve("free", 1_000, 1_000).amount == 0
    assert ledger.reserve("dear", 1_000, 1_000, local=True).amount is None


def test_a_reservation_ends_once() -> None:
    ledger = Ledger(prices=OWN)
    settled, released = ledger.reserve("dear", 1, 1), ledger.reserve("dear", 1, 1)
    assert ledger.settle(settled, Usage(prompt=1))
    assert not ledger.settle(settled, Usage(prompt=1))
    assert not ledger.release(settled)
    assert ledger.release(released)
    assert not ledger.release(released)
    assert not ledger.settle(released, Usage(prompt=1))
    assert sum_entries(entry for _, entry in ledger.book.entries()).calls == 1


@pytest.mark.parametrize("jump", [3_601, -3_601, 10 * 365 * 24 * 3600])
def test_a_clock_that_jumps_ends_no_reservation(jump: int) -> None:
    clock = Clock()
    ledger = Ledger(prices=OWN, cap_at_dollars=1, clock=clock)
    held = ledger.reserve("dear", 0, 80_000)
    clock.now += jump
    with pytest.raises(BudgetExceeded):
        ledger.reserve("dear", 0, 80_000)
    assert ledger.settle(held, Usage(completion=80_000))
    assert ledger.used() == (Decimal("0.8"), 0)


def test_settling_returns_what_was_booked() -> None:
    ledger = Ledger(prices=OWN)
    held = ledger.reserve("dear", 10, 10)
    entry = ledger.settle(held, Usage(prompt=10, completion=4), estimate=9)
    assert entry == LedgerEntry(
        calls=1, prompt=10, completion=4, estimate=9, cost=cost_of(Usage(prompt=10, completion=4), PRICES)
    )
    assert ledger.settle(held, Usage(prompt=10)) is None


def test_a_call_of_which_nothing_is_known_is_booked_at_its_worst_case_and_marked() -> None:
    ledger = Ledger(prices=OWN, cap_at_dollars=1)
    held = ledger.reserve("dear", 0, 1_000)
    ledger.settle(held, None)
    ((_, entry),) = ledger.book.entries()
    assert entry == LedgerEntry(calls=1, cost=held.amount, unpriced=1)


# Prices that are not known


def test_a_model_without_a_price_is_refused_under_a_cap_with_the_way_out() -> None:
    ledger = Ledger(cap_at_dollars=1)
    with pytest.raises(ConfigurationError, match=r"'mystery' is unknown.*Prices\.a_million.*local=True"):
        ledger.reserve("mystery", 10, 10)
    assert ledger.used() == (0, 0)


def test_a_model_without_an_output_limit_is_refused_under_a_cap() -> None:
    with pytest.raises(ConfigurationError, match="output=N"):
        Ledger(prices=OWN, cap_at_dollars=1).reserve("dear", 10)
    assert Ledger(cap_at_dollars=1).reserve("gpt-4o", 0).amount == 16_384 * Decimal("1e-5")


def test_without_a_cap_an_unknown_price_is_booked_as_unknown() -> None:
    ledger = Ledger()
    held = ledger.reserve("mystery", 10, 10)
    ledger.settle(held, Usage(prompt=10, completion=10))
    told = ledger.reserve("mystery", 10, 10)
    ledger.settle(told, Usage(prompt=10, completion=10, cost=Decimal("0.25")))
    ((_, entry),) = ledger.book.entries()
    assert (held.amount, entry.cost, entry.unpriced, entry.calls) == (None, Decimal("0.25"), 1, 2)


def test_without_a_cap_an_unknown_output_limit_is_no_matter() -> None:
    ledger = Ledger(prices=OWN)
    ledger.settle(ledger.reserve("dear", 10), Usage(completion=1_000))
    assert ledger.used() == (Decimal("0.01"), 0)


def test_a_local_model_has_no_cost_even_by_a_name_that_has_a_price() -> None:
    ledger = Ledger(cap_at_dollars="0.000001")
    ledger.settle(ledger.reserve("gpt-4o", 10**6, 10**6, local=True), Usage(prompt=10**6))
    ((_, entry),) = ledger.book.entries()
    assert (entry.cost, entry.unpriced) == (None, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cap_at_dollars": -1},
        {"cap_at_dollars_a_day": "much"},
        {"cap_at_dollars_a_project": 1},
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Ledger(**wrong)


def test_an_amount_has_no_finer_parts_than_a_book_can_keep() -> None:
    fine = Prices(input=Decimal("1.00000000000000017e-7"), output=Decimal(0))
    ledger = Ledger(prices={"m": fine})
    held = ledger.reserve("m", 1, 1)
    ledger.settle(held, Usage(prompt=1))
    assert held.amount == Decimal("0.000000100001")
    assert ledger.used() == (Decimal("0.0000001"), 0)


# Caps under any interleaving


class Interleaving(RuleBasedStateMachine):
    """Two ledgers on one book, a clock that jumps, calls that settle within their worst case or never."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.book = Clock(), MemoryBook()
        self.cap = Decimal(1)
        self.ledgers = [
            Ledger(
                book=self.book,
                session=name,
                project="p",
                prices=OWN,
                clock=self.clock,
                cap_at_dollars_a_project=self.cap,
                cap_at_dollars="0.7",
            )
            for name in ("one", "other")
        ]
        self.booked = LedgerEntry()
        self.settled: set[str] = set()
        self.refusals: list[BudgetExceeded] = []

    @rule(
        target=held,
        who=st.integers(0, 1),
        prompt=st.integers(0, 100_000),
        output=st.integers(0, 50_000),
        local=st.booleans(),
    )
    def reserve(self, who: int, prompt: int, output: int, local: bool) -> Any:
        try:
            return self.ledgers[who].reserve("dear", prompt, output, local=local), prompt, output
        except BudgetExceeded as refused:
            self.refusals.append(refused)
            return multiple()

    @rule(call=held, share=st.fractions(0, 1), parts=usages(1000))
    def settle(self, call: tuple[Reservation, int, int], share: Any, parts: Usage) -> None:
        reservation, prompt, output = call
        usage = read_usage(
            Usage(
                prompt=int(prompt * share),
                completion=int(output * share),
                cached_read=min(int(prompt * share) // 2, parts.cached_read),
                reasoning=min(int(output * share), parts.reasoning),
            )
        )
        if self.ledgers[0].settle(reservation, usage):
            assert reservation.id not in self.settled
            self.settled.add(reservation.id)
            cost = None if reservation.amount is None else cost_of(usage, PRICES)
            self.booked = add_entries(
                self.booked, LedgerEntry(calls=1, prompt=usage.prompt, completion=usage.completion, cost=cost)
            )

    @rule(call=consumes(held))
    def release(self, call: tuple[Reservation, int, int]) -> None:
        self.ledgers[0].release(call[0])
        assert not self.ledgers[0].settle(call[0], Usage(prompt=1))

    @rule(seconds=st.integers(1, 60))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @invariant()
    def no_cap_is_crossed(self) -> None:
        spent, reserved = self.ledgers[0].used("project")
        assert spent + reserved <= self.cap
        for ledger in self.ledgers:
            assert sum(ledger.used()) <= Decimal("0.7")

    @invariant()
    def nothing_is_refused_that_fits(self) -> None:
        assert all(each.spent + each.reserved + each.worst > each.cap for each in self.refusals)

    @invariant()
    def what_was_used_is_booked_once(self) -> None:
        entry = sum_entries(entry for _, entry in self.book.entries())
        assert (entry.calls, entry.prompt, entry.completion) == (
            self.booked.calls,
            self.booked.prompt,
            self.booked.completion,
        )
        assert (entry.cost or 0) == (self.booked.cost or 0) == self.ledgers[0].used("project")[0]


Interleaving.TestCase.settings = settings(stateful_step_count=30)
TestNoCapIsCrossedUnderAnyInterleaving = Interleaving.TestCase


def test_64_threads_never_cross_a_cap_and_leave_less_than_a_call() -> None:
    book = MemoryBook()
    worst, cap = Decimal("0.012"), Decimal(1)
    refused: list[BudgetExceeded] = []
    start = threading.Barrier(64)

    def work(number: int) -> None:
        ledger = Ledger(
            book=book,
            session=f"s{number}",
            project="p",
            prices=OWN,
            cap_at_dollars_a_project=cap,
            clock=Clock(),
        )
        start.wait()
        for turn in range(12):
            try:
                held = ledger.reserve("dear", 0, 1_000)
            except BudgetExceeded as error:
                refused.append(error)
                continue
            spent, reserved = book.used("project", "p")
            assert spent + reserved <= cap
            if turn % 3:
                ledger.settle(held, Usage(completion=1_000, reasoning=1_000))
            else:
                ledger.release(held)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent, reserved = book.used("project", "p")
    assert refused
    assert reserved == 0
    assert cap - worst < spent <= cap
    assert sum_entries(entry for _, entry in book.entries()).calls * worst == spent


# Reports

ACCOUNTS = st.builds(
    Account,
    session=st.sampled_from("ab"),
    model=st.sampled_from(["gpt-4o", "smol"]),
    category=st.sampled_from(["main", "goal"]),
    project=st.sampled_from(["", "p,q"]),
    day=st.sampled_from(["2026-11-15", "2026-11-16"]),
    key=st.sampled_from(["", "abcd2345"]),
)
ENTRIES = st.builds(
    LedgerEntry,
    calls=st.integers(1, 5),
    prompt=TOKENS,
    completion=TOKENS,
    cached_read=TOKENS,
    cost=st.none() | st.decimals(0, 100, places=12),
    unpriced=st.integers(0, 3),
)
BOOKS = st.lists(st.tuples(ACCOUNTS, ENTRIES), max_size=12)


@given(BOOKS, st.lists(st.sampled_from(GROUPS), min_size=1, unique=True))
def test_the_lines_of_a_report_sum_to_its_total_however_they_are_made(
    entries: list[tuple[Account, LedgerEntry]], by: list[str]
) -> None:
    made = report(entries, by)
    whole = sum_entries(entry for _, entry in entries)
    assert made.total == (whole if entries else LedgerEntry(cost=Decimal(0)))
    assert sum_entries(line.entry for line in made.lines) == whole
    groups = [line.group for line in made.lines]
    assert groups == sorted(set(groups))
    assert len(as_table(made).splitlines()) == len(groups) + 2

    read = json.loads(as_json(made), parse_float=Decimal)
    assert [line["cost"] for line in read["lines"]] == [line.entry.cost for line in made.lines]
    assert read["total"]["calls"] == whole.calls
    rows = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert [row["cost"] == "" for row in rows] == [line.entry.cost is None for line in made.lines]
    assert [tuple(row[each] for each in by) for row in rows] == groups
    assert sum(int(row["prompt"]) for row in rows) == whole.prompt


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (LedgerEntry(calls=1, unpriced=1), "?"),
        (LedgerEntry(calls=5, unpriced=4, cost=Decimal("1.23")), "1.2300 + 4 unpriced"),
        (LedgerEntry(calls=1, cost=Decimal(0)), "0.0000"),
        (LedgerEntry(calls=1, cost=Decimal("0.00001")), "<0.0001"),
        (LedgerEntry(calls=1, cost=Decimal("1234.5")), "1,234.5000"),
    ],
)
def test_a_cost_is_shown_with_what_is_not_known_of_it(entry: LedgerEntry, shown: str) -> None:
    assert describe_cost(entry) == shown


def test_a_table_has_columns_that_line_up() -> None:
    account = Account("s", "日本-model", "main", "", "2026-11-16")
    entries = [
        (account, LedgerEntry(calls=12, prompt=34_567, completion=890, cost=Decimal("1.5"))),
        (replace_model(account, "b"), LedgerEntry(calls=1, prompt=5, completion=6, unpriced=1)),
    ]
    assert as_table(report(entries, ("model", "project"))) == (
        "model       project  calls  prompt  completion              dollars\n"
        "b           -            1       5           6                    ?\n"
        "日本-model  -           12  34,567         890               1.5000\n"
        "total                   13  34,572         896  1.5000 + 1 unpriced\n"
    )


def replace_model(account: Account, model: str) -> Account:
    return account._replace(model=model)


def test_a_report_by_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'month'"):
        report([], ["month"])


def test_a_book_gives_what_is_asked_for_in_the_order_of_accounts() -> None:
    book = MemoryBook()
    for day, session, project in (("16", "b", "p"), ("15", "a", "p"), ("17", "a", "q")):
        account = Account(session, "m", "main", project, f"2026-11-{day}")
        held = Reservation(day, account, None)
        book.reserve(held, ())
        book.settle(held, replace(LedgerEntry(calls=1), unpriced=1))

    def days(**asked: Any) -> list[str]:
        return [account.day[-2:] for account, _ in book.entries(**asked)]

    assert days() == ["15", "17", "16"]
    assert days(since="2026-11-16") == ["17", "16"]
    assert days(since="2026-11-15", until="2026-11-16") == ["15", "16"]
    assert days(session="a") == ["15", "17"]
    assert days(project="p") == ["15", "16"]
