"""`ullage demo`: what it shows is what the library does, and it behaves on any terminal."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest

import ullage
from tests.strategies import own_words
from tests.terminal import close
from tests.world import PATIENCE, environment
from ullage import store
from ullage.cost import prices_of
from ullage.demo import replay as demo
from ullage.demo.replay import (
    BUDGET,
    MODEL,
    SHOWN,
    TOOLS,
    DemoEvent,
    Ended,
    Gauge,
    Recalled,
    Replay,
    WindowTrimmed,
)

PROGRAM = str(Path(sys.executable).with_name("ullage"))
ESCAPE = "\x1b["
GAUGE = re.compile(r"([\d,]+) / ([\d,]+) tokens · \$(\d+\.\d+) · (\d+) turns kept, (\d+) evicted")
TOTAL = re.compile(r"(with|without) Ullage +([\d,]+) tokens +\$(\d+\.\d+) +(\d+) over budget")


def piped(*arguments: str, **more: str) -> str:
    done = subprocess.run(
        [PROGRAM, "demo", *arguments],
        capture_output=True,
        env=environment(**more),
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def terminal(*arguments: str, columns: int = 100, **more: str) -> Any:
    return pexpect.spawn(
        PROGRAM,
        ["demo", *arguments],
        env=environment(**more),
        dimensions=(50, columns),
        encoding="utf-8",
        timeout=PATIENCE,
    )


def number(text: str) -> int:
    return int(text.replace(",", ""))


class Watched(Replay):
    """A replay that writes down every request, as it was sent and as it would have been."""

    def __init__(self) -> None:
        self.kept = store.open("sqlite://:memory:")
        super().__init__(demo.script(), self.kept)
        self.sent: list[list[Any]] = []
        self.whole: list[list[Any]] = []
        self.trims: list[int] = []
        self.happenings: list[DemoEvent] = []
        for happening in self.play():
            self.happenings.append(happening)
            if isinstance(happening, WindowTrimmed):
                self.trims.append(len(self.sent))

    def _send(self, reply: Any, text: str) -> Any:
        self.whole.append(self.context.history())
        given = yield from super()._send(reply, text)
        self.sent.append(list(given.messages))
        return given

    def all(self, kind: type) -> list[Any]:
        return [each for each in self.happenings if isinstance(each, kind)]


@pytest.fixture(scope="module")
def watched() -> Any:
    made = Watched()
    yield made
    made.kept.close()


def test_no_request_is_over_the_budget(watched: Watched) -> None:
    assert len(watched.sent) > 2 * len(demo.script().steps)
    assert all(ullage.count(each, MODEL, TOOLS).ceiling <= BUDGET for each in watched.sent)
    assert max(each.tokens for each in watched.all(Gauge)) > 0.9 * BUDGET


def test_the_totals_are_those_of_the_requests(watched: Watched) -> None:
    (ended,) = watched.all(Ended)
    for total, requests in ((ended.fitted, watched.sent), (ended.whole, watched.whole)):
        tokens = [ullage.count(each, MODEL, TOOLS).tokens for each in requests]
        assert (total.requests, total.tokens) == (len(tokens), sum(tokens))
        assert total.over == sum(each > BUDGET for each in tokens)
    assert ended.fitted.over == 0 < ended.whole.over
    assert ended.fitted.dollars < ended.whole.dollars


def test_the_dollars_are_those_of_the_store(watched: Watched) -> None:
    ledger = ullage.Ledger(book=watched.kept.book, session=watched.context.session)
    (ended,) = watched.all(Ended)
    assert ended.fitted.dollars == ledger.used()[0] == watched.all(Gauge)[-1].dollars
    spent = [each.dollars for each in watched.all(Gauge)]
    assert spent == sorted(set(spent))


@pytest.mark.parametrize(("words", "cached"), [(100, False), (3_000, True)])
def test_a_long_beginning_that_was_sent_before_is_charged_as_cached(words: int, cached: bool) -> None:
    prices = prices_of(MODEL)
    assert prices.input is not None
    assert prices.cached_read is not None
    first = [{"role": "user", "content": "tide " * words}]
    second = [*first, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}]
    bill = demo.Bill(ullage.Ledger())
    bill.add(first, "")
    before = bill.total().dollars
    bill.add(second, "")
    tokens = ullage.count(second, MODEL, TOOLS).tokens
    known = ullage.count(first, MODEL, TOOLS).tokens // 128 * 128 if cached else 0
    paid = (tokens - known) * prices.input + known * prices.cached_read
    assert bill.total().dollars - before == paid


def test_the_prefix_stays_between_trims(watched: Watched) -> None:
    assert len(watched.trims) >= 2
    for place, sent in enumerate(pairwise(watched.sent), start=1):
        before, after = ([own_words(message) for message in messages] for messages in sent)
        assert (after[: len(before)] == before) is (place not in watched.trims)


def test_turns_are_kept_or_evicted(watched: Watched) -> None:
    last = watched.all(Gauge)[-1]
    assert last.kept + last.evicted == len(watched.context)
    assert last.evicted == sum(each.evicted for each in watched.all(WindowTrimmed)) > 0
    gone = [change for change in watched.context.changes if change.kind == "evict"]
    assert len(gone) == last.evicted


def test_what_was_evicted_is_recalled_to_the_letter(watched: Watched) -> None:
    (recalled,) = watched.all(Recalled)
    log = demo.script().steps[1].output.strip("\n")
    assert (recalled.text, recalled.same) == (log, True)
    place = next(place for place, turn in enumerate(watched.context.turns) if turn["content"] == log)
    change = next(change for change in watched.context.changes if change.index == place)
    assert change.kind == "evict"
    assert recalled.handle.startswith(change.handle)
    calls = [turn["tool_calls"][0]["function"] for turn in watched.context.turns if turn.get("tool_calls")]
    assert f'{{"handle": "{recalled.handle}"}}' in [call["arguments"] for call in calls]


def test_it_lasts_about_a_minute(watched: Watched) -> None:
    assert 50 <= sum(SHOWN[type(each)].seconds for each in watched.happenings) <= 70


def test_a_pipe_gets_it_all_at_once_and_plain(watched: Watched) -> None:
    begin = time.monotonic()
    shown = piped()
    assert time.monotonic() - begin < 40  # at its own speed it takes 50 s
    assert shown == piped("--fast")
    assert ESCAPE not in shown
    gauges = [tuple(map(number, (m[1], m[2], m[4], m[5]))) for m in GAUGE.finditer(shown)]
    assert gauges == [(each.tokens, each.limit, each.kept, each.evicted) for each in watched.all(Gauge)]
    (ended,) = watched.all(Ended)
    found = {m[1]: (number(m[2]), m[3], int(m[4])) for m in TOTAL.finditer(shown)}
    for name, total in (("with", ended.fitted), ("without", ended.whole)):
        assert found[name] == (total.tokens, f"{total.dollars:.4f}", total.over)
    assert f"{found['without'][0] - found['with'][0]:,} tokens (" in shown
    assert f"{ended.fitted.requests} requests to {MODEL}" in shown


def test_the_log_is_printed_as_it_was() -> None:
    lines = [line[4:] for line in piped().splitlines() if line.startswith("  │ ")]
    assert "\n".join(lines) == demo.script().steps[1].output.strip("\n")


@pytest.mark.parametrize("columns", [40, 60, 79, 80, 100])
def test_no_line_is_wider_than_the_screen(columns: int) -> None:
    lines = piped(COLUMNS=str(columns)).splitlines()
    assert max(map(len, lines)) <= columns
    if columns >= 60:
        assert sum(bool(re.search(r"kept, \d+ evicted", line)) for line in lines) == len(demo.script().steps)
        assert any(line.endswith("; same prefix") for line in lines)


def test_a_terminal_sees_the_gauge_move() -> None:
    child = terminal("--speed", "100", columns=60)
    child.expect(pexpect.EOF)
    close(child)
    assert child.exitstatus == 0
    assert f"{ESCAPE}34m█" in child.before
    assert f"{ESCAPE}?1049h" not in child.before
    screen = pyte.HistoryScreen(60, 50, history=10_000, ratio=0.5)
    pyte.Stream(screen).feed(child.before)
    rows = ["".join(row[at].data for at in range(60)) for row in screen.history.top] + list(screen.display)
    filled = [row.count("█") for row in rows if re.search(r"kept, \d+ evicted", row)]
    assert len(filled) == len(demo.script().steps)
    assert filled[0] < max(filled)
    assert any(before > after for before, after in pairwise(filled))
    assert any("identical to the original" in row for row in rows)


def test_no_color_is_respected() -> None:
    child = terminal("--fast", NO_COLOR="1")
    child.expect(pexpect.EOF)
    assert not re.search(r"\x1b\[[\d;]*3\d", child.before)
    assert "░" in child.before


def test_ctrl_c_ends_it_in_a_line() -> None:
    child = terminal()
    child.expect("evicted")
    child.sendintr()
    child.expect(pexpect.EOF)
    close(child)
    assert child.exitstatus == 130
    assert "ullage: interrupted" in child.before
    assert "Traceback" not in child.before


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf", "quick"])
def test_a_speed_that_is_none_is_told(speed: str) -> None:
    done = subprocess.run(
        [PROGRAM, "demo", f"--speed={speed}"],
        capture_output=True,
        env=environment(),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert b"the speed must be from 0.1 to 1000" in done.stderr
