"""Threads share the functions of the library, and an event loop goes on while they work."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ullage

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
    beats_between: list[int] = []

    async def run() -> None:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0)
                beats += 1

        async def fit(number: int) -> None:
            await asyncio.to_thread(ullage.fit, talk(number), "gpt-4o", limit=1_500)
            beats_between.append(beats)

        heart = asyncio.create_task(beat())
        await asyncio.gather(*(fit(number) for number in range(TASKS)))
        heart.cancel()

    asyncio.run(run())
    assert len(beats_between) == TASKS
    # On a busy machine the loop gets few turns. If the tasks ran on the loop itself, it would get none.
    assert len(set(beats_between)) > 1, "the loop ran between the tasks, and not only after them"


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
