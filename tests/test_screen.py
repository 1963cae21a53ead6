"""Answers, remarks and questions on a terminal, as an emulator sees them."""

from __future__ import annotations

import io
import re
import sys
import time
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pexpect
import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.terminal import close
from tests.world import PATIENCE, environment
from ullage.shell import markdown
from ullage.shell.markdown import INTERVAL, MOST_ROWS, Streamed
from ullage.shell.markup import Code
from ullage.shell.screen import NoTerminal, Screen
from ullage.text import mark_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable

ABOVE = ["$ ullage", "", "what came before"]


class Terminal:
    """An emulated terminal, and a console that writes to it."""

    def __init__(self, columns: int = 60, rows: int = 24, **options: Any) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=0.5)
        self.stream = pyte.Stream(self.screen)
        self.file = io.StringIO()
        self.sent = ""
        self.console = Console(
            file=self.file,
            force_terminal=True,
            width=columns,
            height=rows,
            color_system=options.pop("color_system", "256"),
            legacy_windows=False,
            **options,
        )
        self.file.write("".join(f"{line}\n" for line in ABOVE))
        self.show()

    def show(self) -> None:
        new = self.file.getvalue()
        self.sent += new
        self.file.seek(0)
        self.file.truncate()
        self.stream.feed(new.replace("\n", "\r\n"))

    def transcript(self) -> list[str]:
        """All that can be scrolled to, down to the cursor's line."""
        gone = [self._line(row) for row in self.screen.history.top]
        shown = [line.rstrip() for line in self.screen.display]
        return gone + shown[: self.screen.cursor.y + 1] + [x for x in shown[self.screen.cursor.y + 1 :] if x]

    def _line(self, row: Any) -> str:
        return "".join(row[at].data for at in range(self.screen.columns)).rstrip()

    def cells(self) -> list[list[tuple[Any, ...]]]:
        """The same with every colour."""
        rows = [*self.screen.history.top, *(self.screen.buffer[y] for y in range(self.screen.cursor.y + 1))]
        return [[tuple(row[at]) for at in range(self.screen.columns)] for row in rows]


def shown(
    text: str,
    *,
    pieces: list[str] | None = None,
    below: Callable[[], str] | None = None,
    **options: Any,
) -> Terminal:
    terminal = Terminal(**options)
    streamed = Streamed(terminal.console, below=below)
    for piece in [text] if pieces is None else pieces:
        streamed.feed(piece)
        streamed.refresh()
        terminal.show()
    streamed.end()
    terminal.show()
    return terminal


def answer(text: str, **options: Any) -> list[str]:
    lines = shown(text, **options).transcript()
    assert lines[: len(ABOVE)] == ABOVE
    assert lines[-1] == ""
    return lines[len(ABOVE) : -1]


TALK = """# Tides

The *sea* rises **twice** a day; see `tide.py` or [the table](https://example.org/tides).
A second line of it.

1. First
   - nested one
   - nested two
2. Second, with code:
   ```python
   def high(tide):
       \"\"\"Docs
       over lines.\"\"\"
       return tide > 4  # metres
   ```
3. Third

> quoted words
> and more

| port | height |
|------|-------:|
| Brest | 6.9 |
| 下田 | 1.4 |

CMD: rm *.log *.txt
CMD: ls -la
---
Done. &amp; <b>not bold</b>
"""


def test_blocks_look_like_what_they_are() -> None:
    assert answer(TALK) == [
        "Tides",
        "",
        "The sea rises twice a day; see tide.py or the table",
        "(https://example.org/tides).",
        "A second line of it.",
        "",
        " 1. First",
        "     • nested one",
        "     • nested two",
        " 2. Second, with code:",
        "   ```python",
        "   def high(tide):",
        '       """Docs',
        '       over lines."""',
        "       return tide > 4  # metres",
        "   ```",
        " 3. Third",
        "",
        "▌ quoted words",
        "▌ and more",
        "",
        "port    height",
        "──────────────",
        "Brest      6.9",
        "下田       1.4",
        "",
        "CMD: rm *.log *.txt",
        "CMD: ls -la",
        "───",
        "Done. & <b>not bold</b>",
    ]


