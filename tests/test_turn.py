"""The straight line: what a turn does when all goes well, and what is left when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import aclosing
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage import store
from ullage.broker.events import Finished, Reasoning, Text, ToolCall, Used
from ullage.context import Context
from ullage.cost import Ledger
from ullage.errors import BudgetExceeded, ContextOverflowError, NotSaved, ProviderError, StreamBroken
from ullage.patience import limit_waiting
from ullage.testing import ScriptedProvider
from ullage.turn import AnswerShortened, Client, TurnEvent
from ullage.turn.call import Call, Settled
from ullage.usage import Meter, Usage

if TYPE_CHECKING:
    from pathlib import Path

ANSWER = (Text("Seven "), Text("boats."), Used(Usage(prompt=120, completion=4)), Finished("stop"))


def asked(question: str = "How many boats?", **options: Any) -> Context:
    context = Context(system_prompt="You keep the books.", **options)
    context.append_user(question)
    return context


def played(client: Client, context: Context, **options: Any) -> list[TurnEvent]:
    async def main() -> list[TurnEvent]:
        return [event async for event in client.stream(context, **options)]

    return asyncio.run(main())


def test_an_answer_is_handed_on_appended_settled_and_learned_from() -> None:
    provider = ScriptedProvider([ANSWER])
    client, context = Client(provider, max_output=100), asked()
    *events, settled = played(client, context)
    assert events == list(ANSWER)
    assert context.turns[-1] == {"role": "assistant", "content": "Seven boats."}
    assert isinstance(settled, Settled)
    assert not settled.estimated
    assert settled.usage.prompt == 120
    assert settled.cost == Decimal(120) * Decimal("2.5e-6") + Decimal(4) * Decimal("1e-5")
    assert client.ledger.used() == (settled.cost, 0)
    assert context.total_tokens() == (120, 4)
    assert context.meter.slots["gpt-4o", "main"].estimate == settled.fitted.count.tokens
    assert len(context.requests) == 1
    (ask,) = provider.asked
    assert ask.messages == tuple(settled.fitted.messages)
    assert ask.max_output == 100


MONEYS = st.none() | st.decimals(0, 10, places=15) | st.decimals(0, 10, places=3)
USAGES = st.none() | st.builds(
    Usage,
    prompt=st.integers(0, 10**6),
    completion=st.integers(0, 10**6),
    cached_read=st.integers(0, 10**6),
    cache_write=st.integers(0, 10**6),
    reasoning=st.integers(0, 10**6),
    cost=MONEYS,
)


@dataclass(frozen=True)
class Asked:
    """One turn of the property below."""

    model: str
    category: str
    local: bool
    usage: Usage | None
    broken: bool


ASKED = st.builds(
    Asked,
    model=st.sampled_from(["gpt-4o", "gpt-5", "nobody-knows-this-one"]),
    category=st.sampled_from(["main", "summarize"]),
    local=st.booleans(),
    usage=USAGES,
    broken=st.booleans(),
)


@given(st.lists(ASKED, max_size=6), st.booleans())
@settings(max_examples=60)
def test_the_meter_and_the_ledger_never_differ_by_a_cent(turns: list[Asked], stored: bool) -> None:
    kept = store.open("sqlite://:memory:")
    ledger = Ledger(book=kept.book if stored else None)
    meter = Meter()
    for each in turns:
        told = () if each.usage is None else (Used(each.usage),)
        end = ProviderError("cut off", code="cut") if each.broken else Finished("stop")
        provider = ScriptedProvider([(Text("Seven boats."), *told, end)])
        client = Client(provider, ledger=ledger, name=each.model, max_output=100, local=each.local)
        with contextlib.suppress(StreamBroken, ProviderError):
            played(client, asked(meter=meter), category=each.category)
    booked = {(account.model, account.category): entry for account, entry in ledger.book.entries()}
    assert dict(meter.slots) == booked
    assert (meter.total_cost() or 0) == ledger.used()[0]
    kept.close()


def test_a_call_that_is_booked_later_is_on_the_meter_as_it_is_booked(tmp_path: Path) -> None:
    file = tmp_path / "ullage.db"
    other = sqlite3.connect(file, isolation_level=None)
    with store.open(file) as kept, contextlib.closing(other):
        client = Client(ScriptedProvider([ANSWER]), ledger=Ledger(book=kept.book), max_output=100)
        context = asked()
        call = Call(
            context=context,
            fitted=context.fitted(),
            ledger=client.ledger,
            counts=client.counts,
            name="gpt-4o",
            category="main",
            longest=100,
            local=False,
        )
        for event in ANSWER:
            call.hear(event)
        other.execute("BEGIN IMMEDIATE")
        with limit_waiting(0):
            settled = call.end()
        with pytest.raises(NotSaved):
            call.check_saved()
        other.execute("ROLLBACK")
        ((_, entry),) = kept.book.entries()
    assert context.meter.slots == {("gpt-4o", "main"): entry}
    assert settled.cost == entry.cost == context.total_cost()


def test_calls_are_appended_as_calls() -> None:
    events = (
        Reasoning("hm"),
        Text("Let me look."),
        ToolCall("a", "look", '{"at": 1}'),
        Finished("tool_calls"),
    )
    context = asked()
    played(Client(ScriptedProvider([events])), context)
    assert context.waiting == ("a",)
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    assert context.turns[-1] == {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}


def test_usage_that_nobody_told_is_estimated_and_says_so() -> None:
    context = asked()
    settled = played(Client(ScriptedProvider([(Text("Seven boats."), Finished("stop"))])), context)[-1]
    assert isinstance(settled, Settled)
    assert settled.estimated
    assert settled.usage == Usage(prompt=settled.fitted.count.tokens, completion=3)


def test_a_cap_is_refused_before_anything_is_sent() -> None:
    provider, context = ScriptedProvider([ANSWER]), asked()
    client = Client(provider, ledger=Ledger(cap_at_dollars="0.0001"), max_output=1_000)
    with pytest.raises(BudgetExceeded):
        played(client, context)
    assert provider.asked == []
    assert len(context) == 1
    assert client.ledger.used() == (0, 0)


def test_a_local_model_is_held_to_no_cap_and_costs_nothing_that_is_known() -> None:
    client = Client(ScriptedProvider([ANSWER]), ledger=Ledger(cap_at_dollars=0), local=True)
    context = asked()
    settled = played(client, context)[-1]
    assert isinstance(settled, Settled)
    assert settled.cost is None
    assert context.total_cost() is None


def test_what_the_provider_finds_too_long_is_refitted_once() -> None:
    provider = ScriptedProvider([[ContextOverflowError(900, 600, reported=900)], ANSWER])
    context = Context(token_budget=600, system_prompt="Be brief.", model="gpt-4o")
    for number in range(8):
        context.append_user(f"Question {number}. " + "word " * 20)
        context.append({"role": "assistant", "content": "Answer. " + "more " * 20})
    context.append_user("And now?")
    client = Client(provider, max_output=50)
    played(client, context)
    first, second = provider.asked
    assert len(second.messages) < len(first.messages)
    assert context.turns[-1]["content"] == "Seven boats."
    assert client.ledger.used()[1] == 0


def test_a_provider_that_always_finds_it_too_long_is_not_asked_for_ever() -> None:
    provider = ScriptedProvider([[ContextOverflowError(0, 0)] for _ in range(5)])
    context = long_talk()
    client = Client(provider, max_output=50)
    with pytest.raises(ContextOverflowError):
        played(client, context)
    assert len(provider.asked) == 2
    assert client.ledger.used() == (0, 0)
    assert context.limit == 2_000  # nobody said that the window is smaller


@pytest.mark.parametrize("error", [(0, 0, None), (900, 700, None), (9_000, 700, 9_000)])
def test_the_second_try_is_smaller_whatever_the_refusal_says(error: tuple[int, int, int | None]) -> None:
    tokens, limit, told = error
    provider = ScriptedProvider([[ContextOverflowError(tokens, limit, reported=told)], ANSWER])
    context = long_talk()
    played(Client(provider, max_output=50), context)
    first, second = (sum(len(each["content"]) for each in ask.messages) for ask in provider.asked)
    assert second < first
    assert context.limit == (650 if limit else 2_000)


def long_talk() -> Context:
    context = Context(token_budget=2_000, system_prompt="Be brief.", model="gpt-4o")
    for number in range(15):
        context.append_user(f"Question {number}. " + "word " * 20)
        context.append({"role": "assistant", "content": "Answer. " + "more " * 20})
    context.append_user("And now?")
    return context


def test_a_broken_stream_keeps_what_arrived_and_is_paid_for() -> None:
    broken = StreamBroken("the connection was cut")
    script = [(Text("Seven bo"), ToolCall("a", "look", "{}"), broken)]
    client, context = Client(ScriptedProvider(script), max_output=50), asked()
    with pytest.raises(StreamBroken):
        played(client, context)
    assert context.turns[-1] == {"role": "assistant", "content": "Seven bo"}
    spent, held = client.ledger.used()
    assert spent > 0
    assert held == 0


def test_what_was_refused_costs_nothing_and_the_question_stays() -> None:
    client = Client(ScriptedProvider([[ProviderError("no", status=401)]]), max_output=50)
    context = asked()
    with pytest.raises(ProviderError):
        played(client, context)
    assert client.ledger.used() == (0, 0)
    assert len(context) == 1
    context.append_user("Hello?")
    assert len(context.to_messages()) == 2


@pytest.mark.parametrize("events", [0, 1, 2])
def test_who_stops_listening_still_pays_and_keeps_what_came(events: int) -> None:
    client, context = Client(ScriptedProvider([ANSWER]), max_output=50), asked()

    async def main() -> None:
        async with aclosing(client.stream(context)) as stream:  # type: ignore[type-var]
            for _ in range(events):
                await anext(stream)

    asyncio.run(main())
    spent, held = client.ledger.used()
    assert held == 0
    assert (spent > 0) == (events > 0)
    assert len(context) == 1 + (events > 0)


def test_a_turn_that_is_cancelled_is_settled() -> None:
    class Endless(ScriptedProvider):
        async def stream(self, ask: Any) -> Any:
            self.asked.append(ask)
            yield Text("Seven ")
            await asyncio.sleep(60)

    client, context = Client(Endless([]), max_output=50), asked()

    async def main() -> None:
        heard = asyncio.Event()

        async def listen() -> None:
            async for _ in client.stream(context):
                heard.set()

        task = asyncio.create_task(listen())
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert context.turns[-1]["content"] == "Seven "
    assert client.ledger.used()[1] == 0
    assert client.ledger.used()[0] > 0


@pytest.mark.parametrize("prompt", [0, -5, 10**15])
def test_wrong_usage_teaches_nothing(prompt: int) -> None:
    script = [(Text("Seven."), Used(Usage(prompt=prompt, completion=1)), Finished("stop"))] * 30
    client, context = Client(ScriptedProvider(script), local=True), asked()
    for _ in range(30):
        played(client, context)
        context.append_user("And now?")
    assert (
        context.fitted().count
        == Context.resume(context.session, context.journal, system_prompt="You keep the books.")
        .fitted()
        .count
    )


def test_warnings_come_with_the_end_of_the_turn() -> None:
    context = asked(meter=Meter(warn_at_tokens=100))
    settled = played(Client(ScriptedProvider([ANSWER])), context)[-1]
    assert isinstance(settled, Settled)
    assert [warning.kind for warning in settled.warnings] == ["tokens"]


def test_the_server_counts_only_where_that_is_switched_on() -> None:
    context = asked()
    provider = ScriptedProvider([])
    ours = asyncio.run(Client(provider).count(context))
    theirs = asyncio.run(Client(provider, use_endpoint=True).count(context))
    assert ours == context.fitted().count
    assert (theirs.tokens, theirs.ceiling, theirs.exact) == (2, 2, True)


# Caps and the length of an answer ---------------------------------------------------------------------------


def test_a_cap_shortens_the_answer_that_is_asked_for_and_refuses_only_what_cannot_fit() -> None:
    """gpt-4o's answers cost 10 dollars a million tokens: 4,000 tokens are 4 cents, and the cap has 1 cent."""
    provider, context = ScriptedProvider([ANSWER]), asked(model="gpt-4o")
    client = Client(provider, name="gpt-4o", ledger=Ledger(cap_at_dollars="0.01"), max_output=4_000)
    first, *_, settled = played(client, context)
    assert isinstance(first, AnswerShortened)
    assert isinstance(settled, Settled)
    assert 128 <= first.tokens < 1_000
    assert provider.asked[0].max_output == first.tokens
    prompt = settled.fitted.count.ceiling
    assert Decimal("0.0000025") * prompt + Decimal("0.00001") * first.tokens <= Decimal("0.01")
    assert Decimal("0.0000025") * prompt + Decimal("0.00001") * (first.tokens + 1) > Decimal("0.01")
    assert client.ledger.used() == (settled.cost, 0)


