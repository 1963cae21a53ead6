"""Counting: exact where the provider's rule is known, never too low where it is not."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests import oracle
from tests.texts import KINDS, LANGUAGES, prose, python_code
from ullage.errors import ConfigurationError, InvalidConversation
from ullage.messages import DIGEST_CLOSE, DIGEST_OPEN
from ullage.tokens import counter_for, get_tokenizer, register_tokenizer, registry
from ullage.tokens.families import family, family_name, rows
from ullage.tokens.measures import remember_results
from ullage.tokens.request_count import BLOCKS
from ullage.tokens.vocabularies import vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = {"role": "user", "content": "Hello, world!"}
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
MODERN = (
    *("o200k", "cl100k", "llama3", "qwen2", "qwen3", "deepseek", "tekken"),
    *("gemma3", "gemma4", "glm4", "kimi", "gpt-oss"),
)


@pytest.fixture
def registrations() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)
    for watcher in registry._watchers:
        watcher()


# The whole request


@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text(max_size=60)), max_size=6)
)
def test_openai_text_is_three_a_message_and_three_a_request(turns: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in turns]
    counted = ullage.count(messages, "gpt-4o")
    assert counted.tokens == counted.ceiling == 3 + sum(4 + oracle.count(text) for _, text in turns)
    assert counted.exact


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4o", 11),
        ("gpt-4", 11),
        ("gpt-3.5-turbo-0125", 11),
        ("gpt-4-0314", 11),
        ("gpt-3.5-turbo-0301", 12),
        ("gpt-5-mini", 10),
        ("o3", 10),
    ],
)
def test_dated_models_keep_their_own_framing(model: str, tokens: int) -> None:
    assert ullage.count([USER], model).tokens == tokens


def test_a_name_costs_itself_and_one_more() -> None:
    named = {**USER, "name": "alice"}
    assert ullage.count([named], model="gpt-4o").tokens == ullage.count(
        [USER], model="gpt-4o"
    ).tokens + 1 + oracle.count("alice")


def test_what_is_not_plain_text_is_not_called_exact() -> None:
    step = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.example/b"}}]}
    assert ullage.count([USER], model="gpt-4o").exact
    assert not ullage.count(step, model="gpt-4o").exact
    assert not ullage.count([image], model="gpt-4o").exact
    assert not ullage.count([USER], tools=[TOOL], model="gpt-4o").exact
    assert not ullage.count([USER], "claude-sonnet-4-5").exact
    assert not ullage.count([USER], "no-such-model").exact


def test_costs_add_up_to_the_count() -> None:
    messages = [
        {"role": "system", "content": "Be brief"},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "3"},
    ]
    counter = counter_for("gpt-4o")
    counted = ullage.count(messages, tools=[TOOL], model="gpt-4o")
    once = counter.request([TOOL], system="Be brief")
    assert counted.tokens == once.tokens + sum(counter.message(each).tokens for each in messages)
    assert counted.ceiling == once.ceiling + sum(counter.message(each).ceiling for each in messages)
    assert counter.request([TOOL]).ceiling >= once.ceiling  # the text is not known: no less


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro", "command-r", None])
def test_a_member_that_costs_nothing_changes_no_count(model: str | None) -> None:
    class Text(str):
        __slots__ = ()

    for words in range(1, 60):
        message = {"role": "user", "content": "a bird " * words}
        plain = ullage.count([message], model)
        assert ullage.count([{**message, "id": "m-1", "name": None}], model) == plain
        assert ullage.count([{**message, "content": Text(message["content"])}], model) == plain


def test_the_breakdown_sums_up_and_knows_the_digest() -> None:
    system = f"Be brief.\n\n{DIGEST_OPEN}\nport = 8080\n{DIGEST_CLOSE}"
    counted = ullage.count([{"role": "system", "content": system}, USER], tools=[TOOL], model="gpt-4o")
    assert sum(counted.breakdown.values()) == counted.tokens
    assert set(counted.breakdown) == set(BLOCKS)
    assert counted.breakdown["system"] == 4 + oracle.count("Be brief.")
    assert 10 < counted.breakdown["summary"] < 40
    assert counted.breakdown["tools"] > 0


def test_results_of_parallel_calls_count_as_the_list_that_they_are() -> None:
    counter = counter_for("gpt-4o")
    result = {"role": "tool", "tool_call_id": "1", "content": 'one\ntwo "three"\n'}
    assert counter.message(result).tokens == 4 + oracle.count('one\ntwo "three"\n')
    assert counter.message(result, parallel=True).tokens == oracle.count('"one\\ntwo \\"three\\"\\n"')


def test_arguments_count_without_their_spaces() -> None:
    loose = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    tight = {**loose, "tool_calls": [{**CALL, "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}]}
    assert counter_for("gpt-4o").message(loose) == counter_for("gpt-4o").message(tight)


def test_a_request_body_counts_like_its_messages() -> None:
    body = {"model": "gpt-4o", "messages": [USER], "tools": [TOOL]}
    assert ullage.count_request(body, "openai.chat") == ullage.count([USER], "gpt-4o", [TOOL])
    unnamed = ullage.count_request({"messages": [USER]}, "openai.chat")
    assert not unnamed.exact
    assert unnamed.ceiling > ullage.count([USER], "claude-opus-4-7").ceiling


def test_tools_that_come_in_later_cost_more_than_their_json() -> None:
    item = {"type": "additional_tools", "tools": [TOOL]}
    message = {"role": "developer", "content": json.dumps([TOOL])}
    cost = counter_for("gpt-5").message({**message, "item": item})
    assert cost.tokens == counter_for("gpt-5").message(message).tokens + 66
    assert cost.ceiling > cost.tokens


def test_a_structured_answer_that_goes_on_from_an_assistant_has_a_higher_ceiling() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    body = {"model": "gpt-4o", "messages": [USER], "response_format": wanted}
    begun = {**body, "messages": [USER, {"role": "assistant", "content": "So"}]}
    fresh, continued = (ullage.count_request(each, "openai.chat") for each in (body, begun))
    assert continued.ceiling - continued.tokens == fresh.ceiling - fresh.tokens + 100


def test_what_is_no_message_is_named_with_its_place() -> None:
    with pytest.raises(InvalidConversation, match="message 1, field 'role'"):
        ullage.count([USER, {"content": "Hi"}], model="gpt-4o")


# Which rules a model has


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("GPT-4o", "gpt-4o-2024-08-06"),
        ("gpt-next", "gpt-4o"),
        ("openai/gpt-4.1", "gpt-4o"),
        ("openrouter/openai/gpt-5", "gpt-5"),
        ("ft:gpt-4o:acme::1", "gpt-4o-2024-08-06"),
        ("openai.gpt-5.5", "gpt-5-4"),
        ("us.anthropic.claude-3-5-haiku-20241022-v1:0", "claude-3-5-haiku"),
        ("mistralai/mixtral-8x7b-instruct", "mistral-v1"),
        ("deepseek-r1-distill-llama-70b", "deepseek-r1-distill-llama"),
        ("something-else", "unknown"),
    ],
)
def test_the_longest_prefix_names_the_family(model: str, name: str) -> None:
    assert family_name(model) == name


def test_every_row_of_the_table_can_be_used() -> None:
    for name, row in rows().items():
        for api in (None, *row.get("api", ())):
            assert family(name, api).name == name
        for model in row.get("models", ()):
            assert counter_for(model).message(USER).ceiling >= 4


def test_a_key_that_no_family_has_is_refused() -> None:
    from ullage.tokens.families import make_family

    with pytest.raises(ConfigurationError, match="scales"):
        make_family("new", {"scales": 2})


class Words:
    """A tokenizer of one's own needs a name and a count."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


