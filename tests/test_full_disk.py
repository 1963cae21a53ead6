"""A disk that is full when a turn ends: the answer is delivered, the cost is booked as soon as it can be."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.player import playing
from tests.terminal import CTRL_D
from tests.test_cli_ask import spent
from tests.test_patience import asking, played
from tests.test_shell import billed, shell
from ullage import store
from ullage.broker.events import Finished, Text, ToolCall, Used
from ullage.context import Context
from ullage.cost import Ledger
from ullage.errors import NotBooked, NotSaved, ProviderError, StoreError, StreamBroken
from ullage.testing import ScriptedProvider
from ullage.tokens.calibration import Calibration
from ullage.turn import Client, Settled
from ullage.usage import Usage

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from ullage.store import Store

USED = Used(Usage(prompt=120, completion=4))
EVENTS = (Text("Seven boats."), USED, Finished("stop"))
COST = "0.00034"  # of 120 and 4 tokens of gpt-4o


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can be written within this; the system refuses it as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ullage.db"


def client_of(kept: Store, *scripts: Any) -> Client:
    ledger = Ledger(book=kept.book, session="monday", cap_at_dollars=1)
    provider = ScriptedProvider(scripts)
    return Client(provider, ledger=ledger, max_output=100, calibration=Calibration(kept.calibration))


def asked(kept: Store) -> Context:
    context = Context(journal=kept.journal, session="monday", model="gpt-4o")
    context.append_user("How many boats?")
    return context


def hear(client: Client, context: Context) -> tuple[list[Any], BaseException | None]:
    """The events of a turn on a disk that is full from its first event on, and what it raised."""

    async def main() -> tuple[list[Any], BaseException | None]:
        events: list[Any] = []
        filling = ExitStack()
        try:
            with filling:
                async for event in client.stream(context):
                    if not events:
                        filling.enter_context(full_disk())
                    events.append(event)
        except (StoreError, ProviderError) as error:
            return events, error
        return events, None

    return asyncio.run(main())


def test_an_answer_is_delivered_and_what_could_not_be_saved_is_written_later(file: Path) -> None:
    with store.open(file) as kept:
        client, context = client_of(kept, EVENTS, EVENTS), asked(kept)
        events, error = hear(client, context)
        assert events[:-1] == list(EVENTS)
        assert isinstance(events[-1], Settled)
        assert str(events[-1].cost) == COST
        assert isinstance(error, NotSaved)
        assert (error.is_answer_kept, error.is_booked, error.cost) == (False, False, events[-1].cost)
        assert f"Could not save the answer and the cost of ${COST} of this call: the store" in str(error)
        assert "free space" in str(error)
        assert context.turns[-1] == {"role": "assistant", "content": "Seven boats."}

        assert client.ledger.used() == (events[-1].cost, 0)  # there is room again
        context.append_user("And now?")
        assert Context.resume("monday", kept.journal).turns == context.turns
        assert [entry.calls for _, entry in kept.book.entries()] == [1]


def test_while_the_disk_is_full_the_worst_case_is_held_and_no_call_is_made(file: Path) -> None:
    with store.open(file) as kept:
        ledger = Ledger(book=kept.book, session="monday")
        held = ledger.reserve("gpt-4o", 100, 100)
        with full_disk():
            with pytest.raises(NotBooked, match="kept in memory until the store can be written") as raised:
                ledger.settle(held, Usage(prompt=120, completion=4))
            assert str(raised.value.cost) == COST
            assert ledger.used() == (0, held.amount)
            with pytest.raises(StoreError):
                ledger.reserve("gpt-4o", 100, 100)
        other = ledger.reserve("gpt-4o", 100, 100)  # the next change of the book has it as well
        assert ledger.used() == (raised.value.cost, other.amount)
        assert ledger.settle(held, Usage(prompt=120, completion=4)) is None


def test_a_call_that_was_not_made_is_released_as_soon_as_there_is_room(file: Path) -> None:
    with store.open(file) as kept:
        ledger = Ledger(book=kept.book, session="monday")
        held = ledger.reserve("gpt-4o", 100, 100)
        with full_disk():
            assert ledger.release(held)
            assert ledger.used() == (0, held.amount)
        assert ledger.used() == (0, 0)
        assert list(kept.book.entries()) == []


def test_a_store_that_is_closed_in_time_books_what_is_overdue(file: Path) -> None:
    with store.open(file) as kept:
        ledger = Ledger(book=kept.book, session="monday")
        held = ledger.reserve("gpt-4o", 100, 100)
        with full_disk(), pytest.raises(NotBooked):
            ledger.settle(held, Usage(prompt=120, completion=4))
    assert str(spent(file.parent, "monday")[0]) == COST


def test_a_store_that_is_closed_on_a_full_disk_tells_what_is_lost_and_holds_nothing(file: Path) -> None:
    kept = store.open(file)
    ledger = Ledger(book=kept.book, session="monday")
    held = [ledger.reserve("gpt-4o", 100, 100) for _ in range(2)]
    with full_disk():
        for each in held:
            with pytest.raises(NotBooked):
                ledger.settle(each, Usage(prompt=120, completion=4))
        with pytest.raises(NotBooked, match=r"The cost of \$0\.00068 .* is lost"):
            kept.close()
    kept.close()
    assert spent(file.parent, "monday") == (0, 0)
    assert list(file.parent.glob("*-unbooked-*")) == []


@pytest.mark.parametrize("error", [StreamBroken("it broke off"), ProviderError("it refused")])
def test_an_answer_that_breaks_off_on_a_full_disk_tells_both(file: Path, error: ProviderError) -> None:
    with store.open(file) as kept:
        client, context = client_of(kept, (Text("Seven "), error)), asked(kept)
        events, raised = hear(client, context)
        assert events == [Text("Seven ")]
        if isinstance(error, StreamBroken):
            assert isinstance(raised, NotSaved)
            assert "it broke off" in str(raised)
            assert client.ledger.used()[0] > 0
        else:
            assert raised is error
        assert client.ledger.used()[1] == 0


def test_calls_of_an_answer_that_could_not_be_kept_can_be_answered(file: Path) -> None:
    with store.open(file) as kept:
        call = (Text("Look."), ToolCall("a", "look", "{}"), Finished("tool_calls"))
        client, context = client_of(kept, call), asked(kept)
        _, error = hear(client, context)
        assert isinstance(error, NotSaved)
        context.append({"role": "tool", "tool_call_id": "a", "content": "seven"})
        assert Context.resume("monday", kept.journal).turns == context.turns


def test_a_cost_that_is_too_large_for_the_book_is_not_tried_for_ever(file: Path) -> None:
    with store.open(file) as kept:
        ledger = Ledger(book=kept.book, session="monday")
        held = ledger.reserve("gpt-4o", 100, 100)
        with pytest.raises(StoreError, match="larger than the store can keep"):
            ledger.settle(held, Usage(), 2**70)
        assert ledger.release(held)
        assert ledger.used() == (0, 0)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")
@pytest.mark.parametrize("as_json", [False, True])
def test_ask_prints_the_answer_and_says_what_is_not_saved(file: Path, as_json: bool) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def fill() -> None:
        while not children:
            time.sleep(0.01)
        resource.prlimit(children[0].pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    store.open(file).close()
    with playing(played(fill)) as player, asking(file, player, *(["--json"] if as_json else [])) as child:
        children.append(child)
        shown, told = child.communicate(timeout=60)
    assert child.returncode == 2
    first, second, third = told.decode().splitlines()
    assert first.startswith("ullage: Could not save the answer and the cost of $")
    assert second.startswith("ullage: The answer is not part of the saved conversation: the store ")
    assert third.startswith("ullage: The cost of $")
    assert "is lost" in third
    if as_json:
        found = json.loads(shown)
        assert found["text"] == "Seven boats."
        assert found["error"]["type"] == "NotSaved"
    else:
        assert shown == b"Seven boats.\n"
    assert spent(file.parent, "monday") == (0, 0)  # and nothing is held for a process that is gone


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")
def test_the_shell_goes_on_and_saves_the_answer_when_there_is_room_again(tmp_path: Path) -> None:
    limits: list[tuple[int, int]] = [(0, resource.RLIM_INFINITY)]
    pids: list[int] = []

    def fill() -> None:
        if limits:
            resource.prlimit(pids[0], resource.RLIMIT_FSIZE, limits.pop())

    with playing(played(fill)) as player, shell(tmp_path, player) as terminal:
        assert terminal.do("echo o''pen") == "open"
        pids.append(terminal.child.pid)
        told = terminal.do("?How many boats?")
        assert told.startswith("Seven boats.\n")
        assert "Could not save the answer and the cost of $" in " ".join(told.split())
        assert "Could not save the answer: " in " ".join(terminal.do(":new").split())
        resource.prlimit(pids[0], resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert terminal.do("?And now?") == "Seven boats."
        assert terminal.leave(CTRL_D) == 0
    assert billed(tmp_path) == (2, 0)
    with store.open(tmp_path / "ullage.db") as kept:
        turns = Context.resume(kept.sessions()[0].id, kept.journal).turns
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 2


def test_a_full_disk_is_what_these_tests_take_it_for(file: Path) -> None:
    with store.open(file) as kept, full_disk(), pytest.raises(StoreError, match="free space"):
        kept.preferences.set("a", 1)
