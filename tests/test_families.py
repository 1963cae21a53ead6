"""The table of families: well formed, every model finds its row, known templates count as they should."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from ullage import wire
from ullage.target import Target
from ullage.tokens.ceilings import BOUNDS
from ullage.tokens.counter import Counter as TokenCounter
from ullage.tokens.counter import counter_for
from ullage.tokens.families import family, family_name, family_of, is_hosted, margins, rows
from ullage.tokens.measures import measures_of
from ullage.tokens.request_count import count_read
from ullage.tokens.vocabularies import RULES, VOCABULARIES, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CLAUDE = tuple(name for name in rows() if name.startswith("claude"))

# model as a provider, a gateway or a server spells it → row
MODELS: Mapping[str, str] = {
    "gpt-4o": "gpt-4o-2024-08-06",
    "gpt-4o-2024-08-06": "gpt-4o-2024-08-06",
    "gpt-4o-2024-11-20": "gpt-4o",
    "databricks-claude-3-7-sonnet": "claude-3-5",
    "databricks-meta-llama-3-3-70b-instruct": "llama-3",
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
    "our-claude": "claude",
    "team_Claude_4": "claude",
    "sonnet": "claude",
    "opus[1m]": "claude",
    "haikus": "unknown",
    "mistral-claude-tune": "mistral",
    "gpt-5-nano-2025-08-07": "gpt-5-nano",
    "gpt-5-2025-08-07": "gpt-5",
    "gpt-5.2-2025-12-11": "gpt-5-1",
    "gpt-5.4-mini": "gpt-5-4",
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


# Margins, hosts, and requests that name no model

TEXT = {"role": "user", "content": "What did the harbour master write in the log on the first of May? " * 12}
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": TOOL["function"]["parameters"]}}


def test_every_kind_of_family_has_margins_for_every_part() -> None:
    kinds = {family(name).kind for name in rows()} - {""}
    assert kinds == margins().keys()
    for channels in margins().values():
        assert "own" in channels
        for parts in channels.values():
            assert parts.keys() == {"text", "tools", "schema"}
            assert all(value >= 0 for figures in parts.values() for value in figures.values())


def test_the_rows_of_a_kind_share_their_margins() -> None:
    """A family with few records gets what its kind needs, not the most that it was seen to need itself."""
    for name, row in rows().items():
        written = {**row, **row.get("tools", {}), **row.get("schema", {})}
        if family(name).kind:
            assert not written.keys() & {"margin_once", "margin_each"}, name
            assert "margin" not in written or family(name).margin >= 0.05, name


def test_a_family_counted_by_the_nearest_public_vocabulary_has_a_share_as_margin() -> None:
    """Real sessions with Llama 4 were 3 % above its estimate at every length."""
    for name in ("llama-4", "llama-2", "mistral-v1", "phi", "palmyra", *CLAUDE):
        assert family(name).margin >= 0.05
        assert family(name, host=True).margin >= 0.05


@pytest.mark.parametrize("api", [None, "openai.chat", "openai.responses"])
@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4o-2024-08-06", "gpt-4.1-mini", "gpt-5", "o3", "gpt-3.5-turbo"]
)
def test_the_ceiling_of_openais_plain_text_is_the_estimate(model: str, api: str | None) -> None:
    counter = counter_for(Target(model=model, api=api))
    assert counter.exact
    for cost in (counter.message(TEXT), counter.request()):
        assert cost.ceiling == cost.tokens


# model, API, address → whether somebody other than its maker serves it
HOSTS: Sequence[tuple[str | None, str | None, str, bool]] = [
    ("meta-llama/llama-3.2-3b-instruct", "openai.chat", "https://openrouter.ai/api/v1", True),
    ("meta-llama/llama-3.2-3b-instruct", "openai.chat", "http://127.0.0.1:8000/v1", False),
    ("meta-llama/llama-3.2-3b-instruct", None, "", True),
    ("openrouter/qwen/qwen3-32b", "openai.chat", "", True),
    ("llama3.2:3b", "ollama.chat", "http://localhost:11434", False),
    ("claude-sonnet-4-5", "anthropic.messages", "", False),
    ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock.converse", "", False),
    ("claude-sonnet-4-5", "openai.chat", "", True),
    ("anthropic/claude-sonnet-4.5", "anthropic.count_tokens", "", False),
    ("gemini-2.5-flash", "gemini", "", False),
    ("google/gemini-2.5-flash", "openai.chat", "", True),
    ("gpt-4o", "openai.chat", "", False),
    (None, "openai.chat", "", False),
]


@pytest.mark.parametrize(("model", "api", "endpoint", "hosted"), HOSTS)
def test_a_host_is_told_from_the_maker(
    model: str | None, api: str | None, endpoint: str, hosted: bool
) -> None:
    assert is_hosted(model, api, family_of(model).apis, endpoint) is hosted


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "nova-pro", "command-a-03-2025", "gpt-5.1"])
def test_the_ceiling_adds_no_share_to_the_prompt_that_a_provider_adds(model: str, choice: str) -> None:
    row = family_of(model)
    longer = dataclasses.replace(row, tools=dataclasses.replace(row.tools, once=row.tools.once + 1000))
    tools = [{"type": "function", "function": {"name": "find", "description": "Finds a word in a text."}}]
    costs = [
        TokenCounter(each, measures_of(each, None)).request(tools, system=False, tool_choice=choice)
        for each in (row, longer)
    ]
    assert costs[1].tokens == costs[0].tokens + 1000
    assert costs[1].ceiling == costs[0].ceiling + 1000


def test_the_ceiling_at_a_host_has_room_for_the_hosts_own_prompt() -> None:
    """An aggregator was recorded that put a system prompt of 560 tokens in front of a Llama."""
    host = counter_for(Target(model="meta-llama/llama-3.2-3b-instruct", api="openai.chat"))
    own = counter_for(
        Target(model="meta-llama/llama-3.2-3b-instruct", api="openai.chat", endpoint="http://[::1]:8000/v1")
    )
    assert host.request().tokens == own.request().tokens
    assert host.request().ceiling >= own.request().tokens + 600 > own.request().ceiling


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4.5", "anthropic/claude-opus-4.7"])
def test_the_ceiling_at_a_host_covers_a_schema_that_is_sent_as_a_tool(model: str) -> None:
    counter = counter_for(Target(model=model, api="openai.chat"))
    as_tool = counter.request([TOOL], tool_choice="required").tokens
    assert counter.request(response_format=SCHEMA).ceiling >= as_tool


def test_a_hosts_way_of_asking_for_thought_is_charged() -> None:
    body = {"model": "anthropic/claude-4.5-haiku-20251001", "messages": [TEXT]}
    plain, thinks, not_so = (
        ullage.count_request({**body, **more}, "openai.chat").tokens
        for more in ({}, {"reasoning": {"effort": "low"}}, {"reasoning": {"effort": "none"}})
    )
    assert thinks == plain + family("claude-4-5").thinking
    assert not_so == plain


def test_search_results_that_may_be_cited_are_charged_through_bedrock() -> None:
    def counted(citations: bool) -> int:
        found = {"source": "a", "title": "b", "content": [{"text": "c"}], "citations": {"enabled": citations}}
        body = {"messages": [{"role": "user", "content": [{"searchResult": found}]}]}
        return ullage.count_request(body, "bedrock.converse", "us.anthropic.claude-haiku-4-5-v1:0").tokens

    assert counted(True) == counted(False) + family("claude-4-5").citations


# A body that names no model, its API, and models that may answer it
UNNAMED: Sequence[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"message": TEXT["content"]}, "cohere.chat.v1", ("command", "command-r", "command-a-03-2025")),
    ({"messages": [TEXT]}, "cohere.chat.v2", ("command-r7b-12-2024", "command-a-03-2025")),
    ({"messages": [TEXT], "max_tokens": 9}, "anthropic.messages", ("claude-sonnet-4", "claude-opus-4-7")),
    ({"messages": [TEXT]}, "openai.chat", ("gpt-4o", "anthropic/claude-opus-4.7", "deepseek-v4", "grok-4.3")),
    ({"contents": [{"parts": [{"text": TEXT["content"]}]}]}, "gemini", ("gemini-2.0-flash", "gemini-3-pro")),
]


@pytest.mark.parametrize(("body", "api", "models"), UNNAMED)
def test_a_body_that_names_no_model_is_counted_for_any_that_may_answer(
    body: dict[str, Any], api: str, models: tuple[str, ...]
) -> None:
    unnamed = ullage.count_request(body, api)
    assert not unnamed.exact
    assert unnamed.ceiling >= max(ullage.count_request(body, api, model).tokens for model in models)
    if api != "gemini":  # its model is in the address
        assert ullage.count_request({**body, "model": ""}, api) == unnamed


def test_without_a_model_the_ceiling_covers_the_finest_vocabulary() -> None:
    """Without a model and an API, too: the newest Claude needs 1.58 times what o200k counts."""
    long = [{"role": "user", "content": str(TEXT["content"]) * 40}]
    assert ullage.count(long).ceiling >= ullage.count(long, "claude-opus-4-7").ceiling


NAMES = st.sampled_from([None, *(prefix for row in rows().values() for prefix in row.get("models", ()))])
APIS = st.sampled_from([None, "openai.chat", "openai.responses", "anthropic.messages", "bedrock.converse"])


@given(NAMES, APIS, st.booleans(), st.text(max_size=60), st.integers(0, 4))
def test_a_ceiling_is_no_lower_than_its_estimate_and_grows_with_the_tools(
    model: str | None, api: str | None, prefixed: bool, text: str, tools: int
) -> None:
    name = f"vendor/{model}" if model and prefixed else model
    counter = counter_for(Target(model=name, api=api))
    message = counter.message({"role": "user", "content": text})
    assert message.ceiling >= message.tokens
    costs = [counter.request([TOOL] * number, SCHEMA) for number in range(tools + 1)]
    assert all(cost.ceiling >= cost.tokens for cost in costs)
    assert [cost.ceiling for cost in costs] == sorted(cost.ceiling for cost in costs)


# What was recorded


class Result(NamedTuple):
    """One recorded request, counted."""

    provider: str
    kind: str
    group: str
    actual: int
    tokens: int
    ceiling: int
    unnamed: int
    """The ceiling if the model is not known, but only the API."""


@pytest.fixture(scope="module")
def recorded() -> list[Result]:
    """Every clean recorded request, counted."""
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
        if "embed" in model:
            continue
        counted = ullage.count_request(entry["request"], entry["api"], model)
        request = wire.read(entry["request"], entry["api"])
        unnamed = count_read(counter_for(Target(api=entry["api"])), request).ceiling
        group = entry["id"].partition("-")[0]
        yield Result(entry["family"], kind, group, actual, counted.tokens, counted.ceiling, unnamed)


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
        ("openai.chat", "text", 0.95, 0.0),
        ("openai.chat", "tools", 0.95, 0.03),
    ],
)
def test_recorded_requests_are_counted_closely(
    recorded: list[Result], provider: str, kind: str, at: float, most: float
) -> None:
    pairs = [(_error(result), weight) for result, weight in _chosen(recorded, provider, kind)]
    assert _quantile(pairs, at) <= most


@pytest.mark.parametrize(
    ("provider", "kind", "most"),
    [
        ("openai.chat", "text", 0.0),
        ("openai.responses", "text", 0.0),
        ("openai.chat", "tools", 0.08),
        ("openai.responses", "tools", 0.08),
        ("anthropic-direct", "text", 0.12),
        ("anthropic-direct", "tools", 0.12),
    ],
)
def test_a_ceiling_is_not_needlessly_high(
    recorded: list[Result], provider: str, kind: str, most: float
) -> None:
    large = _chosen([result for result in recorded if result.actual >= 200], provider, kind)
    pairs = [((result.ceiling - result.actual) / result.actual, weight) for result, weight in large]
    assert _quantile(pairs, 0.5) <= most


@pytest.mark.parametrize("kind", ["text", "tools", "schema"])
def test_hardly_any_recorded_request_is_above_its_ceiling(recorded: list[Result], kind: str) -> None:
    large = [result for result in recorded if result.actual >= 200 and result.kind == kind]
    assert _too_low(large, [result.ceiling for result in large]) <= 0.005


@pytest.mark.parametrize("kind", ["text", "tools", "schema"])
def test_hardly_any_recorded_request_is_above_its_ceiling_without_a_model(
    recorded: list[Result], kind: str
) -> None:
    large = [result for result in recorded if result.actual >= 200 and result.kind == kind]
    assert _too_low(large, [result.unnamed for result in large]) <= 0.005


def _too_low(results: Sequence[Result], ceilings: Sequence[int]) -> float:
    """The share of groups whose ceiling is below the provider's count."""
    times = Counter((result.provider, result.group) for result in results)
    low = sum(
        1 / times[result.provider, result.group]
        for result, ceiling in zip(results, ceilings, strict=True)
        if ceiling < result.actual
    )
    return low / len(times)


@pytest.mark.usefixtures("recorded")
def test_the_margins_are_what_the_script_derives() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/derive_margins.py", "--check"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
