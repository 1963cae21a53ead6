"""What a damaged file does: the same content comes back, or a StoreError, and never another text."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ullage import store
from ullage.context.journal import JournalEvent
from ullage.cost import Ledger
from ullage.errors import StoreError
from ullage.fitting.pieces import letters_of
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FLIPS = int(os.environ.get("ULLAGE_FLIPS", "400"))
SESSIONS = ("monday", "tuesday")


def message(session: str, number: int) -> dict[str, Any]:
    content = f"{session} turn {number}: " + f"word{number} " * (60 if number % 5 else 700)
    return {"role": "user" if number % 2 else "assistant", "content": content}


def fill(file: Path) -> None:
    """Two conversations with pieces in their events and beside them, and things to remember."""
    with store.open(file) as kept:
        for session in SESSIONS:
            for number in range(30):
                said = message(session, number)
                kept.journal.append(session, number, JournalEvent("turn", {"message": said}))
            texts = [message(session, number)["content"] for number in range(0, 20, 2)]
            kept.journal.keep(session, texts, list(range(0, 20, 2)))
            kept.journal.keep(session, ["a text of no event " * 40, f"only {session} " * 40])
        for number in range(10):
            kept.journal.remember(f"the thing of number {number}", "note")


def contents(kept: store.Store) -> dict[str, Callable[[], object]]:
    """Everything that can be read of the store, by name."""
    handles = [letters_of(message(session, number)["content"]) for session in SESSIONS for number in (0, 6)]
    handles.append(letters_of("a text of no event " * 40))
    return {
        **{
            f"events of {session}": lambda session=session: kept.journal.events(session)
            for session in SESSIONS
        },
        "pieces": lambda: [
            (piece.handle, piece.text) for piece in map(kept.journal.recall, handles) if piece
        ],
        "memory": kept.journal.items,
        "sessions": lambda: [each._replace(damaged=False) for each in kept.sessions() if not each.damaged],
    }


def readings(file: Path) -> dict[str, object]:
    """What is read of the store; StoreError in the place of what cannot be."""
    found: dict[str, object] = {}
    try:
        with store.open(file) as kept:
            for name, look in contents(kept).items():
                try:
                    found[name] = look()
                except StoreError as error:
                    found[name] = told_about(file, error)
    except StoreError as error:
        found["open"] = told_about(file, error)
    return found


def told_about(file: Path, error: StoreError) -> object:
    """The error's class, if it names the file."""
    return StoreError if str(file) in str(error) else error


def wrong(found: Mapping[str, object], true: Mapping[str, object]) -> list[str]:
    """The names of what was read and is neither what was written nor an error."""
    listed = found.get("sessions")
    if isinstance(listed, list):  # one that is told as damaged is left out
        found = {**found, "sessions": true["sessions"] if set(listed) <= set(true["sessions"]) else listed}  # type: ignore[call-overload]
    return [name for name, value in found.items() if value is not StoreError and value != true[name]]


def assert_kept_if_acknowledged(file: Path, true: Mapping[str, Any]) -> None:
    """An event that a damaged store takes is read again with all before it, or reading it is an error."""
    new = JournalEvent("turn", {"message": {"role": "user", "content": "one more"}})
    try:
        with store.open(file) as kept:
            kept.journal.append("monday", 30, new)
    except StoreError:
        return
    found = readings(file).get("events of monday", StoreError)
    assert found in (StoreError, (*true["events of monday"], new))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ullage.db"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("whole") / "ullage.db"
    fill(file)
    return file


def test_a_flipped_bit_gives_the_same_content_or_a_store_error(whole: Path, tmp_path: Path) -> None:
    true, bytes_before = readings(whole), whole.read_bytes()
    file, dice, told = tmp_path / "ullage.db", random.Random(7), 0  # noqa: S311 - no secret
    for _ in range(FLIPS):
        place, bit = dice.randrange(len(bytes_before)), dice.randrange(8)
        damaged = bytearray(bytes_before)
        damaged[place] ^= 1 << bit
        file.write_bytes(damaged)
        found = readings(file)
        assert not wrong(found, true), f"byte {place}, bit {bit}"
        assert_kept_if_acknowledged(file, true)
        told += StoreError in found.values()
        for beside in tmp_path.glob("ullage.db-*"):
            beside.unlink()
    assert told > FLIPS // 10


def test_a_file_that_lost_its_end_gives_the_same_content_or_a_store_error(
    whole: Path, tmp_path: Path
) -> None:
    true, content = readings(whole), whole.read_bytes()
    file, dice = tmp_path / "ullage.db", random.Random(8)  # noqa: S311 - no secret
    lengths = {*range(4_096, len(content), 4_096), *(dice.randrange(1, len(content)) for _ in range(60))}
    for length in sorted(lengths):
        file.write_bytes(content[:length])
        found = readings(file)
        assert StoreError in found.values(), length
        assert not wrong(found, true), length
        for beside in tmp_path.glob("ullage.db-*"):
            beside.unlink()


