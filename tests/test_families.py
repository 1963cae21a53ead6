"""The table of families: well formed, every model finds its row, known templates count as they should."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import ullage
from ullage.tokens.bounds import BOUNDS
from ullage.tokens.families import family, family_name, rows
from ullage.tokens.rules import RULES
from ullage.tokens.vocabularies import VOCABULARIES, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CLAUDE = tuple(name for name in rows() if name.startswith("claude"))

# model as a provider, a gateway or a server spells it → row
MODELS: Mapping[str, str] = {
    "claude-sonnet-4-5-20250929": "claude-4-5",
    "claude-haiku-4-5-20251001": "claude-4-5",
    "claude-opus-4-5": "claude-4-5",
    "claude-opus-4-6": "claude-4-5",
    "claude-sonnet-4-6": "claude-4-5",
    "anthropic/claude-4.5-haiku-20251001": "claude-4-5",
    "anthropic/claude-4.6-sonnet-20260217": "claude-4-5",
    "anthropic/claude-sonnet-4.5": "claude-4-5",
    "openrouter/anthropic/claude-sonnet-4.5": "claude-4-5",
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": "claude-4-5",
    "us.anthropic.claude-sonnet-4-6": "claude-4-5",
    "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0": "claude-4-5",
    "claude-sonnet-4-20250514": "claude-4",
    "claude-opus-4-1-20250805": "claude-4",
    "anthropic/claude-sonnet-4": "claude-4",
    "us.anthropic.claude-sonnet-4-20250514-v1:0": "claude-4",
    "claude-3-7-sonnet-20250219": "claude-3-5",
    "anthropic/claude-3.7-sonnet:thinking": "claude-3-5",
    "claude-3-5-sonnet-20240620": "claude-3-5",
    "anthropic.claude-3-5-sonnet-20240620-v1:0": "claude-3-5",
    "claude-3-5-haiku-latest": "claude-3-5-haiku",
    "claude-3-haiku-20240307": "claude-3-haiku",
    "anthropic.claude-3-sonnet-20240229-v1:0": "claude-3-sonnet",
    "claude-3-opus-20240229": "claude-3-opus",
    "anthropic.claude-v2:1": "claude-2",
    "anthropic.claude-instant-v1": "claude-2",
    "claude-sonnet-5": "claude-5",
    "us.anthropic.claude-sonnet-5": "claude-5",
    "claude-opus-4-7": "claude-opus-4-7",
    "anthropic/claude-4.7-opus-20260416": "claude-opus-4-7",
    "claude-opus-4-8": "claude-opus-4-8",
    "claude-brilliant-9": "claude",
    "gemini-1.5-flash": "gemini-2-0",
    "gemini-2.0-flash": "gemini-2-0",
    "google/gemini-2.0-flash-lite-001": "gemini-2-0",
    "gemini-2.5-flash": "gemini",
    "models/gemini-2.5-pro": "gemini",
    "google/gemini-2.5-flash": "gemini",
    "gemini-3-flash-preview": "gemini-3",
    "google/gemini-3-pro-preview": "gemini-3",
    "gemini-3.1-pro-preview": "gemini-3",
    "gemma3:1b": "gemma",
    "google/gemma-3-27b-it": "gemma",
    "google.gemma-3-27b-it": "gemma",
    "llama-3.3-70b-versatile": "llama-3",
    "llama3.1-8b": "llama-3",
    "meta-llama/Llama-3.3-70B-Instruct-Turbo": "llama-3",
    "meta-llama/llama-3-3-70b-instruct": "llama-3",
    "@cf/meta/llama-3.3-70b-instruct-fp8-fast": "llama-3",
    "meta.llama3-2-1b-instruct-v1:0": "llama-3",
    "meta/llama-3.1-8b-instruct": "llama-3",
    "llama3.2:3b-instruct-fp16": "llama-3-2-ollama",
    "llama3-70b-8192": "llama-3-0",
    "meta.llama3-8b-instruct-v1:0": "llama-3-0",
    "meta-llama/llama-4-scout-17b-16e-instruct": "llama-4",
    "us.meta.llama4-maverick-17b-instruct-v1:0": "llama-4",
    "meta.llama2-13b-chat-v1": "llama-2",
    "Qwen/Qwen3-0.6B": "qwen-3",
    "qwen/qwen3-32b": "qwen-3",
    "qwen3.6:latest": "qwen-3",
    "qwen.qwen3-32b-v1:0": "qwen-3",
    "Qwen/Qwen2.5-7B-Instruct": "qwen-2-5",
    "qwen2.5-coder:7b": "qwen-2-5",
    "mistral-large-latest": "mistral",
    "mistral-medium-latest": "mistral",
    "pixtral-12b-latest": "mistral",
    "mistral.mistral-large-3-675b-instruct": "mistral",
    "codestral-latest": "mistral",
    "mistral-small-latest": "mistral-small",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mistral-v1",
    "mistral.mistral-7b-instruct-v0:2": "mistral-v1",
    "mistral-tiny": "mistral-v1",
    "deepseek-chat": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-v3",
    "deepseek/deepseek-v3.1": "deepseek-v3",
    "deepseek-v4-flash": "deepseek-v4",
    "deepseek-v4-pro": "deepseek-v4",
    "deepseek-r1-distill-llama-70b": "deepseek-r1-distill-llama",
    "command-a-03-2025": "command-a",
    "command-a-reasoning-08-2025": "command-a",
    "command-r7b-12-2024": "command-r7b",
    "command-r-08-2024": "command-r",
    "cohere.command-r-v1:0": "command-r",
    "cohere.command-text-v14": "command-old",
    "command": "command-old",
    "us.amazon.nova-2-lite-v1:0": "nova-2",
    "amazon.nova-micro-v1:0": "nova",
    "amazon.titan-text-express-v1": "nova",
    "grok-4.3": "grok-4-3",
    "x-ai/grok-4": "grok-4",
    "x-ai/grok-4.1-fast": "grok-4-fast",
    "grok-4-fast-reasoning": "grok-4-fast",
    "grok-code-fast-1": "grok-4-fast",
    "grok-4-1-fast-non-reasoning": "grok-4-fast-non-reasoning",
    "grok-7": "grok",
    "openai/gpt-oss-120b": "gpt-oss",
    "openai.gpt-oss-20b-1:0": "gpt-oss",
    "gpt-oss:20b": "gpt-oss",
    "@cf/openai/gpt-oss-20b": "gpt-oss",
    "z-ai/glm-4.6": "glm",
    "zai-glm-4.7": "glm",
    "zai.glm-4.7-flash": "glm",
    "zai/GLM-5.2": "glm-5",
    "z-ai/glm-5-turbo-20260315": "glm-5",
    "moonshotai/kimi-k2-instruct-0905": "kimi",
    "moonshotai/kimi-k2.5": "kimi",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "smollm2",
    "microsoft/phi-4": "phi",
    "us.writer.palmyra-x4-v1:0": "palmyra",
    "an-entirely-new-model": "unknown",
}


@pytest.mark.parametrize("name", sorted(rows()))
def test_every_row_is_well_formed(name: str) -> None:
    row = family(name)
    assert row.vocabulary in VOCABULARIES or row.vocabulary in RULES
    assert 0.5 <= row.scale <= 2
    assert row.bound in BOUNDS
    for part in (row, row.tools, row.schema):
        assert 0 <= (part.margin or 0) < 1
        assert part.margin_once >= 0
    assert min(row.request, row.message, row.thinking, row.tools.once, row.schema.once) >= 0
    assert all(prefix == prefix.lower() for prefix in row.models)


def test_no_prefix_belongs_to_two_rows() -> None:
    times = Counter(prefix for row in rows().values() for prefix in row.get("models", ()))
    assert [prefix for prefix, number in times.items() if number > 1] == []


def test_a_row_says_nothing_twice_in_its_prefixes() -> None:
    """A prefix that begins with another of the same row is idle, unless a longer name must be outbid."""
    assert all(len(set(row.get("models", ()))) == len(row.get("models", ())) for row in rows().values())


@pytest.mark.parametrize(("model", "row"), MODELS.items())
def test_a_model_finds_its_row(model: str, row: str) -> None:
    assert family_name(model) == row


@pytest.mark.parametrize("name", CLAUDE)
def test_claude_with_tools_has_the_constant_that_anthropic_adds(name: str) -> None:
    row = family(name)
    assert row.tools.once >= 150
    assert row.tools.none
    assert row.thinking == 28


def test_a_tool_that_must_be_called_costs_more_than_one_that_may_be() -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": "Weather in Oslo?"}],
        "tools": [{"name": "weather", "input_schema": {"type": "object", "properties": {}}}],
    }
    free = ullage.count_request(body, "anthropic.messages")
    forced = ullage.count_request({**body, "tool_choice": {"type": "any"}}, "anthropic.messages")
    forbidden = ullage.count_request({**body, "tool_choice": {"type": "none"}}, "anthropic.messages")
    assert forced.tokens - free.tokens == family("claude-4-5").tools.forced
    assert forbidden.tokens == free.tokens


CHAT = [
    {"role": "user", "content": "What is the capital of Norway, and how many people live there?"},
    {"role": "assistant", "content": "Oslo. About 720,000 people live in the city itself."},
]

# model → (vocabulary, framing of a user's and an assistant's turn, and what is paid once)
TEMPLATES: Mapping[str, tuple[str, int]] = {
    # <|begin_of_text|>, twice <|start_header_id|>role<|end_header_id|>\n\n…<|eot_id|>, the reply's header
    "meta-llama-3-8b-instruct": ("llama3", 1 + 2 * 5 + 4),
    # the same, and a system message with two dates in it
    "llama-3.3-70b-instruct": ("llama3", 1 + 2 * 5 + 4 + 5 + 20),
    # twice <|im_start|>role\n…<|im_end|>\n, the reply's <|im_start|>assistant\n
    "qwen3-32b": ("qwen3", 2 * 5 + 3),
    # the same, and "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "qwen2.5-7b-instruct": ("qwen3", 2 * 5 + 3 + 21),
    # <bos>, <User>…, <Assistant>…<eos>, <Assistant>
    "deepseek-v3": ("deepseek", 1 + 1 + 2 + 1),
    # <bos>, twice <start_of_turn>role\n…<end_of_turn>\n, <start_of_turn>model\n
    "gemma-3-4b-it": ("gemma3", 1 + 2 * 5 + 3),
    # <s>, [INST]…[/INST], …</s>
    "mistral-large-2411": ("tekken", 1 + 2 + 1),
}


@pytest.mark.parametrize(("model", "expected"), TEMPLATES.items())
def test_a_public_template_is_counted_token_by_token(model: str, expected: tuple[str, int]) -> None:
    name, framing = expected
    text = sum(vocabulary(name).count(message["content"]) for message in CHAT)
    counted = ullage.count(CHAT, model=model)
    assert counted.tokens == framing + text
    assert counted.ceiling >= counted.tokens


def test_a_default_system_prompt_is_not_charged_where_there_is_one() -> None:
    own = [{"role": "system", "content": "Be brief."}, *CHAT]
    added = (
        ullage.count(own, model="qwen2.5-7b-instruct").tokens
        - ullage.count(CHAT, model="qwen2.5-7b-instruct").tokens
    )
    assert added == 5 + vocabulary("qwen3").count("Be brief.") - 21


@pytest.mark.parametrize(
    "model", ["claude-next-9", "gemini-9-ultra", "grok-9", "llama-9", "qwen9", "smollm2", "unheard-of"]
)
def test_a_model_that_nobody_recorded_is_an_estimate_below_its_ceiling(model: str) -> None:
    tool = {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
    }
    counted = ullage.count(CHAT, model=model, tools=[tool])
    assert not counted.exact
    assert counted.ceiling > counted.tokens


@pytest.mark.parametrize("text", ["farewell " * 500, "YOU MUST ALWAYS USE THE TOOLS. " * 60])
def test_the_ceiling_of_a_one_sided_text_is_wide(text: str) -> None:
    counted = ullage.count([{"role": "user", "content": text}], model="claude-sonnet-4-5")
    assert counted.ceiling > 1.3 * counted.tokens


# What was recorded


class Result(NamedTuple):
    """One recorded request, counted."""

    provider: str
    kind: str
    group: str
    actual: int
    tokens: int
    ceiling: int


@pytest.fixture(scope="module")
def recorded() -> list[Result]:
    """Every clean recorded request that is not OpenAI's own, counted."""
    path = Path(os.environ.get("ULLAGE_DATA", "")) / "usage.jsonl.gz"
    if "ULLAGE_DATA" not in os.environ or not path.is_file():
        pytest.skip("set ULLAGE_DATA to the directory with usage.jsonl.gz to check the recorded rates")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return list(_counted(map(json.loads, lines)))