def test_no_answer_is_asked_for_that_would_be_shorter_than_a_useful_one() -> None:
    provider, context = ScriptedProvider([ANSWER]), asked(model="gpt-4o")
    client = Client(provider, name="gpt-4o", ledger=Ledger(cap_at_dollars="0.001"), max_output=4_000)
    with pytest.raises(BudgetExceeded, match="even with an answer of 128 tokens") as refused:
        played(client, context)
    assert refused.value.shortest == 128
    assert provider.asked == []
    assert client.ledger.used() == (0, 0)


def test_a_caller_that_leaves_before_the_request_is_sent_pays_nothing() -> None:
    provider, context = ScriptedProvider([ANSWER]), asked(model="gpt-4o")
    client = Client(provider, name="gpt-4o", ledger=Ledger(cap_at_dollars="0.01"), max_output=4_000)

    async def leave() -> None:
        stream = client.stream(context)
        assert isinstance(await anext(stream), AnswerShortened)
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(leave())
    assert provider.asked == []
    assert client.ledger.used() == (0, 0)


def test_a_turn_may_ask_for_a_shorter_answer_than_the_client() -> None:
    provider = ScriptedProvider([ANSWER, ANSWER])
    client = Client(provider, max_output=4_000)
    played(client, asked(), max_output=300)
    played(client, asked(), max_output=9_000)
    assert [each.max_output for each in provider.asked] == [300, 4_000]
