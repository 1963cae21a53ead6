"""`ullage cost`, `memory` and `recall` as their users meet them: real processes, a real store."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pexpect
import pytest

from tests.terminal import close
from tests.world import PATIENCE, environment
from ullage import store
from ullage.cli import main
from ullage.context.journal import JournalEvent
from ullage.cost import Ledger, Prices
from ullage.cost.report import GROUPS
from ullage.fitting.pieces import letters_of
from ullage.usage import Usage

PROGRAM = str(Path(sys.executable).with_name("ullage"))
PRICES = {"dear": Prices.a_million(input=2, output=10)}
DAY = 24 * 3600.0
NOON = 1_794_830_400.0  # 2026-11-16 12:00 UTC
TEXT = "error: the \x1b[31m database \x1b[0m timed out\r\nafter 30 s – ошибка"
OTHER = "\nthe tides of Oslo\nwhere the database is slow\n"


class Done(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


def process(*arguments: object, **more: str) -> Done:
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        env=environment(NO_COLOR="1", **more),
        timeout=PATIENCE,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return Done(done.returncode, done.stdout, done.stderr)


def run(*arguments: object) -> Done:
    """The same in this process, which is a tenth of the time."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main([str(each) for each in arguments])
        except SystemExit as left:
            code = left.code
    out.flush()
    err.flush()
    return Done(code, out.buffer.getvalue(), err.buffer.getvalue())  # type: ignore[attr-defined]


def book_calls(path: Path, now: float = NOON) -> None:
    moment = [now]
    with store.open(path) as kept:
        ledger = Ledger(
            book=kept.book, session="s1", project="tide,book", prices=PRICES, clock=lambda: moment[0]
        )
        for category, output in (("main", 1_000), ("main", 500), ("goal", 1)):
            held = ledger.reserve("dear", 10_000, output, category=category)
            ledger.settle(held, Usage(prompt=10_000, completion=output), estimate=9_000)
        moment[0] -= DAY
        other = Ledger(book=kept.book, session="s2", clock=lambda: moment[0])
        for cost in (None, Decimal("0.000001")):
            other.settle(other.reserve("smol", 5, 5, local=True), Usage(prompt=5, completion=5, cost=cost))
        other.settle(other.reserve("tiny", 5, 5, local=True), Usage(prompt=5))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept.db"


@pytest.fixture
def spent(path: Path) -> Path:
    book_calls(path)
    return path


# cost


def test_the_table_has_a_line_for_each_day_and_model_and_says_what_is_not_known(spent: Path) -> None:
    done = process("cost", "--store", spent)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == (
        "day         model  calls  prompt  completion               dollars\n"
        "2026-11-15  smol       2      10          10  <0.0001 + 1 unpriced\n"
        "2026-11-15  tiny       1       5           0                     ?\n"
        "2026-11-16  dear       3  30,000       1,501                0.0750\n"
        "total                  6  30,015       1,511   0.0750 + 2 unpriced\n"
    )


def test_json_has_exact_numbers_and_null_for_what_is_not_known(spent: Path) -> None:
    text = run("cost", "--json", "--by", "model", "--store", spent).stdout
    made = json.loads(text, parse_float=Decimal)
    costs = {line["model"]: (line["cost"], line["unpriced"]) for line in made["lines"]}
    assert costs == {"dear": (Decimal("0.07501"), 0), "smol": (Decimal("0.000001"), 1), "tiny": (None, 1)}
    assert (made["by"], made["total"]["cost"]) == (["model"], Decimal("0.075011"))
    assert made["total"]["estimate"] == 27_000


def test_csv_is_empty_where_a_cost_is_not_known(spent: Path) -> None:
    text = run("cost", "--csv", "--by", "project,model", "--store", spent).stdout.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["project"], row["model"], row["cost"]) for row in rows] == [
        ("", "smol", "0.000001"),
        ("", "tiny", ""),
        ("tide,book", "dear", "0.07501"),
    ]


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ([], 6),
        (["--since", "2026-11-16"], 3),
        (["--until", "2026-11-15"], 3),
        (["--since", "2026-11-17"], 0),
        (["--session", "s2"], 3),
        (["--project", "tide,book"], 3),
        (["--project", ""], 3),
        (["--session", "s2", "--project", "tide,book"], 0),
    ],
)
def test_the_report_is_of_what_is_asked_for(spent: Path, options: list[str], calls: int) -> None:
    made = json.loads(run("cost", "--json", "--store", spent, *options).stdout)
    assert made["total"]["calls"] == calls


