"""Junk in every public function: each takes it or refuses it with an error of ours."""

from __future__ import annotations

import json
import types
from collections import UserDict
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ullage
from ullage import wire
from ullage.context.options import ContextOptions
from ullage.errors import UllageError
from ullage.usage import read_usage


class Dumped:
    """As an SDK's object: it holds values, and gives them as a dict."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def model_dump(self) -> Any:
        return self.value


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.decimals(allow_nan=True),
    st.sampled_from([object(), object, Dumped, len, ..., 1j, "\ud800", "gpt-4o", "1500", float("nan")]),
)
KEYS = st.sampled_from(
    [
        *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"),
        *("reasoning_content", "thinking_blocks", "type", "text", "function", "custom", "input", "id"),
        *("arguments", "parameters", "properties", "enum", "items", "required", "description", "image_url"),
        *("url", "detail", "file", "file_data", "input_audio", "data", "format", "source", "parts", "item"),
        *("messages", "model", "system", "tools", "usage", "prompt_tokens", "input_tokens", "thinking"),
        *("transcript", "video_url", "anyOf", "$ref", "default", "input", "instructions", "contents"),
    ]
)
WORDS = st.sampled_from(
    [
        *("user", "assistant", "system", "tool", "function", "model", "text", "image_url", "file", "custom"),
        *("input_audio", "video_url", "thinking", "refusal", "tool_use", "input_text", "object", "array"),
        *("data:application/pdf;base64,JVBERi0=", "data:audio/wav;base64,UklGRg==", "f", "call", "reasoning"),
    ]
)
JUNK = st.recursive(
    LEAVES | WORDS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS | WORDS, inner, max_size=5),
        st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=2),
        st.tuples(inner),
        inner.map(Dumped),
        st.dictionaries(KEYS, inner, max_size=3).map(UserDict),
        st.dictionaries(KEYS, inner, max_size=3).map(types.MappingProxyType),
        st.lists(inner, max_size=2).map(iter),
    ),
    max_leaves=12,
)


def nearly(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Dicts with these fields, some missing, some junk."""
    return st.fixed_dictionaries({}, optional={name: JUNK | value for name, value in fields.items()})


FUNCTIONS = nearly(name=st.just("f"), arguments=st.just("{}"), parameters=JUNK, description=st.just("x"))
PARTS = nearly(
    type=WORDS,
    text=st.text(max_size=5),
    image_url=JUNK,
    file=nearly(file_data=WORDS, filename=st.just("a.pdf")),
    input_audio=nearly(data=WORDS, format=st.just("wav")),
    thinking=JUNK,
)
CALLS = nearly(id=st.just("a"), type=WORDS, function=FUNCTIONS, custom=nearly(name=st.just("g"), input=JUNK))
MESSAGES = nearly(
    role=st.sampled_from(["user", "assistant", "system", "tool", "function", "developer"]),
    content=st.text(max_size=5) | st.lists(PARTS | JUNK, max_size=2),
    name=st.just("f"),
    tool_calls=st.lists(CALLS, max_size=2),
    tool_call_id=st.just("a"),
    function_call=FUNCTIONS,
    refusal=st.text(max_size=5),
    audio=nearly(id=st.just("audio_1"), transcript=st.just("hello")),
    reasoning_content=st.text(max_size=5),
    thinking_blocks=st.lists(PARTS, max_size=2),
)
LISTS = JUNK | st.lists(MESSAGES | JUNK, max_size=3)
TOOLS = JUNK | st.lists(nearly(type=WORDS, function=FUNCTIONS, name=st.just("f")) | JUNK, max_size=2)
BODIES = JUNK | nearly(
    model=st.just("gpt-4o"),
    messages=LISTS,
    input=LISTS,
    contents=LISTS,
    system=JUNK,
    instructions=JUNK,
    tools=TOOLS,
    text=JUNK,
    response_format=JUNK,
    tool_choice=JUNK,
)
USAGES = JUNK | nearly(prompt_tokens=st.integers(), input_tokens=st.integers(), cost=st.decimals())


def tries(function: Any, *arguments: Any, **options: Any) -> Any:
    """What comes out; errors of ours are as good as an answer."""
    with suppress(UllageError):
        return function(*arguments, **options)
    return None


def few(function: Any) -> Any:
    return settings(max_examples=150)(function)


@few
@given(LISTS, JUNK, TOOLS)
def test_counting(messages: Any, model: Any, tools: Any) -> None:
    tries(ullage.count, messages, "gpt-4o")
    tries(ullage.count, [], "gpt-4o", tools)
    tries(ullage.count, [], model)
    tries(ullage.count, messages, model, tools)
    tries(ullage.get_tokenizer, model)
    tries(ullage.model_info, model)


@few
@given(LISTS, TOOLS, JUNK, JUNK, JUNK)
def test_fitting(messages: Any, tools: Any, limit: Any, reserve: Any, policy: Any) -> None:
    tries(ullage.fit, messages, "gpt-4o", limit=1_000)
    tries(ullage.fit, messages, "claude-sonnet-4-5", tools, limit=60)
    tries(ullage.fit, [], "gpt-4o", None, limit, reserve)
    tries(ullage.fit, [], "gpt-4o", policy=policy)
    tries(ullage.check_budget, messages, policy)
    tries(ullage.check_budget, messages, ullage.Budget(100), "gpt-4o", tools)


