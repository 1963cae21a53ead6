"""Our counts for SmolLM2 are those of a real llama.cpp server, and its refusals are what we take them for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ullage
from tests.llama import Llama, llama_server, needed
from tests.smollm import CONVERSATIONS, MODEL, TEXTS
from ullage.broker.embedded import ChatTokenizer, tokenizer_of
from ullage.broker.embedded.chunks import error_of
from ullage.tokens import counter_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.enable_socket


@pytest.fixture(scope="module")
def server() -> Iterator[Llama]:
    with llama_server(512) as running:
        yield running


def ours(messages: list[dict[str, Any]]) -> int:
    counter = counter_for(MODEL, ChatTokenizer(tokenizer_of(needed())))
    system = any(message["role"] == "system" for message in messages)
    return counter.request(system=system).tokens + sum(counter.message(each).tokens for each in messages)


def test_a_text_has_the_tokens_that_the_server_gives_it(server: Llama) -> None:
    tokenizer = tokenizer_of(needed())
    for text in TEXTS:
        status, told = server.post("/tokenize", {"content": text, "parse_special": False})
        assert status == 200
        assert tokenizer.encode(text) == told["tokens"], text
        assert tokenizer.count(text) == len(told["tokens"])


@settings(max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_has_the_tokens_that_the_server_gives_it_alone_and_in_a_message(
    server: Llama, text: str
) -> None:
    _, told = server.post("/tokenize", {"content": text, "parse_special": False})
    assert tokenizer_of(needed()).encode(text) == told["tokens"]
    messages = [{"role": "system", "content": text}, {"role": "user", "content": text}]
    _, told = server.post("/v1/chat/completions/input_tokens", {"messages": messages})
    assert ours(messages) == told["input_tokens"]


def test_a_whole_request_has_the_tokens_that_the_server_counts(server: Llama) -> None:
    for messages in CONVERSATIONS:
        status, told = server.post("/v1/chat/completions/input_tokens", {"messages": messages})
        assert status == 200
        assert ours(messages) == told["input_tokens"], messages


def test_a_whole_request_has_the_tokens_that_are_charged_for_it(server: Llama) -> None:
    for messages in CONVERSATIONS[::6]:
        body = {"messages": messages, "max_tokens": 1, "temperature": 0}
        status, told = server.post("/v1/chat/completions", body)
        assert status == 200
        assert ours(messages) == told["usage"]["prompt_tokens"], messages


def test_the_longest_prompt_is_one_below_the_context(server: Llama) -> None:
    def asked(words: int) -> tuple[int, int, Any]:
        messages = [{"role": "system", "content": "S"}, {"role": "user", "content": " a" * words}]
        body = {"messages": messages, "max_tokens": 1, "temperature": 0}
        return ours(messages), *server.post("/v1/chat/completions", body)

    beside = asked(1)[0] - 1
    tokens, status, _ = asked(511 - beside)
    assert (tokens, status) == (511, 200)
    tokens, status, told = asked(512 - beside)
    assert (tokens, status) == (512, 400)
    assert told["error"]["type"] == "exceed_context_size_error"
    assert (told["error"]["n_prompt_tokens"], told["error"]["n_ctx"]) == (512, 512)
    error = error_of(told["error"])
    assert isinstance(error, ullage.ContextOverflowError)
    assert (error.reported, error.limit) == (512, 511)


def test_a_stream_over_the_context_is_refused_the_same(server: Llama) -> None:
    body = {"messages": [{"role": "user", "content": "word " * 600}], "stream": True, "max_tokens": 1}
    status, told = server.post("/v1/chat/completions", body)
    assert status == 400
    assert told["error"]["type"] == "exceed_context_size_error"
