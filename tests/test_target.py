"""A request is counted by the rule of the API that it goes to, wherever it is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ullage
from ullage import Calibration, Client, ConfigurationError, Context, Target, Usage, Window
from ullage.broker.events import Finished, Text, Used
from ullage.testing import ScriptedProvider
from ullage.tokens import counter_for

MODEL = "gpt-4o-2024-08-06"
CHAT = Target(model=MODEL, api="openai.chat")
RESPONSES = Target(model=MODEL, api="openai.responses")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "When the water is high.",
            "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
        },
    }
]
QUESTION = {"role": "user", "content": "When can the Heron leave Skagen?"}


def test_the_name_without_a_date_has_the_ceiling_of_the_version_that_it_means() -> None:
    short, dated = (Target(model=model, api="openai.responses") for model in ("gpt-4o", MODEL))
    assert ullage.count([QUESTION], short, TOOLS).ceiling == ullage.count([QUESTION], dated, TOOLS).ceiling


def test_a_window_counts_by_the_rule_of_its_api() -> None:
    body = {
        "model": MODEL,
        "input": [{"role": "user", "content": QUESTION["content"]}],
        "tools": [{"type": "function", **TOOLS[0]["function"]}],
    }
    told = ullage.count_request(body, "openai.responses")
    window = Window(model=RESPONSES, limit=8_000, tools=TOOLS)
    window.append(QUESTION)
    assert window.fitted().count.ceiling == told.ceiling
    assert window.fitted().count.ceiling > ullage.count([QUESTION], CHAT, TOOLS).ceiling


def test_a_conversation_counts_by_the_rule_of_its_api_and_follows_the_model() -> None:
    context = Context(model=CHAT, tools=TOOLS, system_prompt="")
    context.append_user(QUESTION["content"])
    by_chat = context.fitted().count
    context.use_model(RESPONSES)
    assert context.fitted().count.ceiling > by_chat.ceiling
    context.use_model(CHAT)
    assert context.fitted().count == by_chat


def test_each_api_of_a_model_learns_apart() -> None:
    calibration = Calibration()

    async def ask(target: Target) -> None:
        answer = [Text("Noon."), Used(Usage(prompt=90_000, completion=2)), Finished("stop")]
        context = Context(model=target, system_prompt="", token_budget=None)
        context.append_user("word " * 60_000)
        async for _ in Client(ScriptedProvider([answer], target=target), calibration=calibration).stream(
            context
        ):
            pass

    asyncio.run(ask(RESPONSES))
    assert calibration.factor(RESPONSES).ceiling(60_000) >= 90_000 * 0.99
    assert calibration.factor(CHAT).ceiling(60_000) == 60_000


def test_a_window_needs_a_model_or_a_limit() -> None:
    with pytest.raises(ConfigurationError, match="give limit="):
        Window()


@pytest.mark.parametrize("model", [5, "", ["gpt-4o"], {}])
def test_what_is_no_model_is_told_as_such(model: Any) -> None:
    with pytest.raises(ConfigurationError, match="model's name or a Target, not "):
        counter_for(model)


def test_a_message_that_changes_after_it_was_appended_is_sent_as_it_was_counted() -> None:
    window = Window(model="gpt-4o", limit=1_000)
    plain = {"role": "user", "content": "short"}
    parts: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "short"}]}
    window.append(plain)
    window.append(parts)
    window.append({"role": "user", "content": "and now?"})
    before = window.fitted()
    plain["content"] = parts["content"][0]["text"] = "long " * 5_000
    after = window.fitted()
    assert after.count == before.count == ullage.count(after.messages, "gpt-4o")


@pytest.mark.parametrize("name", ["limit", "tools", "target", "policy"])
def test_what_a_window_was_made_with_cannot_be_changed_behind_its_back(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Window(model="gpt-4o"), name, None)