def grown(file: Path, turns: int, size: int = 3_000) -> store.Store:
    """An open store with one session of so many events."""
    kept = store.open(file)
    for number in range(turns):
        kept.journal.append("one", number, JournalEvent("turn", {"text": f"{number} " + "x" * size}))
    return kept


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_nothing_is_acknowledged_in_a_file_that_was_cut_short_while_it_was_open(
    file: Path, share: float
) -> None:
    with grown(file, 40) as kept:
        with kept._database.reading():
            pass
        kept._database._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # type: ignore[union-attr]
        kept.journal.append("one", 40, JournalEvent("turn", {"text": "before"}))
        os.truncate(file, int(file.stat().st_size * share))
        for _ in range(2):
            with pytest.raises(StoreError, match="cut short"):
                kept.journal.append("one", 41, JournalEvent("turn", {"text": "after"}))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_nothing_is_acknowledged_after_its_log_was_cut_short(file: Path, share: float) -> None:
    with grown(file, 40) as kept:
        log = Path(f"{file}-wal")
        os.truncate(log, int(log.stat().st_size * share))
        with pytest.raises(StoreError):
            kept.journal.append("one", 40, JournalEvent("turn", {"text": "after"}))


def test_nothing_is_acknowledged_after_its_log_was_deleted(file: Path) -> None:
    with grown(file, 3) as kept:
        Path(f"{file}-wal").unlink()
        with pytest.raises(StoreError, match="log"):
            kept.journal.append("one", 3, JournalEvent("turn", {"text": "after"}))


def test_a_file_that_another_process_made_smaller_is_not_cut_short(file: Path) -> None:
    with grown(file, 60) as kept, store.open(file) as other:
        kept._database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
        kept.journal.append("two", 0, JournalEvent("turn", {"text": "hello"}))
        before = file.stat().st_size
        assert other.delete_session("one")
        other.shrink()
        assert file.stat().st_size < before // 2
        kept.journal.append("two", 1, JournalEvent("turn", {"text": "hello again"}))
    with store.open(file) as kept:
        assert len(kept.journal.events("two")) == 2


def test_a_damaged_event_is_named_with_its_session_and_what_to_do(file: Path) -> None:
    grown(file, 5).close()
    content = file.read_bytes()
    place = content.index(b"3 xxxxx")
    file.write_bytes(content[:place] + b"7" + content[place + 1 :])
    with store.open(file) as kept:
        with pytest.raises(StoreError, match="event 3 of session 'one' was changed") as raised:
            kept.journal.events("one")
        assert "ullage sessions show one" in str(raised.value)
        assert "ullage sessions delete one" in str(raised.value)
        saved = kept.salvage("one")
        assert [None if event is None else event[1]["text"][:2] for event in saved] == [
            "0 ", "1 ", "2 ", None, "4 ",
        ]  # fmt: skip
        assert [each.damaged for each in kept.sessions()] == [True]


def test_a_search_leaves_out_a_piece_that_only_the_index_of_words_still_has(file: Path) -> None:
    texts = [f"the red buoy of quay {number}" for number in range(3)]
    with store.open(file) as kept:
        kept.journal.append("one", 0, JournalEvent("turn", {"message": {"role": "user", "content": "Go."}}))
        kept.journal.keep("one", texts)
        assert len(kept.journal.search("buoy", "one")) == 3
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        gone = connection.execute("DELETE FROM pieces WHERE hash = ?", (letters_of(texts[0]),))
        assert gone.rowcount == 1
    with store.open(file) as kept:
        found = kept.journal.search("buoy", "one")
    assert {each.text for each in found} == set(texts[1:])


@pytest.mark.parametrize("size", ["x", -9, 2**62])
def test_a_search_does_not_fail_on_a_passage_whose_size_is_damaged(file: Path, size: str | int) -> None:
    texts = [f"the red buoy of quay {number}" for number in range(3)]
    with store.open(file) as kept:
        kept.journal.append("one", 0, JournalEvent("turn", {"message": {"role": "user", "content": "Go."}}))
        kept.journal.keep("one", texts)
        assert len(kept.journal.search("buoy", "one")) == 3
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE passages SET size = ? WHERE id = 2", (size,))
    with store.open(file) as kept:
        assert {each.text for each in kept.journal.search("buoy", "one")} <= set(texts)


def test_a_piece_whose_hash_became_a_number_is_told_as_damaged(file: Path) -> None:
    text = "the red buoy of the quay"
    with store.open(file) as kept:
        kept.journal.append("one", 0, JournalEvent("turn", {"message": {"role": "user", "content": "Go."}}))
        kept.journal.keep("one", [text])
        assert len(kept.journal.search("buoy", "one")) == 1
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        retype(connection, "TEXT", "BLOB")
        connection.execute("UPDATE pieces SET hash = 7 WHERE hash = ?", (letters_of(text),))
        retype(connection, "BLOB", "TEXT")
    with store.open(file) as kept, pytest.raises(StoreError, match="piece 7 was changed"):
        kept.journal.search("buoy", "one")


def retype(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Declares the hash of a piece as another type, because a column of texts takes no number."""
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = 'pieces'",
        (f"hash {old}", f"hash {new}"),
    )
    connection.execute("PRAGMA writable_schema = RESET")


@pytest.mark.parametrize("change", ["UPDATE entries SET prompt = 'x'", "UPDATE totals SET spent = 'x'"])
def test_sums_that_are_no_numbers_are_told_as_damaged(file: Path, change: str) -> None:
    def call() -> None:
        with store.open(file) as kept:
            ledger = Ledger(book=kept.book, session="one", cap_at_dollars=1)
            ledger.settle(ledger.reserve("gpt-4o", 100, 50), Usage(prompt=100, completion=20))

    call()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(change)
    with pytest.raises(StoreError, match=r"the sums of .* changed"):
        call()
