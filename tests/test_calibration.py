"""What usage teaches: the estimate gets right, the ceiling gets tight and stays safe, nothing poisons it."""

from __future__ import annotations

import json
import multiprocessing
import random
import sqlite3
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from bench import calibration as bench
from bench.shared import AbsentError
from hypothesis import given
from hypothesis import strategies as st

import ullage
from ullage.target import Target
from ullage.tokens import Cost, Count, counter_for
from ullage.tokens.calibration import (
    ENOUGH,
    HIGHEST,
    MEMORY,
    MOST,
    NEUTRAL,
    RECENT,
    WITNESSES,
    Calibration,
    Factor,
    MemoryShelf,
    TargetHistory,
    factor_of,
    observed,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

CLAUDE = "claude-sonnet-4-5"
HERE = Target(endpoint="here", model=CLAUDE)
MARGIN = 0.1

SIZES = st.integers(1, 300) | st.integers(200, 300_000)


@st.composite
def costs(draw: st.DrawFn) -> Cost:
    tokens = draw(SIZES)
    return Cost(tokens, tokens + draw(st.integers(0, 20) | st.integers(0, tokens)))


@st.composite
def requests(draw: st.DrawFn) -> tuple[Cost, int]:
    """A request and a count of it that is not beyond belief."""
    cost = draw(costs())
    return cost, draw(st.integers(max(1, (cost.tokens + 1) // 2), int(HIGHEST * cost.ceiling)))


HOSTILE = st.sampled_from(
    [0, -1, -(10**9), 10**12, MOST + 1, True, False, None, 1.5, float("nan"), float("inf"), "12", [], {}]
)
FACTORS = st.builds(
    Factor,
    scale=st.floats(0.01, 20),
    offset=st.integers(-1_000, 1_000),
    ceiling_scale=st.floats(0.01, 20),
    ceiling_offset=st.integers(0, 1_000),
)


def after(pairs: Iterable[tuple[Cost, Any]], learned: TargetHistory | None = None) -> TargetHistory:
    learned = learned or TargetHistory()
    for cost, actual in pairs:
        learned = observed(learned, cost, actual)
    return learned


def around(ratio: float, number: int, *, seed: int = 1, noise: float = 0.02) -> list[tuple[Cost, int]]:
    """Requests of many sizes, charged `ratio` times our estimate, more or less; our ceiling is 10 % above."""
    chance = random.Random(seed)  # noqa: S311 - seeded noise
    tokens = [chance.randint(500, 50_000) for _ in range(number)]
    return [
        (Cost(each, each + each // 10), round(each * ratio * chance.uniform(1 - noise, 1 + noise)))
        for each in tokens
    ]


def counted(tokens: int, ceiling: int, *, exact: bool = False) -> Count:
    blocks = {"system": tokens // 3, "tools": tokens // 7, "turns": 0}
    blocks["turns"] = tokens - sum(blocks.values())
    return Count(tokens, ceiling, exact, blocks)


# The factor


def test_a_neutral_factor_changes_nothing() -> None:
    own = ullage.count([{"role": "user", "content": "How long is the Nile?"}], model="gpt-4o")
    assert NEUTRAL.count(own) is own
    assert own.exact
    assert NEUTRAL.limit(12_345) == 12_345


def test_a_count_is_no_longer_exact_where_the_factor_changes_it() -> None:
    own = counted(1_000, 1_000, exact=True)
    assert not Factor(ceiling_scale=1.01).count(own).exact
    assert Factor(scale=1.0001).count(own).exact  # a tenth of a token is none


@given(FACTORS, costs())
def test_a_calibrated_count_adds_up_and_has_its_ceiling_above(factor: Factor, cost: Cost) -> None:
    calibrated = factor.count(counted(*cost))
    assert 0 <= calibrated.tokens <= calibrated.ceiling
    assert sum(calibrated.breakdown.values()) == calibrated.tokens
    assert all(share >= 0 for share in calibrated.breakdown.values())
    assert (calibrated.tokens, calibrated.ceiling) == factor.cost(cost)


def test_a_provider_that_leaves_the_tools_out_of_its_count_leaves_no_request_without_tokens() -> None:
    learned = after([(Cost(900 + step, 1_000 + step), 500 + step) for step in range(30)])
    factor = factor_of(learned)
    assert factor.tokens(1_000) == 600
    assert factor.tokens(300) == 150
    assert factor.tokens(1) == 1


@given(FACTORS, st.integers(0, 10**7))
def test_the_limit_is_the_largest_ceiling_of_our_own_that_is_within(factor: Factor, limit: int) -> None:
    own = factor.limit(limit)
    assert own >= 0
    assert factor.count(counted(own // 2, own)).ceiling <= limit or own == 0
    assert factor.count(counted(own // 2, own + 1)).ceiling > limit


@given(FACTORS, costs(), st.integers(1, 1_000))
def test_more_of_our_own_is_never_less_as_calibrated(factor: Factor, cost: Cost, more: int) -> None:
    smaller, larger = factor.cost(cost), factor.cost(Cost(cost.tokens + more, cost.ceiling + more))
    assert larger.tokens >= smaller.tokens
    assert larger.ceiling >= smaller.ceiling


@pytest.mark.parametrize(
    "figures",
    [{"scale": 0.0}, {"ceiling_scale": float("nan")}, {"scale": float("inf")}, {"ceiling_offset": -1}],
)
def test_a_factor_that_could_not_be_used_is_refused(figures: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="scales must be above 0"):
        Factor(**figures)


# The estimate


def test_the_estimate_gets_right() -> None:
    factor = factor_of(after(around(1.2, 30)), MARGIN)
    for cost, actual in around(1.2, 50, seed=2):
        assert factor.cost(cost).tokens == pytest.approx(actual, rel=0.05)


def test_a_constant_is_told_from_a_scale() -> None:
    learned = after((Cost(tokens, tokens), tokens + 150) for tokens in range(50, 3_000, 100))
    factor = factor_of(learned)
    assert (factor.scale, factor.offset) == (1.0, 150)
    assert factor.tokens(100_000) == 100_150


def test_short_requests_say_nothing_about_long_ones() -> None:
    # A preamble of 60 tokens makes a request of 20 four times as long.
    factor = factor_of(after([(Cost(20, 22), 80)] * 50), MARGIN)
    assert factor.cost(Cost(20, 22)) == (80, 80)
    assert factor.tokens(100_000) == 100_060
    assert factor.ceiling(100_000) == 100_058


def test_exact_counts_stay_as_they_are() -> None:
    exact = [(Cost(tokens, tokens), tokens) for tokens in range(5, 5_000, 40)]
    assert factor_of(after(exact)) == NEUTRAL
    # Requests with tools are estimates of the same family: they do not take the text's ceiling down.
    tools = [(Cost(tokens, tokens + tokens // 20), tokens) for tokens in range(300, 5_000, 30)]
    assert factor_of(after(tools)) == NEUTRAL


def test_the_middle_request_is_not_moved_by_few() -> None:
    plain = around(1.0, 60)
    for times in (0.1, 0.6, 1.9, 10.0):
        cost = Cost(10_000, 11_000)
        learned = after([*plain[:30], (cost, round(10_000 * times)), *plain[30:]])
        assert factor_of(learned, MARGIN).scale == pytest.approx(1.0, abs=0.01)


def test_the_estimate_follows_another_tokenizer_within_a_few_dozen_requests() -> None:
    learned = after(around(1.35, 36, seed=3), after(around(1.0, 200)))
    assert factor_of(learned, MARGIN).scale == pytest.approx(1.35, abs=0.02)
    back = after(around(1.0, 36, seed=4), learned)
    assert factor_of(back, MARGIN).scale == pytest.approx(1.0, abs=0.02)


# The ceiling


@given(st.lists(requests(), max_size=2 * MEMORY), st.sampled_from([0.0, 0.02, MARGIN]))
def test_the_ceiling_is_not_below_what_was_seen(pairs: list[tuple[Cost, int]], margin: float) -> None:
    learned = after(pairs)
    factor = factor_of(learned, margin)
    above = [each.actual > factor.ceiling(each.ceiling) for each in learned.seen]
    assert not any(above[-RECENT:])
    assert sum(above) <= 1


@given(st.lists(requests(), max_size=ENOUGH), st.sampled_from([0.0, MARGIN]), costs())
def test_the_familys_margin_stands_before_enough_was_seen(
    pairs: list[tuple[Cost, int]], margin: float, cost: Cost
) -> None:
    assert factor_of(after(pairs), margin).ceiling(cost.ceiling) >= cost.ceiling


def test_the_ceiling_comes_down_when_enough_was_seen_and_keeps_half_of_the_margin() -> None:
    pairs = around(1.0, MEMORY, noise=0.01)
    scales = [factor_of(after(pairs[:n]), MARGIN).ceiling_scale for n in (ENOUGH, 40, 80, MEMORY)]
    assert scales[0] == 1.0
    assert scales == sorted(scales, reverse=True)
    assert scales[-1] == pytest.approx(1.05 / 1.1, abs=0.005)


@given(st.lists(requests(), max_size=MEMORY), costs())
def test_a_ceiling_with_the_familys_margin_stays_above_the_estimates_scale(
    pairs: list[tuple[Cost, int]], cost: Cost
) -> None:
    factor = factor_of(after(pairs), MARGIN)
    own = round(cost.tokens * (1 + MARGIN))
    assert factor.ceiling(own) - factor.ceiling_offset >= factor.scale * cost.tokens * 1.05 - 1.5


def test_the_ceiling_rises_at_once() -> None:
    learned = after(around(1.0, 200))
    cost = Cost(10_000, 11_000)
    assert factor_of(learned, MARGIN).ceiling(11_000) < 13_500
    assert factor_of(observed(learned, cost, 13_500), MARGIN).ceiling(11_000) >= 13_500


def test_the_ceiling_is_too_low_in_less_than_one_request_of_a_hundred() -> None:
    chance = random.Random(7)  # noqa: S311 - seeded noise
    learned, low, number = TargetHistory(), 0, 1_500
    for _ in range(number):
        tokens = chance.randint(300, 30_000)
        cost, actual = Cost(tokens, round(tokens * 1.02)), round(tokens * chance.gauss(1.1, 0.05))
        if len(learned.seen) >= ENOUGH:
            low += factor_of(learned, 0.02).ceiling(cost.ceiling) < actual
        learned = observed(learned, cost, actual)
    assert low <= number / 100


def test_what_happened_once_is_forgotten() -> None:
    calm = after(around(1.0, MEMORY))
    cost = Cost(10_000, 11_000)
    wild = observed(calm, cost, 18_000)
    assert factor_of(wild, MARGIN).ceiling(11_000) >= 18_000
    later = after(around(1.0, RECENT, seed=5), wild)
    assert factor_of(later, MARGIN).ceiling(11_000) < 11_000


def test_a_count_beyond_belief_needs_witnesses() -> None:
    learned = after(around(1.0, 50))
    cost = Cost(10_000, 11_000)
    for _ in range(WITNESSES - 1):
        learned = observed(learned, cost, 100_000)
        assert factor_of(learned, MARGIN).ceiling(11_000) <= 11_000
    assert factor_of(observed(learned, cost, 100_000), MARGIN).ceiling(11_000) >= 100_000


def test_a_conversation_that_grows_is_not_held_by_what_its_short_requests_had_in_front() -> None:
    # A preamble of 500 tokens doubles the first requests; it is nothing to the later ones.
    learned = after((Cost(tokens, tokens), tokens + 500) for tokens in range(500, 60_500, 1_000))
    assert factor_of(learned).ceiling(100_000) <= 103_000


# Refusals


@given(
    st.lists(requests(), max_size=MEMORY),
    st.lists(st.tuples(costs(), st.none() | HOSTILE | st.integers(1, 10**6)), min_size=1, max_size=5),
    st.sampled_from([0.0, MARGIN]),
)
def test_a_refused_request_counts_as_more_than_before(
    pairs: list[tuple[Cost, int]], refusals: list[tuple[Cost, Any]], margin: float
) -> None:
    learned = after(pairs)
    for cost, actual in refusals:
        before = factor_of(learned, margin)
        learned = refused(learned, cost, actual, margin)
        grown = factor_of(learned, margin).ceiling(cost.ceiling)
        assert grown > before.ceiling(cost.ceiling)
        assert factor_of(learned, margin).scale > 0


def test_a_refusal_is_taken_at_its_word_up_to_twice() -> None:
    cost = Cost(10_000, 11_000)
    assert factor_of(refused(TargetHistory(), cost, 12_000)).ceiling(11_000) in range(12_000, 12_003)
    assert factor_of(refused(TargetHistory(), cost, None)).ceiling(11_000) in range(12_100, 12_103)
    assert factor_of(refused(TargetHistory(), cost, 10**7)).ceiling(11_000) in range(22_000, 22_003)


def test_a_refusal_does_not_move_the_estimate() -> None:
    learned = after(around(1.0, 30))
    for _ in range(20):
        learned = refused(learned, Cost(10_000, 11_000), None)
    assert factor_of(learned).scale == pytest.approx(1.0, abs=0.01)


# What must not poison it


@given(st.lists(st.tuples(costs(), HOSTILE)), st.lists(requests(), max_size=40), st.randoms())
def test_hostile_counts_are_as_if_they_had_not_been_told(
    hostile: list[tuple[Cost, Any]], pairs: list[tuple[Cost, int]], chance: random.Random
) -> None:
    mixed: list[tuple[Cost, Any]] = list(pairs)
    for each in hostile:
        mixed.insert(chance.randint(0, len(mixed)), each)
    kept = after(mixed)
    assert sorted(kept.seen) == sorted(after(pairs).seen)


@pytest.mark.parametrize("cost", [Cost(0, 0), Cost(0, 5), Cost(-3, 9), Cost(9, 3), Cost(10**12, 10**12)])
def test_an_estimate_that_is_none_teaches_nothing(cost: Cost) -> None:
    assert observed(TargetHistory(), cost, 100) == TargetHistory()
    assert refused(TargetHistory(), cost, 100) == TargetHistory()
    calibration = Calibration()
    calibration.observe(HERE, cost, 100)
    assert calibration.overflowed(HERE, cost, 100) == NEUTRAL


def test_a_count_that_leaves_out_what_was_cached_teaches_nothing() -> None:
    learned = after(around(1.0, 60))
    assert after([(Cost(50_000, 55_000), 300)] * 200, learned) == learned


@given(st.lists(requests() | st.tuples(costs(), HOSTILE | st.integers(1, MOST)), max_size=3 * MEMORY))
def test_what_is_known_is_bounded_and_survives_its_json(pairs: list[tuple[Cost, Any]]) -> None:
    learned = after(pairs)
    assert len(learned.seen) <= MEMORY
    written = json.dumps(learned.to_json(), allow_nan=False)
    assert len(written) < 64 * MEMORY
    assert TargetHistory.from_json(json.loads(written)) == learned
    factor = factor_of(learned, MARGIN)
    assert factor.cost(Cost(1_000, 1_100)).ceiling >= 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["seen", "version", "x"]), inner)
    ),
    max_leaves=20,
)


@given(
    JSON | st.fixed_dictionaries({"version": st.just(1), "seen": JSON | st.lists(st.lists(JSON, max_size=4))})
)
def test_a_shelf_with_something_else_on_it_is_as_good_as_empty(value: Any) -> None:
    shelf = MemoryShelf()
    shelf.learn(HERE, lambda _: value)
    calibration = Calibration(shelf)
    assert isinstance(calibration.factor(HERE), Factor)
    calibration.observe(HERE, Cost(1_000, 1_100), 1_300)
    assert calibration.factor(HERE).ceiling(1_100) >= 1_300


def test_what_is_known_is_read_from_any_mapping() -> None:
    learned = after(around(1.2, 30))
    assert TargetHistory.from_json(MappingProxyType(learned.to_json())) == learned


# The shell around it


def test_endpoints_and_models_are_kept_apart() -> None:
    calibration = Calibration()
    for cost, actual in around(1.5, 30):
        calibration.observe(HERE, cost, actual)
    assert calibration.factor(HERE).scale == pytest.approx(1.5, abs=0.02)
    assert calibration.factor(Target(endpoint="there", model=CLAUDE)) == NEUTRAL
    assert calibration.factor(Target(endpoint="here", model="claude-opus-4-5")) == NEUTRAL


def test_a_refused_request_is_counted_as_more_by_the_factor_that_comes_back() -> None:
    calibration = Calibration()
    cost = Cost(*_cost_of(CLAUDE))
    before = calibration.factor(HERE).cost(cost)
    factor = calibration.overflowed(HERE, cost, None)
    assert factor.cost(cost).ceiling > before.ceiling
    assert calibration.factor(HERE) == factor


def test_exact_models_stay_exact_through_the_shell() -> None:
    calibration = Calibration()
    target = Target(endpoint="here", model="gpt-4o")
    for length in range(1, 200):
        own = ullage.count([{"role": "user", "content": "word " * length * 5}], model="gpt-4o")
        calibration.observe(target, Cost(own.tokens, own.ceiling), own.tokens)
    assert calibration.factor(target).count(own) is own


def test_threads_lose_no_observation() -> None:
    shelf = MemoryShelf()
    calibration = Calibration(shelf)

    def work(first: int) -> None:
        for actual in range(first, first + MEMORY // 4):
            calibration.observe(HERE, Cost(1_000, 1_100), actual)

    workers = [threading.Thread(target=work, args=(1_000 + 100 * n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert _actuals(shelf) == sorted(1_000 + 100 * n + i for n in range(4) for i in range(MEMORY // 4))


class FileShelf:
    """A shelf in a database file, as a store would be one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as db:
            db.execute("CREATE TABLE IF NOT EXISTS known (key TEXT PRIMARY KEY, value TEXT)")
        db.close()

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30, isolation_level=None)

    def learned(self, target: Target) -> Mapping[str, Any] | None:
        db = self._open()
        row = db.execute("SELECT value FROM known WHERE key = ?", (repr(target),)).fetchone()
        db.close()
        return json.loads(row[0]) if row else None

    def learn(
        self,
        target: Target,
        change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        db = self._open()
        db.execute("BEGIN IMMEDIATE")
        row = db.execute("SELECT value FROM known WHERE key = ?", (repr(target),)).fetchone()
        new = change(json.loads(row[0]) if row else None)
        db.execute("REPLACE INTO known VALUES (?, ?)", (repr(target), json.dumps(new)))
        db.execute("COMMIT")
        db.close()
        return new


def _observe(path: Path, first: int) -> None:
    calibration = Calibration(FileShelf(path))
    for actual in range(first, first + 30):
        calibration.observe(HERE, Cost(1_000, 1_100), actual)


def test_processes_lose_no_observation(tmp_path: Path) -> None:
    path = tmp_path / "shelf.db"
    shelf = FileShelf(path)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_observe, args=(path, 1_000 + 100 * n)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        worker.close()
    assert _actuals(shelf) == sorted(1_000 + 100 * n + i for n in range(2) for i in range(30))


def _actuals(shelf: MemoryShelf | FileShelf) -> list[int]:
    return sorted(each.actual for each in TargetHistory.from_json(shelf.learned(HERE)).seen)


def _cost_of(model: str) -> Cost:
    return counter_for(model).message({"role": "user", "content": "How long is the Nile? " * 100})


# The recordings


@pytest.fixture(scope="module")
def steps() -> list[Mapping[str, Any]]:
    try:
        return list(bench.records("deltas.jsonl.gz"))
    except AbsentError as absent:
        pytest.skip(str(absent))


def test_sessions_with_a_model_that_nobody_knows_are_soon_counted_twice_as_well(
    steps: list[Mapping[str, Any]],
) -> None:
    for key, stream in bench.grown(steps, bench.NOBODY).items():
        judged = bench.replay(key, stream, bench.NOBODY)
        if judged:
            ours = bench.error((each.own.tokens, each.actual) for each in judged)
            assert bench.error((each.calibrated.tokens, each.actual) for each in judged) <= ours / 2


def test_the_ceilings_of_recorded_sessions_hold(steps: list[Mapping[str, Any]]) -> None:
    judged = [each for key, stream in bench.grown(steps).items() for each in bench.replay(key, stream)]
    assert sum(each.calibrated.ceiling < each.actual for each in judged) <= len(judged) / 100


def test_recorded_steps_are_counted_better_and_their_ceilings_hold_more_often(
    steps: list[Mapping[str, Any]],
) -> None:
    judged = [each for key, stream in bench.deltas(steps).items() for each in bench.replay(key, stream)]
    ours = bench.error((each.own.tokens, each.actual) for each in judged)
    assert bench.error((each.calibrated.tokens, each.actual) for each in judged) < ours
    low = sum(each.calibrated.ceiling < each.actual for each in judged)
    assert low < sum(each.own.ceiling < each.actual for each in judged) / 2