def _counted(entries: Iterator[dict[str, Any]]) -> Iterator[Result]:
    for entry in entries:
        kind, actual = entry["class"], entry["input_tokens"]
        if not entry["clean"] or kind not in ("text", "tools", "schema", "toolmsgs") or actual < 1:
            continue
        model = entry["response_model"] or entry["model"]
        if "embed" in model or entry["family"].startswith("openai."):
            continue
        counted = ullage.count_request(entry["request"], entry["api"], model)
        group = entry["id"].partition("-")[0]
        yield Result(entry["family"], kind, group, actual, counted.tokens, counted.ceiling)


def _chosen(results: Sequence[Result], provider: str, kind: str) -> list[tuple[Result, float]]:
    """The results of one provider and class, each group weighing one."""
    own = [result for result in results if (result.provider, result.kind) == (provider, kind)]
    times = Counter(result.group for result in own)
    return [(result, 1 / times[result.group]) for result in own]


def _quantile(pairs: Sequence[tuple[float, float]], at: float) -> float:
    total, seen = sum(weight for _, weight in pairs), 0.0
    for value, weight in sorted(pairs):
        seen += weight
        if seen >= at * total:
            return value
    raise AssertionError("no values")


def _error(result: Result) -> float:
    return abs(result.tokens - result.actual) / result.actual


