from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage import wire
from ullage.usage import Usage, read_usage
from ullage.wire import usage_counts
from ullage.wire.api import MOST_TOKENS

# API, the usage object as it comes, the counts in it
TOLD: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    (
        "openai.chat",
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        {"prompt": 10, "completion": 5, "cached_read": 4, "cache_write": 2, "reasoning": 3},
    ),
    (
        "openai.chat",
        {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8},
        {"prompt": 9, "completion": 1, "cached_read": 8},
    ),
    (
        "openai.responses",
        {"input_tokens": 10, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 3}},
        {"prompt": 10, "completion": 5, "reasoning": 3},
    ),
    (
        "anthropic.messages",
        {
            "input_tokens": 3,
            "cache_read_input_tokens": 20,
            "cache_creation_input_tokens": 7,
            "output_tokens": 5,
        },
        {"prompt": 30, "completion": 5, "cached_read": 20, "cache_write": 7},
    ),
    ("anthropic.count_tokens", {"input_tokens": 8}, {"prompt": 8}),
    (
        "gemini",
        {"promptTokenCount": 7, "candidatesTokenCount": 4, "thoughtsTokenCount": 20},
        {"prompt": 7, "completion": 24, "reasoning": 20},
    ),
    ("gemini", {"prompt_token_count": 7, "candidates_token_count": 8}, {"prompt": 7, "completion": 8}),
    ("gemini.count_tokens", {"totalTokens": 12}, {"prompt": 12}),
    (
        "bedrock.converse",
        {"inputTokens": 3, "outputTokens": 2, "cacheReadInputTokens": 20, "cacheReadInputTokenCount": 20},
        {"prompt": 23, "completion": 2, "cached_read": 20},
    ),
    ("bedrock.invoke", {"inputTextTokenCount": 2}, {"prompt": 2}),
    ("ollama.chat", {"prompt_eval_count": 26, "eval_count": 2}, {"prompt": 26, "completion": 2}),
    (
        "cohere.chat.v2",
        {
            "billed_units": {"input_tokens": 7, "output_tokens": 9},
            "tokens": {"input_tokens": 69, "output_tokens": 10},
        },
        {"prompt": 69, "completion": 10},
    ),
]


@pytest.mark.parametrize(("api", "usage", "expected"), TOLD)
def test_the_counts_are_found_where_the_api_puts_them(
    api: str, usage: dict[str, Any], expected: dict[str, int]
) -> None:
    assert usage_counts(usage, api) == expected


@pytest.mark.parametrize("api", wire.APIS)
def test_every_api_says_where_its_usage_stands(api: str) -> None:
    assert "prompt" in wire.api_of(api).usage


@pytest.mark.parametrize("api", wire.APIS)
@pytest.mark.parametrize("usage", [None, 0, "12", [], {}, {"tokens": 3}, {"input_tokens": "many"}])
def test_what_is_no_usage_is_none(api: str, usage: Any) -> None:
    assert usage_counts(usage, api) is None


def test_an_unknown_api_tells_nothing() -> None:
    assert usage_counts({"prompt_tokens": 1}, "openai.smoke_signals") is None


def test_a_wrong_part_is_left_out_and_the_rest_is_kept() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": -3, "output_tokens": True}
    assert usage_counts(usage, "anthropic.messages") == {"prompt": 5}
    assert usage_counts({"prompt_tokens": 5, "completion_tokens": 10**30}, "openai.chat") == {"prompt": 5}
    assert usage_counts({"inputTextTokenCount": 28.0}, "bedrock.invoke") == {"prompt": 28}
    assert usage_counts({"prompt_tokens": 5.5, "completion_tokens": 1}, "openai.chat") == {"completion": 1}


NAMES = sorted({
    step for api in wire.APIS for groups in wire.api_of(api).usage.values()
    for group in groups for place in group for step in place.split(".")
})  # fmt: skip
HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=12,
)


@given(st.sampled_from(wire.APIS), HOSTILE)
def test_whatever_a_provider_says_is_read_without_an_error(api: str, usage: Any) -> None:
    told = usage_counts(usage, api)
    if told is None:
        return
    assert all(0 <= count <= 3 * MOST_TOKENS for count in told.values())
    held = read_usage(Usage(**told))
    assert held.cached_read <= held.prompt
    assert held.reasoning <= held.completion


# Recorded usage


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    path = Path(os.environ.get("ULLAGE_DATA", "")) / "usage.jsonl.gz"
    if "ULLAGE_DATA" not in os.environ or not path.exists():
        pytest.skip("ULLAGE_DATA does not name a directory with usage.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [record for record in records if record["api"] in wire.APIS and record["usage"]]


# What the usage objects tell and the records' own columns leave at 0.
NOT_IN_COLUMNS = {("cohere.chat.v2", "reasoning"), ("openai.responses", "cache_write")}


def test_recorded_usage_is_read_as_it_was_recorded(recorded: list[dict[str, Any]]) -> None:
    members = {
        "prompt": "input_tokens",
        "cached_read": "cached_tokens",
        "cache_write": "cache_write_tokens",
        "reasoning": "reasoning_tokens",
    }
    wrong = []
    for record in recorded:
        told = usage_counts(record["usage"], record["api"]) or {}
        expected = {name: record[member] or 0 for name, member in members.items()}
        output = record["output_tokens"] or 0
        if record["api"] == "gemini":  # there the record has the thoughts beside the output
            output += expected["reasoning"]
        expected["completion"] = output
        for name, count in expected.items():
            if (record["api"], name) in NOT_IN_COLUMNS and not count:
                expected[name] = told.get(name, 0)
        found = {name: told.get(name, 0) for name in expected}
        if found != expected:
            wrong.append((record["id"], record["api"], found, expected))
    assert not wrong, (len(wrong), wrong[:5])
