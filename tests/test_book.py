"""What every book must do, wherever it keeps the accounts."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends import BACKENDS, COLUMNS, QUICK
from ullage.cost.book import Account, Book, Cap, MemoryBook, Refusal, Reservation, Reserving, Settling
from ullage.errors import ConfigurationError, StoreError
from ullage.usage import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = "2026-11-16"
HERE = Account("one", "gpt-4o", "main", "ullage", DAY)
CENT = Decimal("0.01")
SCOPES = {"session": "one", "day": DAY, "project": "ullage"}


@pytest.fixture(params=BACKENDS)
def book(request: pytest.FixtureRequest) -> Iterator[Book]:
    with BACKENDS[request.param]() as backend:
        yield backend.book


def hold(name: str, amount: str | Decimal | None, account: Account = HERE) -> Reservation:
    return Reservation(name, account, None if amount is None else Decimal(amount))


def cap(limit: str, scope: str = "session") -> Cap:
    return Cap(scope, SCOPES[scope], Decimal(limit))


def used(book: Book, scope: str = "session") -> tuple[Decimal, Decimal]:
    return book.used(scope, SCOPES[scope])


def cost(dollars: str) -> LedgerEntry:
    return LedgerEntry(calls=1, cost=Decimal(dollars))


@pytest.mark.parametrize("scope", SCOPES)
def test_a_cap_can_be_reached_and_not_crossed(book: Book, scope: str) -> None:
    limit = cap("1.00", scope)
    assert book.reserve(hold("a", "0.60"), [limit]) is None
    assert book.reserve(hold("b", "0.400000000001"), [limit]) == Refusal(limit, Decimal(0), Decimal("0.6"))
    assert book.reserve(hold("c", "0.40"), [limit]) is None
    assert book.reserve(hold("d", "0.000000000001"), [limit]) == Refusal(limit, Decimal(0), Decimal(1))


def test_the_first_cap_that_could_be_crossed_comes_back(book: Book) -> None:
    caps = [cap("9", "session"), cap("0.5", "day"), cap("0.1", "project")]
    refusal = book.reserve(hold("a", "1"), caps)
    assert refusal is not None
    assert refusal.cap is caps[1]
    assert all(used(book, scope) == (0, 0) for scope in SCOPES)


def test_what_is_refused_holds_nothing_and_cannot_be_settled(book: Book) -> None:
    assert book.reserve(hold("a", "2"), [cap("1")]) is not None
    assert used(book) == (0, 0)
    assert not book.settle(hold("a", "2"), cost("2"))
    assert not book.release(hold("a", "2"))
    assert list(book.entries()) == []


def test_a_call_counts_in_its_session_its_day_and_its_project_and_nowhere_else(book: Book) -> None:
    book.reserve(hold("a", "0.5"), [])
    book.reserve(hold("b", "0.25", Account("two", "m", "c", "other", "2026-11-17")), [])
    book.settle(hold("a", "0.5"), cost("0.125"))
    assert [used(book, scope) for scope in SCOPES] == [(Decimal("0.125"), 0)] * 3
    assert book.used("session", "two") == (0, Decimal("0.25"))
    assert book.used("session", "three") == (0, 0)


def test_a_call_is_settled_once(book: Book) -> None:
    book.reserve(hold("a", "0.5"), [])
    assert book.settle(hold("a", "0.5"), cost("0.7"))
    assert not book.settle(hold("a", "0.5"), cost("0.7"))
    assert not book.release(hold("a", "0.5"))
    assert used(book) == (Decimal("0.7"), 0)
    assert [entry.calls for _, entry in book.entries()] == [1]


def test_a_call_that_was_withdrawn_is_not_booked(book: Book) -> None:
    book.reserve(hold("a", "0.5"), [])
    assert book.release(hold("a", "0.5"))
    assert not book.release(hold("a", "0.5"))
    assert not book.settle(hold("a", "0.5"), cost("0.5"))
    assert used(book) == (0, 0)


def test_a_reservation_is_held_until_it_is_ended(book: Book) -> None:
    book.reserve(hold("a", "0.8"), [])
    assert book.reserve(hold("b", "0.3"), [cap("1")]) is not None
    assert used(book) == (0, Decimal("0.8"))
    assert book.release(hold("a", "0.8"))
    assert book.reserve(hold("c", "0.3"), [cap("1")]) is None
    assert used(book) == (0, Decimal("0.3"))


def test_a_call_that_costs_nothing_is_never_refused(book: Book) -> None:
    book.reserve(hold("a", "1"), [])
    book.settle(hold("a", "1"), cost("2"))
    assert book.reserve(hold("b", "0.01"), [cap("1")]) is not None
    assert book.reserve(hold("c", None), [cap("1")]) is None
    assert book.reserve(hold("d", "0"), [cap("1")]) is None
    assert book.settle(hold("c", None), LedgerEntry(calls=1, prompt=5, unpriced=1))


def test_entries_are_sums_by_account_and_an_unknown_cost_is_not_zero(book: Book) -> None:
    local = HERE._replace(model="local")
    for number in range(3):
        book.reserve(hold(f"a{number}", "1"), [])
        book.settle(hold(f"a{number}", "1"), LedgerEntry(calls=1, prompt=10, cached_read=4, cost=CENT))
        book.reserve(hold(f"b{number}", None, local), [])
        book.settle(
            hold(f"b{number}", None, local), LedgerEntry(calls=1, completion=7, estimate=2, unpriced=1)
        )
    book.reserve(hold("c", None), [])
    book.settle(hold("c", None), LedgerEntry(calls=1, reasoning=1, cache_write=2, unpriced=1))
    assert list(book.entries()) == [
        (
            HERE,
            LedgerEntry(
                calls=4,
                prompt=30,
                cached_read=12,
                reasoning=1,
                cache_write=2,
                cost=Decimal("0.03"),
                unpriced=1,
            ),
        ),
        (local, LedgerEntry(calls=3, completion=21, estimate=6, unpriced=3)),
    ]


def test_entries_come_by_day_session_and_project_in_the_order_of_accounts(book: Book) -> None:
    accounts = sorted(
        Account(session, "m", "c", project, f"2026-11-{day}")
        for session in ("b", "a", "ä\ud800")
        for project in ("y", "x")
        for day in (10, 11, 12)
    )
    for number, account in enumerate(reversed(accounts)):
        book.reserve(hold(str(number), None, account), [])
        book.settle(hold(str(number), None, account), LedgerEntry(calls=1))

    def found(**asked: Any) -> list[Account]:
        return [account for account, _ in book.entries(**asked)]

    assert found() == accounts
    assert found(since="2026-11-11") == [account for account in accounts if account.day >= "2026-11-11"]
    assert found(until="2026-11-11") == [account for account in accounts if account.day <= "2026-11-11"]
    assert found(session="ä\ud800", project="x") == [
        account for account in accounts if (account.session, account.project) == ("ä\ud800", "x")
    ]
    assert found(since="2026-11-11", until="2026-11-11", session="a", project="y") == [
        Account("a", "m", "c", "y", "2026-11-11")
    ]
    assert found(since="2027") == []


amounts = st.decimals(min_value=0, max_value=10_000, places=12)


@pytest.mark.parametrize("backend", QUICK)
@given(costs=st.lists(amounts, min_size=1, max_size=8))
def test_sums_are_exact_to_the_last_digit(backend: str, costs: list[Decimal]) -> None:
    with BACKENDS[backend]() as opened:
        for number, dollars in enumerate(costs):
            assert opened.book.reserve(hold(str(number), dollars), []) is None
        assert used(opened.book) == (0, sum(costs))
        for number, dollars in enumerate(costs):
            opened.book.settle(hold(str(number), dollars), LedgerEntry(calls=1, cost=dollars))
        assert used(opened.book) == (sum(costs), 0)
        assert [entry.cost for _, entry in opened.book.entries()] == [sum(costs)]


names = st.sampled_from("abcde")
accounts = st.builds(
    Account,
    st.sampled_from("st"),
    st.sampled_from("mn"),
    st.just("main"),
    st.sampled_from("pq"),
    st.just(DAY),
)
cents = st.integers(0, 60).map(lambda number: number * CENT)
steps = st.lists(
    st.tuples(st.just("reserve"), names, accounts, st.none() | cents, st.integers(0, 100))
    | st.tuples(st.just("settle"), names, st.none() | cents)
    | st.tuples(st.just("release"), names),
    max_size=30,
)


@pytest.mark.parametrize("backend", [name for name in QUICK if name != "memory"])
@given(steps=steps)
def test_whatever_happens_to_a_book_it_answers_as_the_simplest_one_does(
    backend: str, steps: list[Any]
) -> None:
    with BACKENDS[backend]() as opened:
        books = (opened.book, MemoryBook())
        made: dict[str, Reservation] = {}
        number = 0
        for kind, *values in steps:
            match kind, values:
                case "reserve", [name, account, amount, limit]:
                    number += 1
                    made[name] = Reservation(f"{name}{number}", account, amount)
                    caps = [Cap("project", account.project, limit * CENT), Cap("day", DAY, 2 * limit * CENT)]
                    answers = [each.reserve(made[name], caps) for each in books]
                case "settle", [name, dollars] if name in made:
                    entry = LedgerEntry(calls=1, prompt=3, cost=dollars, unpriced=int(dollars is None))
                    answers = [each.settle(made[name], entry) for each in books]
                case "release", [name] if name in made:
                    answers = [each.release(made[name]) for each in books]
                case _:
                    continue
            assert answers[0] == answers[1]
            for scope, which in (("session", "s"), ("day", DAY), ("project", "q")):
                assert books[0].used(scope, which) == books[1].used(scope, which)
        assert list(books[0].entries()) == list(books[1].entries())


def test_64_threads_never_cross_a_cap_by_a_cent(book: Book) -> None:
    limit = cap("1.00", "day")
    booked: list[Decimal] = []
    barrier = threading.Barrier(64)

    def work(worker: int) -> None:
        barrier.wait()
        for number in range(3):
            call = hold(f"{worker}-{number}", CENT)
            if book.reserve(call, [limit]) is None:
                if number == 1:
                    assert book.release(call)
                else:
                    assert book.settle(call, LedgerEntry(calls=1, cost=CENT))
                    booked.append(CENT)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used(book, "day") == (sum(booked), 0)
    assert sum(booked) <= limit.limit
    (total,) = book.entries()
    assert total[1].cost == sum(booked)


@pytest.mark.parametrize("backend", COLUMNS)
def test_an_amount_that_no_column_can_hold_is_refused_and_nothing_is_booked(backend: str) -> None:
    with BACKENDS[backend]() as opened:
        book = opened.book
        for amount in ("9223373", "1e30", "1e999999"):
            with pytest.raises(StoreError, match="larger than the store can keep"):
                book.reserve(hold("a", amount), [])
        assert book.reserve(hold("a", "9000000"), []) is None
        with pytest.raises(StoreError, match="larger than the store can keep"):
            book.reserve(hold("b", "9000000"), [])
        with pytest.raises(StoreError, match="larger than the store can keep"):
            book.settle(hold("a", "9000000"), LedgerEntry(calls=1, prompt=2**70))
        assert used(book) == (0, 9_000_000)
        assert list(book.entries()) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("amount", ["-0.01", "NaN", "Infinity", "-Infinity", "sNaN"])
def test_what_is_no_amount_is_refused(backend: str, amount: str) -> None:
    with BACKENDS[backend]() as opened, pytest.raises(ConfigurationError, match="cannot book an amount"):
        opened.book.reserve(hold("a", amount), [])


@pytest.mark.parametrize("backend", COLUMNS)
def test_what_is_finer_than_a_picodollar_is_rounded_up(backend: str) -> None:
    with BACKENDS[backend]() as opened:
        opened.book.reserve(hold("a", "1e-15"), [])
        assert used(opened.book) == (0, Decimal("1e-12"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scope_without_sums_is_an_error_and_not_an_empty_one(backend: str) -> None:
    with BACKENDS[backend]() as opened:
        with pytest.raises(ConfigurationError, match="session, day, project"):
            opened.book.used("model", "gpt-4o")
        with pytest.raises(ConfigurationError, match="session, day, project"):
            opened.book.reserve(hold("a", "1"), [Cap("model", "gpt-4o", CENT)])


def test_a_cap_in_a_unit_that_its_scope_does_not_count_is_refused_and_changes_no_sum(book: Book) -> None:
    first = hold("a", "1", HERE._replace(session="one a"))
    assert book.reserve(first, []) is None
    for wrong in (Cap("session", "one b", Decimal(9), "requests"), Cap("key-minute", "k", Decimal(9))):
        with pytest.raises(ConfigurationError, match="use requests with key-minute"):
            book.reserve(hold("b", "1"), [wrong])
    assert book.used("session", "one a") == (0, 1)


def test_changes_that_are_made_together_keep_every_cap_and_have_their_own_outcomes(book: Book) -> None:
    limit = cap("1.00")
    asked = [Reserving(hold(str(number), "0.30"), [limit]) for number in range(5)]
    outcomes = book.change(asked)
    assert outcomes[:3] == [None] * 3
    assert outcomes[3:] == [Refusal(limit, Decimal(0), Decimal("0.9"))] * 2
    ended = [Settling(each.reservation, cost("0.10")) for each in asked]
    assert book.change(ended) == [True, True, True, False, False]
    assert used(book) == (Decimal("0.3"), 0)
    assert [entry for _, entry in book.entries()] == [LedgerEntry(calls=3, cost=Decimal("0.3"))]
    later = book.change(
        [Reserving(hold("later", "0.70"), [limit]), Settling(asked[0].reservation, cost("1"))]
    )
    assert later == [None, False]


def test_requests_that_are_made_together_count_in_their_minute(book: Book) -> None:
    account = HERE._replace(key="k")
    rate = Cap("key-minute", "k 2026-11-16T10:00", Decimal(3), "requests")
    asked = [Reserving(hold(str(number), None, account), [rate]) for number in range(5)]
    assert [outcome is None for outcome in book.change(asked)] == [True, True, True, False, False]


@pytest.mark.parametrize("backend", COLUMNS)
def test_a_change_that_cannot_be_made_does_not_affect_the_others(backend: str) -> None:
    with BACKENDS[backend]() as opened:
        book = opened.book
        outcomes = book.change(
            [
                Reserving(hold("a", "0.5")),
                Reserving(hold("b", "1e12")),
                Reserving(hold("c", "0.25")),
            ]
        )
        assert [outcomes[0], outcomes[2]] == [None, None]
        assert isinstance(outcomes[1], StoreError)
        assert used(book) == (0, Decimal("0.75"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_changes_at_once_are_all_made(backend: str) -> None:
    with BACKENDS[backend]() as opened:
        book = opened.book
        accounts = [HERE._replace(session=f"s{number}") for number in range(300)]
        asked = [Reserving(hold(each.session, "0.01", each)) for each in accounts]
        assert book.change(asked) == [None] * 300
        assert book.change([Settling(each.reservation, cost("0.01")) for each in asked]) == [True] * 300
        assert book.used("day", DAY) == (Decimal(3), 0)
        assert len(book.entries()) == 300