@pytest.mark.parametrize("by", [*GROUPS, "day,model", "session,project,category"])
def test_every_grouping_has_the_same_total(spent: Path, by: str) -> None:
    made = json.loads(run("cost", "--json", "--store", spent, "--by", by).stdout)
    assert made["by"] == by.split(",")
    assert made["total"]["calls"] == sum(line["calls"] for line in made["lines"]) == 6


def test_days_can_be_counted_back_from_today(path: Path) -> None:
    book_calls(path, time.time() - 3 * DAY)
    for days, calls in ((1, 0), (5, 6), (9000, 6)):  # not by the day: it may end while this runs
        made = json.loads(run("cost", "--json", "--store", path, "--since", f"{days}d").stdout)
        assert made["total"]["calls"] == calls


def test_without_a_store_the_report_is_empty_and_none_is_made(path: Path) -> None:
    done = run("cost", "--store", path)
    assert done.returncode == 0
    assert done.stderr.decode() == f"ullage: nothing is saved yet: the store {path} does not exist\n"
    assert done.stdout.decode().splitlines()[1:] == ["total             0       0           0   0.0000"]
    empty = json.loads(run("cost", "--json", "--store", path).stdout)
    assert (empty["lines"], empty["total"]["calls"], empty["total"]["cost"]) == ([], 0, 0)
    assert run("cost", "--csv", "--store", path).stdout.startswith(b"day,model,calls,prompt")
    assert list(path.parent.iterdir()) == []


def test_the_user_s_own_store_is_the_default(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert process("memory", "add", "metric units", **state).returncode == 0
    assert process("memory", "list", **state).stdout == b"1  ?  metric units\n"
    assert [each.name for each in tmp_path.rglob("*.db")] == ["ullage.db"]


def test_a_name_cannot_harm_a_terminal(path: Path) -> None:
    with store.open(path) as kept:
        ledger = Ledger(book=kept.book, session="s\x1b[2J", project="p\ud800")
        ledger.settle(ledger.reserve("m\nn", 1, 1, local=True), Usage())
    table = run("cost", "--by", "session,project,model", "--store", path).stdout
    assert b"\x1b" not in table
    assert len(table.splitlines()) == 3
    for form in ("--json", "--csv"):
        assert run("cost", form, "--by", "session,project,model", "--store", path).returncode == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--by", "month"],
        ["--by", ","],
        ["--since", "yesterday"],
        ["--since", "2026-13-01"],
        ["--until", "99999999999d"],
        ["--json", "--csv"],
        ["--store", "postgres://user:secret@host/db"],
        ["--store", ""],
    ],
)
def test_wrong_usage_is_told_in_a_line_with_code_2(wrong: list[str]) -> None:
    done = run("cost", *wrong)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"ullage: ")
    assert b"secret" not in done.stderr


