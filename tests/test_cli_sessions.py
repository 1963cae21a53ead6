"""`ullage sessions` as its users meet it: real processes, a real store."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from decimal import Decimal
from typing import TYPE_CHECKING

import pexpect
import pytest

from tests.test_cli_cost import PROGRAM, process, run
from ullage import store
from ullage.cli.sessions import parse_age
from ullage.context import Context
from ullage.context.journal import JournalEvent
from ullage.cost.book import Account, Reservation
from ullage.fitting.pieces import letters_of
from ullage.store.values import seal_session
from ullage.usage import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = 86_400.0
SHARED = "a long result that two sessions kept " * 100
OWN = "a long result that only one session kept " * 3_000


def age(file: Path, session: str, days: float) -> None:
    """Makes a session as old as if its last event had been kept so long ago."""
    connection = sqlite3.connect(file)
    row = connection.execute(
        "SELECT name, created, length, last FROM sessions WHERE name = ?", (session,)
    ).fetchone()
    name, created, length, last = row
    then = time.time() - days * DAY
    connection.execute(
        "UPDATE sessions SET updated = ?, checksum = ? WHERE name = ?",
        (then, seal_session(name, created, then, length, last), session),
    )
    connection.commit()
    connection.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three sessions: a recent one, one of 100 days ago, one of a year and more."""
    file = tmp_path / "ullage.db"
    with store.open(file) as kept:
        for session in ("recent", "aged", "ancient"):
            context = Context(journal=kept.journal, session=session, model="gpt-4o")
            context.append_user(f"What about the {session} tides?")
            context.append({"role": "assistant", "content": SHARED})
            kept.journal.keep(session, [SHARED], [1])
        kept.journal.append("aged", 2, JournalEvent("turn", {"message": {"role": "user", "content": OWN}}))
        kept.journal.keep("aged", [OWN, "a note beside it"], [2, None])
        account = Account("aged", "gpt-4o", "main", "here", "2026-11-16")
        reservation = Reservation("call", account, Decimal("0.01"))
        kept.book.reserve(reservation, [])
        kept.book.settle(reservation, LedgerEntry(calls=1, prompt=100, cost=Decimal("0.003")))
    age(file, "aged", 100)
    age(file, "ancient", 400)
    return file


def ids(file: Path) -> list[str]:
    done = run("sessions", "list", "--json", "--store", file)
    return [json.loads(line)["id"] for line in done.stdout.splitlines()]


def test_list_prints_the_latest_first_with_their_titles(file: Path) -> None:
    done = process("sessions", "list", "--store", file, COLUMNS="120")
    lines = done.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["recent", "aged", "ancient"]
    assert "What about the recent tides?" in lines[0]
    assert ids(file) == ["recent", "aged", "ancient"]
    assert len(run("sessions", "list", "--most", 1, "--json", "--store", file).stdout.splitlines()) == 1


def test_show_prints_the_turns_for_people_and_for_programs(file: Path) -> None:
    shown = process("sessions", "show", "rec", "--store", file).stdout.decode()
    assert shown.startswith("[user]\nWhat about the recent tides?\n\n[assistant]\na long result")
    rows = [
        json.loads(line)
        for line in run("sessions", "show", "recent", "--json", "--store", file).stdout.splitlines()
    ]
    assert [row["kind"] for row in rows] == ["turn", "turn"]
    assert rows[1]["data"]["message"]["content"] == SHARED