@pytest.mark.usefixtures("registrations")
def test_a_registered_tokenizer_changes_counts_at_once() -> None:
    before = ullage.count([USER], "house-model-7b")
    register_tokenizer("house", Words())
    assert ullage.count([USER], "house-model-7b").tokens == 2 + 4 + 3 != before.tokens
    assert not ullage.count([USER], "house-model-7b").exact
    assert get_tokenizer("acme/House-Model").name == "words"


@pytest.mark.usefixtures("registrations")
def test_the_longest_registered_prefix_wins() -> None:
    register_tokenizer("gpt", Words())
    register_tokenizer("gpt-4o", get_tokenizer("chars/4"))
    assert get_tokenizer("gpt-4o-mini").name == "chars/4"
    assert get_tokenizer("gpt-3.5-turbo").name == "words"


@pytest.mark.usefixtures("registrations")
@pytest.mark.parametrize("wrong", [-1, 2.5, True, None, "3"])
def test_a_count_that_is_none_is_refused(wrong: Any) -> None:
    class Broken:
        name = "broken"

        def count(self, text: str) -> Any:
            return wrong if text else 0

    register_tokenizer("broken", Broken())
    with pytest.raises(ConfigurationError, match="broken"):
        ullage.count([USER], "broken")


@pytest.mark.parametrize("thing", [None, "o200k", object()])
def test_only_a_tokenizer_can_be_registered(thing: Any) -> None:
    with pytest.raises(ConfigurationError):
        register_tokenizer("house", thing)


# The plain rules


def test_the_plain_rules_are_there_by_name() -> None:
    assert get_tokenizer("chars/4").count("hello world") == 2
    assert get_tokenizer("chars/3.5").count("hello world") == 4
    assert [get_tokenizer("chars/4").count("x" * n) for n in (0, 3, 4, 8)] == [0, 0, 1, 2]
    assert [get_tokenizer("chars/3.5").count("x" * n) for n in (0, 1, 7, 8)] == [0, 1, 2, 3]


def test_the_fallback_framing_is_4_3_10_and_1000() -> None:
    for model in ("chars/4", "no-such-model"):
        counter = counter_for(model)
        text = get_tokenizer(model).count
        image = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
        step = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        assert counter.request().tokens == 3
        assert counter.message(USER).tokens == 4 + text("Hello, world!")
        assert counter.message(step).tokens == 4 + 10 + text("add") + text('{"a": 1, "b": 2}')
        assert counter.message({"role": "user", "content": [image]}).tokens == 4 + 1000


