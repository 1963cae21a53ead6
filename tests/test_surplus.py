"""What a server charges beyond the texts that it has counted is learned as a constant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.tokens import Cost
from ullage.tokens.calibration import NEUTRAL
from ullage.tokens.surplus import RECENT, Surplus


def test_nothing_is_known_before_the_first_request() -> None:
    assert Surplus().factor() == NEUTRAL


def test_a_template_is_a_constant_and_no_scale() -> None:
    surplus = Surplus()
    surplus.observe(Cost(100, 100), 400)
    assert 10_300 <= surplus.factor().ceiling(10_000) <= 10_400


def test_the_estimate_follows_after_a_few_requests() -> None:
    surplus = Surplus()
    for tokens in (100, 220, 310, 450, 600):
        surplus.observe(Cost(tokens, tokens), tokens + 40)
    assert surplus.factor().tokens(1_000) == 1_040


def test_a_request_below_its_ceiling_lowers_nothing() -> None:
    surplus = Surplus()
    surplus.observe(Cost(1_000, 1_000), 600)
    assert surplus.factor().ceiling(1_000) == 1_000


@pytest.mark.parametrize("actual", [0, -5, 10**15, True, 5_000.0, None])
def test_what_is_no_count_teaches_nothing(actual: object) -> None:
    surplus = Surplus()
    surplus.observe(Cost(1_000, 1_000), actual)  # type: ignore[arg-type]
    assert surplus.factor() == NEUTRAL


@pytest.mark.parametrize("told", [None, 900, 1_000])
def test_a_refusal_that_does_not_say_by_how_much_raises_the_ceiling_by_a_tenth(told: int | None) -> None:
    assert Surplus().overflowed(Cost(1_000, 1_000), told).ceiling(1_000) >= 1_100


def test_what_is_long_past_is_forgotten() -> None:
    surplus = Surplus()
    surplus.overflowed(Cost(1_000, 1_000), 3_000)
    for _ in range(RECENT):
        surplus.observe(Cost(1_000, 1_000), 1_000)
    assert surplus.factor().ceiling(1_000) == 1_000


@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 2_000)), min_size=1, max_size=RECENT))
def test_no_request_that_was_seen_is_above_its_ceiling(requests: list[tuple[int, int]]) -> None:
    surplus = Surplus()
    for tokens, more in requests:
        surplus.observe(Cost(tokens, tokens), tokens + more)
    factor = surplus.factor()
    assert all(factor.ceiling(tokens) >= tokens + more for tokens, more in requests)
