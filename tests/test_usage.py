from __future__ import annotations

import gzip
import json
import os
import threading
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import ConfigurationError
from ullage.usage import LedgerEntry, Meter, Usage, detail, notable_estimate, read_usage
from ullage.wire.api import MOST_TOKENS

COUNTS = st.integers(0, 10**7)
COSTS = st.none() | st.decimals(0, 100, places=9)
USAGES = st.builds(
    Usage,
    prompt=COUNTS,
    completion=COUNTS,
    cached_read=COUNTS,
    cache_write=COUNTS,
    reasoning=COUNTS,
    cost=COSTS,
)
CALLS = st.lists(
    st.tuples(st.sampled_from([None, "", "gpt-4o", "local"]), USAGES, st.sampled_from([None, "main", "goal"]))
)


@given(CALLS)
def test_the_slots_sum_to_the_totals_and_to_the_calls(
    calls: list[tuple[str | None, Usage, str | None]],
) -> None:
    meter = Meter()
    calls = [(model, read_usage(usage), category) for model, usage, category in calls]
    for model, usage, category in calls:
        meter.add_usage(model, usage, category, estimate=7)
    slots = meter.slots.values()
    assert sum(slot.calls for slot in slots) == len(calls)
    assert sum(slot.estimate for slot in slots) == 7 * len(calls)
    for name in ("cached_read", "cache_write", "reasoning"):
        assert sum(getattr(slot, name) for slot in slots) == sum(getattr(each[1], name) for each in calls)
    assert meter.total_tokens() == (
        sum(u.prompt for _, u, _ in calls),
        sum(u.completion for _, u, _ in calls),
    )
    known = [usage.cost for _, usage, _ in calls if usage.cost is not None]
    assert meter.total_cost() == (sum(known, Decimal(0)) if known else None)


def test_a_call_without_names_goes_to_the_question_mark_and_main() -> None:
    meter = Meter()
    assert meter.add_usage() == ()
    assert meter.slots == {("?", "main"): LedgerEntry(calls=1, unpriced=1)}


def test_an_unknown_cost_is_not_0_and_its_mark_stays() -> None:
    meter = Meter()
    meter.add_usage("llama", Usage(prompt=10))
    assert meter.total_cost() is None
    meter.add_usage("llama", Usage(prompt=10), cost=Decimal("0.5"))
    slot = meter.slots["llama", "main"]
    assert (slot.cost, slot.unpriced) == (Decimal("0.5"), 1)
    meter.add_usage("free", Usage(cost=Decimal(0)))
    assert meter.slots["free", "main"].unpriced == 0


def test_the_cost_that_the_caller_reckoned_goes_before_the_one_that_was_told() -> None:
    meter = Meter()
    meter.add_usage("m", Usage(cost=Decimal(2)), cost=Decimal(3))
    assert meter.total_cost() == 3


def test_the_slots_cannot_be_written() -> None:
    meter = Meter()
    meter.add_usage("m")
    with pytest.raises(TypeError):
        meter.slots["m", "main"] = LedgerEntry()  # type: ignore[index]


def test_costs_are_exact_in_a_caller_s_rough_context() -> None:
    meter = Meter()
    with localcontext() as rough:
        rough.prec = 3
        for _ in range(1000):
            meter.add_usage("m", Usage(cost=Decimal("0.123456789")))
    assert meter.total_cost() == Decimal("123.456789")


# Warnings


def test_each_threshold_warns_once_when_it_is_reached() -> None:
    meter = Meter(warn_at_dollars=1, warn_at_tokens=100)
    assert meter.add_usage("m", Usage(prompt=60, completion=39, cost=Decimal("0.99"))) == ()
    dollars, tokens = meter.add_usage("m", Usage(prompt=1, cost=Decimal("0.01")))
    assert (dollars.kind, dollars.threshold, dollars.figure) == ("dollars", 1, 1)
    assert (tokens.kind, tokens.threshold, tokens.figure) == ("tokens", 100, 100)
    assert "$1.00" in dollars.text
    assert "100 tokens" in tokens.text
    assert meter.add_usage("m", Usage(prompt=1000, cost=Decimal(5))) == ()


