"""The file of the store: who may read it, what is refused, what survives."""
# ruff: noqa: S311 - dice are no secrets

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import sqlite3
import stat
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.backends import BACKENDS
from tests.workers import CENT, DAY, HERE, account, words_of
from ullage import store
from ullage.context import Context
from ullage.context.journal import JournalEvent
from ullage.cost.book import Cap, Reservation
from ullage.errors import ConfigurationError, Conflict, StoreError
from ullage.fitting.pieces import letters_of
from ullage.patience import limit_waiting
from ullage.store.sqlite.driver import SqliteConnection
from ullage.store.sqlite.migrations import APPLICATION, MIGRATIONS
from ullage.target import Target
from ullage.usage import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.store.settings import PreferenceStore

ROOT = Path(__file__).resolve().parent.parent
KILLS = int(os.environ.get("ULLAGE_KILLS", "8"))
TURNS = 1_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ullage.db"


def turn(number: int) -> JournalEvent:
    return JournalEvent("turn", {"role": "user", "content": f"turn {number}"})


@contextlib.contextmanager
def started(*commands: Sequence[object]) -> Iterator[list[subprocess.Popen[str]]]:
    """Workers, one a command; whatever is left of them at the end is killed."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.workers", *map(str, command)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            for stream in (worker.stdin, worker.stdout):
                assert stream is not None
                stream.close()


def line_of(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def rest_of(worker: subprocess.Popen[str]) -> str:
    """All that it still prints; `communicate` would not know of what `line_of` has buffered."""
    assert worker.stdout is not None
    printed = worker.stdout.read()
    worker.wait()
    return printed


def all_at_once(workers: Sequence[subprocess.Popen[str]]) -> list[str]:
    """What workers print who wait until all of them are ready."""
    for worker in workers:
        assert line_of(worker) == "ready"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    printed = [rest_of(worker).strip() for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers)
    return printed


def sound(file: Path) -> bool:
    connection = sqlite3.connect(file)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def states(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


# Where it is, and who may read it


def test_without_a_name_it_is_in_the_users_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with store.open() as kept:
        assert kept.path == tmp_path / "ullage" / "ullage.db"
        assert kept.path.exists()


def test_it_is_closed_to_others_from_the_start_whatever_the_umask(tmp_path: Path) -> None:
    file = tmp_path / "new" / "state" / "ullage.db"
    before = os.umask(0)
    try:
        with store.open(file) as kept:
            kept.journal.append("one", 0, turn(0))
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("ullage.db", "ullage.db-wal", "ullage.db-shm", "ullage.db-locks"), 0o600)
    assert (
        stat.S_IMODE(file.parent.stat().st_mode) == stat.S_IMODE(file.parent.parent.stat().st_mode) == 0o700
    )


def test_a_path_and_its_url_are_the_same_store(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    for url in (file, str(file), f"sqlite:///{file}", "sqlite:///ullage.db", "ullage.db", "./ullage.db"):
        with store.open(url) as kept:
            assert kept.path == file
            kept.preferences.set(repr(url), True)
    with store.open(file) as kept:
        assert len(kept.preferences.all()) == 6


@pytest.mark.parametrize("name", ["a?b#c%20d.db", "ü ö.db", "\udcff.db", "mode=ro"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    with store.open(tmp_path / name) as kept:
        kept.preferences.set("a", 1)
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}-locks"}


@pytest.mark.parametrize("url", [":memory:", "sqlite://", "sqlite://:memory:", "sqlite:///:memory:"])
def test_a_store_in_memory_has_no_file_and_shares_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with store.open(url) as one, store.open(url) as other:
        one.journal.append("one", 0, turn(0))
        assert list(other.journal.events("one")) == []
        assert one.path is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/db", "oracle://x", "sqlite://relative.db", "", "sqlite:///"]
)
def test_a_url_that_names_no_store_says_what_there_is_and_tells_no_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="sqlite:///path") as raised:
        store.open(url)
    assert "secret" not in str(raised.value)


def test_a_path_that_no_file_can_have_is_an_error_of_ours() -> None:
    with pytest.raises(ConfigurationError, match="cannot be the path"):
        store.open("a\0b")


# What it keeps


def test_a_commit_waits_for_the_disk(file: Path) -> None:
    with store.open(file) as kept, kept._database.reading() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_everything_is_there_when_it_is_opened_again(file: Path) -> None:
    with store.open(file) as kept:
        kept.journal.append("one", 0, turn(0))
        kept.journal.keep("one", ["some words"])
        kept.journal.remember("a fact", "note")
        kept.preferences.set("tree", {"depth": 3})
        kept.calibration.learn(HERE, lambda _: {"ratio": 1.25})
        kept.book.reserve(Reservation("a", account("one"), Decimal("0.5")), [])
    with store.open(file) as kept:
        assert list(kept.journal.events("one")) == [turn(0)]
        assert [piece.text for piece in kept.journal.search("words")] == ["some words"]
        assert [item.content for item in kept.journal.items()] == ["a fact"]
        assert kept.preferences.get("tree") == {"depth": 3}
        assert kept.calibration.learned(HERE) == {"ratio": 1.25}
        assert kept.book.settle(
            Reservation("a", account("one"), Decimal("0.5")), LedgerEntry(calls=1, cost=CENT)
        )
        assert kept.book.used("day", DAY) == (CENT, 0)


def test_preferences_have_defaults_and_any_json_value(file: Path) -> None:
    with store.open(file) as kept:
        assert kept.preferences.get("x") is None
        assert kept.preferences.get("x", 7) == 7
        for value in (None, False, 0, "", [], {"a": [1.5, None]}, "\ud800", 2**70):
            kept.preferences.set("x", value)
            assert kept.preferences.get("x", 7) == value
        kept.preferences.set("a", 1)
        assert kept.preferences.all() == {"a": 1, "x": 2**70}
        assert list(kept.preferences.all()) == ["a", "x"]


def test_a_preference_is_changed_in_one_step_and_not_at_all_if_the_change_fails(file: Path) -> None:
    with store.open(file) as one, store.open(file) as other:
        preferences = one.preferences
        assert preferences.change("x", lambda known: [*known, 1], []) == [1]
        assert preferences.change("x", lambda known: [*known, 2], []) == [1, 2]
        with pytest.raises(ZeroDivisionError):
            preferences.change("x", lambda known: [*known, 1 / 0])
        assert other.preferences.get("x") == [1, 2]


def test_two_who_change_a_preference_at_the_same_time_both_do(file: Path) -> None:
    def change(preferences: PreferenceStore, first: int) -> None:
        for number in range(first, 100, 2):
            preferences.change("x", lambda known, number=number: [*known, number], [])

    with store.open(file) as one, store.open(file) as other:
        threads = [
            threading.Thread(target=change, args=(kept.preferences, first))
            for first, kept in enumerate((one, other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(one.preferences.get("x")) == list(range(100))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_learned_is_changed_in_one_step_and_not_at_all_if_the_change_fails(backend: str) -> None:
    with BACKENDS[backend]() as opened:
        shelf = opened.calibration
        assert shelf.learned(HERE) is None
        assert shelf.learn(HERE, lambda known: {"was": known}) == {"was": None}
        assert shelf.learn(HERE, lambda known: {"was": dict(known or {})}) == {"was": {"was": None}}
        with pytest.raises(ZeroDivisionError):
            shelf.learn(HERE, lambda _: {"was": 1 / 0})
        assert shelf.learned(HERE) == {"was": {"was": None}}
        assert shelf.learned(Target(endpoint="here", model="n")) is None
        assert shelf.learned(Target(endpoint="there", model="m")) is None
        assert shelf.learned(replace(HERE, api="openai.responses")) is None


def test_sessions_are_listed_the_latest_first_with_the_first_words_of_the_user(file: Path) -> None:
    with store.open(file) as kept:
        assert list(kept.sessions()) == []
        kept.journal.append("one", 0, JournalEvent("begin", {"model": "gpt-4o"}))
        kept.journal.append(
            "one", 1, JournalEvent("turn", {"message": {"role": "user", "content": " Where  is\nit? "}})
        )
        kept.journal.append("two", 0, JournalEvent("turn", {"role": "assistant", "content": "Hello"}))
        parts = [{"type": "image"}, {"type": "text", "text": "word " * 50}]
        kept.journal.append("three", 0, JournalEvent("turn", {"role": "user", "content": parts}))
        kept.journal.keep("four", ["a piece, but no event"])
        kept.journal.append("one", 2, turn(2))
        listed = kept.sessions()
        assert [(each.id, each.events) for each in listed] == [("one", 3), ("three", 1), ("two", 1)]
        assert [each.title for each in listed] == ["Where is it?", ("word " * 12)[:59].rstrip() + "…", ""]
        assert listed[0].created < listed[0].updated <= time.time()
        assert [each.id for each in kept.sessions(most=1)] == ["one"]


def test_a_session_is_called_by_what_was_asked_not_by_what_commands_printed(file: Path) -> None:
    asked = {"a": "Which is\n\nthe largest?", "b": [{"type": "text", "text": "And now?"}]}
    with store.open(file) as kept:
        for session, content in asked.items():
            context = Context(journal=kept.journal, session=session, model="gpt-4o")
            context.append_exec_output("$ ls\nboats.csv\n\nnotes.md")
            context.append_exec_output("$ pwd\n/harbour")
            context.append_user(content)
        assert {each.id: each.title for each in kept.sessions()} == {
            "a": "Which is the largest?",
            "b": "And now?",
        }


# What is refused


def foreign(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    connection.close()


def foreign_log(file: Path) -> None:
    """A file of another program that has not been closed properly: its newest pages are in the log."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    copies = {path: path.read_bytes() for path in file.parent.iterdir()}
    connection.close()
    for path, content in copies.items():
        path.write_bytes(content)