@pytest.mark.parametrize("command", [["cost"], ["memory", "list"], ["memory", "add", "x"], ["recall", "x"]])
def test_a_file_that_is_no_store_is_told_and_left_as_it_is(path: Path, command: list[str]) -> None:
    path.write_bytes(b"my diary, and not a database" * 100)
    done = run(*command, "--store", path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert str(path).encode() in done.stderr
    assert path.read_bytes() == b"my diary, and not a database" * 100


def test_help_tells_what_a_report_can_be_made_by_and_how_to_call_it() -> None:
    shown = run("cost", "--help").stdout.decode()
    assert f"{', '.join(GROUPS)}" in " ".join(shown.split())
    for command in ("cost", "memory", "recall"):
        text = run(command, "--help").stdout.decode()
        assert f"  ullage {command}" in text
        assert "1  nothing was found" in text
    assert "exit codes:" in run("memory", "forget", "--help").stdout.decode()


def test_the_complaint_names_the_command_s_own_help() -> None:
    assert run("memory", "forget", "x").stderr.endswith(b"try: ullage memory forget --help\n")
    assert run("memory").stderr.endswith(b"try: ullage memory --help\n")


def test_a_search_for_fewer_than_one_piece_is_wrong_usage() -> None:
    assert run("recall", "--most", 0, "x").returncode == 2


# memory


def test_items_are_added_listed_and_forgotten(path: Path) -> None:
    assert run("memory", "add", "--kind", "preference", "metric", "units", "--store", path).stdout == (
        b"remembered as 1\n"
    )
    added = json.loads(run("memory", "add", "two\nlines\x1b[2J", "--json", "--store", path).stdout)
    assert added == {"number": 2, "kind": "", "content": "two\nlines\x1b[2J"}
    shown = run("memory", "list", "--store", path).stdout.decode()
    assert shown == "1  preference  metric units\n2  ?           two lines [2J\n"
    lines = run("memory", "list", "--json", "--store", path).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["preference", ""]

    assert run("memory", "forget", 1, "--store", path).returncode == 0
    done = run("memory", "forget", 1, "--store", path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"no item 1" in done.stderr
    assert run("memory", "clear", "--store", path).stdout == b"forgot 1 item\n"
    assert json.loads(run("memory", "clear", "--json", "--store", path).stdout) == {"forgotten": 0}
    assert run("memory", "list", "--store", path).stdout == b""


def test_an_empty_text_is_not_remembered(path: Path) -> None:
    assert run("memory", "add", " ", "--store", path).returncode == 2


@pytest.mark.parametrize(("action", "code"), [(["list"], 0), (["clear"], 0), (["forget", "1"], 1)])
def test_without_a_store_there_is_nothing_to_forget(path: Path, action: list[str], code: int) -> None:
    done = run("memory", *action, "--store", path)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == 1
    assert not path.exists()


# recall


@pytest.fixture
def pieces(path: Path) -> Path:
    with store.open(path) as kept:
        kept.journal.keep("first", [TEXT])
        kept.journal.keep("second", [OTHER])
    return path


@pytest.mark.parametrize("length", [8, 12, 52])
@pytest.mark.parametrize("text", [TEXT, OTHER])
def test_a_handle_gives_back_the_exact_bytes(pieces: Path, text: str, length: int) -> None:
    handle = letters_of(text)[:length]
    for given in (handle, handle.upper()):
        done = run("recall", given, "--store", pieces)
        assert (done.returncode, done.stdout) == (0, text.encode())
    (line,) = run("recall", handle, "--json", "--store", pieces).stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert (found["text"], found["handle"]) == (text, letters_of(text))


def test_words_give_the_texts_that_bear_on_them_the_best_first(pieces: Path) -> None:
    lines = run("recall", "slow", "databases", "elsewhere", "--store", pieces).stdout.decode().splitlines()
    assert lines[0] == f"{letters_of(OTHER)[:8]}  second"
    assert "  the tides of Oslo" in lines
    lines = run("recall", "databases", "--store", pieces).stdout.decode().splitlines()
    assert lines.count("") == 1  # between the two
    assert "  error: the [31m database [0m timed out" in lines
    for options, count in ((["--session", "first"], 1), (["--most", 1], 1), ([], 2)):
        found = run("recall", "database", *options, "--json", "--store", pieces).stdout.splitlines()
        assert len(found) == count
    assert {json.loads(line)["text"] for line in found} == {TEXT, OTHER}


def test_a_hit_is_shown_with_who_said_it_and_with_the_turns_beside_it(path: Path) -> None:
    turns = [
        ("user", "[7 May 2023] Which port does the database use?"),
        ("assistant", "It listens on 5433."),
        ("user", "Thanks."),
    ]
    with store.open(path) as kept:
        for number, (role, content) in enumerate(turns):
            message = {"role": role, "content": content}
            kept.journal.append("one", number, JournalEvent("turn", {"message": message}))
    handle = letters_of("It listens on 5433.")
    lines = run("recall", '"listens on"', "--store", path).stdout.decode().splitlines()
    assert lines == [
        f"{handle[:8]}  assistant  7 May 2023  one",
        "  before, user: [7 May 2023] Which port does the database use?",
        "  It listens on 5433.",
        "  after, user: Thanks.",
    ]
    assert json.loads(run("recall", "5433", "--json", "--store", path).stdout) == {
        "handle": handle,
        "text": "It listens on 5433.",
        "session": "one",
        "role": "assistant",
        "date": "7 May 2023",
        "before": {"role": "user", "text": turns[0][1]},
        "after": {"role": "user", "text": "Thanks."},
    }


@pytest.mark.parametrize(
    "words", [["nowhere"], ["aaaaaaaa"], ['"slow database"'], ["the", "and"], ['"*('], ["--", "-x"]]
)
def test_what_is_not_found_is_told_with_code_1(pieces: Path, words: list[str]) -> None:
    done = run("recall", "--store", pieces, *words)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1
    assert any(advice in done.stderr for advice in (b"Try other words", b"Name a person", b"quote less"))


def test_without_a_store_nothing_is_recalled(path: Path) -> None:
    done = process("recall", "anything", "--store", path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"does not exist" in done.stderr
    assert not path.exists()


def test_a_piece_on_a_terminal_moves_no_cursor(pieces: Path) -> None:
    arguments = ["recall", letters_of(TEXT)[:8], "--store", str(pieces)]
    child = pexpect.spawn(PROGRAM, arguments, env=environment(), encoding="utf-8", timeout=PATIENCE)
    child.expect(pexpect.EOF)
    close(child)
    assert child.exitstatus == 0
    assert "timed out" in child.before
    assert "\x1b" not in child.before
