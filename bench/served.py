"""What a real llama.cpp server has to evaluate of 40 turns at a window of 2,048, by how they are made to fit.

    python -m bench.served

The server is the runtime of the embedded model in a process of its own, with one thread, one slot and that
slot's prompt cache, fresh for each row. Every row has the same questions and, in the place of what the model
says, the same answers, so that the histories are identical; the limit is the window less a quarter for the
answer, and all count exactly. `evaluated` is what the server itself tells: the prompt less what it had in
its cache. Dropping the oldest is a plain loop: while the request is over, the oldest question goes, with its
answer. `rewritten` are the requests that do not begin with the whole of the one before; `to oldest` is what
is evaluated beside what dropping the oldest evaluates, and must be at most 0.50 for the default.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ullage
from bench.shared import AbsentError
from ullage.broker.ask import Ask
from ullage.broker.embedded import count_exactly
from ullage.broker.endpoint import Endpoint
from ullage.broker.events import Used
from ullage.broker.remote import RemoteProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ullage.broker.protocol import Provider

MODEL = "smollm2-135m-instruct"
WINDOW = 2_048
LIMIT = WINDOW - WINDOW // 4
TURNS = 40
PROMPT = "You keep the log of a small harbour. Answer briefly, and only from what the log says."

_BOATS = ("Heron", "Marten", "Alba", "Petrel", "Old Joan", "Kestrel", "Sorrel", "Bright Maid")
_GOODS = ("salted cod", "slate", "lamp oil", "barley", "rope", "oak staves", "tin", "wool")
_PEOPLE = ("the pilot", "Mrs Voss", "the cooper", "young Tam", "the customs man", "Anders")
_ASIDES = (
    "The wind has gone round to the north since, and two of the mooring lines are chafed through.",
    "Her papers name another port than the one that her master gave, so they were set aside.",
    "A part of the load is wet; it stands under canvas at the head of the quay until it has been looked at.",
    "The berth beside hers is to stay free, as the dredger is expected before the week is out.",
)


def script(turns: int = TURNS, seed: int = 14) -> Iterator[tuple[str, str]]:
    """Questions and answers of a conversation; most answers are short and some are not."""
    noise = random.Random(seed)
    for number in range(1, turns + 1):
        boat, goods, who = noise.choice(_BOATS), noise.choice(_GOODS), noise.choice(_PEOPLE)
        berth, crates = noise.randint(1, 19), noise.randint(3, 240)
        asides = noise.sample(_ASIDES, noise.choices((0, 1, 2, 4), (70, 15, 5, 10))[0])
        question = f"Entry {number}: the {boat} brought {crates} of {goods}. Which berth?"
        yield question, " ".join([f"Berth {berth}; {who} signs for the {goods}.", *asides])


# The ways to make it fit ------------------------------------------------------------------------------


def fitted(policy: ullage.FitPolicy) -> Iterator[Sequence[Any]]:
    """The requests of a Context under this policy."""
    context = ullage.Context(model=MODEL, window=WINDOW, max_turns=None, system_prompt=PROMPT, policy=policy)
    for question, answer in script():
        context.append_user(question)
        yield context.to_messages()
        context.append({"role": "assistant", "content": answer})


def oldest_dropped() -> Iterator[Sequence[Any]]:
    """The requests of a program that drops the oldest question and its answer until the rest fits."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": PROMPT}]
    for question, answer in script():
        messages.append({"role": "user", "content": question})
        while ullage.count(messages, model=MODEL).tokens > LIMIT:
            del messages[1:3]
        yield list(messages)
        messages.append({"role": "assistant", "content": answer})


WAYS: dict[str, Callable[[], Iterator[Sequence[Any]]]] = {
    "dropping the oldest pair": oldest_dropped,
    "low_water=1.0": lambda: fitted(ullage.FitPolicy(low_water=1.0)),
    "the default policy": lambda: fitted(ullage.FitPolicy()),
}
"""The first is what the others are compared with."""


# What the server makes of them ------------------------------------------------------------------------


@dataclass(slots=True)
class Served:
    """What a server told of the requests of a conversation."""

    requests: int = 0
    overflows: int = 0
    rewritten: int = 0
    prompt: int = 0
    """Tokens of all prompts."""
    evaluated: int = 0
    """Those of them that were not in the server's cache."""


async def serve(provider: Provider, requests: Iterator[Sequence[Any]]) -> Served:
    """Sends the requests one after the other."""
    served = Served()
    before: Sequence[Any] = ()
    for messages in requests:
        served.requests += 1
        served.rewritten += list(messages[: len(before)]) != list(before)
        before = messages
        ask = Ask(messages=tuple(messages), max_output=1, options={"temperature": 0, "cache_prompt": True})
        try:
            async with aclosing(provider.stream(ask)) as events:  # type: ignore[type-var]
                used = [event.usage async for event in events if isinstance(event, Used)]
        except ullage.ContextOverflowError:
            served.overflows += 1
            continue
        served.prompt += used[-1].prompt
        served.evaluated += used[-1].prompt - used[-1].cached_read
    return served


async def _at(url: str, requests: Iterator[Sequence[Any]]) -> Served:
    provider = RemoteProvider(Endpoint(url=f"{url}/v1", model=MODEL))
    try:
        return await serve(provider, requests)
    finally:
        await provider.close()


def main() -> None:
    """Prints the table."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise AbsentError("the model runtime is not installed: pip install 'ullage[local]'")
    if not count_exactly():
        raise AbsentError("the embedded model's file is not here: ullage model get")
    from tests.llama import llama_server  # noqa: PLC0415 - brings pytest, which no other table needs

    names = ("requests", "overflows", "rewritten", "prompt", "evaluated", "share", "to oldest")
    print(f"{'':<26}{''.join(f'{name:>10}' for name in names)}")
    oldest = 0
    for name, requests in WAYS.items():
        with llama_server(WINDOW) as server:
            row = asyncio.run(_at(server.url, requests()))
        oldest = oldest or row.evaluated
        print(
            f"{name:<26}{row.requests:>10}{row.overflows:>10}{row.rewritten:>10}{row.prompt:>10,}"
            f"{row.evaluated:>10,}{row.evaluated / row.prompt:>10.1%}{row.evaluated / oldest:>10.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
