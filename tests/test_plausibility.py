"""Usage that cannot be true is replaced by our own count, figure by figure, and marked."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from tests.player import Script, playing
from ullage import store
from ullage.broker.endpoint import Endpoint
from ullage.broker.events import Finished, Reasoning, Text, Used
from ullage.broker.remote import RemoteProvider
from ullage.context import Context
from ullage.cost import Ledger
from ullage.cost.report import as_table, report
from ullage.errors import BudgetExceeded
from ullage.testing import ScriptedProvider
from ullage.turn import Client, Settled
from ullage.turn.counts import OwnCount, believable
from ullage.usage import Usage, detail

OWN = OwnCount(prompt=1_000, ceiling=1_100, completion=300, max_output=500)


@pytest.mark.parametrize(
    ("told", "usage", "estimated"),
    [
        (None, Usage(prompt=1_000, completion=300), ("prompt", "completion")),
        (Usage(), Usage(prompt=1_000, completion=300), ("prompt", "completion")),
        (Usage(prompt=1_200, completion=310), Usage(prompt=1_200, completion=310), ()),
        (Usage(prompt=0, completion=310), Usage(prompt=1_000, completion=310), ("prompt",)),
        (Usage(prompt=49, completion=310), Usage(prompt=1_000, completion=310), ("prompt",)),
        (Usage(prompt=3_300, completion=310), Usage(prompt=3_300, completion=310), ()),  # a finer tokenizer
        (Usage(prompt=24_400, completion=310), Usage(prompt=24_400, completion=310), ()),
        (Usage(prompt=24_401, completion=310), Usage(prompt=1_000, completion=310), ("prompt",)),
        (Usage(prompt=10**12, completion=310), Usage(prompt=1_000, completion=310), ("prompt",)),
        (Usage(prompt=-5, completion=310), Usage(prompt=1_000, completion=310), ("prompt",)),
        (Usage(prompt=1_200, completion=0), Usage(prompt=1_200, completion=300), ("completion",)),
        (Usage(prompt=1_200, completion=14), Usage(prompt=1_200, completion=300), ("completion",)),
        (Usage(prompt=1_200, completion=2_000), Usage(prompt=1_200, completion=2_000), ()),
        (Usage(prompt=1_200, completion=2_001), Usage(prompt=1_200, completion=300), ("completion",)),
        (
            Usage(prompt=10**8, completion=310, cached_read=10**8, reasoning=100, cost=Decimal(0)),
            Usage(prompt=1_000, completion=310, reasoning=100),
            ("prompt",),
        ),
    ],
)
def test_our_own_count_stands_in_for_each_figure_that_cannot_be_true(
    told: Usage | None, usage: Usage, estimated: tuple[str, ...]
) -> None:
    assert believable(told, OWN) == (usage, estimated)


def test_an_answer_without_a_text_may_have_no_tokens() -> None:
    own = OwnCount(prompt=10, ceiling=12, completion=0, max_output=None)
    told = Usage(prompt=11, completion=0)
    assert believable(told, own) == (told, ())
    thought = Usage(prompt=11, completion=90_000)  # what the model thinks is not always shown
    assert believable(thought, own) == (thought, ())


WRONG = [
    Usage(),
    Usage(prompt=10**12, completion=0),
    Usage(prompt=0, completion=10**12),
    Usage(cost=Decimal(0)),
]


def asked() -> Context:
    context = Context(model="gpt-4o", system_prompt="You keep the books.")
    context.append_user("How many boats?")
    return context


def played(client: Client, context: Context) -> Settled:
    async def main() -> list[Any]:
        return [event async for event in client.stream(context)]

    settled = asyncio.run(main())[-1]
    assert isinstance(settled, Settled)
    return settled


@pytest.mark.parametrize("wrong", WRONG)
def test_a_cap_binds_whatever_the_provider_tells(wrong: Usage) -> None:
    script = [(Text("Seven boats. " * 20), Used(wrong), Finished("stop"))] * 100
    client = Client(ScriptedProvider(script), ledger=Ledger(cap_at_dollars="0.02"), max_output=200)
    context = asked()
    settled = played(client, context)
    assert settled.estimated == ("prompt", "completion")
    assert settled.estimated
    assert settled.usage.prompt == settled.fitted.count.tokens
    assert settled.usage.completion > 50

    def go_on() -> None:
        for _ in range(99):
            context.append_user("And now?")
            played(client, context)

    with pytest.raises(BudgetExceeded):
        go_on()


def test_figures_that_cannot_be_true_teach_nothing() -> None:
    script = [(Text("Seven."), Used(Usage(prompt=90_000, completion=1)), Finished("stop"))] * 30
    client, context = Client(ScriptedProvider(script), max_output=100), asked()
    before = context.fitted().count
    for _ in range(30):
        assert played(client, context).estimated == ("prompt",)
        context.append_user("And now?")
    fresh = Context.resume(
        context.session, context.journal, model="gpt-4o", system_prompt="You keep the books."
    )
    assert context.fitted().count == fresh.fitted().count
    assert before.tokens < fresh.fitted().count.tokens


def test_what_the_model_thinks_is_counted_when_nobody_tells_it() -> None:
    events = (Reasoning("Let me count the boats in the harbour. " * 10), Text("Seven."), Finished("stop"))
    settled = played(Client(ScriptedProvider([events]), max_output=100), asked())
    assert settled.usage.completion > 50


def test_estimates_are_marked_in_the_meter_and_in_the_report() -> None:
    script = [
        (Text("Seven."), Used(Usage(prompt=25, completion=3)), Finished("stop")),
        (Text("Seven."), Used(Usage()), Finished("stop")),
    ]
    with store.open(":memory:") as kept:
        ledger, context = Ledger(book=kept.book), asked()
        client = Client(ScriptedProvider(script), ledger=ledger, max_output=100)
        played(client, context)
        assert "estimated" not in detail(context.meter)[0].text
        assert "estimated" not in as_table(report(kept.book.entries()))
        context.append_user("And now?")
        played(client, context)
        assert "2 calls (1 estimated)" in detail(context.meter)[0].text
        table = as_table(report(kept.book.entries()))
        ((_, entry),) = kept.book.entries()
    assert entry.estimated_calls == 1
    heads, first, *_ = table.splitlines()
    assert "estimated calls" in heads
    assert first.split()[2:4] == ["2", "1"]


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    "usage",
    [
        b"null",
        b'{"prompt_tokens": null, "completion_tokens": null}',
        b'{"prompt_tokens": 0, "completion_tokens": 0}',
        b'{"prompt_tokens": 1000000000000, "completion_tokens": -1}',
        b'{"prompt_tokens": "many", "completion_tokens": 1e300}',
    ],
)
def test_usage_as_it_comes_over_the_wire_is_mended(usage: bytes) -> None:
    body = b'data: {"choices": [{"delta": {"content": "Seven."}, "finish_reason": "stop"}]}\n\n'
    body += b'data: {"choices": [], "usage": ' + usage + b"}\n\ndata: [DONE]\n\n"
    with playing(Script(body=body)) as player:
        client = Client(RemoteProvider(Endpoint(url=player.url, model="gpt-4o")), max_output=100)
        settled = played(client, asked())
    assert settled.estimated == ("prompt", "completion")
    assert settled.cost is not None
    assert settled.cost > 0