@pytest.mark.parametrize("columns", [20, 60])
@pytest.mark.parametrize("rows", [5, 24])
def test_one_character_at_a_time_ends_in_the_same_screen(columns: int, rows: int) -> None:
    at_once = shown(TALK, columns=columns, rows=rows)
    slowly = shown(TALK, pieces=list(TALK), columns=columns, rows=rows)
    assert slowly.cells() == at_once.cells()
    assert slowly.transcript() == at_once.transcript()


LINES = st.sampled_from(
    [
        *TALK.splitlines(),
        "",
        "",
        "```",
        "~~~ sh",
        "    indented",
        "\tafter a tab",
        "- ",
        "#",
        "**never closed",
        "e\u0301\u0323 👩‍👩‍👧 ｗｉｄｅ 한국어",
        "\x1b[2J\x1b[31mred\x07 \x9b5A \u202e",
        "x" * 150,
        "&#27;[2J &#8238;",
        "[link](http://a b) ![image](x.png)",
        "\r",
        "> > - deep",
        "===",
        "* * *",
    ]
)


@given(
    lines=st.lists(LINES, max_size=12),
    cuts=st.lists(st.integers(0, 600), max_size=40),
    columns=st.sampled_from([8, 20, 41, 80]),
    rows=st.sampled_from([2, 6, 30]),
    ending=st.sampled_from(["", "\n", "\r\n"]),
)
def test_the_pieces_an_answer_comes_in_leave_no_trace(
    lines: list[str], cuts: list[int], columns: int, rows: int, ending: str
) -> None:
    text = "\n".join(lines) + ending
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    pieces = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    at_once = shown(text, columns=columns, rows=rows)
    in_pieces = shown(text, pieces=pieces, columns=columns, rows=rows)
    assert in_pieces.transcript() == at_once.transcript()
    assert in_pieces.cells() == at_once.cells()
    if columns > 20:
        assert at_once.transcript()[: len(ABOVE)] == ABOVE


@given(st.text(max_size=300), st.integers(1, 7))
def test_any_text_at_all_can_be_shown(text: str, step: int) -> None:
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    terminal = shown(text, pieces=pieces)
    assert terminal.transcript() == shown(text).transcript()
    assert terminal.transcript()[: len(ABOVE)] == ABOVE