@few
@given(MESSAGES | JUNK, JUNK, JUNK)
def test_windows_and_contexts(message: Any, pin: Any, text: Any) -> None:
    window = ullage.Window(model="gpt-4o", limit=1_000)
    tries(window.append, message, pin=pin)
    tries(window.append, message, priority=pin)
    tries(window.fitted)
    assert repr(window)
    context = ullage.Context(model="gpt-4o")
    tries(context.append, message, pin=pin)
    tries(context.append_user, text)
    tries(context.append_exec_output, text)
    tries(context.remember, text, pin)
    tries(context.append_user, "And now?", priority=pin)
    tries(context.to_messages)
    tries(context.to_messages, system_prompt_override=text)
    tries(context.use_tools, text)
    tries(context.use_model, text, window=pin)
    tries(context.compact, text)
    tries(context.lower_limit, text)
    tries(context.set_project, text)
    tries(context.recall, text)
    tries(context.search, text)
    tries(context.count)
    for change in ("goal", "system_prompt"):
        tries(setattr, context, change, text)
    tries(context.to_messages)
    tries(window.compact, text)
    tries(window.renew, message)
    tries(window.pin, text)
    tries(window.sync, [{"role": "user", "content": "x"}, message], text)
    tries(window.sync, text)
    tries(window.fitted)


@few
@given(st.sampled_from(sorted(ContextOptions.__dataclass_fields__)), JUNK)
def test_options_of_a_context_and_of_a_window(name: str, value: Any) -> None:
    if name not in ("journal", "meter", "clock", "summarize"):  # objects of the caller's own
        context = tries(ullage.Context, **{"model": "gpt-4o", name: value})
        if context is not None:
            tries(context.append_user, "Hello")
            tries(context.to_messages)
    if name in ("tools", "policy", "tokenizer", "factor", "model"):
        tries(ullage.Window, **{"model": "gpt-4o", "limit": 100, name: value})


@few
@given(st.sampled_from(sorted(ullage.FitPolicy.__dataclass_fields__)), JUNK)
def test_options_of_a_policy(name: str, value: Any) -> None:
    policy = tries(ullage.FitPolicy, **{name: value})
    if policy is not None:
        history = [{"role": "user", "content": f"{n} " * 30} for n in range(8)]
        tries(ullage.fit, history, "gpt-4o", limit=120, policy=policy)


@few
@given(BODIES, st.sampled_from(wire.APIS), JUNK)
def test_requests(body: Any, api: str, other: Any) -> None:
    tries(ullage.count_request, body, api)
    tries(ullage.count_request, body, api, "gpt-4o")
    tries(ullage.count_request, {"messages": [], "input": []}, api, other)
    tries(ullage.count_request, body, other)
    tries(ullage.fit_request, body, api, limit=100)
    tries(ullage.fit_request, body, api, limit=other, repair=True)
    request = tries(wire.read, body, api)
    if request is not None:
        for target in wire.APIS:
            tries(wire.write, request, target)
        tries(ullage.fit, request.messages, "gpt-4o", request.tools or None, 500)
    tries(wire.write, other, "openai.chat")


@few
@given(USAGES, JUNK, JUNK, JUNK)
def test_usage_budgets_and_the_rest(usage: Any, one: Any, two: Any, three: Any) -> None:
    tries(read_usage, usage)
    tries(read_usage, usage, "anthropic.messages")
    meter = ullage.Meter()
    tries(meter.add_usage, "m", usage)
    tries(meter.add_usage, one, usage, two, cost=three, estimate=one)
    tries(ullage.Meter, warn_at_dollars=one, warn_at_tokens=two)
    tries(ullage.Budget, one, two, three)
    tries(ullage.Budget, 1_000, one)
    tries(ullage.Budget.for_model, one, two)
    tries(ullage.Budget.for_model, "gpt-4o", two)
    tries(ullage.Compress, one, two)
    tries(ullage.register_tokenizer, "junk-family", one)
    tries(ullage.register_tokenizer, one, two)
    tries(ullage.register_model, one)
    tries(ullage.Ledger, session=one, cap_at_dollars=two, project=three)
    tries(ullage.Ledger, project=one, prices=two)
    tries(ullage.Ledger().reserve, one, two, three)
    tries(ullage.Ledger().reserve, "gpt-4o", two, three, category=one)
    tries(ullage.Calibration().factor, one)
    tries(ullage.Target, model=one, api=two, endpoint=three)


def test_the_junk_does_hit_what_it_is_thrown_at() -> None:
    """A message that is nearly one is refused for its flaw, and one without any is taken."""
    assert tries(ullage.count, [{"role": "user", "content": "x"}], "gpt-4o").tokens > 0
    with pytest.raises(UllageError):
        ullage.count([{"role": "user", "content": "x", "name": 5}])
    assert json.dumps(str(Decimal(1)))