def test_show_prints_what_is_left_of_a_damaged_session_and_it_can_be_deleted(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("UPDATE events SET data = replace(data, 'only one', 'only two') WHERE number = 2")
    connection.commit()
    connection.close()
    done = run("sessions", "show", "aged", "--store", file)
    assert done.returncode == 1
    assert b"[damaged]" in done.stdout
    assert b"What about the aged tides?" in done.stdout
    assert b"1 of 3 events is damaged and cannot be read: 2." in done.stderr
    assert run("sessions", "delete", "aged", "--yes", "--store", file).returncode == 0
    with store.open(file) as kept:
        assert {piece.text for piece in kept.journal.search("only one session")} == {SHARED}
        found = kept.journal.recall(letters_of(SHARED))
        assert found is not None
        assert found.text == SHARED
        assert {piece.text for piece in kept.journal.search("two sessions kept")} == {SHARED}


def test_delete_takes_the_texts_that_only_it_keeps_and_the_file_shrinks_but_the_bill_stays(
    file: Path,
) -> None:
    before = file.stat().st_size
    done = run("sessions", "delete", "aged", "--yes", "--store", file)
    assert done.returncode == 0
    assert re.search(rb"deleted 1 session; the store is 0\.[12] MB smaller", done.stdout)
    assert file.stat().st_size < before - len(OWN)
    assert b"only one session kept" not in file.read_bytes()
    assert ids(file) == ["recent", "ancient"]
    with store.open(file) as kept:
        assert kept.journal.recall(letters_of(OWN)) is None
        assert kept.journal.search("a note beside") == ()
        assert kept.journal.events("aged") == ()
        found = kept.journal.recall(letters_of(SHARED))
        assert found is not None
        assert (found.text, found.session) == (SHARED, "recent")
        ((_, entry),) = kept.book.entries(session="aged")
        assert entry.cost == Decimal("0.003")


def test_the_last_session_that_keeps_a_text_takes_it_along(file: Path) -> None:
    with store.open(file) as kept:
        kept.journal.keep("recent", ["beside"])
        for session in ("recent", "aged"):
            assert kept.delete_session(session)
        found = kept.journal.recall(letters_of(SHARED))
        assert found is not None
        assert found.text == SHARED
        assert kept.delete_session("ancient")
        assert kept.journal.recall(letters_of(SHARED)) is None
        with kept._database.reading() as connection:
            for table in ("sessions", "events", "pieces", "kept", "folds"):
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608 - our own
            assert connection.execute("SELECT count(*) FROM words WHERE words MATCH 'long'").fetchone() == (
                0,
            )


def test_a_text_of_a_deleted_session_that_another_kept_beside_its_events_stays(tmp_path: Path) -> None:
    with store.open(tmp_path / "ullage.db") as kept:
        kept.journal.append("one", 0, JournalEvent("turn", {"message": {"role": "user", "content": SHARED}}))
        kept.journal.keep("one", [SHARED], [0])
        kept.journal.append("two", 0, JournalEvent("turn", {"message": {"role": "user", "content": "hi"}}))
        kept.journal.keep("two", [SHARED])
        assert kept.delete_session("one")
        found = kept.journal.recall(letters_of(SHARED), "two")
        assert found is not None
        assert (found.text, found.session) == (SHARED, "two")
        assert not kept.delete_session("one")


def test_prune_deletes_what_is_older_and_nothing_else(file: Path) -> None:
    told = run("sessions", "prune", "--older-than", "90d", "--dry-run", "--store", file)
    assert b"2 sessions would be deleted" in told.stdout
    assert ids(file) == ["recent", "aged", "ancient"]
    assert run("sessions", "prune", "--older-than", "1y", "--yes", "--store", file).returncode == 0
    assert ids(file) == ["recent", "aged"]
    done = run("sessions", "prune", "--older-than", "12w", "--yes", "--json", "--store", file)
    assert json.loads(done.stdout)["deleted"] == ["aged"]
    assert json.loads(done.stdout)["bytes_freed"] > len(OWN)
    done = run("sessions", "prune", "--older-than", "6m", "--yes", "--store", file)
    assert (done.returncode, done.stdout) == (0, b"no session to delete\n")


def test_without_a_terminal_nothing_is_asked_and_nothing_is_deleted(file: Path) -> None:
    done = process("sessions", "delete", "aged", "--store", file)
    assert done.returncode == 2
    assert b"--yes" in done.stderr
    assert ids(file) == ["recent", "aged", "ancient"]


@pytest.mark.parametrize(
    ("answer", "left"), [("y", ["recent", "ancient"]), ("", ["recent", "aged", "ancient"])]
)
def test_on_a_terminal_it_asks_first(file: Path, answer: str, left: list[str]) -> None:
    child = pexpect.spawn(PROGRAM, ["sessions", "delete", "aged", "--store", str(file)], timeout=60)
    child.expect(r"Delete 1 session permanently\? \[y/N\] ")
    child.sendline(answer)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == (0 if answer else 2)
    assert ids(file) == left


@pytest.fixture
def busy(file: Path) -> Iterator[None]:
    """Another process that has the aged session open."""
    program = (
        "import sys; from ullage import store\n"
        "with store.open(sys.argv[1]) as kept:\n"
        "    kept.journal.events('aged'); print('open', flush=True); sys.stdin.readline()\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", program, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "open\n"
    yield
    worker.communicate("end\n")


@pytest.mark.usefixtures("busy")
def test_a_session_that_is_open_in_another_process_is_not_deleted(file: Path) -> None:
    done = run("sessions", "delete", "aged", "ancient", "--yes", "--store", file)
    assert done.returncode == 1
    assert b"'aged' is open in another process and was not deleted" in done.stderr
    assert ids(file) == ["recent", "aged"]


def test_a_process_that_was_killed_keeps_no_session_from_being_deleted(file: Path) -> None:
    program = (
        "import os, signal, sys; from ullage import store\n"
        "kept = store.open(sys.argv[1]); kept.journal.events('aged'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(file)], check=False)
    assert run("sessions", "delete", "aged", "--yes", "--store", file).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("show", "nothing"), b"no session begins with 'nothing'"),
        (("delete", "a", "--yes"), b"2 sessions begin with 'a'"),
        (("prune", "--older-than", "90"), b"'90' is not an age: write 90d, 12w, 6m or 1y"),
        (("prune", "--yes"), b"--older-than"),
        (("prune", "--older-than", "-1d"), b"older-than"),
        ((), b"ACTION"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_deleted(
    file: Path, arguments: tuple[str, ...], reason: bytes
) -> None:
    done = run("sessions", *arguments, *(("--store", file) if arguments else ()))
    assert done.returncode == 2
    assert reason in done.stderr
    assert ids(file) == ["recent", "aged", "ancient"]


def test_a_store_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    done = run("sessions", "list", "--store", tmp_path / "none.db")
    assert done.returncode == 1
    assert b"nothing is saved yet" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ages_are_days_weeks_months_and_years() -> None:
    assert [parse_age(text) / DAY for text in ("90d", "12w", "6m", "1y", " 2D ")] == [90, 84, 180, 365, 2]