def test_nothing_that_the_model_says_is_obeyed() -> None:
    said = "\x1b[2J\x1b]0;title\x07 \x9b1A\r\x08 &#27;[H \u202etxt\n\n"
    said += "```\n\x1b[5A\x1bc\n```\n`\x1b[A`\n\nCMD: \x1b[A"
    terminal = shown(said)
    assert terminal.transcript()[: len(ABOVE)] == ABOVE
    sent = re.sub(r"\x1b\[(?:[0-9;]*[mAJK]|\?7[lh])", "", terminal.sent)
    assert not re.search(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", sent)
    assert "␛[2J␛]0;title␇" in terminal.sent


def test_every_word_of_an_answer_reaches_the_screen() -> None:
    """Markdown parsers drop HTML, definitions and what is nested too deep."""
    said = "<details>one</details>\n\n[two]: http://three.example\n\n" + ">" * 120 + " four\n\n"
    said += (
        "- " * 60
        + "five\n\n"
        + "".join(" " * 2 * depth + "- x\n" for depth in range(50))
        + " " * 100
        + "- six"
    )
    text = " ".join(answer(said, columns=200))
    for word in ("one", "two", "three", "four", "five", "six"):
        assert word in text


def test_only_the_marks_in_the_margin_are_dim() -> None:
    sent = shown("- an *item*\n\n> a quotation").sent
    assert "\x1b[2m • \x1b[0man \x1b[3mitem\x1b[0m" in sent
    assert "\x1b[2m▌ \x1b[0ma quotation" in sent


def test_a_finished_block_is_printed_before_the_next_begins() -> None:
    terminal = Terminal()
    streamed = Streamed(terminal.console)
    streamed.feed("One **block**.\n\nTwo")
    terminal.show()
    assert terminal.transcript()[len(ABOVE) :] == ["One block.", "", "Two"]
    before = terminal.sent
    streamed.feed(" goes on")
    streamed.refresh()
    terminal.show()
    assert "block" not in terminal.sent.removeprefix(before)
    streamed.end()


@pytest.mark.parametrize(
    "text",
    [
        "Some of them:\n- one\n- two\n  more\n2. three\n",
        "Run it:\n```sh\nls\n```\nCMD: ls\n",
        "1. Run it:\n\n   ```sh\n   ls\n   ```\n   - and then\n",
        "Words\n> quoted\n\nmore words\n# Title\n",
    ],
)
def test_a_row_that_was_shown_neither_moves_nor_changes_its_looks_at_the_next_line(text: str) -> None:
    final = shown(text).cells()
    terminal = Terminal()
    streamed = Streamed(terminal.console)
    for letter in text:
        streamed.feed(letter)
        streamed.refresh()
        terminal.show()
        rows = terminal.cells()[:-1]
        assert rows == final[: len(rows)], terminal.transcript()


def test_a_dash_makes_a_heading_of_a_paragraph_only_when_its_line_is_whole() -> None:
    terminal = Terminal()
    streamed = Streamed(terminal.console)
    for piece, is_bold in (("Words:", False), ("\n-", False), ("-", False), ("\n", True)):
        streamed.feed(piece)
        streamed.refresh()
        terminal.show()
        assert terminal.screen.buffer[len(ABOVE)][0].bold is is_bold


def test_an_unfinished_block_takes_a_few_rows_only() -> None:
    terminal = Terminal()
    streamed = Streamed(terminal.console)
    for _ in range(400):
        streamed.feed("some words and ")
        terminal.show()
    assert len(terminal.transcript()) <= len(ABOVE) + MOST_ROWS
    streamed.end()
    terminal.show()
    assert " ".join(terminal.transcript()[len(ABOVE) :]).split() == ["some", "words", "and"] * 400


def test_a_fence_that_is_never_closed_ends_with_the_answer() -> None:
    assert answer("```sh\nls\necho hi") == ["```sh", "ls", "echo hi"]


def test_indented_code_stays_indented() -> None:
    assert answer("Say:\n\n    ls *.py *.txt\n      pwd\n\nso.") == [
        "Say:",
        "",
        "    ls *.py *.txt",
        "      pwd",
        "",
        "so.",
    ]


def test_the_marks_stay_where_there_are_no_styles() -> None:
    assert answer("## A\n`b` **c** _d_", color_system=None) == ["## A", "`b` **c** _d_"]
    assert "\x1b[1m" not in shown("## A\n`b` **c**\n```python\nx = 1\n```", color_system=None).sent


def test_code_is_coloured_across_the_lines_of_a_string() -> None:
    body = "\n".join(f"word {number} for" for number in range(40))
    terminal = shown(f'```python\nx = """\n{body}\n"""\nfor y in x: pass\n```\n', rows=60)
    colours = {row[0][1] for row in terminal.cells()[len(ABOVE) + 2 : len(ABOVE) + 42]}
    assert len(colours) == 1
    (of_strings,) = colours
    keyword = terminal.cells()[len(ABOVE) + 43][0]
    assert keyword[0] == "f"
    assert keyword[1] not in {of_strings, "default"}


def _seconds(pieces: list[str]) -> float:
    streamed = Streamed(Terminal().console)
    start = time.process_time()
    for piece in pieces:
        streamed.feed(piece)
    streamed.end()
    return time.process_time() - start


@pytest.mark.parametrize(
    "text",
    [
        "```python\n" + "    value = compute(first, 'second')  # why\n" * 600,
        "word " * 8_000,
        "x" * 40_000,
        "| a | b |\n|---|---|\n" + "| one | two |\n" * 2_000,
        "- item\n" * 1_000,
    ],
    ids=["code", "paragraph", "word", "table", "list"],
)
def test_the_work_for_a_piece_does_not_grow_with_the_answer(text: str) -> None:
    pieces = [text[at : at + 16] for at in range(0, len(text), 16)]
    quarter = _seconds(pieces[: len(pieces) // 4])
    assert _seconds(pieces) < max(1.0, 10 * quarter)


@pytest.mark.parametrize("language", ["systemd", "easytrieve", "autoit", "python", "sh", ""])
@pytest.mark.parametrize("blank", ["\t", " "])
def test_blanks_in_code_take_no_more_work_than_letters(language: str, blank: str) -> None:
    def spent(line: str) -> float:
        code = Code(language, coloured=True)
        since = time.thread_time()
        for _ in range(8):
            code.line(line)
        return time.thread_time() - since

    spent("x = 1")  # the lexer is loaded
    assert spent(blank * 499 + "x") < 20 * max(spent("x" * 499), 0.005)
    assert spent(blank * 999) < 20 * max(spent("x" * 999), 0.005)


def test_a_code_block_of_five_thousand_lines_stays_whole() -> None:
    lines = [f"value_{number} = {number}" for number in range(5_000)]
    file = io.StringIO()
    streamed = Streamed(Console(file=file, force_terminal=True, color_system="256", width=60, height=24))
    streamed.feed("```python\n" + "\n".join(lines) + "\n```\n")
    streamed.end()
    assert re.sub(r"\x1b\[[0-9;]*[mJ]", "", file.getvalue()).splitlines()[1:-1] == lines


def test_a_terminal_that_changes_its_size_keeps_what_is_above() -> None:
    terminal = Terminal(columns=60)
    streamed = Streamed(terminal.console)
    for columns in (60, 25, 90, 20, 60):
        for number in range(18):
            if number == 9:  # in the middle of a paragraph
                terminal.screen.resize(columns=columns)
                terminal.console.width = columns
            streamed.feed(f"word{number} ")
            streamed.refresh()
            terminal.show()
        streamed.feed("\n\n")
        terminal.show()
    streamed.end()
    terminal.show()
    lines = terminal.transcript()
    assert lines[:3] == ABOVE
    assert " ".join(lines[3:]).count("word0") == 5  # none is left over, none is lost
    last = "".join(f"word{number} " for number in range(18))
    assert " ".join(lines[-4:-1]).strip() == last.strip()


# The row below an answer ------------------------------------------------------------------------------


@given(
    lines=st.lists(LINES, max_size=12),
    cuts=st.lists(st.integers(0, 600), max_size=20),
    told=st.lists(LINES | st.text(max_size=100), min_size=1, max_size=4),
    columns=st.sampled_from([2, 8, 20, 41, 80]),
    rows=st.sampled_from([1, 3, 4, 6, 30]),
)
def test_the_row_below_leaves_no_trace(
    lines: list[str], cuts: list[int], told: list[str], columns: int, rows: int
) -> None:
    text = "\n".join(lines)
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    pieces = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    without = shown(text, pieces=pieces, columns=columns, rows=rows)
    texts = cycle(told)
    with_it = shown(text, pieces=pieces, below=lambda: next(texts), columns=columns, rows=rows)
    assert with_it.transcript() == without.transcript()
    assert with_it.cells() == without.cells()
    assert with_it.screen.cursor.x == without.screen.cursor.x


def _filled(lines: list[str]) -> list[str]:
    return lines[: max((at for at, line in enumerate(lines, 1) if line), default=0)]


@given(
    lines=st.lists(LINES, max_size=8),
    step=st.integers(1, 80),
    columns=st.sampled_from([8, 20, 41, 80]),
    rows=st.sampled_from([12, 30]),
)
def test_the_row_below_stands_under_what_would_be_there_without_it(
    lines: list[str], step: int, columns: int, rows: int
) -> None:
    text = "\n".join(lines)
    told = Told("moving", columns=columns, rows=rows)
    without = Terminal(columns=columns, rows=rows)
    streamed = Streamed(without.console)
    for at in range(0, len(text), step):
        for each in (told.streamed, streamed):
            each.feed(text[at : at + step])
            each.refresh()
        *above, last = told.lines()
        without.show()
        assert last == "moving"
        assert _filled(above) == _filled(without.transcript()[len(ABOVE) :])


class Told:
    """A terminal with an answer on it, and what the row below is to tell."""

    def __init__(self, text: str = "", **options: Any) -> None:
        self.terminal = Terminal(**options)
        self.text = text
        self.asked = 0
        self.streamed = Streamed(self.terminal.console, below=self.below)

    def below(self) -> str:
        self.asked += 1
        return self.text

    def lines(self) -> list[str]:
        self.terminal.show()
        return self.terminal.transcript()[len(ABOVE) :]

    def cursor(self) -> tuple[int, int]:
        """Its column, and its row in the answer."""
        return self.terminal.screen.cursor.x, self.terminal.screen.cursor.y - len(ABOVE)


def test_the_row_below_is_there_before_the_answer_and_gone_after_it() -> None:
    told = Told("~0 tokens")
    with told.streamed as streamed:
        assert told.lines() == ["~0 tokens"]
        assert told.cursor() == (0, 0)
        told.text = "~0 tokens, 2 s"
        streamed.refresh()
        assert told.lines() == ["~0 tokens, 2 s"]
        told.text = "~3 tokens"
        streamed.feed("One *two")
        streamed.refresh()
        assert told.lines() == ["One *two", "~3 tokens"]
        assert told.cursor() == (8, 0)
        streamed.feed("* three.\n\nFour")
        streamed.refresh()
        assert told.lines() == ["One two three.", "", "Four", "~3 tokens"]
        assert told.cursor() == (4, 2)
        told.text = ""
        streamed.refresh()
        assert told.lines() == ["One two three.", "", "Four"]
    assert told.lines() == ["One two three.", "", "Four", ""]


def test_the_row_below_comes_back_with_the_next_piece() -> None:
    told = Told("moving")
    for piece in ("", "two"):
        told.streamed.feed("one")
        told.streamed.end()
        assert told.lines()[-2:] == ["one", ""]
        asked = told.asked
        told.streamed.refresh()  # the answer is over as far as is known
        assert told.asked == asked
        told.streamed.feed(piece)
        told.streamed.refresh()
        assert told.lines()[-1] == "moving"
        told.streamed.end()
    assert told.lines() == ["one", "one", "two", ""]


def test_the_row_below_is_one_dim_harmless_row() -> None:
    told = Told("a\x1b[2J\tb\n" + "下" * 40, columns=30)
    with told.streamed:
        (line,) = told.lines()
        assert line.startswith("a␛[2J   b 下")
        assert line.endswith("…")
        assert "\x1b[2ma␛" in told.terminal.sent


@pytest.mark.parametrize(("rows", "seen"), [(1, False), (3, False), (4, True), (9, True)])
def test_a_low_terminal_keeps_its_rows_for_the_answer(rows: int, seen: bool) -> None:
    told = Told("moving", rows=rows)
    with told.streamed as streamed:
        for number in range(40):
            streamed.feed(f"words{number} that go on ")
            streamed.refresh()
            lines = told.lines()
            assert (lines[-1] == "moving") is seen
            assert lines.count("moving") == seen
            assert len(lines) <= max(1, rows - 2)  # the two rows above them stay in sight
    assert "moving" not in told.lines()


def test_only_what_moves_is_sent_again() -> None:
    told = Told("first")
    with told.streamed as streamed:
        streamed.feed("Finished.\n\n" + "upper " * 10 + "last")
        streamed.refresh()
        told.lines()
        before = told.terminal.sent
        streamed.refresh()
        told.lines()
        assert told.terminal.sent == before
        told.text = "second"
        streamed.refresh()
        assert told.lines()[-2:] == ["last", "second"]
        sent = told.terminal.sent.removeprefix(before)
        assert "Finished" not in sent
        assert "upper" not in sent
    assert not re.search(r"\x1b\[(?:[123]J|[0-9;]*H|\?1049)", told.terminal.sent)


def test_the_row_below_moves_no_more_often_than_eyes_see() -> None:
    told = Told("moving")
    start = time.monotonic()
    with told.streamed as streamed:
        for _ in range(300):
            streamed.feed("a line\n\n")
    assert told.asked <= 1 + (time.monotonic() - start) / INTERVAL


def test_the_row_below_is_cut_anew_when_the_terminal_changes_its_size() -> None:
    told = Told("word " * 30)
    with told.streamed as streamed:
        for columns in (60, 25, 90, 20, 60):
            told.terminal.screen.resize(columns=columns)
            told.terminal.console.width = columns
            streamed.feed(f"{columns}\n\n")
            streamed.refresh()
            assert len(told.lines()[-1]) == columns - 1
            assert sum("word" in line for line in told.lines()) == 1
    assert told.lines() == ["60", "", "25", "", "90", "", "20", "", "60", ""]


def test_a_block_that_takes_fewer_rows_than_before_takes_the_row_below_along() -> None:
    told = Told("moving", columns=20)
    with told.streamed as streamed:
        streamed.feed("word " * 11)
        streamed.refresh()
        assert told.lines()[2:] == ["word word word", "moving"]
        told.terminal.screen.resize(columns=60)
        told.terminal.console.width = 60
        streamed.refresh()
        assert told.lines() == [("word " * 11).strip(), "moving"]


def _raises() -> str:
    raise LookupError("a bug in what tells")


def test_nothing_is_told_below_where_no_cursor_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    with Screen(Console(file=file)).answer(_raises) as streamed:
        streamed.feed("a\nb")
        streamed.refresh()
    assert file.getvalue() == "a\nb"
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with Screen(terminal.console).answer(_raises) as streamed:
        streamed.feed("a\nb")
        streamed.refresh()
    terminal.show()
    assert terminal.sent.endswith("before\na\nb\n")


def test_a_bug_in_what_tells_is_not_hidden_and_loses_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "INTERVAL", 3_600.0)  # only `refresh` draws, however slow the machine is
    told = Told()
    with pytest.raises(LookupError, match="a bug"), Screen(told.terminal.console).answer(_raises):
        pass
    bugs = iter(["fine"])

    def below() -> str:
        return next(bugs, None) or _raises()

    terminal = Terminal()
    with Screen(terminal.console).answer(below) as streamed:
        streamed.feed("kept\n\n")
        with pytest.raises(LookupError, match="a bug"):
            streamed.refresh()
    terminal.show()
    assert terminal.transcript()[len(ABOVE) :] == ["kept", ""]


def test_a_remark_in_the_middle_of_an_answer_stands_on_its_own_lines() -> None:
    terminal = Terminal()
    screen = Screen(terminal.console)
    with screen.answer(lambda: "moving") as streamed:
        streamed.feed("so far")
        screen.dim("a tool was called")
        streamed.feed("and on")
    screen.dim("after it")
    terminal.show()
    assert terminal.transcript()[len(ABOVE) :] == ["so far", "a tool was called", "and on", "after it", ""]


def test_a_file_gets_the_bytes_as_they_are() -> None:
    said = "# a\r\n\x1b[31m**b**\t\x00\n\n\n```\nc"
    for pieces in ([said], list(said)):
        file = io.StringIO(newline="")
        streamed = Streamed(Console(file=file))
        for piece in pieces:
            streamed.feed(piece)
        streamed.end()
        assert file.getvalue() == said


def test_a_lone_surrogate_or_a_poor_encoding_stops_nothing() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    streamed = Streamed(Console(file=file))
    streamed.feed("caf\u00e9 \ud83d")
    streamed.end()
    assert raw.getvalue() == b"caf? ?"


def test_a_dumb_terminal_is_never_told_to_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    streamed = Streamed(terminal.console)
    for piece in "**a** \x1b[A\r\nb":
        streamed.feed(piece)
    streamed.end()
    terminal.show()
    assert terminal.sent.endswith("before\n**a** ␛[A\nb\n")


def test_marked_text_keeps_what_scripts_need() -> None:
    assert (
        mark_unsafe("👩‍👧 e\u0301 \u0645\u06cc\u200c\u062e\t\n")
        == "👩‍👧 e\u0301 \u0645\u06cc\u200c\u062e\t\n"
    )
    assert mark_unsafe("\x1b\x7f\x85\u2028\ufeff") == "␛␡���"


# Remarks and questions -------------------------------------------------------------------------------


def test_remarks_and_errors_are_single_harmless_lines() -> None:
    terminal = Terminal()
    screen = Screen(terminal.console)
    screen.dim("trimmed 3 outputs\n:context shows them")
    screen.error("refused \x1b[2J")
    terminal.show()
    assert terminal.transcript()[3:5] == ["trimmed 3 outputs :context shows them", "refused ␛[2J"]
    assert "\x1b[2m" in terminal.sent
    assert "\x1b[31m" in terminal.sent


def test_a_string_is_shown_as_it_is() -> None:
    terminal = Terminal(columns=30)
    Screen(terminal.console).say("[bold]x[/] :smile: \x1b[2J\u2028 " + "word " * 10)
    terminal.show()
    assert terminal.transcript()[3].startswith("[bold]x[/] :smile: ␛[2J�")
    file = io.StringIO()
    Screen(Console(file=file, width=20)).say("a  \nb")
    assert file.getvalue() == "a\nb\n"


def test_no_renderable_brings_in_what_a_terminal_would_obey() -> None:
    terminal = Terminal()
    table = Table("name", "value")
    table.add_row("a\x1b[2J", Text("b\x9b5A\u202e", style="bold"))
    Screen(terminal.console).say(table)
    Screen(terminal.console).say(Text("c\x1b[H\n\td"))
    terminal.show()
    assert terminal.transcript()[: len(ABOVE)] == ABOVE
    assert not re.search(r"\x1b\[[2-9]?[HJA]|[\x80-\x9f\u202e]", terminal.sent)
    assert "c␛[H" in terminal.sent


def test_nobody_is_asked_without_a_terminal() -> None:
    file = io.StringIO()
    screen = Screen(Console(file=file), keyboard=io.StringIO("y\n"))
    assert screen.ask("Run it?", {"y": "yes", "n": "no"}, refuse="n") == "n"
    with pytest.raises(NoTerminal, match="Run it"):
        screen.ask("Run it?", {"y": "yes", "n": "no"})
    assert file.getvalue() == ""


ASKING = """
import sys
from rich.console import Console
from ullage.shell.screen import Screen
screen = Screen(Console())
input("ready ")
for refuse in ("s", None):
    try:
        print("chosen", screen.ask("Run it?", {"r": "run", "s": "skip"}, refuse=refuse))
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (["r", "R"], ["chosen r", "chosen r"]),
        (["x|\x1b[A|s", "\r\n|s"], ["chosen s", "chosen s"]),
        (["run it|s", "sr|Rr|r"], ["chosen s", "chosen r"]),
        (["\x03", "\x03"], ["chosen s", "interrupted"]),
        (["\x1b", "\x04"], ["chosen s", "interrupted"]),
    ],
)
def test_a_question_is_answered_with_one_key(keys: list[str], told: list[str]) -> None:
    child = pexpect.spawn(sys.executable, ["-c", ASKING], encoding="utf-8", timeout=PATIENCE, echo=False)
    child.expect("ready ")
    child.send("\nrrr")  # typed ahead, before anything was asked
    for key, result in zip(keys, told, strict=True):
        child.expect("skip")
        for number, together in enumerate(key.split("|")):
            if number:
                time.sleep(1)  # a pause, after which a key is meant for the question
            child.send(together)
        child.expect(result)
    child.expect(pexpect.EOF)
    close(child)


def test_enter_after_a_key_does_not_answer_the_next_question() -> None:
    asking = ASKING.replace("refuse=refuse", "refuse=refuse, default='r'")
    child = pexpect.spawn(sys.executable, ["-c", asking], encoding="utf-8", timeout=PATIENCE, echo=False)
    child.expect("ready ")
    child.send("\n")
    child.expect("Enter: run")
    time.sleep(1)  # the user has read the question
    child.send("s\r")
    child.expect("chosen s")
    child.expect("Enter: run")
    time.sleep(1)  # in which the Enter would have answered it
    child.send("S")
    child.expect("chosen (.)")
    assert child.match[1] == "s"
    close(child)


def test_a_chosen_label_is_not_broken_at_the_edge() -> None:
    asking = ASKING.replace('"s": "skip"', '"s": "skip this one for now"')
    child = pexpect.spawn(
        sys.executable, ["-c", asking], encoding="utf-8", timeout=PATIENCE, echo=False, dimensions=(20, 45)
    )
    child.expect("ready ")
    child.send("\n")
    child.expect("→ ")
    child.send("s")
    child.expect_exact("\r\n  skip this one for now\r\n")
    close(child)


def test_on_a_narrow_screen_no_row_of_choices_begins_with_a_dot() -> None:
    screen = Screen(Console(file=io.StringIO(), width=40), keyboard=io.StringIO())
    drawn, _ = screen._draw_question("run it?", {"r": "run", "e": "edit", "s": "skip"}, "s")
    assert drawn.splitlines() == ["run it?", "  [r] run [e] edit [s] skip", "  Enter: skip → "]
    assert "[s] skip · Enter: skip → " in screen._draw_question("?", {"r": "run", "s": "skip"}, "s")[0]


def test_a_line_of_choices_ends_between_two_of_them() -> None:
    asking = ASKING.replace('"s": "skip"', '"a": "always in this folder", "s": "skip"')
    child = pexpect.spawn(
        sys.executable,
        ["-c", asking],
        encoding="utf-8",
        timeout=PATIENCE,
        echo=False,
        dimensions=(20, 40),
    )
    child.expect("ready ")
    child.send("\n")
    child.expect("→ ")
    plain = re.sub(r"\x1b\[[\d;]*m", "", child.before)
    assert plain.splitlines()[-2:] == ["  [r] run [a] always in this folder", "  [s] skip "]
    child.send("s")
    close(child)


STREAMING = """
import sys, time
from rich.console import Console
from ullage.shell.screen import Screen
print("above")
screen = Screen(Console())
with screen.quiet(), screen.answer(lambda: f"{time.monotonic():.2f} seconds") as answer:
    for letter in sys.argv[1]:
        answer.feed(letter)
        time.sleep(0.002)
print("below")
"""


def test_a_real_terminal_shows_the_answer_between_what_is_around_it() -> None:
    said = "Some *words*\n\n- one\n- two\n\n```sh\nls\n```\n"
    child = pexpect.spawn(
        sys.executable,
        ["-c", STREAMING, said],
        encoding="utf-8",
        timeout=PATIENCE,
        dimensions=(10, 40),
        env=environment(),
    )
    child.expect("above")
    child.send("typed meanwhile")
    child.expect(pexpect.EOF)
    close(child)
    assert len(set(re.findall(r"[0-9.]+ seconds", child.before))) > 1
    screen = pyte.Screen(40, 20)
    pyte.Stream(screen).feed(f"above{child.before}")
    lines = [line.rstrip() for line in screen.display]
    expected = ["above", "Some words", "", " • one", " • two", "", "```sh", "ls", "```", "below"]
    assert [line for line in lines if line != "typed meanwhile"][:10] == expected
