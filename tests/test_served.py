"""A long session with a real llama.cpp server: it never finds a request too long; without us it does."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.llama import Llama, llama_server, needed
from tests.smollm import MODEL
from ullage.broker.ask import Ask
from ullage.broker.embedded import ChatTokenizer, tokenizer_of
from ullage.broker.endpoint import Endpoint
from ullage.broker.remote import RemoteProvider
from ullage.context import Context
from ullage.errors import ContextOverflowError
from ullage.turn import Client, Settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from ullage.broker.events import Event
    from ullage.messages import Message

# The time goes into 25 answers of a real model, so it grows with the load of the machine.
pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(3_600)]

WINDOW, OUTPUT, TURNS = 512, 16, 25
QUESTION = 60
"""No question has more tokens, its framing included."""
OPTIONS = {"temperature": 0, "cache_prompt": True}
BOATS = ("Heron", "Marten", "Alba", "Petrel", "Old Joan", "Kestrel", "Sorrel")
GOODS = ("salted cod", "slate", "lamp oil", "barley", "oak staves")


class Telling(RemoteProvider):
    """Tells how many requests there were, so that one that was refused and sent again is seen."""

    def __init__(self, server: Llama) -> None:
        super().__init__(Endpoint(url=f"{server.url}/v1", model=MODEL, local=True))
        self.requests = 0

    async def stream(self, ask: Ask) -> AsyncGenerator[Event, None]:
        self.requests += 1
        async with aclosing(super().stream(ask)) as events:
            async for event in events:
                yield event


class Session(NamedTuple):
    turns: list[Settled]
    requests: int
    context: Context


def question(number: int) -> str:
    boat, goods = BOATS[number % len(BOATS)], GOODS[number % len(GOODS)]
    return (
        f"The {boat} came in at {6 + number % 12}:{10 + number} with {7 * number + 3} crates of {goods}. "
        f"Which berth should she have, and who signs?"
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Llama]:
    with llama_server(WINDOW) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: Llama) -> Session:
    """The session, played once."""
    context = Context(
        model=MODEL,
        system_prompt="You keep the log of a small harbour. Answer briefly.",
        window=WINDOW,
        reserved_output=OUTPUT,
        tokenizer=ChatTokenizer(tokenizer_of(needed())),
    )

    async def main() -> Session:
        provider = Telling(server)
        client = Client(provider, max_output=OUTPUT, local=True, options=OPTIONS)
        turns = []
        try:
            for number in range(TURNS):
                context.append_user(question(number))
                turns += [event async for event in client.stream(context) if isinstance(event, Settled)]
        finally:
            await provider.close()
        return Session(turns, provider.requests, context)

    return asyncio.run(main())


def test_25_turns_in_a_window_of_512_are_never_too_long_for_the_server(session: Session) -> None:
    assert len(session.turns) == session.requests == TURNS
    assert len(session.context) == 2 * TURNS
    assert all(turn.usage.prompt + OUTPUT <= WINDOW for turn in session.turns)


def test_they_fit_because_they_are_trimmed_again_and_again(session: Session) -> None:
    trims = sum(bool(turn.fitted.record.pending) for turn in session.turns)
    assert 3 <= trims < TURNS / 2
    last = session.turns[-1].fitted
    assert last.dropped > TURNS
    assert last.tokens_before > 2 * WINDOW


def test_the_server_charges_what_was_counted_before_it_was_asked(session: Session) -> None:
    assert all(not turn.estimated and turn.fitted.count.exact for turn in session.turns)
    charged = [turn.usage.prompt for turn in session.turns]
    assert charged == [turn.fitted.count.tokens for turn in session.turns]


def test_between_two_trims_the_server_has_the_request_before_in_its_cache(session: Session) -> None:
    trimmed = [bool(turn.fitted.record.pending) for turn in session.turns]
    assert any(turn.fitted.recalled for turn in session.turns)
    for before, turn, trim in zip(session.turns, session.turns[1:], trimmed[1:], strict=False):
        # Recalled passages stand in front of their question and go with the next, so both are read anew.
        anew = before.fitted.count.breakdown["recalled"] + QUESTION if before.fitted.recalled else 0
        assert trim or turn.usage.cached_read >= before.usage.prompt - anew


async def refusals(provider: Telling, requests: list[list[Message]]) -> list[int | None]:
    """For each request the tokens that the server refused it for; None where it answered."""
    found: list[int | None] = []
    for messages in requests:
        ask = Ask(messages=tuple(messages), max_output=1, options=OPTIONS)
        try:
            async with aclosing(provider.stream(ask)) as events:
                assert [event async for event in events]
        except ContextOverflowError as error:
            found.append(error.reported)
        else:
            found.append(None)
    await provider.close()
    return found


def test_the_same_session_without_trimming_is_too_long_for_the_server(
    server: Llama, session: Session
) -> None:
    history = session.context.history()
    requests = [history[: 2 * number] for number in range(1, TURNS + 1)]
    counts = [session.context.bounds.count(messages).tokens for messages in requests]
    refused = asyncio.run(refusals(Telling(server), requests))
    assert refused == [count if count >= WINDOW else None for count in counts]
    assert refused.count(None) < TURNS / 2
