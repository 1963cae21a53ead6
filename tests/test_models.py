from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage.models
from ullage.models import COLUMNS, ModelInfo, model_info, register_model, short_name

TABLE = Path(ullage.models.__file__).with_name("models.tsv")
ROWS = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
NAMES = [row.split("\t")[0] for row in ROWS]


@pytest.mark.parametrize(
    ("model", "window", "max_output"),
    [
        ("gpt-4o", 128_000, 16_384),
        ("gpt-4o-mini", 128_000, 16_384),
        ("gpt-4", 8_192, 4_096),
        ("gpt-4-turbo", 128_000, 4_096),
        ("gpt-4.1", 1_047_576, 32_768),
        ("gpt-3.5-turbo", 16_385, 4_096),
        ("gpt-3.5-turbo-0301", 4_096, 4_096),
        ("o3-mini", 200_000, 100_000),
        ("gpt-5", 400_000, 128_000),
        ("claude-3-5-sonnet", 200_000, 8_192),
        ("claude-3-5-sonnet-20241022", 200_000, 8_192),
        ("claude-sonnet-4-5", 200_000, 64_000),
        ("gemini-2.5-pro", 1_048_576, 65_535),
        ("gemini-1.5-pro", 2_097_152, 8_192),
        ("deepseek-chat", 131_072, 8_192),
    ],
)
def test_well_known_models_have_their_figures(model: str, window: int, max_output: int) -> None:
    info = model_info(model)
    assert info is not None
    assert (info.window, info.max_output) == (window, max_output)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("GPT-4o", "gpt-4o"),
        (" gpt-4o ", "gpt-4o"),
        ("openai/gpt-4o", "gpt-4o"),
        ("openrouter/openai/gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-99-99", "gpt-4o"),
        ("azure/gpt-4o-mini-my-deployment", "gpt-4o-mini"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("openrouter/anthropic/claude-3.5-sonnet", "claude-3.5-sonnet"),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet-20241022"),
        ("bedrock/anthropic.claude-3-opus-20991231-v1:0", "claude-3-opus"),
        ("vertex_ai/claude-opus-4@20250514", "claude-opus-4-20250514"),
        ("claude-sonnet-4-5-latest", "claude-sonnet-4-5"),
        ("ft:gpt-4o-mini-2024-07-18:acme::x1", "ft:gpt-4o-mini-2024-07-18"),
        ("gpt-oss:20b", "gpt-oss-20b"),
    ],
)
def test_a_name_is_found_whatever_stands_around_it(asked: str, found: str) -> None:
    info = model_info(asked)
    assert info is not None
    assert info.name == found


@pytest.mark.parametrize(
    "unknown",
    [
        "", "gpt", "gpt-4omni", "gpt-4.99", "claude", "claude-opus-4-99", "claude-99-sonnet", "chat-of-ours",
        "our-model", "openai/", "/", "openai/our-model", "gpt-99", "\n", "\x00", "模型", "gpt-4o\tx", "#",
    ],
)  # fmt: skip
def test_an_unknown_model_is_none_and_never_a_guess(unknown: str) -> None:
    assert model_info(unknown) is None


@given(st.text())
def test_no_name_crashes(name: str) -> None:
    info = model_info(name)
    assert info is None or info.window > 0


def test_every_row_is_found_and_makes_sense() -> None:
    for row in ROWS:
        name = row.split("\t")[0]
        info = model_info(name)
        assert info is not None
        assert info.name == name
        assert info.window > 0
        assert info.max_output is None or 0 < info.max_output <= info.window
        assert info.max_input is None or 0 < info.max_input < info.window
        for price in (info.input, info.output, info.cached_read, info.cache_write, info.reasoning):
            assert price is None or 0 <= price < Decimal("0.01")


def test_the_table_is_sorted_and_says_everything_once() -> None:
    assert [name.encode() for name in NAMES] == sorted({name.encode() for name in NAMES})
    assert all(name == name.lower() for name in NAMES)
    assert all(row.count("\t") == len(COLUMNS) for row in ROWS)


def test_the_table_is_small_and_carries_its_notice() -> None:
    text = TABLE.read_bytes()
    assert len(gzip.compress(text)) < 100_000
    assert b"Copyright (c) 2023 Berri AI" in text
    assert b"MIT License" in text


def test_prices_are_exact_and_unknown_is_none() -> None:
    info = model_info("gpt-4o")
    assert info is not None
    assert info.input == Decimal("0.0000025")
    assert info.output == Decimal("0.00001")
    assert info.cached_read == Decimal("0.00000125")
    assert info.cache_write is None
    open_weights = model_info("llama-3.3-70b-instruct")
    assert open_weights is not None
    assert open_weights.input is None


def test_a_registered_model_wins_over_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ullage.models, "_registered", {})
    mine = ModelInfo(name="GPT-4o", window=32_000, max_output=1_000)
    register_model(mine)
    assert model_info("gpt-4O") is mine
    register_model(ModelInfo(name="our-model", window=5))
    found = model_info("our-model")
    assert found is not None
    assert found.window == 5
    other = model_info("gpt-4o-mini")
    assert other is not None
    assert other.window == 128_000


def test_short_names_lose_provider_region_and_revision_only() -> None:
    assert short_name("us.anthropic.claude-3-opus-20240229-v1:0") == "claude-3-opus-20240229"
    assert short_name("amazon.titan-text-express-v1") == "titan-text-express"
    assert short_name("anthropic.claude-v2:1") == "claude-v2"
    assert short_name("nvidia/Llama-3.3-Nemotron-Super-49B-v1") == "llama-3.3-nemotron-super-49b-v1"
