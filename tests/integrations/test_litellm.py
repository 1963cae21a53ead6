"""LiteLLM runs a long tool loop in a small window; the messages of the caller stay as they are."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.strict_server import CHAT_TOOL, SYSTEM, TASK, read_page, strict_server
from ullage import ConfigurationError, ContextOverflowError

pytest.importorskip("litellm")

import litellm

from ullage.integrations.litellm import FitHook, trim_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.strict_server import StrictServer


@pytest.fixture(autouse=True)
def _no_callbacks() -> Iterator[None]:
    yield
    litellm.callbacks = []


async def converse(ask: Callable[..., Any], **options: Any) -> list[Any]:
    """A tool loop as a program writes it; its messages at the end."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    while True:
        answer = await ask(messages=messages, tools=[CHAT_TOOL], **options)
        made = answer.choices[0].message
        messages.append(made)
        if not made.tool_calls:
            return messages
        for call in made.tool_calls:
            text = read_page(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


def plain_loop(server: StrictServer, glued: bool) -> Any:
    litellm.callbacks = [FitHook(limit=LIMIT, reserve=RESERVE)] if glued else []
    options = {"model": "openai/gpt-4o", "api_base": f"{server.url}/v1", "api_key": "none", "num_retries": 0}
    return asyncio.run(converse(litellm.acompletion, **options))


def routed_loop(server: StrictServer, glued: bool) -> Any:
    litellm.callbacks = [FitHook(limit=LIMIT, reserve=RESERVE)] if glued else []
    settings = {"model": "openai/gpt-4o", "api_base": f"{server.url}/v1", "api_key": "none"}
    router = litellm.Router(model_list=[{"model_name": "harbour", "litellm_params": settings}], num_retries=0)
    return asyncio.run(converse(router.acompletion, model="harbour"))


@pytest.mark.parametrize("run", [plain_loop, routed_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def test_a_request_that_cannot_fit_is_not_sent() -> None:
    litellm.callbacks = [FitHook(limit=500)]
    with strict_server(steps=1) as server:
        options = {"model": "openai/gpt-4o", "api_base": f"{server.url}/v1", "api_key": "none"}
        talk = [{"role": "user", "content": "word " * 900}]
        with pytest.raises(Exception, match="Cannot fit request") as caught:
            asyncio.run(litellm.acompletion(messages=talk, num_retries=0, **options))
    assert isinstance(caught.value, ContextOverflowError) or "ContextOverflow" in repr(caught.value)
    assert server.bodies == []


def test_trimmed_messages_are_the_given_objects_and_the_rest_is_told() -> None:
    talk: list[Any] = [{"role": "system", "content": SYSTEM}]
    for day in range(60):
        talk += [{"role": "user", "content": f"Day {day}. " * 30}, {"role": "assistant", "content": "Noted."}]
    talk.append({"role": "user", "content": "How many days?"})
    before = copy.deepcopy(talk)
    kept, left = trim_messages(talk, "gpt-4o", max_tokens=1_000, return_response_tokens=True)
    assert talk == before
    assert kept[-1] is talk[-1]
    assert len(kept) < len(talk)
    assert 0 <= left < 1_000
    assert trim_messages(talk, "gpt-4o") is talk


def test_without_max_tokens_the_limit_is_a_share_of_the_largest_input_and_not_of_the_answer() -> None:
    talk = [{"role": "user", "content": "word " * 40_000}]
    kept, left = trim_messages(talk, "gpt-4o", return_response_tokens=True)
    assert kept is talk
    assert 50_000 < left < 96_000 - 40_000
    assert trim_messages(talk, "openai/gpt-4o") is talk  # a name that only our table has
    with pytest.raises(ContextOverflowError, match="12800 allowed"):
        trim_messages(talk, "gpt-4o", trim_ratio=0.1)
    with pytest.raises(ConfigurationError, match="max_tokens"):
        trim_messages(talk, "harbour-model")
    with pytest.raises(ConfigurationError, match="max_tokens"):
        trim_messages(talk)


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    names = run_page("litellm")
    assert len(page_server.bodies[-1]["messages"]) < len(names["talk"])
