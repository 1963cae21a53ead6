"""Threads share the functions of the library, and an event loop goes on while they work."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ullage
from tests.world import PATIENCE
from ullage.fitting.policy import STRATEGY, FitPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS = 100


def talk(number: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Read the logbook of boat {number}."}]
    for step in range(20):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"boat {number}, page {step}: " + "all is well aboard, as on every day. " * 20
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": text})
    return messages


def test_threads_that_fit_at_once_come_to_the_same_results_as_one() -> None:
    talks = [talk(number) for number in range(16)]
    expected = [ullage.fit(each, "gpt-4o", limit=1_500).messages for each in talks]
    start = threading.Barrier(len(talks))

    def work(messages: list[dict[str, Any]]) -> Any:
        start.wait()
        return ullage.fit(messages, "gpt-4o", limit=1_500).messages

    with ThreadPoolExecutor(len(talks)) as pool:
        assert list(pool.map(work, talks)) == expected


def test_an_event_loop_goes_on_while_a_hundred_tasks_fit() -> None:
    """The fits wait for the loop in the middle of a trim, so they could not end if they held it up."""
    entered, may_go_on = threading.Event(), threading.Event()

    def wait_for_the_loop(_: ullage.Draft) -> Iterator[ullage.Edit]:
        entered.set()
        assert may_go_on.wait(PATIENCE)
        return iter(())

    policy = FitPolicy(trim_strategy=(wait_for_the_loop, *STRATEGY))

    async def run() -> list[Any]:
        fits = asyncio.gather(
            *(
                asyncio.to_thread(ullage.fit, talk(n), "gpt-4o", limit=1_500, policy=policy)
                for n in range(TASKS)
            )
        )
        while not entered.is_set():
            await asyncio.sleep(0.001)
        assert ullage.fit(talk(0), "gpt-4o", limit=1_500).changed, "a fit holds no lock while its pass runs"
        may_go_on.set()
        return await fits

    assert [done.changed for done in asyncio.run(run())] == [True] * TASKS


def test_windows_of_different_threads_do_not_touch_each_other() -> None:
    talks = [talk(number) for number in range(8)]

    def follow(messages: list[dict[str, Any]]) -> Any:
        window = ullage.Window(model="gpt-4o", limit=1_500)
        for end in range(1, len(messages) + 1, 2):
            window.sync(messages[:end])
        return window.fitted().messages

    with ThreadPoolExecutor(len(talks)) as pool:
        found = list(pool.map(follow, talks))
    assert found == [ullage.fit(each, "gpt-4o", limit=1_500).messages for each in talks]
