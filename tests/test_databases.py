"""What the code of the store expects of every database (`store.connection`), and what every store keeps."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.backends import DATABASES, LASTING
from ullage import store
from ullage.context.journal import JournalEvent, SavedFold
from ullage.cost.book import Account, Reservation
from ullage.errors import StoreError
from ullage.patience import Busy, limit_waiting
from ullage.store.connection import PREFERENCES
from ullage.store.folds import MOST
from ullage.store.values import Damaged, RawText
from ullage.usage import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.store import Store
    from ullage.store.connection import Database

CALL = Reservation("call", Account("one", "m", "main", "p", "2026-11-16"), Decimal(1))


@pytest.fixture(params=DATABASES)
def kept(request: pytest.FixtureRequest) -> Iterator[Store]:
    with DATABASES[request.param]() as url, store.open(url) as opened:
        yield opened


@pytest.fixture
def database(kept: Store) -> Database:
    return kept._database


def turn(number: int) -> JournalEvent:
    return JournalEvent("turn", {"message": {"role": "user", "content": f"turn {number}"}})


# The database


def test_a_nested_block_is_part_of_the_outer_transaction(kept: Store) -> None:
    def fail() -> None:
        with kept.transaction():
            kept.preferences.set("a", 1)
            kept.journal.append("one", 0, turn(0))
            assert kept.preferences.get("a") == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert kept.preferences.get("a") is None
    assert list(kept.journal.events("one")) == []


def test_rows_can_be_read_while_other_statements_run(kept: Store, database: Database) -> None:
    for number in range(5):
        kept.preferences.set(str(number), number)
    with database.writing(PREFERENCES) as connection:
        names = connection.execute("SELECT name FROM preferences ORDER BY name")
        found = names.fetchmany(2)
        connection.execute("UPDATE preferences SET value = '7'")
        assert connection.execute("SELECT count(*) FROM preferences").fetchone() == (5,)
        assert [*found, *names.fetchmany(2), *names] == [(str(number),) for number in range(5)]
        assert names.fetchmany(2) == []
        assert names.fetchone() is None


def test_a_value_that_a_statement_does_not_name_is_ignored(database: Database) -> None:
    with database.reading() as connection:
        query = "SELECT count(*) FROM preferences WHERE name = :name"
        assert connection.execute(query, {"name": "a", "other": 1}).fetchone() == (0,)


@pytest.mark.parametrize("text", ["", "a\0b", "\x01t\\0", "ä", RawText(b"\xed\xa0\x80"), RawText(b"1e999")])
def test_a_text_is_read_as_it_was_written_and_as_bytes_if_it_was_raw(
    database: Database, text: str | RawText
) -> None:
    with database.writing(PREFERENCES) as connection:
        connection.execute("INSERT INTO preferences (name, value) VALUES (?, ?)", ("a", text))
        (found,) = connection.execute("SELECT value FROM preferences WHERE value = ?", (text,)).fetchone()
    assert found == text
    assert isinstance(found, bytes) == isinstance(text, bytes)


def test_bytes_are_read_as_bytes_and_numbers_have_64_bits(kept: Store, database: Database) -> None:
    kept.journal.append("one", 0, turn(0))
    with database.writing() as connection:
        query = "UPDATE sessions SET last = ?, indexed = ? WHERE indexed < ? RETURNING last, indexed"
        rows = connection.execute(query, (b"\0\xff", 2**63 - 1, 2**62)).fetchall()
    assert rows == [(b"\0\xff", 2**63 - 1)]
    assert type(rows[0][0]) is bytes


def test_texts_are_compared_by_code_point(database: Database) -> None:
    names = ["B", "a", "b", "z", "ä", "\uffff", "\U00010000"]
    with database.writing(PREFERENCES) as connection:
        for name in reversed(names):
            connection.execute("INSERT INTO preferences (name, value) VALUES (?, '0')", (name,))
        found = connection.execute("SELECT name FROM preferences WHERE name < ? ORDER BY name", (names[-1],))
        assert [name for (name,) in found] == names[:-1]


def test_an_error_in_a_block_is_a_store_error_and_the_next_block_works(database: Database) -> None:
    def fail() -> None:
        with database.writing(PREFERENCES) as connection:
            connection.execute("INSERT INTO preferences (name, value) VALUES ('a', '1')")
            connection.execute("SELECT 1 FROM no_table")

    with pytest.raises(StoreError):
        fail()
    with pytest.raises(StoreError, match="is damaged: a row"), database.reading():
        raise Damaged("a row")
    with pytest.raises(StoreError, match="is damaged: a row"), database.store_errors():
        raise Damaged("a row")
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM preferences").fetchone() == (0,)


def test_a_writer_waits_for_the_same_lock_no_longer_than_its_caller_allows(database: Database) -> None:
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with database.writing(PREFERENCES):
            is_held.set()
            may_end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(60)
    try:
        with limit_waiting(0.02, is_retried=True), pytest.raises(Busy), database.writing(PREFERENCES):
            pass
        with limit_waiting(0.02), pytest.raises(StoreError, match="locked"), database.writing(PREFERENCES):
            pass
    finally:
        may_end.set()
        holder.join()


def test_a_closed_database_says_so(database: Database) -> None:
    assert not database.is_closed
    database.close()
    database.close()
    assert database.is_closed
    with pytest.raises(StoreError, match="is closed: open it again"), database.reading():
        pass


# What it keeps


def test_a_saved_fold_is_continued_replaced_and_deleted_with_its_session(
    kept: Store, database: Database
) -> None:
    kept.journal.append("one", 0, turn(0), turn(1))
    assert not kept.journal.save_fold("one", "a", b"s", b"p", 1, 2)  # part 0 is missing
    assert not kept.journal.save_fold("one", "a", b"s", b"p", 0, 1)  # there are two events
    for number in range(3):
        assert kept.journal.save_fold("one", "a", b"s%d" % number, b"p%d" % number, number, 2)
    assert kept.journal.load_fold("one", "a") == SavedFold(b"s2", (b"p0", b"p1", b"p2"))
    assert kept.journal.save_fold("one", "a", b"\0", b"\xff", 0, 2)
    assert kept.journal.load_fold("one", "a") == SavedFold(b"\0", (b"\xff",))
    for number in range(MOST):
        assert kept.journal.save_fold("one", str(number), b"s", b"p", 0, 2)
    assert kept.journal.load_fold("one", "a") is None  # the oldest makes room
    assert logs_of(database) == MOST
    assert kept.delete_session("one")
    assert kept.journal.load_fold("one", "0") is None
    assert logs_of(database) == 0


def test_the_log_of_a_fold_is_deleted_by_a_database_without_foreign_keys_too() -> None:
    with store.open("sqlite://:memory:") as kept:
        kept._database._connection.execute("PRAGMA foreign_keys = OFF")  # type: ignore[attr-defined]
        test_a_saved_fold_is_continued_replaced_and_deleted_with_its_session(kept, kept._database)


def logs_of(database: Database) -> int:
    with database.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM fold_logs").fetchone()[0])


def test_a_session_is_listed_read_and_deleted_and_what_others_keep_stays(kept: Store) -> None:
    for number in range(70):
        kept.journal.append("one", number, turn(number))
    kept.journal.keep("two", ["turn 3", "another"])
    assert [(each.id, each.events, each.title) for each in kept.sessions()] == [("one", 70, "turn 0")]
    assert list(kept.salvage("one")) == [tuple(turn(number)) for number in range(70)]
    assert kept.delete_session("one")
    assert not kept.delete_session("one")
    assert {hit.text for hit in kept.journal.search("turn 3")} == {"turn 3"}
    assert list(kept.sessions()) == []
    kept.shrink()
    assert {hit.text for hit in kept.journal.search("another")} == {"another"}


def test_preferences_are_stored_changed_and_listed(kept: Store) -> None:
    kept.preferences.set("b", {"ä\ud800": [None, 2**70]})
    assert kept.preferences.change("a", lambda value: [*value, 1], default=[]) == [1]
    assert kept.preferences.all() == {"a": [1], "b": {"ä\ud800": [None, 2**70]}}


@pytest.mark.parametrize("name", LASTING)
def test_a_store_that_is_opened_again_has_all_but_the_reservations_of_earlier_processes(name: str) -> None:
    with DATABASES[name]() as url:
        with store.open(url) as kept:
            kept.journal.append("one", 0, turn(0))
            first, second = kept.journal.remember("a fact"), kept.journal.remember("another")
            assert kept.journal.forget(second.number)
            assert kept.book.reserve(CALL, []) is None
            assert kept.book.used("session", "one") == (0, 1)
        with store.open(url) as kept:
            assert list(kept.journal.events("one")) == [turn(0)]
            assert list(kept.journal.items()) == [first]
            assert kept.journal.remember("a third").number > second.number
            assert kept.book.used("session", "one") == (0, 0)
            assert kept.book.settle(CALL, LedgerEntry(calls=1, cost=Decimal(2)))
            assert not kept.book.settle(CALL, LedgerEntry(calls=1, cost=Decimal(2)))
            assert kept.book.used("session", "one") == (2, 0)
