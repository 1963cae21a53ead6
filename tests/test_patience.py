"""A store that another process has locked: whoever waits for it can be stopped, and nothing is half done."""

from __future__ import annotations

import asyncio
import fcntl
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.player import Player, Request, Script, answered, playing, sent_json
from tests.terminal import CTRL_C, Terminal
from tests.test_cli_ask import PROGRAM, environment, spent
from tests.test_shell import billed, questions, shell
from tests.world import until
from ullage import store
from ullage.broker.events import Finished, Text, Used
from ullage.context import Context
from ullage.cost import Ledger
from ullage.errors import StoreError
from ullage.patience import Busy, Limit, current_limit, limit_waiting, patiently, to_the_end
from ullage.store.sqlite.locks import SUFFIX
from ullage.testing import ScriptedProvider
from ullage.turn import Client, Settled
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOON = 12.0
"""Seconds from a press of Ctrl-C to the end of a program, on a busy machine; waiting would take 30."""
ANSWER = answered("Seven boats.")
STALLED = Script(body=ANSWER, stall_at=ANSWER.index(b"boats."))
EVENTS = (Text("Seven boats."), Used(Usage(prompt=120, completion=4)), Finished("stop"))
HEARING_SIGINT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a program that hears Ctrl-C even if whoever runs the tests does not."""
GPT = ("--model", "openai/gpt-4o", "--session", "monday", "How many boats?")


class Lock:
    """The write lock of a store, taken by a connection of its own in the process of the tests."""

    def __init__(self, file: Path) -> None:
        store.open(file).close()
        self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=10)

    def take(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def free(self) -> None:
        self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ullage.db"


@pytest.fixture
def lock(file: Path) -> Iterator[Lock]:
    with closing(Lock(file)) as made:
        yield made


def waits_to_write(file: Path) -> bool:
    """Whether another process is the next one that writes to the store."""
    with file.with_name(file.name + SUFFIX).open("r+b") as locks:
        try:
            fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            return True
    return False


@contextmanager
def asking(file: Path, player: Player, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-c", HEARING_SIGINT, PROGRAM, "ask", "--store", str(file), *more, *GPT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(player),
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def interrupted(child: subprocess.Popen[bytes]) -> tuple[str, str]:
    """What a program still prints after Ctrl-C, which ends it soon."""
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)
    shown, told = child.communicate(timeout=40)
    assert child.returncode == 130, told
    assert time.monotonic() - begun < SOON
    assert b"Traceback" not in told
    return shown.decode(), told.decode()


def played(before: Callable[[], object], script: Script | None = None) -> Callable[[Request], Script]:
    """A server that does something before it answers a question."""

    def play(request: Request) -> Script:
        if not request.path.endswith("/chat/completions"):
            return sent_json({"error": {"message": "not found"}}, 404)
        before()
        return script or Script(body=ANSWER)

    return play


def events_of(file: Path) -> list[str]:
    with store.open(file) as kept:
        return [turn["content"] for turn in Context.resume("monday", kept.journal).turns]


# `ullage ask` ------------------------------------------------------------------------------------------


def test_ctrl_c_is_heard_while_a_question_waits_for_the_store(file: Path, lock: Lock) -> None:
    lock.take()
    with playing(played(lambda: None)) as player, asking(file, player) as child:
        assert until(lambda: waits_to_write(file))
        _, told = interrupted(child)
        assert told == "ullage: interrupted\n"
        assert questions(player) == []
    lock.free()
    assert events_of(file) == []
    assert spent(file.parent, "monday") == (0, 0)


def test_what_was_asked_while_the_store_was_locked_is_booked_once_after_ctrl_c(
    file: Path, lock: Lock
) -> None:
    with playing(played(lock.take, STALLED)) as player, asking(file, player) as child:
        assert child.stdout is not None
        assert child.stdout.read(6) == b"Seven "
        _, told = interrupted(child)
        unsaved, ending = told.splitlines()
        assert unsaved.startswith("ullage: The answer is not part of the saved conversation: ")
        assert ending == "ullage: interrupted"
    assert [path.suffix for path in file.parent.glob("*-unbooked-*")] != []
    lock.free()
    with store.open(file) as kept:
        ((_, entry),) = kept.book.entries()
        assert entry.calls == 1
        assert kept.book.used("session", "monday") == (entry.cost, 0)
        assert entry.cost
    assert list(file.parent.glob("*-unbooked-*")) == []
    with store.open(file) as kept:
        assert [entry.calls for _, entry in kept.book.entries()] == [1]


def test_an_answer_waits_for_a_store_that_is_locked_for_a_while(file: Path, lock: Lock) -> None:
    def take_for_a_while() -> None:
        lock.take()
        threading.Timer(1.0, lock.free).start()

    with playing(played(take_for_a_while)) as player, asking(file, player, "--json") as child:
        shown, told = child.communicate(timeout=60)
    assert (child.returncode, told) == (0, b"")
    assert json.loads(shown)["text"] == "Seven boats."
    assert events_of(file) == ["How many boats?", "Seven boats."]
    assert spent(file.parent, "monday")[1] == 0
    assert billed(file.parent)[0] == 1


# The shell ---------------------------------------------------------------------------------------------


def stopped(terminal: Terminal) -> str:
    """What is shown for a line that Ctrl-C stops; a press that came too early is repeated."""
    pressed = time.monotonic()

    def is_back() -> bool:
        nonlocal pressed
        if terminal.is_done():
            return True
        if time.monotonic() - pressed > 0.5:
            terminal.press(CTRL_C)
            pressed = time.monotonic()
        return False

    terminal.wait_until(terminal.has_taken_line, "the line that was typed")
    terminal.wait_until(is_back, "the next prompt")
    return terminal.done()


def test_ctrl_c_stops_a_turn_of_the_shell_that_waits_for_the_store(
    tmp_path: Path, file: Path, lock: Lock
) -> None:
    def play(request: Request) -> Script:
        if not request.path.endswith("/chat/completions"):
            return sent_json({"error": {"message": "not found"}}, 404)
        if "take the lock" in request.json()["messages"][-1]["content"]:
            lock.take()
            return STALLED
        return Script(body=ANSWER)

    with playing(play) as player, shell(tmp_path, player) as terminal:
        assert terminal.do("echo o''pen") == "open"
        lock.take()
        for line in ("?How many boats?", ":memory add they float", ":reset", ":rolling-context off"):
            terminal.type(line)
            assert stopped(terminal) == "stopped", line
        assert questions(player) == []
        lock.free()
        assert terminal.do("?How many boats?") == "Seven boats."

        terminal.type("?take the lock")
        terminal.wait("Seven")
        terminal.press(CTRL_C)
        assert terminal.done() == "Seven\nstopped"
        lock.free()
        assert terminal.do("?And now?") == "Seven boats."
        assert terminal.leave() == 0
        assert b"Traceback" not in terminal.raw
    assert billed(tmp_path) == (3, 0)
    with store.open(file) as kept:
        assert kept.journal.items() == ()
        turns = Context.resume(kept.sessions()[0].id, kept.journal).turns
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 3


# The library -------------------------------------------------------------------------------------------


@contextmanager
def locked(lock: Lock) -> Iterator[None]:
    lock.take()
    try:
        yield
    finally:
        lock.free()


def test_the_loop_goes_on_while_a_turn_waits_for_the_store(file: Path, lock: Lock) -> None:
    async def main() -> None:
        with store.open(file) as kept:
            context = Context(journal=kept.journal, model="gpt-4o")
            context.append_user("How many boats?")
            client = Client(ScriptedProvider([EVENTS]), ledger=Ledger(book=kept.book), max_output=100)

            async def turn() -> list[Any]:
                return [event async for event in client.stream(context)]

            lock.take()
            task = asyncio.ensure_future(turn())
            for _ in range(20):  # a loop that stood still would come here only after the turn has failed
                await asyncio.sleep(0.01)
            assert not task.done()
            lock.free()
            events = await task
            assert isinstance(events[-1], Settled)
            assert client.ledger.used() == (events[-1].cost, 0)

    asyncio.run(main())


@pytest.mark.parametrize("stop_after", [0, 1])
def test_a_turn_that_is_cancelled_while_it_waits_is_done_or_not_done(
    file: Path, lock: Lock, stop_after: int
) -> None:
    """Cancelled before its reservation, or at its end, by then with the store free again."""

    async def main() -> None:
        with store.open(file) as kept:
            context = Context(journal=kept.journal, model="gpt-4o")
            context.append_user("How many boats?")
            client = Client(ScriptedProvider([EVENTS]), ledger=Ledger(book=kept.book), max_output=100)
            heard = asyncio.Event()

            async def turn() -> None:
                async for _ in client.stream(context):
                    if not heard.is_set():
                        lock.take()
                        heard.set()

            if not stop_after:
                lock.take()
                heard.set()
            task = asyncio.ensure_future(turn())
            await heard.wait()
            await asyncio.sleep(0.2)
            task.cancel()
            threading.Timer(0.2, lock.free).start()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.3)
            spent, held = client.ledger.used()
            assert held == 0
            assert (spent > 0, len(context), context.total_tokens()[0] > 0) == (
                bool(stop_after),
                1 + stop_after,
                bool(stop_after),
            )
            assert Context.resume(context.session, kept.journal).turns == context.turns

    asyncio.run(main())


def test_a_thread_that_waits_for_another_process_holds_up_no_loop(file: Path, lock: Lock) -> None:
    async def main() -> None:
        with store.open(file) as kept, locked(lock):
            waiting = threading.Thread(target=lambda: kept.preferences.set("a", 1))
            waiting.start()
            while not _is_held(kept._database._lock):
                await asyncio.sleep(0.01)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await patiently(lambda: kept.preferences.set("b", 2))
        waiting.join()

    def _is_held(lock: Any) -> bool:
        free = lock.acquire(blocking=False)
        if free:
            lock.release()
        return not free

    asyncio.run(main())
    with store.open(file) as kept:
        assert "b" not in kept.preferences.all()


def test_without_patience_a_locked_store_is_an_error_at_once(file: Path, lock: Lock) -> None:
    with store.open(file) as kept, locked(lock):
        begun = time.monotonic()
        with limit_waiting(0), pytest.raises(StoreError, match="locked for too long"):
            kept.preferences.set("a", 1)
        with limit_waiting(0.05, is_retried=True), pytest.raises(Busy):
            kept.preferences.set("a", 1)
        with pytest.raises(StoreError, match="locked for too long"):
            asyncio.run(patiently(lambda: kept.preferences.set("a", 1), 0.2))
        assert kept.preferences.all() == {}  # reading does not wait
        assert time.monotonic() - begun < SOON


def test_what_must_be_done_is_done_even_if_it_is_cancelled(file: Path, lock: Lock) -> None:
    async def main(act: Callable[..., Any]) -> None:
        task = asyncio.ensure_future(act(lambda: kept.preferences.set(act.__name__, 1)))
        await asyncio.sleep(0.1)
        task.cancel()
        freeing = threading.Timer(0.1, lock.free)
        freeing.start()
        with pytest.raises(asyncio.CancelledError):
            await task
        freeing.join()

    with store.open(file) as kept:
        for act in (patiently, to_the_end):
            lock.take()
            asyncio.run(main(act))
            time.sleep(0.3)
        assert list(kept.preferences.all()) == ["to_the_end"]


def test_a_summary_that_a_hurried_render_begins_has_all_the_time() -> None:
    limits: list[Any] = []

    async def summarize(prior: str | None, turns: Any) -> str:
        limits.append(current_limit())
        return f"{prior or ''} {len(turns or ())} turns."

    async def go() -> None:
        context = Context(
            model="gpt-4o", system_prompt="", token_budget=400, max_turns=None, summarize=summarize
        )
        for number in range(12):
            context.append_user(f"Question {number}: how many boats are at the quay today?")
            await patiently(context.fitted)
            answer = {"role": "assistant", "content": "Seven boats are at the quay. " * 4}
            await patiently(partial(context.append, answer))
            await asyncio.sleep(0)

    asyncio.run(go())
    assert limits
    assert set(limits) == {Limit(30.0)}
