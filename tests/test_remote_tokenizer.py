"""A remote tokenizer is handed every text that a conversation counts, before it is counted, and each once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ullage import Compress, Context, Target
from ullage.tokens import RemoteTokenizer, counter_for, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable


class Strict:
    """Counts only texts that it has learned; anything else is an error."""

    name = "strict"

    def __init__(self) -> None:
        self.learned: dict[str, int] = {}
        self.handed: list[str] = []

    def count(self, text: str) -> int:
        return self.learned[text] if text else 0

    async def learn(self, texts: Iterable[str]) -> bool:
        for text in texts:
            if text not in self.learned:
                self.handed.append(text)
                self.learned[text] = len(text)
        return False


class Estimating(Strict):
    """Estimates every other text at one token, and says if it had done so."""

    def __init__(self) -> None:
        super().__init__()
        self.estimated: set[str] = set()

    def count(self, text: str) -> int:
        if not text or text in self.learned:
            return super().count(text)
        self.estimated.add(text)
        return 1

    async def learn(self, texts: Iterable[str]) -> bool:
        texts = list(texts)
        await super().learn(texts)
        return bool(self.estimated.intersection(texts))


TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "When the water is high.",
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string"}, "day": {"type": "integer"}},
        },
    },
}
TARGETS = [
    Target(model=model, api=api)
    for model, api in (
        ("gpt-4o", "openai.chat"),
        ("gpt-4o", "openai.responses"),
        ("gpt-5", "openai.chat"),
        ("claude-sonnet-4-5", "anthropic.messages"),
        ("qwen2.5-7b", "openai.chat"),
        ("mistral-small", "openai.chat"),
        ("gemma-3-4b", None),
        (None, None),
    )
]


def calls(*numbers: int) -> list[dict[str, Any]]:
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": "tide", "arguments": f'{{"day": {n}}}'}}
        for n in numbers
    ]
    asking = {"role": "assistant", "content": "I look.", "tool_calls": made}
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f'{{"high": "{n}:30"}}'} for n in numbers]
    return [asking, *results]


def conversation(tokenizer: Strict, target: Target = TARGETS[0]) -> Context:
    return Context(model=target, tokenizer=tokenizer, tools=[TOOL], token_budget=100_000, window=100_000)


def talk(context: Context) -> None:
    context.remember("answer in metric units", "preference")
    context.set_project("harbour/\n  tides.csv")
    context.append_user([{"type": "text", "text": "When is it"}, {"type": "text", "text": "high in Skagen?"}])
    for message in (*calls(1), *calls(2, 3)):
        context.append(message)
    context.append({"role": "assistant", "content": "At noon.", "name": "pilot"})
    context.append_user("And tomorrow?")


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_all_texts_are_handed_over_before_they_are_counted(target: Target) -> None:
    tokenizer = Strict()
    assert isinstance(tokenizer, RemoteTokenizer)
    context = conversation(tokenizer, target)
    talk(context)
    with pytest.raises(KeyError):
        context.count()

    async def main() -> None:
        await context.prepare()
        assert context.fitted().count.tokens == context.count().tokens > 100
        context.append_user("Or the day after?")  # it joins the question that is still open
        await context.prepare()
        for message in calls(4, 5, 6):
            context.append(message)
            await context.prepare()
            context.count()

    asyncio.run(main())
    assert len(tokenizer.handed) == len(set(tokenizer.handed))


def test_the_short_form_for_a_small_model_is_handed_over_too() -> None:
    tokenizer, compress = Strict(), Compress(keep_turns=3, max_turn_chars=5)
    context = conversation(tokenizer)
    talk(context)
    asyncio.run(context.learn(tokenizer, compress=compress))
    assert context.fitted(compress=compress).messages[-1]["content"] == "rrow?"


def test_only_what_is_new_is_looked_at() -> None:
    class Listing(Strict):
        given: list[str]

        async def learn(self, texts: Iterable[str]) -> bool:
            self.given = list(texts)
            return await super().learn(self.given)

    tokenizer = Listing()
    context = conversation(tokenizer)

    async def main() -> None:
        for number in range(100):
            context.append_user(f"question {number}")
            await context.prepare()
            context.append({"role": "assistant", "content": f"answer {number}"})
        assert tokenizer.given == ["question 99", "answer 98", "question 98"][: len(tokenizer.given)]
        tokenizer.given = []
        await context.prepare()
        assert tokenizer.given == ["answer 99", "question 99"]
        tokenizer.given = []
        await context.prepare()
        assert tokenizer.given == []  # nothing is new

    asyncio.run(main())


def test_of_a_long_history_only_what_may_still_be_in_the_window_is_handed_over() -> None:
    tokenizer = Estimating()
    context = Context(model="gpt-4o", tokenizer=tokenizer, token_budget=500, system_prompt="")
    for number in range(1_000):
        context.append_user(f"question {number} " + "x" * 100)
        context.append({"role": "assistant", "content": f"answer {number} " + "y" * 100})
    asyncio.run(context.prepare())
    assert 16 * 500 <= sum(map(len, tokenizer.handed)) < 16 * 500 + 200
    assert tokenizer.handed[0].startswith("answer 999")


def test_what_comes_in_the_place_of_what_was_taken_back_is_handed_over() -> None:
    tokenizer = Strict()
    context = conversation(tokenizer)
    talk(context)

    async def main() -> None:
        await context.prepare()
        context.undo()
        context.undo()
        talk(context)
        context.append({"role": "assistant", "content": "At one."})
        for text in ("first", "second"):
            context.append_user(text)
            context.append({"role": "assistant", "content": f"{text} answer"})
        await context.prepare()
        context.count()

    asyncio.run(main())


def test_sums_with_estimates_in_them_are_made_anew() -> None:
    tokenizer = Estimating()
    context = conversation(tokenizer)
    talk(context)
    before = context.count().tokens
    asyncio.run(context.prepare())
    known = Context.resume(
        context.session, context.journal, tokenizer=tokenizer, tools=[TOOL], model="gpt-4o"
    )
    known.set_project("harbour/\n  tides.csv")
    assert context.count().tokens == known.count().tokens > before


def test_another_model_s_tokenizer_learns_the_whole_conversation() -> None:
    first, second = Strict(), Strict()
    context = conversation(first)
    talk(context)

    async def main() -> None:
        await context.prepare()
        context.use_model("gpt-4o", tokenizer=second, window=100_000)
        await context.prepare()
        context.count()
        context.use_model(TARGETS[0], tokenizer=first, window=100_000)
        handed = len(first.handed)
        await context.prepare()
        context.count()
        assert len(first.handed) == handed

    asyncio.run(main())


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_text_that_a_counter_counts_is_listed_once_and_in_order(target: Target) -> None:
    messages = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "a"}] * 2
    assert texts_of(target, messages) == ["b", "a"]
    asked = set(texts_of(target, calls(1, 2), [TOOL]))
    counted = Strict()
    counted.learned = dict.fromkeys(asked, 1)
    counter = counter_for(target, counted)
    counter.request([TOOL])
    counter.message(calls(1, 2)[0])
