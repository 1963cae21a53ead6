"""Ctrl-C: what a press stops, what it leaves alone, and what is left to somebody who presses in vain."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.benches import press_ctrl_c
from ullage.shell import interrupts
from ullage.shell.interrupts import SLOW, BrokenOff, NotEnding, leave, nothing, on_press, stoppable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

FOR_EVER = 1_000.0


@pytest.fixture(autouse=True)
def _unharmed() -> Iterator[None]:
    """A press that nobody hears would end the tests."""
    with on_press(nothing):
        yield


@contextmanager
def presses(gap: float, begun: threading.Event | None = None) -> Iterator[None]:
    """Presses again and again meanwhile, as soon as it has begun."""
    over = threading.Event()

    def press() -> None:
        if begun is not None:
            begun.wait()
        while not over.wait(gap):
            press_ctrl_c()

    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        yield
    finally:
        over.set()
        pressing.join()


def run(work: Coroutine[None, None, object], told: list[str] | None = None, patience: float = 60) -> object:
    tell = [].append if told is None else told.append
    return asyncio.run(stoppable(work, tell=tell, patience=patience))


def test_a_press_is_heard_by_the_innermost_and_by_the_one_before_it_afterwards() -> None:
    heard: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with on_press(lambda: heard.append("outer")):
        with on_press(lambda: heard.append("inner")):
            press_ctrl_c()
        press_ctrl_c()
        with on_press(leave), pytest.raises(KeyboardInterrupt):
            press_ctrl_c()
    assert heard == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_take_no_signals_and_need_none() -> None:
    before = signal.getsignal(signal.SIGINT)
    found: list[object] = []

    def elsewhere() -> None:
        with on_press(leave):
            found.append(signal.getsignal(signal.SIGINT))
        found.append(asyncio.run(stoppable(asyncio.sleep(0, "done"), tell=print)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before, "done"]


def test_what_is_not_interrupted_gives_its_result_or_its_error() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    assert run(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ZeroDivisionError):
        run(fails())


@pytest.mark.parametrize("gap", [0.0, 0.001, 0.01])
def test_many_presses_stop_it_and_break_nothing_that_does_not_wait(gap: float) -> None:
    begun, done = threading.Event(), []

    async def turn() -> None:
        try:
            begun.set()
            await asyncio.sleep(FOR_EVER)
        finally:
            for step in range(20):  # as an append, a settlement and a redraw are
                time.sleep(0.002)
                done.append(step)

    with presses(gap, begun), pytest.raises(asyncio.CancelledError):
        run(turn())
    assert done == list(range(20))


def test_each_press_cancels_once_more_so_that_a_cleanup_that_waits_ends_too() -> None:
    begun, reached = threading.Event(), []

    async def turn() -> None:
        begun.set()
        try:
            await asyncio.sleep(FOR_EVER)
        finally:
            reached.append("closing")
            try:
                await asyncio.sleep(FOR_EVER)
            finally:
                reached.append("closed")

    with presses(0.01, begun), pytest.raises(asyncio.CancelledError):
        run(turn())
    assert reached == ["closing", "closed"]


def test_a_time_limit_around_it_waits_for_its_cleanup() -> None:
    reached: list[str] = []

    async def turn() -> None:
        try:
            await asyncio.sleep(FOR_EVER)
        finally:
            await asyncio.sleep(0.01)
            reached.append("closed")

    async def limited() -> None:
        async with asyncio.timeout(0.01):
            await stoppable(turn(), tell=print)

    with pytest.raises(TimeoutError):
        asyncio.run(limited())
    assert reached == ["closed"]


def test_what_does_not_end_is_told_of_and_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "LAST", 0.01)
    begun, over, told = threading.Event(), asyncio.Event(), []

    async def turn() -> None:
        while not over.is_set():
            begun.set()
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    async def pressed() -> None:
        try:
            await stoppable(turn(), tell=told.append, patience=0.05)
        finally:
            over.set()

    with presses(0.01, begun), pytest.raises(NotEnding):
        asyncio.run(pressed())
    assert told == [SLOW]


def test_what_computes_and_never_waits_is_broken_off() -> None:
    begun, reached = threading.Event(), []

    async def turn() -> None:
        try:
            begun.set()
            while True:
                time.sleep(0.001)
        finally:
            reached.append("closed")

    with presses(0.01, begun), pytest.raises(BrokenOff):
        run(turn(), patience=0.05)
    assert reached == ["closed"]
