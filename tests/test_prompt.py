"""The prompt in a real pseudo-terminal, read through an emulator that answers as terminals do."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pexpect
import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ullage.shell.prompt import Prompt, Suggestion, is_open, secure
from ullage.shell.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROGRAM = """
import asyncio, sys
from pathlib import Path
from rich.console import Console
from ullage.shell.prompt import Prompt, Suggestion
from ullage.shell.screen import Screen

WORDS = {":context": "what fills the window", ":cost": "the bill", ":history": "all of it"}
typed = 0

def complete(before):
    for word, note in WORDS.items():
        if word.startswith(before):
            yield Suggestion(word, len(before), note=note)

def status():
    return f"model-x · {typed} read · " + "wide " * 60

screen = Screen(Console())
prompt = Prompt(screen, Path(sys.argv[1]), complete, status)

def main():
    global typed
    print("above")
    while (text := prompt.read()) is not None:
        typed += 1
        print("got", ascii(text))
    print("left")

async def inside():
    main()

asyncio.run(inside()) if "loop" in sys.argv else main()
"""


class Answering(pyte.Screen):
    """A terminal that tells where its cursor is when it is asked."""

    reply: Callable[[str], None]

    def write_process_input(self, data: str) -> None:
        self.reply(data)


class Session:
    """The program, and what its terminal shows."""

    def __init__(self, child: pexpect.spawn[str], columns: int, rows: int, *, answers: bool) -> None:
        self.child = child
        self.screen = Answering(columns, rows)
        self.screen.reply = child.send if answers else lambda _: None
        self._stream = pyte.Stream(self.screen)
        self.raw = ""

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def wait(self, text: str, *, seconds: float = 10, gone: bool = False) -> None:
        """Until the screen shows the text, or no longer does."""
        end = time.monotonic() + seconds
        while (text in "\n".join(self.lines())) is gone:
            assert time.monotonic() < end, "\n".join(self.lines())
            try:
                new = self.child.read_nonblocking(4_096, timeout=0.05)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                assert text in "\n".join(self.lines()), "\n".join(self.lines())
                return
            self.raw += new
            self._stream.feed(re.sub(r"\x1b\[[>?][0-9;]*[a-gi-km-z]", "", new))

    def type(self, keys: str, then: str) -> None:
        self.child.send(keys)
        self.wait(then)


@contextmanager
def prompting(
    folder: Path, *arguments: str, columns: int = 60, rows: int = 16, answers: bool = True, **more: str
) -> Iterator[Session]:
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    child = pexpect.spawn(
        sys.executable,
        ["-c", PROGRAM, str(folder / "state" / "history"), *arguments],
        encoding="utf-8",
        dimensions=(rows, columns),
        env={**environment, "TERM": "xterm-256color", **more},
    )
    session = Session(child, columns, rows, answers=answers)
    try:
        session.wait("\n>")
        time.sleep(0.1)
        yield session
    finally:
        child.close(force=True)


def test_a_line_is_read_and_the_status_is_below_it_until_then(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.wait("model-x · 0 read")
        session.type("hello\r", "got 'hello'")
        session.wait("model-x · 1 read")
        assert session.lines()[:3] == ["above", "> hello", "got 'hello'"]
        assert not any("0 read" in line for line in session.lines())
        assert all(len(line) < 60 for line in session.lines())
        session.type("\x04", "left")


def test_a_terminal_that_tells_no_position_gets_the_status_at_the_right(tmp_path: Path) -> None:
    with prompting(tmp_path, answers=False) as session:
        session.wait("model-x", seconds=8)
        assert session.lines()[1].startswith(">  ")
        assert "WARNING" not in session.raw
        session.type("hello\r", "got 'hello'")


def test_ctrl_c_clears_the_line_and_never_leaves(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type("rm -rf", "> rm -rf")
        session.child.send("\x03")
        session.wait("rm -rf", gone=True)
        session.child.send("\x03\x03")
        session.type("still here\r", "got 'still here'")
        session.type('open "quote\r', "\n.")
        session.child.send("\x03")
        session.wait("open", gone=True)
        session.type("next\r", "got 'next'")


def test_ctrl_d_leaves_only_an_empty_line(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type("words", "> words")
        session.child.send("\x04")
        session.type("\r", "got 'words'")
        session.type("\x04", "left")
        session.child.expect(pexpect.EOF)


MULTILINE = {
    "one\x1b\rtwo\r": r"one\ntwo",
    "three \\\rfour\r": r"three \\\nfour",
    'echo "five\rsix"\r': r'echo "five\nsix"',
    "```\rls\r\r\rpwd\r```\r": r"```\nls\n\n\npwd\n```",
    "what's this\r": "what's this",
    "say 'no\r\r\r": r"say 'no\n\n",
    "\x1b[200~pasted\rlines\x1b[201~\r": r"pasted\nlines",
}


def test_input_may_have_several_lines(tmp_path: Path) -> None:
    with prompting(tmp_path, rows=60) as session:
        for keys, text in MULTILINE.items():
            session.type(keys, text)


def test_tab_completes_through_the_given_function(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type(":h\t", "> :history")
        session.type("\r", "got ':history'")
        session.type(":co\t", "the bill")
        session.type("\t\t", "> :cost")
        session.child.send("\r")  # takes the choice, sends nothing
        session.wait("the bill", gone=True)
        session.type(" all\r", "got ':cost all'")


def test_what_was_typed_is_remembered_for_its_owner_only(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type("a secret\r", "got 'a secret'")
        session.type(" a greater one\r", "got ' a greater one'")
        session.type("\x04", "left")
    file = tmp_path / "state" / "history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with prompting(tmp_path) as session:
        session.type("\x1b[A", "> a secret")


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        os.write(session.child.child_fd, b"caf\xe9 \r")
        session.wait("got 'caf")
        session.type("next\r", "got 'next'")


def test_a_history_that_others_could_read_is_tightened(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("\n+old\n")
    file.chmod(0o644)
    secure(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == "\n+old\n"


def test_a_history_that_cannot_be_kept_is_said_and_the_prompt_works(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    with prompting(tmp_path) as session:
        assert any("is not kept" in line for line in session.lines())
        session.type("hello\r", "got 'hello'")


def test_a_resized_terminal_is_drawn_anew(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type("some words", "> some words")
        session.screen.resize(16, 30)
        session.child.setwinsize(16, 30)
        session.type(" more", "> some words more")
        time.sleep(0.2)
        session.type("!", "more!")
        assert all(len(line) < 30 for line in session.lines())
        session.type("\r", "got 'some words more!'")
        assert session.lines()[0] == "above"


def test_a_prompt_works_within_a_running_loop(tmp_path: Path) -> None:
    with prompting(tmp_path, "loop") as session:
        session.type("hello\r", "got 'hello'")
        session.type("abc\x03\r", "got ''")
        session.type("\x04", "left")


def test_no_colour_is_sent_where_none_is_wanted(tmp_path: Path) -> None:
    with prompting(tmp_path, NO_COLOR="1") as session:
        session.type("hello\r", "got 'hello'")
        assert not re.search(r"\x1b\[[0-9;]*(?:3[0-8]|9[0-7])[0-9;]*m", session.raw)


def test_a_dumb_terminal_still_has_a_prompt(tmp_path: Path) -> None:
    with prompting(tmp_path, TERM="dumb") as session:
        session.type("hello\r", "got 'hello'")


# Without a terminal ----------------------------------------------------------------------------------


def piped(text: str) -> tuple[list[str | None], str]:
    file = io.StringIO()
    screen = Screen(Console(file=file), keyboard=io.StringIO(text))
    prompt = Prompt(screen, None, lambda _: [Suggestion("x")], lambda: "status")
    read: list[str | None] = []
    while not read or read[-1] is not None:
        read.append(prompt.read())
    return read, file.getvalue()


def test_lines_are_read_from_a_pipe_and_nothing_is_printed() -> None:
    assert piped("one\n\ntwo \\\nthree\n```\na\n\n```\nwho's\nlast") == (
        ["one", "", "two \\\nthree", "```\na\n\n```", "who's", "last", None],
        "",
    )
    assert piped("") == ([None], "")
    assert piped("open \\") == (["open \\", None], "")


@given(st.lists(st.text(st.characters(exclude_characters="\\`~\r\n", codec="utf-8"), max_size=9), max_size=6))
def test_plain_lines_come_one_by_one(lines: list[str]) -> None:
    assert piped("".join(f"{line}\n" for line in lines))[0] == [*lines, None]


@pytest.mark.parametrize(
    ("text", "goes_on"),
    [
        ("", False),
        ("ls", False),
        ("don't", False),
        ("the boats' sails", False),
        ('a 5" disk', False),
        ("echo 'a", True),
        ('git commit -m "one\n\ntwo', True),
        ('git commit -m "one\n\n', False),
        ('x="a', True),
        ('echo "a\\"', True),
        ("echo 'a\\'", False),
        ("ls \\", True),
        ("ls \\\\", False),
        ("```\ncode\n\n", True),
        ("```\ncode\n```", False),
    ],
)
def test_input_goes_on_where_something_is_open(text: str, goes_on: bool) -> None:
    assert is_open(text) is goes_on
