"""A store on a PostgreSQL server: several processes, lost connections, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.postgres import emptied_url, run, schema_url, server
from tests.test_store import CALL, CAP, account, all_at_once, line_of, rest_of, started
from tests.workers import DAY, HERE
from tests.world import BIN, environment, until
from ullage import store
from ullage.context.journal import JournalEvent
from ullage.cost.book import Cap, Reservation
from ullage.cost.keys import Limits
from ullage.errors import ConfigurationError, Conflict, NotBooked, StoreError, StoreLost
from ullage.patience import Busy, limit_waiting
from ullage.usage import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.store import Store

REQUESTS = int(os.environ.get("ULLAGE_REQUESTS", "240"))
"""Requests of the three replicas together; `make soak` has more."""


@pytest.fixture
def url() -> Iterator[str]:
    with emptied_url() as made:
        yield made


def turn(number: int) -> JournalEvent:
    return JournalEvent("turn", {"message": {"role": "user", "content": f"turn {number}"}})


def end_connections() -> int:
    """Ends all connections of stores, as a server that restarts does."""
    rows = run(
        server().get_uri(),
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ullage'",
    )
    return len(rows)


# Several processes


def test_three_replicas_never_exceed_a_cap_and_book_each_request_once(url: str) -> None:
    """One of them is killed while it serves."""
    with store.open(url) as kept:
        dollar = Decimal(REQUESTS) / 2_000  # a dollar for 2,000 requests, which would cost two
        key, secret = kept.keys.create("team", dollars=Limits(total=dollar))
        each = REQUESTS // 3
        with started(*(("replica", url, secret, 16, each, who) for who in "abc")) as workers:
            for worker in workers:
                assert line_of(worker) == "ready"
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write("go\n")
                worker.stdin.flush()
            killed = [line_of(workers[0]) for _ in range(each // 4)]
            workers[0].send_signal(signal.SIGKILL)
            said = [*killed, *rest_of(workers[0]).splitlines()]
            for worker in workers[1:]:
                said += rest_of(worker).splitlines()
                assert worker.returncode == 0
        lines = [line.split() for line in said]
        booked = {name: Decimal(cost) for word, name, *costs in lines if word == "booked" for cost in costs}
        entries = {each.session: entry for each, entry in kept.book.entries(key=key.id)}
        assert all(entry.calls == 1 for entry in entries.values())
        assert {name: entries[name].cost for name in booked} == booked
        assert {name[0] for name in entries.keys() - booked.keys()} <= {"a"}  # ended before it could say so
        spent, held = kept.book.used("key", key.id)
        assert spent == sum(entry.cost or 0 for entry in entries.values())
        assert spent + held <= dollar
        assert any(word == "refused" for word, *_ in lines)  # or the test would show nothing
        assert len(booked) > REQUESTS / 4


def test_a_reservation_ends_with_its_process_and_not_before(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ullage.store.postgres import locks

    monkeypatch.setattr(locks, "SILENCE", 0.5)
    monkeypatch.setattr(locks, "CHECKED", 0.0)
    with store.open(url) as kept, started(("reserve", url)) as (worker,):
        assert line_of(worker) == "held"
        worker.send_signal(signal.SIGSTOP)  # it lives, although it shows no sign of life
        time.sleep(1.0)
        assert kept.book.used("day", DAY) == (0, 1)
        assert kept.book.reserve(CALL, [CAP]) is not None
        worker.kill()
        worker.wait()
        assert until(lambda: kept.book.reserve(CALL, [CAP]) is None)
        assert kept.book.used("day", DAY) == (0, 1)
        late = Reservation("held", account("one"), Decimal(1))
        assert kept.book.settle(late, LedgerEntry(calls=1, cost=Decimal("0.25")))
        assert kept.book.used("day", DAY) == (Decimal("0.25"), 1)


def test_a_holder_whose_connection_is_lost_for_a_moment_keeps_its_reservations(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ullage.store.postgres import locks

    monkeypatch.setattr(locks, "BEAT", 0.1)
    monkeypatch.setattr(locks, "SILENCE", 5.0)
    monkeypatch.setattr(locks, "CHECKED", 0.0)
    with store.open(url) as one, store.open(url) as other:
        one.book.reserve(CALL, [])
        end_connections()
        assert other.book.used("day", DAY) == (0, 1)
        number = one._database.locks._number(f"holder {one._database.locks.holder}")

        def is_locked() -> bool:
            with other._database.reading() as connection:
                query = "SELECT pg_try_advisory_xact_lock_shared(?)"
                return bool(connection.execute(query, (number,)).fetchone() == (False,))

        assert until(is_locked)


def test_two_processes_that_continue_a_session_do_not_mix(url: str) -> None:
    import json

    with started(("contend", url, "one", 30, "a"), ("contend", url, "one", 30, "b")) as workers:
        a, b = map(json.loads, all_at_once(workers))
    assert sorted(a["won"] + b["won"]) == list(range(60))


def test_processes_lose_none_of_each_others_changes(url: str) -> None:
    who, times = ("a", "b", "c"), 15
    with started(*(("share", url, each, times) for each in who)) as workers:
        all_at_once(workers)
    with store.open(url) as kept:
        assert kept.calibration.learned(HERE) == {"sum": len(who) * times}
        assert len(kept.preferences.all()) == len(who) * times
        assert len({item.number for item in kept.journal.items()}) == len(who) * times
        for each in who:
            assert [event.data["number"] for event in kept.journal.events(each)] == list(range(times))
            assert len(kept.journal.search("shared", each, most=1_000)) == times
        assert len(kept.journal.search("shared", most=1_000)) == times


def test_the_sums_of_a_transaction_of_the_store_and_of_another_process_add_up(url: str) -> None:
    """The gateway books calls without cost so; a sum that both had read before would lose one of them."""
    with store.open(url) as one, store.open(url) as other:
        one.book.reserve(CALL, [])
        with one.transaction():
            one.book.settle(CALL, LedgerEntry(calls=1, cost=Decimal("0.25")))
            paid = threading.Thread(target=book_dollar, args=(other,))
            paid.start()
            assert until(is_waiting)
        paid.join()
        assert one.book.used("day", DAY) == (Decimal("1.25"), 0)


def book_dollar(kept: Store) -> None:
    call = Reservation("a dollar", account("another"), Decimal(1))
    assert kept.book.reserve(call, []) is None
    assert kept.book.settle(call, LedgerEntry(calls=1, cost=Decimal(1)))


def is_waiting() -> bool:
    return bool(run(server().get_uri(), "SELECT 1 FROM pg_locks WHERE NOT granted"))


def test_processes_that_open_a_new_store_at_once_make_its_tables_once() -> None:
    with schema_url() as url:
        with started(*(("begin", url) for _ in range(3))) as workers:
            assert all_at_once(workers) == ["done"] * 3
        with store.open(url) as kept:
            assert len(kept.journal.items()) == 3


def test_a_session_that_another_process_has_open_is_not_deleted(url: str) -> None:
    with store.open(url) as one:
        with store.open(url) as other:
            one.journal.append("a", 0, turn(0))
            with pytest.raises(StoreError, match="open in another process"):
                other.delete_session("a")
            assert one.delete_session("a")
            one.journal.append("b", 0, turn(0))
        with store.open(url) as other:
            assert list(other.journal.events("b")) == [turn(0)]
        assert one.delete_session("b")
        assert not one.delete_session("b")
        one.shrink()


def test_of_many_sessions_only_the_last_are_held() -> None:
    from ullage.store.postgres.locks import MOST_SESSIONS

    with emptied_url() as url, store.open(url) as one, store.open(url) as other:
        for number in range(MOST_SESSIONS + 1):
            one.journal.append(f"s{number}", 0, turn(0))
        assert other.delete_session("s0")
        with pytest.raises(StoreError, match="open in another process"):
            other.delete_session("s1")
        with pytest.raises(Conflict):
            one.journal.append("s0", 1, turn(1))


def test_after_a_fork_both_processes_use_the_store(url: str) -> None:
    program = (
        "import os, sys\n"
        "from ullage import store\n"
        "kept = store.open(sys.argv[1])\n"
        "kept.journal.remember('before')\n"
        "child = os.fork()\n"
        "kept.journal.remember('child' if not child else 'parent')\n"
        "if not child: os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(sorted(item.content for item in kept.journal.items()))\n"
        "kept.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, env=environment(), check=False
    )
    assert (done.stdout, done.stderr) == ("['before', 'child', 'parent']\n", "")


# Lost connections


def test_a_server_that_ended_idle_connections_is_not_noticed(url: str) -> None:
    with store.open(url) as kept:
        kept.journal.append("one", 0, turn(0))
        assert end_connections()
        kept.journal.append("one", 1, turn(1))
        assert list(kept.journal.events("one")) == [turn(0), turn(1)]


def break_at(monkeypatch: pytest.MonkeyPatch, statement: str, *, after: bool) -> None:
    """Ends the connection at the next statement that begins so, before or after it is done."""
    from ullage.store.postgres.driver import PostgresConnection

    execute, armed = PostgresConnection.execute, [True]

    def breaking(self: PostgresConnection, text: str, *values: Any) -> Any:
        hit = armed[0] and text.startswith(statement)
        if hit:
            armed[0] = False
        if hit and after:
            execute(self, text, *values)
        if hit:
            run(server().get_uri(), f"SELECT pg_terminate_backend({self.raw.info.backend_pid})")
            text, values = "SELECT 1", ()
        return execute(self, text, *values)

    monkeypatch.setattr(PostgresConnection, "execute", breaking)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("statement", ["INSERT INTO events", "COMMIT"])
def test_an_event_is_stored_once_wherever_the_connection_is_lost(
    url: str, monkeypatch: pytest.MonkeyPatch, statement: str, *, after: bool
) -> None:
    with store.open(url) as kept:
        kept.journal.append("one", 0, turn(0))
        break_at(monkeypatch, statement, after=after)
        kept.journal.append("one", 1, turn(1))
        assert list(kept.journal.events("one")) == [turn(0), turn(1)]
        with pytest.raises(Conflict):
            kept.journal.append("one", 1, turn(1))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("statement", ["INSERT INTO totals", "COMMIT"])
def test_a_call_is_reserved_and_booked_once_wherever_the_connection_is_lost(
    url: str, monkeypatch: pytest.MonkeyPatch, statement: str, *, after: bool
) -> None:
    with store.open(url) as kept:
        break_at(monkeypatch, statement, after=after)
        assert kept.book.reserve(CALL, [CAP]) is None
        assert kept.book.used("day", DAY) == (0, 1)
        break_at(monkeypatch, statement, after=after)
        assert kept.book.settle(CALL, LedgerEntry(calls=1, cost=Decimal("0.5")))
        assert kept.book.used("day", DAY) == (Decimal("0.5"), 0)
        assert not kept.book.settle(CALL, LedgerEntry(calls=1, cost=Decimal("0.5")))
        assert [entry.calls for _, entry in kept.book.entries()] == [1]


@pytest.mark.parametrize(
    ("statement", "words"), [("INSERT INTO items", "Nothing was changed"), ("COMMIT", "unknown if")]
)
def test_what_cannot_be_repeated_is_an_error_that_says_what_is_known(
    url: str, monkeypatch: pytest.MonkeyPatch, statement: str, words: str
) -> None:
    with store.open(url) as kept:
        break_at(monkeypatch, statement, after=True)
        with pytest.raises(StoreLost, match=words) as raised:
            kept.journal.remember("milk")
        assert raised.value.is_unknown == (statement == "COMMIT")
        assert len(kept.journal.items()) == raised.value.is_unknown


def test_a_cost_that_could_not_be_written_is_booked_with_the_next_call(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.open(url) as kept:
        kept.book.reserve(CALL, [])
        with monkeypatch.context() as patched:
            patched.setattr(
                "ullage.store.postgres.database.PostgresConnection.execute",
                lambda *_: (_ for _ in ()).throw(StoreLost("here", "no route", is_unknown=False)),
            )
            with pytest.raises(NotBooked):
                kept.book.settle(CALL, LedgerEntry(calls=1, cost=Decimal("0.5")))
        assert kept.book.used("day", DAY) == (Decimal("0.5"), 0)


def test_a_wait_for_another_transaction_ends_with_the_patience_of_the_caller(url: str) -> None:
    with store.open(url) as kept, store.open(url) as other:
        is_held, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            with other._database.writing("book"):
                is_held.set()
                may_end.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        assert is_held.wait(60)
        try:
            with limit_waiting(0.05), pytest.raises(StoreError, match="locked for too long"):
                kept.book.reserve(CALL, [])
            with limit_waiting(0.05, is_retried=True), pytest.raises(Busy):
                kept.book.reserve(CALL, [])
        finally:
            may_end.set()
            holder.join()
        assert kept.book.reserve(CALL, []) is None


# What is refused


def test_a_schema_of_another_program_is_refused_and_left_as_it_is() -> None:
    with schema_url() as url:
        schema = url.rpartition("=")[2]
        run(server().get_uri(), f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.sessions (mine TEXT)")
        with pytest.raises(StoreError, match="tables of another program"):
            store.open(url)
        rows = run(
            server().get_uri(),
            f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'",  # noqa: S608 - our own name
        )
        assert rows == [(1,)]


def test_a_store_of_a_newer_version_is_refused() -> None:
    with schema_url() as url:
        store.open(url).close()
        schema = url.rpartition("=")[2]
        run(server().get_uri(), f"UPDATE {schema}.ullage_version SET number = 99")  # noqa: S608 - the same
        with pytest.raises(StoreError, match="newer Ullage: it has version 99"):
            store.open(url)


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("postgresql://me:secret@127.0.0.1:1/db", StoreError, "cannot be reached"),
        ("postgresql://me:secret@127.0.0.1:port/db", ConfigurationError, "cannot be read"),
        ("postgresql://me:secret@127.0.0.1/db?schema=A-b", ConfigurationError, "small letters"),
    ],
)
def test_a_server_that_cannot_be_used_is_told_without_the_password(
    url: str, error: type[Exception], words: str
) -> None:
    server()
    with pytest.raises(error, match=words) as raised:
        store.open(url)
    assert "secret" not in str(raised.value)


def test_a_database_that_is_missing_is_told() -> None:
    with pytest.raises(StoreError, match="no such database"):
        store.open(server().get_uri().replace("/postgres?", "/missing?"))


# The command line


def ullage(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "ullage"), *arguments], capture_output=True, text=True, env=environment(), check=False
    )


def test_the_commands_work_on_a_server(url: str) -> None:
    where = ("--store", url)
    assert ullage("memory", "add", "answer in metric units", *where).returncode == 0
    assert "metric units" in ullage("memory", "list", *where).stdout
    with store.open(url) as kept:
        kept.journal.append(
            "monday",
            0,
            JournalEvent("turn", {"message": {"role": "user", "content": "a harbour with lanterns"}}),
        )
        kept.book.reserve(CALL, [])
        kept.book.settle(CALL, LedgerEntry(calls=1, prompt=5, cost=Decimal("0.5")))
    assert "monday" in ullage("sessions", "list", *where).stdout
    assert "lanterns" in ullage("recall", "harbour", *where).stdout
    assert "0.5000" in ullage("cost", *where).stdout
    secret = ullage("keys", "create", "laptop", "--dollars-a-day", "2", *where).stdout.strip()
    with store.open(url) as kept:
        assert kept.keys.get(secret).dollars == Limits(day=Decimal(2))
    assert ullage("sessions", "delete", "monday", "--yes", *where).returncode == 0


def test_a_cap_of_a_day_is_one_for_all_processes(url: str) -> None:
    with started(*(("hammer", url, 8, 1, 6, which) for which in range(3))) as workers:
        all_at_once(workers)
    with store.open(url) as kept:
        spent, held = kept.book.used("day", DAY)
        assert (spent <= 1, held) == (True, 0)
        over = Reservation("over", account("one"), 1 - spent + Decimal("0.01"))
        assert kept.book.reserve(over, [Cap("day", DAY, Decimal(1))]) is not None
