"""A store that an earlier version wrote: everything in it is there afterwards, for one process or many."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ullage import store
from ullage.context import Context
from ullage.context.journal import JournalEvent
from ullage.errors import StoreError
from ullage.fitting.pieces import letters_of
from ullage.store.sqlite.migrations import APPLICATION, MIGRATIONS

ROOT = Path(__file__).resolve().parent.parent
BEFORE = [step.__name__ for step in MIGRATIONS].index("checksums")
"""The steps of the version before checksums."""
TURNS = 60
LONG = "the same words of a long result \N{SNOWMAN} 東京 " * 60
ODD = "half a pair: \ud83d and nothing behind it"


def said(number: int) -> dict[str, object]:
    """A message that the old version kept: a plain text, parts, calls, or a text that UTF-8 cannot write."""
    if number == 7:
        return {"role": "user", "content": ODD}
    if number % 6 == 2:
        parts = [{"type": "text", "text": f"part {number}"}, {"type": "text", "text": LONG}]
        return {"role": "user", "content": parts}
    if number % 6 == 3:
        function = {"name": "ls", "arguments": f'{{"n":{number}}}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if number % 6 == 4:
        return {"role": "tool", "tool_call_id": f"c{number - 1}", "content": f"{number} {LONG}"}
    return {"role": "assistant" if number % 2 else "user", "content": f"turn {number} {LONG}"}


def piece(number: int) -> str:
    """The piece that the old version kept when this turn was evicted."""
    return {
        2: f"part {number}\n{LONG}",
        3: f'ls {{"n":{number}}}',
        4: f"{number} {LONG}",
    }.get(number % 6, ODD if number == 7 else f"turn {number} {LONG}")


def column(text: str) -> str | bytes:
    return text.encode("utf-8", "surrogatepass") if text == ODD else text


def write_old(file: Path) -> None:
    """A store as the version before checksums wrote it."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    for step in MIGRATIONS[:BEFORE]:
        step(connection)
    for key, name in ((1, "one"), (2, "two")):
        connection.execute(
            "INSERT INTO sessions (id, name, created, updated, length) VALUES (?, ?, 10.5, 20, ?)",
            (key, name, TURNS),
        )
        for number in range(TURNS):
            text = json.dumps({"message": said(number)}, ensure_ascii=number == 7)
            data = text.encode() if number == 7 else text
            connection.execute("INSERT INTO events VALUES (?, ?, 'turn', ?)", (key, number, data))
    texts = [piece(number) for number in range(TURNS)] + ["the text of no event"]
    for text in texts:
        made = connection.execute(
            "INSERT INTO pieces (hash, text) VALUES (?, ?)", (letters_of(text), column(text))
        )
        indexed = text.encode("utf-8", "replace").decode()
        connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (made.lastrowid, indexed))
        for session in (1, 2):
            connection.execute("INSERT INTO kept (piece, session) VALUES (?, ?)", (made.lastrowid, session))
    connection.execute("INSERT INTO items (kind, content) VALUES ('note', 'use tabs')")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {BEFORE}")
    connection.commit()
    connection.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "ullage.db"
    write_old(file)
    return file


def assert_whole(kept: store.Store) -> None:
    """Everything that the old version wrote is there, character by character."""
    for session in ("one", "two"):
        events = kept.journal.events(session)
        assert [event.data["message"] for event in events] == [said(number) for number in range(TURNS)]
        for number in range(TURNS):
            found = kept.journal.recall(letters_of(piece(number)), session)
            assert found is not None
            assert (found.text, found.session) == (piece(number), session)
    assert kept.journal.search("text of no event")[0].text == "the text of no event"
    assert kept.journal.search("turn 12", "two")[0].text == piece(12)
    assert [(item.kind, item.content) for item in kept.journal.items()] == [("note", "use tabs")]
    assert [(each.id, each.events, each.damaged) for each in kept.sessions()] == [
        ("two", TURNS, False),
        ("one", TURNS, False),
    ]


def test_everything_in_it_is_there_and_it_goes_on(file: Path) -> None:
    with store.open(file) as kept:
        assert_whole(kept)
        kept.journal.append(
            "one", TURNS, JournalEvent("turn", {"message": {"role": "user", "content": "more"}})
        )
        kept.journal.keep("one", ["a new text", piece(0)])
    with store.open(file) as kept:
        assert len(kept.journal.events("one")) == TURNS + 1
        assert kept.journal.recall(letters_of("a new text")) is not None
        context = Context.resume("two", kept.journal, model="gpt-4o")
        assert len(context) >= TURNS


def test_texts_that_stood_twice_stand_once_and_the_file_is_smaller(file: Path) -> None:
    before = file.stat().st_size
    with store.open(file) as kept:
        with kept._database.reading() as connection:
            texts = connection.execute("SELECT text FROM pieces WHERE typeof(text) != 'integer'").fetchall()
        assert texts == [("the text of no event",)]
    assert file.stat().st_size < 0.8 * before


def test_processes_that_open_it_at_the_same_moment_all_get_it_whole(file: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ullage import store\n"
        "from tests.test_versions import assert_whole\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "with store.open(Path(sys.argv[1])) as kept: assert_whole(kept)\n"
    )
    command = [sys.executable, "-c", program, str(file)]
    workers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.communicate("go\n")
    assert [worker.returncode for worker in workers] == [0] * 4


def test_a_process_of_the_old_version_cannot_write_into_the_new_one(file: Path) -> None:
    old = sqlite3.connect(file)
    assert old.execute("SELECT count(*) FROM events").fetchone() == (2 * TURNS,)
    store.open(file).close()
    with pytest.raises(sqlite3.OperationalError):
        old.execute("INSERT INTO events VALUES (1, ?, 'turn', '{}')", (TURNS,))
    old.close()
    with store.open(file) as kept:
        assert_whole(kept)


def test_a_step_that_fails_leaves_the_old_store_as_it_was(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("ALTER TABLE kept ADD COLUMN event INTEGER")  # so that the second step cannot
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="duplicate column"):
        store.open(file)
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA user_version").fetchone() == (BEFORE,)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(events)")]
    connection.close()
    assert columns == ["session", "number", "kind", "data"]


def test_an_old_store_that_may_not_be_written_is_refused_and_left_as_it_is(
    tmp_path: Path, file: Path
) -> None:
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.chmod(0o400)
    if os.geteuid() == 0:  # whom no mode stops; so it is tried as somebody else
        for path in (file, tmp_path):
            os.chown(path, 65534, 65534)
        for parent in tmp_path.parents[:2]:
            parent.chmod(0o755)
    program = (
        "import os, sys\n"
        "from ullage import store, errors\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "try: store.open(sys.argv[1])\n"
        "except errors.StoreError as error: print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "cannot be opened" in ran.stdout, ran.stderr
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before


def test_threads_that_read_while_it_is_brought_up_to_date_see_all_of_it(file: Path) -> None:
    failures: list[BaseException] = []

    def look() -> None:
        try:
            with store.open(file) as kept:
                assert_whole(kept)
        except BaseException as error:  # noqa: BLE001 - told below, in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