def test_an_unknown_cost_never_warns_of_dollars() -> None:
    meter = Meter(warn_at_dollars=0)
    assert meter.add_usage("llama", Usage(prompt=10**6)) == ()


def test_reset_clears_and_warns_anew() -> None:
    meter = Meter(warn_at_tokens=10)
    assert len(meter.add_usage("m", Usage(prompt=10))) == 1
    meter.reset()
    assert (meter.slots, meter.total_cost(), meter.total_tokens()) == ({}, None, (0, 0))
    assert len(meter.add_usage("m", Usage(prompt=10))) == 1


@pytest.mark.parametrize("wrong", [-1, "a dollar", float("nan"), float("inf")])
def test_a_threshold_that_is_no_amount_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="warn_at_dollars"):
        Meter(warn_at_dollars=wrong)


def test_a_threshold_of_tokens_below_0_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="warn_at_tokens"):
        Meter(warn_at_tokens=-1)


def test_a_float_is_taken_by_the_digits_that_it_shows() -> None:
    assert Meter(warn_at_dollars=0.1).warn_at_dollars == Decimal("0.1")


def test_threads_lose_nothing_and_one_of_them_is_warned() -> None:
    meter = Meter(warn_at_tokens=1000)
    warned: list[object] = []

    def work() -> None:
        for _ in range(200):
            warned.extend(meter.add_usage("m", Usage(prompt=1, cost=Decimal("0.01"))))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.slots["m", "main"].calls == meter.total_tokens()[0] == 3200
    assert meter.total_cost() == 32
    assert len(warned) == 1


# Detail


@pytest.mark.parametrize(
    ("actual", "estimate", "shown"),
    [(100, 110, None), (100, 111, 111), (100, 90, None), (100, 89, 89), (0, 50, None), (100, 0, None)],
)
def test_an_estimate_is_shown_where_it_is_off_by_more_than_a_tenth(
    actual: int, estimate: int, shown: int | None
) -> None:
    assert notable_estimate(actual, estimate) == shown


def test_detail_has_a_row_for_each_model_and_category() -> None:
    meter = Meter()
    meter.add_usage("gpt-4o", Usage(prompt=1000, completion=5, cost=Decimal("0.0025")), estimate=800)
    meter.add_usage("smol", Usage(prompt=100, completion=7), "summarize", estimate=101)
    first, second = detail(meter)
    assert first.text == "gpt-4o [main] 1 call prompt=1000 ~est=800 completion=5 $0.0025"
    assert second.text == "smol [summarize] 1 call prompt=100 completion=7 local"
    assert (second.model, second.category, second.slot.unpriced) == ("smol", "summarize", 1)


# What providers tell