@pytest.mark.parametrize(
    ("provider", "kind", "at", "most"),
    [
        ("anthropic-direct", "text", 0.5, 0.06),
        ("anthropic-direct", "tools", 0.5, 0.04),
        ("anthropic-direct", "tools", 0.95, 0.20),
        ("claude-via-other", "tools", 0.5, 0.04),
        ("claude-via-other", "tools", 0.95, 0.20),
        ("google-gemini", "text", 0.5, 0.08),
    ],
)
def test_recorded_requests_are_counted_closely(
    recorded: list[Result], provider: str, kind: str, at: float, most: float
) -> None:
    pairs = [(_error(result), weight) for result, weight in _chosen(recorded, provider, kind)]
    assert _quantile(pairs, at) <= most


@pytest.mark.parametrize("kind", ["text", "tools"])
def test_claudes_ceiling_is_not_needlessly_high(recorded: list[Result], kind: str) -> None:
    large = _chosen([result for result in recorded if result.actual >= 200], "anthropic-direct", kind)
    pairs = [((result.ceiling - result.actual) / result.actual, weight) for result, weight in large]
    assert _quantile(pairs, 0.5) <= 0.12


def test_hardly_any_recorded_request_is_above_its_ceiling(recorded: list[Result]) -> None:
    large = [result for result in recorded if result.actual >= 200]
    times = Counter((result.provider, result.kind, result.group) for result in large)
    over = sum(
        1 / times[result.provider, result.kind, result.group]
        for result in large
        if result.ceiling < result.actual
    )
    assert over / len(times) <= 0.01