@pytest.mark.parametrize("model", ["chars/4", "chars/3.5", "no-such-model"])
def test_hello_world_is_3_to_5(model: str) -> None:
    assert 3 <= counter_for(model).text("Hello, world!").tokens <= 5


# The memory of counts


def test_counts_are_remembered_and_bounded_and_hold_no_texts() -> None:
    asked: list[str] = []

    def measure(text: str) -> int:
        asked.append(text)
        return len(text)

    count = remember_results(measure, generation=10)
    assert [count("a"), count("a"), count("bb")] == [1, 1, 2]
    assert asked == ["a", "bb"]
    for number in range(100):
        count(f"text {number}")
    cells = [cell.cell_contents for cell in count.__closure__ or () if isinstance(cell.cell_contents, dict)]
    assert len(cells) == 2
    assert all(len(cell) <= 10 for cell in cells)
    assert not any(isinstance(part, str) for cell in cells for key in cell for part in key)
    assert count("a") == 1


# The model that nobody knows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_ceiling_of_an_unknown_model_holds_for_every_modern_vocabulary(kind: Any, seed: int) -> None:
    r = random.Random(seed)  # noqa: S311 - texts, not secrets
    text = kind(r) * r.choice((1, 1, 3))
    cost = counter_for("no-such-model").text(text)
    assert cost.tokens == vocabulary("o200k").count(text)
    for name in MODERN:
        assert cost.ceiling >= vocabulary(name).count(text), name
    if kind in (python_code, prose):
        assert cost.ceiling <= 1.3 * cost.tokens


@pytest.mark.parametrize("seed", range(12))
def test_the_ceiling_of_an_unknown_model_holds_for_mixtures(seed: int) -> None:
    r = random.Random(seed)  # noqa: S311 - texts, not secrets
    text = "\n".join(kind(r)[: r.randrange(40, 2000)] for kind in r.choices(KINDS, k=4))
    ceiling = counter_for("no-such-model").text(text).ceiling
    assert ceiling >= max(vocabulary(name).count(text) for name in MODERN)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("times", [1, 20])
def test_the_ceiling_of_an_unknown_model_holds_in_every_language(language: str, times: int) -> None:
    text = LANGUAGES[language] * times
    named, unnamed = counter_for("no-such-model").text(text), counter_for(None).text(text)
    assert named.ceiling >= max(vocabulary(name).count(text) for name in MODERN)
    assert unnamed.ceiling >= max(named.ceiling, counter_for("claude-opus-4-7").text(text).tokens)


@pytest.mark.parametrize(
    "text",
    [
        '{"response": "[{\\"id\\":\\"1\\",\\"title\\":\\"Tea\\",\\"taste\\":\\"mild\\"}]"}' * 20,
        "<<<<<<< SEARCH\n)\n=======\n    name=self.name,\n>>>>>>> REPLACE\n" * 20,
        "<" * 500,
        "\t" * 50_000,
        "\u200d" * 5_000,
        "ＡＢＣＤ１２３４" * 40,
    ],
    ids=["JSON in JSON", "edits", "angles", "tabs", "joiners", "wide letters"],
)
def test_the_ceiling_of_an_unknown_model_holds_for_odd_texts(text: str) -> None:
    assert counter_for("no-such-model").text(text).ceiling >= max(
        vocabulary(name).count(text) for name in MODERN
    )


@given(st.text(max_size=80))
def test_a_ceiling_is_never_below_its_estimate(text: str) -> None:
    for model in ("gpt-4o", "no-such-model", "claude-sonnet-4-5", "chars/4"):
        cost = counter_for(model).text(text)
        assert 0 <= cost.tokens <= cost.ceiling
        assert isinstance(cost.tokens, int)
        assert isinstance(cost.ceiling, int)


# Real usage


@pytest.fixture(scope="module")
def usage() -> list[dict[str, Any]]:
    """Recorded OpenAI requests with the provider's own counts, where the data is there."""
    path = Path(os.environ.get("ULLAGE_DATA", "")) / "usage.jsonl.gz"
    if not path.is_file():
        pytest.skip("recorded usage is not there: ULLAGE_DATA names its folder")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [each for each in records if each["clean"] and each["family"] == "openai.chat"]


def test_recorded_openai_requests_count_as_openai_counted_them(usage: list[dict[str, Any]]) -> None:
    for kind, share, error in (("text", 0.98, 0.0), ("tools", 0.8, 0.08)):
        records = [each for each in usage if each["class"] == kind]
        groups = Counter(each["id"].partition("-")[0] for each in records)
        exact = near = 0.0
        for each in records:
            weight = 1 / groups[each["id"].partition("-")[0]]
            model = each["response_model"] or each["model"]
            off = abs(ullage.count_request(each["request"], each["api"], model).tokens - each["input_tokens"])
            exact += weight * (off == 0)
            near += weight * (off <= error * each["input_tokens"])
        assert exact >= share * len(groups), kind
        assert near >= 0.95 * len(groups), kind