def newer(file: Path) -> None:
    store.open(file).close()
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.commit()
    connection.close()


def filled(file: Path) -> None:
    with store.open(file) as kept:
        for number in range(50):
            kept.journal.append("one", number, JournalEvent("turn", {"content": "x" * 2_000}))


def truncated(file: Path) -> None:
    filled(file)
    os.truncate(file, file.stat().st_size // 2)


def cut_short(file: Path) -> None:
    filled(file)
    os.truncate(file, 60)


def overwritten(file: Path) -> None:
    filled(file)
    with file.open("r+b") as opened:
        opened.seek(100)
        opened.write(random.Random(1).randbytes(4_000))


REFUSED = {
    "damaged": (
        lambda file: file.write_bytes(b"This is no database.\n" * 400),
        truncated,
        cut_short,
        overwritten,
    ),
    "another program": (foreign, foreign_log),
    "newer Ullage": (newer,),
}


@pytest.mark.parametrize(
    ("reason", "make"), [(reason, make) for reason, makers in REFUSED.items() for make in makers]
)
def test_a_file_that_cannot_be_used_is_refused_with_its_name_and_left_as_it_is(
    file: Path, reason: str, make: Any
) -> None:
    make(file)
    before = states(file.parent)
    for _ in range(2):
        with pytest.raises(StoreError, match=reason) as raised:
            store.open(file)
        assert str(file) in str(raised.value)
        after = states(file.parent)
        after.pop("ullage.db-shm", None)  # SQLite's own scratch file, of the log that was there
        assert after == {name: state for name, state in before.items() if not name.endswith("-shm")}


def test_an_empty_file_is_a_new_store(file: Path) -> None:
    file.touch()
    with store.open(file) as kept:
        kept.journal.append("one", 0, turn(0))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a file"):
        store.open(tmp_path)


def test_a_path_through_a_file_is_refused(file: Path) -> None:
    file.write_text("here", "utf-8")
    with pytest.raises(StoreError, match="cannot be opened"):
        store.open(file / "ullage.db")


@pytest.mark.parametrize(
    ("mode", "of"), [(0o400, "file"), (0o000, "file"), (0o500, "directory"), (0o000, "directory")]
)
def test_what_may_not_be_written_is_refused(tmp_path: Path, mode: int, of: str) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir()
    file = directory / "ullage.db"
    if of == "file":
        filled(file)
    before = states(directory)
    (file if of == "file" else directory).chmod(mode)
    program = (
        "import os, sys\n"
        "from ullage import store, errors\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "try: store.open(sys.argv[1] + '/ullage.db')\n"
        "except errors.StoreError as error: print(error)\n"
    )
    if os.geteuid() == 0:  # whom no mode stops; so it is tried as somebody else, who gets everything
        for path in (directory, *directory.iterdir()):
            os.chown(path, 65534, 65534)
        for parent in tmp_path.parents[:2]:
            parent.chmod(0o755)
        tmp_path.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", program, directory],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    directory.chmod(0o700)
    assert "cannot be" in ran.stdout, ran.stderr
    assert str(file) in ran.stdout
    assert states(directory) == before


def test_a_full_disk_is_told_loses_nothing_and_is_got_over(file: Path) -> None:
    with store.open(file) as kept:
        kept.journal.append("one", 0, turn(0))
        with kept._database.reading() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(2):
            with pytest.raises(StoreError, match=r"no room left .*ullage|ullage.* no room left"):
                kept.journal.append("one", 1, JournalEvent("turn", {"content": "x" * 100_000}))
        with pytest.raises(StoreError, match="no room left"):
            kept.journal.keep("one", ["x" * 100_000])
        assert list(kept.journal.events("one")) == [turn(0)]
        with kept._database.reading() as connection:
            connection.execute("PRAGMA max_page_count = 1000000")
        kept.journal.append("one", 1, turn(1))
    assert sound(file)


@pytest.mark.parametrize("seed", range(4))
def test_damage_within_the_file_is_told_where_it_is_met(file: Path, seed: int) -> None:
    with store.open(file) as kept:
        for number in range(60):
            kept.journal.append("one", number, JournalEvent("turn", {"content": f"{number} " * 400}))
            kept.journal.keep("one", [f"{number} text " * 200])
    dice = random.Random(seed)
    with file.open("r+b") as opened:
        for _ in range(40):
            opened.seek(dice.randrange(4_096, file.stat().st_size - 500))
            opened.write(dice.randbytes(dice.randint(1, 400)))
    uses = (
        lambda kept: kept.journal.events("one"),
        lambda kept: kept.journal.append("one", 60, turn(60)),
        lambda kept: kept.journal.search("text", most=100),
        lambda kept: [kept.journal.recall(letters_of(f"{number} text " * 200)) for number in range(60)],
        lambda kept: kept.journal.keep("one", ["another"]),
        lambda kept: kept.sessions(),
        lambda kept: kept.preferences.all(),
    )
    told = []
    for use in uses:
        try:
            with store.open(file) as kept:
                use(kept)
        except StoreError as error:
            told.append(str(error))
    assert told
    assert all(str(file) in text and "damaged" in text for text in told)


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_a_file_that_is_taken_away_is_noticed_before_anything_is_lost(file: Path, what: str) -> None:
    with store.open(file) as kept:
        kept.journal.append("one", 0, turn(0))
        file.rename(file.with_name("away.db"))
        if what == "replaced":
            file.touch()
        with pytest.raises(StoreError, match="moved or deleted"):
            kept.journal.append("one", 1, turn(1))


def test_a_closed_store_says_so(file: Path) -> None:
    kept = store.open(file)
    kept.close()
    kept.close()
    for use in (
        lambda: kept.journal.append("one", 0, turn(0)),
        lambda: kept.journal.events("one"),
        lambda: kept.book.used("day", DAY),
        kept.preferences.all,
        kept.sessions,
    ):
        with pytest.raises(StoreError, match="closed"):
            use()


# Versions


@pytest.mark.parametrize("steps", range(1, len(MIGRATIONS) + 1))
def test_a_store_of_any_version_is_brought_up_to_date(file: Path, steps: int) -> None:
    connection = SqliteConnection(file)
    MIGRATIONS[0](connection)
    connection.execute("INSERT INTO sessions (name, created, updated, length) VALUES ('one', 1, 1, 1)")
    connection.execute('INSERT INTO events VALUES (1, 0, \'turn\', \'{"role":"user","content":"turn 0"}\')')
    for step in MIGRATIONS[1:steps]:
        step(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {steps}")
    connection.commit()
    connection.close()
    with store.open(file) as kept:
        assert list(kept.journal.events("one")) == [turn(0)]
        kept.journal.keep("one", ["text"])
        kept.preferences.set("a", 1)
        assert kept.book.used("day", DAY) == (0, 0)


STEPS = {
    "conversations": "ea6db7a2c74dc9ea",
    "pieces": "1b52d9625025ed46",
    "memory": "1ea56d83c94d6342",
    "accounts": "67a9b0de38962544",
    "settings": "9b53b5d9beaf14aa",
    "calibration_by_api": "2ab392280aac2a8f",
    "holders": "2c573063ad1f49e7",
    "checksums": "80c32ebadd3ce6ea",
    "texts_once": "190d3a1fca931e4c",
    "saved_folds": "685cbdb232572d35",
    "estimated_calls": "d09a534e1fd291fb",
    "searchable_turns": "94e39b396a7b5d81",
    "gateway_keys": "c1f73862cf55cb12",
    "key_headers": "e3b0c44298fc1c14",
}
"""The hash of the tables that each step makes or changes."""


def tables(connection: sqlite3.Connection) -> set[str]:
    made = connection.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name")
    return {sql for (sql,) in made if "words_" not in sql and "sqlite_" not in sql}


def test_the_steps_that_make_a_version_are_never_changed() -> None:
    connection = SqliteConnection(":memory:")
    made: dict[str, str] = {}
    for step in MIGRATIONS:
        before = tables(connection)
        step(connection)
        new = "\n".join(sorted(tables(connection) - before))
        made[step.__name__] = hashlib.sha256(new.encode()).hexdigest()[:16]
    connection.close()
    assert made == STEPS


# Processes


def test_a_killed_process_loses_nothing_that_it_acknowledged_and_corrupts_nothing(file: Path) -> None:
    dice = random.Random(os.urandom(8))
    kills = session = 0
    said: set[tuple[str, int]] = set()
    while kills < KILLS:
        with started(("converse", file, session, TURNS)) as (worker,):
            lines = [line_of(worker) for _ in range(dice.randint(1, 250))]
            time.sleep(dice.random() / 300)
            worker.send_signal(signal.SIGKILL)
            lines += rest_of(worker).split("\n")
        kills += worker.returncode == -signal.SIGKILL
        said |= {(kind, int(number)) for kind, _, number in (line.partition(" ") for line in lines if line)}
        done = check_what_was_said(file, str(session), said)
        if done >= TURNS:
            session += 1
            said = set()


def check_what_was_said(file: Path, session: str, said: set[tuple[str, int]]) -> int:
    """How many turns there are: all that were acknowledged, in order, and at most one that was not."""
    turns = sum(kind == "turn" for kind, _ in said)
    with store.open(file) as kept:
        assert [event.data["message"]["content"] for event in kept.journal.events(session)] in (
            [words_of(number) for number in range(turns)],
            [words_of(number) for number in range(turns + 1)],
        )
        for kind, number in said:
            if kind == "piece":
                piece = kept.journal.recall(letters_of(words_of(number))[:12], session)
                assert piece is not None
                assert piece.text == words_of(number)
        number = len(kept.journal.events(session))
        if number > turns:
            said.add(("turn", turns))
    assert sound(file)
    return number


def test_two_processes_on_one_session_win_each_number_once(file: Path) -> None:
    with started(("contend", file, "one", 100, "a"), ("contend", file, "one", 100, "b")) as workers:
        a, b = map(json.loads, all_at_once(workers))
    assert sorted(a["won"] + b["won"]) == list(range(200))
    with store.open(file) as kept:
        by = [event.data["by"] for event in kept.journal.events("one")]
    assert [number for number, who in enumerate(by) if who == "a"] == a["won"]


def test_processes_on_one_file_lose_none_of_each_others_changes(file: Path) -> None:
    who, times = ("a", "b", "c"), 60
    with started(*(("share", file, each, times) for each in who)) as workers:
        all_at_once(workers)
    with store.open(file) as kept:
        assert kept.calibration.learned(HERE) == {"sum": len(who) * times}
        assert kept.preferences.all() == {
            f"{each}-{number}": number for each in who for number in range(times)
        }
        assert len(kept.journal.items()) == len(who) * times
        for each in who:
            assert [event.data["number"] for event in kept.journal.events(each)] == list(range(times))
            assert len(kept.journal.search("shared", each, most=1_000)) == times
            assert len(kept.journal.search(f'"harbour {each}"', most=1_000)) == times
        assert len(kept.journal.search("shared", most=1_000)) == times
    assert sound(file)


def test_processes_that_make_the_same_file_at_the_same_moment_all_get_it(file: Path) -> None:
    with started(*[("begin", file)] * 4) as workers:
        assert all_at_once(workers) == ["done"] * 4
    with store.open(file) as kept:
        assert len(kept.journal.items()) == 4


def test_processes_that_write_all_the_time_take_turns(file: Path) -> None:
    with started(*(("insist", file, who, 200) for who in "ab")) as workers:
        all_at_once(workers)
    with store.open(file) as kept:
        written = (kept.calibration.learned(HERE) or {})["who"]
    assert written.count("a") == written.count("b") == 200
    both = written.rstrip(written[-1])  # after that only one was left
    runs = [len(list(run)) for _, run in itertools.groupby(both)]
    assert statistics.mean(runs[1:]) < 10  # 20 and more if whoever asks at the right moment is next


def test_a_process_that_is_stopped_while_it_waits_to_write_does_not_keep_others_from_writing(
    file: Path,
) -> None:
    with store.open(file) as kept, started(("queue", file)) as (worker,):
        assert line_of(worker) == "next"
        worker.send_signal(signal.SIGSTOP)
        kept.preferences.set("written", True)
        with limit_waiting(0):
            kept.preferences.set("written at once", True)
        assert len(kept.preferences.all()) == 2


def test_64_threads_of_each_of_8_processes_never_cross_a_cap_by_a_cent(file: Path) -> None:
    limit = Decimal(30)
    with started(*(("hammer", file, 64, limit, 4, which) for which in range(8))) as workers:
        told = list(map(json.loads, all_at_once(workers)))
    settled = sum(Decimal(each["settled"]) for each in told)
    calls = sum(each["calls"] for each in told)
    with store.open(file) as kept:
        assert kept.book.used("day", DAY) == (settled, 0)
        entries = [entry for _, entry in kept.book.entries()]
        assert sum(entry.cost or 0 for entry in entries) == settled
        assert sum(entry.calls for entry in entries) == calls
        over = Reservation("over", account("one"), limit - settled + CENT)
        assert kept.book.reserve(over, [Cap("day", DAY, limit)]) is not None
    assert settled <= limit
    assert any(each["refused"] for each in told)  # or the test would show nothing


def test_a_cap_holds_exactly_while_processes_that_use_it_are_killed(file: Path) -> None:
    limit = Decimal(5)
    dice = random.Random(os.urandom(8))
    with store.open(file) as kept:
        for round_ in range(3):
            names = [f"{round_}-{which}" for which in range(3)]
            with started(*(("hammer", file, 8, limit, 10_000, name) for name in names)) as workers:
                for worker in workers:
                    assert line_of(worker) == "ready"
                for worker in workers:
                    assert worker.stdin is not None
                    worker.stdin.write("go\n")
                    worker.stdin.flush()
                for worker in workers:  # one after the other, while the rest go on
                    time.sleep(dice.random() / 4)
                    spent, held = kept.book.used("day", DAY)
                    assert spent + held <= limit
                    worker.kill()
                    worker.wait()
            spent, held = kept.book.used("day", DAY)
            assert held == 0
            assert spent <= limit
            assert sum(entry.cost or 0 for _, entry in kept.book.entries()) == spent
        assert spent
    assert sound(file)


CALL = Reservation("next", account("two"), Decimal(1))
CAP = Cap("day", DAY, Decimal("1.50"))


@pytest.mark.parametrize("pause", [signal.SIGSTOP, None])
def test_what_a_process_holds_is_held_as_long_as_it_lives_and_free_as_soon_as_it_is_killed(
    file: Path, pause: signal.Signals | None
) -> None:
    with store.open(file) as kept:
        with started(("reserve", file)) as (worker,):
            assert line_of(worker) == "held"
            if pause is not None:
                worker.send_signal(pause)
            assert kept.book.used("day", DAY) == (0, 1)
            assert kept.book.reserve(CALL, [CAP]) is not None
        assert worker.returncode == -signal.SIGKILL
        assert kept.book.used("day", DAY) == (0, 0)
        assert kept.book.reserve(CALL, [CAP]) is None


def test_a_call_whose_process_is_gone_can_still_be_settled_for_a_month(file: Path) -> None:
    with started(("reserve", file)) as (worker,):
        line_of(worker)
    held = Reservation("held", account("one"), Decimal(1))
    with store.open(file) as kept:
        kept.book.reserve(CALL, [CAP])
        assert kept.book.settle(held, LedgerEntry(calls=1, cost=Decimal(1)))
        assert not kept.book.settle(held, LedgerEntry(calls=1, cost=Decimal(1)))
        assert kept.book.used("day", DAY) == (1, 1)
    with store.open(file) as kept:
        assert kept.book.used("day", DAY) == (1, 0)  # what the store held when it was closed is free
        with kept._database.writing() as connection:
            connection.execute("UPDATE reservations SET lapsed = lapsed - 31 * 24 * 3600")
    with started(("reserve", file)) as (worker,):
        line_of(worker)
    with store.open(file) as kept:
        assert kept.book.used("day", DAY) == (1, 0)
        assert not kept.book.settle(CALL, LedgerEntry(calls=1, cost=Decimal(1)))


def test_two_stores_on_one_file_are_one_holder_until_the_last_is_closed(file: Path) -> None:
    kept, other = store.open(file), store.open(file)
    other.book.used("day", DAY)
    kept.book.reserve(CALL, [])
    kept.close()
    with started(("used", file)) as (worker,):
        assert line_of(worker) == "0 1"
    other.close()
    with started(("used", file)) as (worker,):
        assert line_of(worker) == "0 0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_ends_gives_up_what_it_holds_and_nothing_of_its_parent(file: Path) -> None:
    with store.open(file) as kept:
        kept.book.reserve(CALL, [])
        child = os.fork()
        if not child:
            kept.book.reserve(Reservation("child", account("three"), Decimal("0.25")), [])
            os._exit(0 if kept.book.used("day", DAY) == (0, Decimal("1.25")) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert kept.book.used("day", DAY) == (0, 1)
        with started(("reserve", file)) as (worker,):
            line_of(worker)
            assert kept.book.used("day", DAY) == (0, 2)


def test_reservations_of_a_version_that_did_not_name_their_holder_are_let_go_and_can_be_settled(
    file: Path,
) -> None:
    connection = sqlite3.connect(file)
    before = [step.__name__ for step in MIGRATIONS].index("holders")
    for step in MIGRATIONS[:before]:
        step(connection)
    for name in ("a", "b"):
        row = (name, time.time() + 3600, 10**12, "one", DAY, "ullage")
        connection.execute("INSERT INTO reservations VALUES (?, 'held', ?, ?, ?, ?, ?)", row)
    for scope, name in (("session", "one"), ("day", DAY), ("project", "ullage")):
        connection.execute("INSERT INTO totals VALUES (?, ?, 0, ?)", (scope, name, 2 * 10**12))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {before}")
    connection.commit()
    connection.close()
    with store.open(file) as kept:
        assert kept.book.reserve(CALL, [CAP]) is None
        assert kept.book.used("day", DAY) == (0, 1)
        assert kept.book.settle(Reservation("a", account("one"), Decimal(1)), LedgerEntry(calls=1, cost=CENT))
        assert kept.book.used("day", DAY) == (CENT, 1)


def test_a_second_store_on_the_file_does_not_give_up_the_locks_of_the_first(file: Path) -> None:
    with store.open(file) as kept, kept._database.writing():
        store.open(file).close()
        with started(("lock", file)) as (worker,):
            assert line_of(worker) == "locked"
    with started(("lock", file)) as (worker,):
        assert line_of(worker) == "free"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_uses_the_store_that_it_inherited_and_its_parent_too(file: Path) -> None:
    with store.open(file) as kept:
        kept.journal.append("one", 0, turn(0))
        with kept._database._lock:  # as another thread of the parent could hold it
            child = os.fork()
            if not child:
                code = 1
                try:
                    for number in range(1, 50):
                        kept.journal.append("one", number, turn(number))
                        kept.journal.append("child", number - 1, turn(number))
                    kept.close()
                    code = 0
                finally:
                    os._exit(code)
        for number in range(50):
            kept.journal.append("parent", number, turn(number))
        assert os.waitpid(child, 0)[1] == 0
        assert len(kept.journal.events("one")) == len(kept.journal.events("parent")) == 50
        with pytest.raises(Conflict):
            kept.journal.append("one", 1, turn(1))
    assert sound(file)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_what_a_child_keeps_is_there_when_its_parent_closes_the_store_first(file: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from ullage import store\n"
        "from ullage.context.journal import JournalEvent\n"
        "kept = store.open(sys.argv[1])\n"
        "kept.journal.append('one', 0, JournalEvent('turn', {}))\n"
        "if not os.fork():\n"
        "    kept.journal.append('one', 1, JournalEvent('turn', {}))\n"
        "    time.sleep(0.2)\n"
        "    kept.journal.append('one', 2, JournalEvent('turn', {}))\n"
        "    sys.exit()\n"
        "time.sleep(0.1)\n"
        "kept.close()\n"
        "with store.open(sys.argv[1]) as again: again.journal.append('two', 0, JournalEvent('turn', {}))\n"
        "os.wait()\n"
    )
    subprocess.run([sys.executable, "-c", program, file], check=True)
    with store.open(file) as kept:
        assert [len(kept.journal.events(session)) for session in ("one", "two")] == [3, 1]
    assert sound(file)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_store_in_memory_does_not_follow_into_a_child_process() -> None:
    program = (
        "import os\n"
        "from ullage import errors, store\n"
        "kept = store.open('sqlite://:memory:')\n"
        "if os.fork(): os.wait()\n"
        "else:\n"
        "    try: kept.journal.items()\n"
        "    except errors.StoreError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "closed" in ran.stdout
