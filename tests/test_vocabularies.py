"""Vocabularies: the same tokens as the makers' own encoders, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from ullage.errors import ConfigurationError
from ullage.tokens import measures
from ullage.tokens.measures import LINEWISE, PART_CHARS, split_at_quotes
from ullage.tokens.vocabularies import VOCABULARIES, Tokenizer, blocks_of, vocabulary

PAIRS = [("o200k", "o200k_base"), ("cl100k", "cl100k_base")]

# What breaks tokenizers: runs of blanks, scripts, joined emoji, special tokens that are spelled out.
SNIPPETS = st.sampled_from(
    [
        *(
            " ",
            "  ",
            "\n",
            "\r\n",
            "\t",
            " \n ",
            "👩‍👩‍👧",
            "👍🏽",
            "é",
            "e\u0301",
            "漢字",
            "한국어",
            "עברית",
            "नमस्ते",
        ),
        *(
            "'s",
            "'LL",
            "1234567",
            "3.14",
            "_",
            "__init__",
            "CamelCase",
            "<|endoftext|>",
            "<|im_start|>",
            "\x00",
        ),
    ]
)
TEXTS = st.lists(
    st.one_of(SNIPPETS, st.text(max_size=12), st.text(" \n\tab1.", max_size=12)), max_size=24
).map("".join)
LONE = st.text(st.characters(categories=["Cs", "Lu", "Zs"]), max_size=8)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@settings(max_examples=300)
@given(text=TEXTS)
def test_openai_vocabularies_give_the_tokens_of_tiktoken(ours: str, theirs: str, text: str) -> None:
    assert vocabulary(ours).encode(text) == oracle.encoding(theirs).encode_ordinary(text)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@given(text=LONE)
def test_halves_of_characters_count_as_in_tiktoken(ours: str, theirs: str, text: str) -> None:
    assert vocabulary(ours).encode(text) == oracle.encoding(theirs).encode_ordinary(text)


@pytest.mark.parametrize("name", sorted(VOCABULARIES))
def test_every_vocabulary_loads_and_counts(name: str) -> None:
    loaded = vocabulary(name)
    assert isinstance(loaded, Tokenizer)
    assert loaded.name == name
    assert loaded.count("") == 0
    assert loaded.count("Hello, world!") == 4
    assert 1 <= loaded.count("a\ud800b") <= 6
    assert loaded.count("<|endoftext|><|im_end|>") > 4  # plain text, not two tokens


def test_qwen_counts_what_it_composes() -> None:
    assert vocabulary("qwen3").encode("e\u0301te\u0301") == vocabulary("qwen3").encode("été")


def test_gemma_reads_a_tag_as_one_word() -> None:
    assert vocabulary("gemma3").count("<h1>") == 1


def test_an_unknown_vocabulary_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="one of"):
        vocabulary("latin")


HARD = {
    "one letter": "a" * 50_000,
    "spaces": " " * 200_000,
    "line ends": "\n" * 50_000,
    "base64": "QUJDZGVmMDEyOSsv" * 12_000,
    "emoji": "👩‍👩‍👧" * 8_000,
    "halves": "\ud83d" * 20_000,
    "nul": "\x00" * 50_000,
}


@pytest.mark.parametrize("name", ["o200k", "cl100k", "llama3", "qwen3", "deepseek", "tekken", "gemma3"])
@pytest.mark.parametrize("kind", HARD)
def test_hard_texts_are_counted_within_the_bounds_of_their_bytes(name: str, kind: str) -> None:
    text = HARD[kind]
    size = len(text.encode("utf-8", "surrogatepass"))
    assert size / 128 <= vocabulary(name).count(text) <= size


@pytest.mark.parametrize("name", sorted(LINEWISE))
@settings(max_examples=60)
@given(st.lists(SNIPPETS | st.sampled_from(["\n> ", "\n> ", "\n>", ">", "/", "...", "\r"]), max_size=60))
def test_the_parts_of_a_quotation_have_the_tokens_of_the_whole(name: str, snippets: list[str]) -> None:
    text, loaded = "".join(snippets), vocabulary(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "PART_CHARS", 4)
        parts = split_at_quotes(text)
    assert "".join(parts) == text
    assert sum(map(loaded.count, parts)) == loaded.count(text)


def test_a_quotation_that_grows_keeps_all_its_parts_but_the_last() -> None:
    lines = [f"> fact {number} of the conversation" for number in range(400)]
    parts = split_at_quotes("\n".join(lines[:300]))
    assert len(parts) > 5
    assert all(len(part) >= PART_CHARS for part in parts[:-1])
    assert split_at_quotes("\n".join(lines))[: len(parts) - 1] == parts[:-1]


@pytest.mark.parametrize("name", sorted(VOCABULARIES))
def test_a_long_text_is_counted_in_blocks_and_costs_the_same(name: str) -> None:
    lines = (
        f"def harbour_{place}(ship):\n    return 'the tide of day {place}'\n\n" for place in range(3_000)
    )
    text = "".join(lines)
    assert len([*blocks_of(text)]) > 1
    assert "".join(blocks_of(text)) == text
    assert vocabulary(name).count(text) == len(vocabulary(name).encode(text))


def test_a_text_without_a_place_to_cut_is_cut_nevertheless() -> None:
    blocks = [*blocks_of(" " * 2_500_000)]
    assert [len(each) for each in blocks] == [1_000_000, 1_000_000, 500_000]