OPENAI = {
    "prompt_tokens": 2572,
    "completion_tokens": 100,
    "total_tokens": 2672,
    "prompt_tokens_details": {"cached_tokens": 2240, "cache_write_tokens": 329},
    "completion_tokens_details": {"reasoning_tokens": 64},
    "cost": 0.00341475,
}
RESPONSES = {
    "input_tokens": 607,
    "input_tokens_details": {"cached_tokens": 192},
    "output_tokens": 104,
    "output_tokens_details": {"reasoning_tokens": 90},
}
SPOKEN = Usage(completion=113, reasoning=95)
ANTHROPIC = {
    "input_tokens": 2,
    "cache_creation_input_tokens": 8295,
    "cache_read_input_tokens": 2836,
    "output_tokens": 11,
}


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (
            OPENAI,
            Usage(
                prompt=2572,
                completion=100,
                cached_read=2240,
                cache_write=329,
                reasoning=64,
                cost=Decimal("0.00341475"),
            ),
        ),
        (RESPONSES, Usage(prompt=607, completion=104, cached_read=192, reasoning=90)),
        (ANTHROPIC, Usage(prompt=11133, completion=11, cached_read=2836, cache_write=8295)),
        ({}, Usage()),
        (None, Usage()),
        ({"prompt_tokens": "12", "completion_tokens": 1.5, "prompt_tokens_details": []}, Usage()),
        ({"prompt_tokens": True, "completion_tokens": -3, "cost": "x"}, Usage()),
        ({"prompt_tokens": MOST_TOKENS + 1, "cost": float("nan")}, Usage()),
        ({"prompt_tokens": 1, "cost": -1}, Usage(prompt=1)),
        ({"prompt_tokens": 1, "cost": 0}, Usage(prompt=1, cost=Decimal(0))),
        ({"completion_tokens": 18, "completion_tokens_details": {"reasoning_tokens": 95}}, SPOKEN),
        (Usage(completion=18, reasoning=95), SPOKEN),
        (SPOKEN, SPOKEN),
        (Usage(prompt=5, cached_read=6, cache_write=3), Usage(prompt=14, cached_read=6, cache_write=3)),
        (Usage(prompt=5, cached_read=5, cache_write=5), Usage(prompt=5, cached_read=5, cache_write=5)),
        (Usage(prompt=-5, completion=2, cost=Decimal("Infinity")), Usage(completion=2)),
    ],
)
def test_usage_is_read_from_what_providers_tell(told: Any, usage: Usage) -> None:
    assert read_usage(told) == usage


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*OPENAI, *RESPONSES, *ANTHROPIC]), JSON))
def test_whatever_a_server_tells_the_meter_adds_it_without_harm(told: dict[str, Any]) -> None:
    meter = Meter(warn_at_dollars=1, warn_at_tokens=1)
    meter.add_usage("m", told)
    (slot,) = meter.slots.values()
    assert slot.calls == 1
    assert min(slot.prompt, slot.completion, slot.cached_read, slot.cache_write, slot.reasoning) >= 0
    assert slot.cost is None or slot.cost >= 0


@pytest.fixture
def recorded() -> list[dict[str, Any]]:
    folder = os.environ.get("ULLAGE_DATA")
    if not folder or not (path := Path(folder) / "usage.jsonl.gz").exists():
        pytest.skip("ULLAGE_DATA names no directory with usage.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    apis = {"openai.chat", "openai.responses", "anthropic.messages"}
    return [record for record in records if record["api"] in apis]


def test_the_usage_of_recorded_requests_is_read_as_their_providers_meant_it(
    recorded: list[dict[str, Any]],
) -> None:
    # What the responses API wrote to its cache is not in the records, so it is not compared. And where a
    # part is told beside its whole (Grok's cache, some hosts' reasoning), they do not add it.
    wrong = []
    for record in recorded:
        usage = read_usage(record["usage"])
        prompt, output = record["input_tokens"], record["output_tokens"] or 0
        cached, reasoning = record["cached_tokens"] or 0, record["reasoning_tokens"] or 0
        meant = (
            prompt + cached * (cached > prompt),
            output + reasoning * (reasoning > output),
            cached,
            reasoning,
        )
        if (usage.prompt, usage.completion, usage.cached_read, usage.reasoning) != meant:
            wrong.append((record["id"], record["usage"], meant))
    assert not wrong, f"{len(wrong)} of {len(recorded)}: {wrong[:5]}"


def test_what_was_crossed_is_told_once_whoever_added_it() -> None:
    meter = Meter(warn_at_tokens=100, warn_at_dollars="0.01")
    assert meter.pop_warnings() == ()
    added = meter.add_usage("notes", Usage(prompt=150), "summarize", cost=Decimal("0.001"))
    assert meter.add_usage("large", Usage(prompt=10), cost=Decimal("0.02")) != added
    assert [crossed.kind for crossed in meter.pop_warnings()] == ["tokens", "dollars"]
    assert meter.pop_warnings() == ()
    meter.add_usage("large", Usage(prompt=10))
    assert meter.pop_warnings() == ()
    meter.reset()
    meter.add_usage("large", Usage(prompt=150))
    meter.reset()
    assert meter.pop_warnings() == ()
