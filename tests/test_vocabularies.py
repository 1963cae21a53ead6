"""Vocabularies: the same tokens as the makers' own encoders, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from ullage.errors import ConfigurationError
from ullage.tokens.vocabularies import VOCABULARIES, Tokenizer, vocabulary

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
