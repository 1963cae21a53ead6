"""The prompt in a real pseudo-terminal, read through an emulator that answers as terminals do."""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect
import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.history import FileHistory
from rich.console import Console

from tests.world import PATIENCE, environment
from ullage.shell import history
from ullage.shell.history import keep, newest, secure
from ullage.shell.prompt import Prompt, Suggestion, is_joined, is_open
from ullage.shell.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PROGRAM = """
import asyncio, sys, time
from pathlib import Path
from rich.console import Console
from ullage.shell.prompt import Prompt, Suggestion
from ullage.shell.screen import Screen

WORDS = {":context": "what fills the window", ":cost": "the bill", ":history": "all of it"}
typed = 0

def complete(before):
    if before == "slow":
        time.sleep(60)
    for word, note in WORDS.items():
        if word.startswith(before):
            yield Suggestion(word, len(before), note=note)

def status():
    return f"model-x · {typed} read · " + "wide " * 60

screen = Screen(Console())
prompt = Prompt(screen, Path(sys.argv[1]), complete, status, most_history=int(sys.argv[2]))

def main(**more):
    global typed
    print("above")
    while (text := prompt.read(**more)) is not None:
        typed += 1
        print("got", ascii(text))
    print("left")

async def arrive():
    global typed
    await asyncio.sleep(0.5)
    typed = 700
    prompt.refresh(LookupError("it is not there") if "missing" in sys.argv else None)

def behind():
    tasks.append(asyncio.get_running_loop().create_task(arrive()))

tasks = []
if "behind" in sys.argv or "missing" in sys.argv:
    with asyncio.Runner() as loop:
        main(run=loop.run, behind=behind)
else:
    main()
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

    def wait(self, text: str, *, seconds: float = PATIENCE, gone: bool = False) -> None:
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
    folder: Path,
    *arguments: str,
    columns: int = 60,
    rows: int = 16,
    answers: bool = True,
    most: int = 10_000,
    **more: str,
) -> Iterator[Session]:
    child = pexpect.spawn(
        sys.executable,
        ["-c", PROGRAM, str(folder / "state" / "history"), str(most), *arguments],
        encoding="utf-8",
        dimensions=(rows, columns),
        env=environment(**more),
        timeout=PATIENCE,
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
        session.wait("model-x")
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


def test_a_completion_that_hangs_holds_up_neither_the_keyboard_nor_the_line(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type("slow\t", "> slow")
        session.type(" words", "> slow words")
        session.type("\r", "got 'slow words'")
        session.type(":h\t", "> :history")
        session.type("\x03\x04", "left")
        session.child.expect(pexpect.EOF)


def test_a_new_line_is_marked_and_one_that_the_terminal_breaks_is_not(tmp_path: Path) -> None:
    with prompting(tmp_path, columns=20) as session:
        session.type("a" * 30 + "\x1b\rb", ". b")
        assert session.lines()[1:4] == ["> " + "a" * 18, "  " + "a" * 12, ". b"]


def test_the_rest_of_an_earlier_line_is_shown_dim_and_taken_by_the_right_arrow(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type("count the boats\r", "got 'count the boats'")
        session.type(" count secretly\r", "got ' count secretly'")
    with prompting(tmp_path) as session:
        session.type("coun", "> count the boats")
        shown = session.screen.buffer[1]
        assert shown[len("> coun") - 1].fg == "default"
        assert shown[len("> coun")].fg != "default"
        session.type("\r", "got 'coun'")  # what is shown is not typed
        session.type("count", "> count the boats")
        session.type("\x1b[C\r", "got 'count the boats'")
    with prompting(tmp_path, NO_COLOR="1") as session:
        session.type("count", "> count")
        session.type("!\r", "got 'count!'")
        assert "the boats" not in session.raw


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


def test_what_begins_with_a_blank_is_not_even_remembered_in_the_same_shell(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type("open\r", "got 'open'")
        session.type(" hidden\r", "got ' hidden'")
        session.type("\x1b[A", "2 read")
        session.type("!\r", "got 'open!'")


def test_without_a_history_none_is_written_or_read(tmp_path: Path) -> None:
    with prompting(tmp_path, most=0) as session:
        session.type("one\r", "got 'one'")
        session.type("\x1b[A!\r", "got 'one!'")  # the shell itself still knows
    assert not (tmp_path / "state").exists()
    file = tmp_path / "state" / "history"
    keep_all(file, ["old"])
    before = file.read_bytes()
    file.chmod(0o644)
    with prompting(tmp_path, most=0) as session:
        session.type("\x1b[Anew\r", "got 'new'")
    assert file.read_bytes() == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def keep_all(file: Path, texts: Iterable[str]) -> None:
    file.parent.mkdir(exist_ok=True)
    for text in texts:
        keep(file, text)


def test_a_history_that_has_grown_too_long_is_cut_when_a_shell_opens(tmp_path: Path) -> None:
    file = tmp_path / "state" / "history"
    keep_all(file, [f"line {number}" for number in range(20)])
    file.chmod(0o644)
    with prompting(tmp_path, most=10) as session:
        session.type("\x1b[A" * 10, "> line 10")
        session.type("\x1b[A!\r", "got 'line 10!'")
    assert newest(file, 100) == ["line 10!", *(f"line {number}" for number in range(19, 9, -1))]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


TYPED = ["ls", "two\nlines", "", "\n", "+", "# no comment", "ärger 🚢", "a\r", "\n+\n"]


def test_a_history_gives_back_what_was_typed_and_is_cut_at_a_quarter_too_many(tmp_path: Path) -> None:
    file = tmp_path / "state" / "history"
    keep_all(file, TYPED)
    assert newest(file, 100) == TYPED[::-1]
    assert newest(file, 2) == TYPED[:-3:-1]  # and cuts
    assert newest(file, 100) == TYPED[:-3:-1]
    keep_all(file, ["one", "two", "three"])
    assert newest(file, 4) == ["three", "two", "one", TYPED[-1]]
    assert len(newest(file, 100)) == 5  # five are not more than a quarter too many
    newest(file, 3)
    assert newest(file, 100) == ["three", "two", "one"]
    FileHistory(file).store_string("of another program")
    assert list(FileHistory(file).load_history_strings()) == newest(file, 100)
    assert newest(tmp_path / "none", 5) == []


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=9), max_size=6))
def test_every_text_survives_in_a_history(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history"
        keep_all(file, texts)
        assert newest(file, 100) == texts[::-1]


KEEPER = """
import sys
from pathlib import Path
from ullage.shell.history import keep, newest
for number in range(150):
    keep(Path(sys.argv[1]), f"{sys.argv[2]} {number}")
    newest(Path(sys.argv[1]), 40)
"""


def test_nothing_is_lost_where_several_shells_write_and_cut_at_once(tmp_path: Path) -> None:
    file = tmp_path / "history"
    keepers = [subprocess.Popen([sys.executable, "-c", KEEPER, str(file), name]) for name in "abc"]
    assert [keeper.wait(PATIENCE) for keeper in keepers] == [0, 0, 0]
    last = newest(file, 1_000)
    assert 40 <= len(last) <= 51
    for name in "abc":
        own = [int(text.split()[1]) for text in reversed(last) if text.startswith(name)]
        assert own == list(range(150 - len(own), 150))  # the latest, and none between them is missing


def test_an_input_that_waited_goes_into_the_file_that_took_the_place_of_the_old_one(tmp_path: Path) -> None:
    file, new = tmp_path / "history", tmp_path / "new"
    keep_all(file, ["old"])
    keep_all(new, ["new"])
    late = threading.Thread(target=keep, args=(file, "late"))
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        late.start()
        time.sleep(0.1)  # until it has opened the old file and waits
        new.replace(file)
    late.join()
    assert newest(file, 100) == ["late", "new"]


def test_a_shell_that_was_stopped_does_not_hold_up_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LOCKED", 2)
    file = tmp_path / "history"
    keep_all(file, ["one", "two", "three"])
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        keep(file, "four")
        assert newest(file, 1) == ["four"]
        assert len(newest(file, 100)) == 4  # not cut: the other one may be about to write
    newest(file, 1)
    assert newest(file, 100) == ["four"]


def test_a_history_whose_folder_is_gone_is_an_error_to_keep_and_empty_to_read(tmp_path: Path) -> None:
    file = tmp_path / "gone" / "history"
    with pytest.raises(FileNotFoundError):
        keep(file, "lost")
    assert newest(file, 5) == []
    with prompting(tmp_path) as session:
        shutil.rmtree(tmp_path / "state")
        session.type("one\r", "got 'one'")
        session.type("\x1b[A!\r", "got 'one!'")


FULL = """
import resource, sys
from pathlib import Path
from ullage.shell.history import newest
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
print(newest(Path(sys.argv[1]), 1))
"""


def test_a_history_that_cannot_be_cut_is_read_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "history"
    keep_all(file, ["one", "two", "three"])
    command = [sys.executable, "-c", FULL, str(file)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "['three']\n"
    assert newest(file, 100) == ["three", "two", "one"]
    assert list(tmp_path.iterdir()) == [file]


def test_a_history_that_is_a_link_stays_one(tmp_path: Path) -> None:
    keep_all(tmp_path / "elsewhere" / "history", [f"line {number}" for number in range(20)])
    (tmp_path / "state").symlink_to("elsewhere")
    (tmp_path / "elsewhere" / "real").write_bytes((tmp_path / "elsewhere" / "history").read_bytes())
    (tmp_path / "elsewhere" / "history").unlink()
    (tmp_path / "elsewhere" / "history").symlink_to("real")
    with prompting(tmp_path, most=10) as session:
        session.type("new\r", "got 'new'")
    assert (tmp_path / "elsewhere" / "history").is_symlink()
    assert len(newest(tmp_path / "elsewhere" / "real", 100)) == 11


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
        assert any("is not saved" in line for line in session.lines())
        session.type("hello\r", "got 'hello'")


def test_what_can_no_longer_be_kept_is_said_once_and_the_prompt_works(tmp_path: Path) -> None:
    with prompting(tmp_path) as session:
        session.type("kept\r", "got 'kept'")
        shutil.rmtree(tmp_path / "state")
        session.type("lost\r", "got 'lost'")
        session.type("again\r", "got 'again'")
        assert "\n".join(session.lines()).count("is not saved") == 1


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


def test_what_is_behind_the_prompt_arrives_while_one_types(tmp_path: Path) -> None:
    with prompting(tmp_path, "behind") as session:
        session.type("hel", "> hel")
        session.wait("model-x · 700 read")
        session.type("lo\r", "got 'hello'")
        session.type("abc\x03\r", "got ''")
        session.type("\x04", "left")


def test_what_is_behind_the_prompt_and_fails_ends_it(tmp_path: Path) -> None:
    with prompting(tmp_path, "missing") as session:
        session.wait("LookupError: it is not there")


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
    assert piped("whole \\\\\nnext") == (["whole \\\\", "next", None], "")


LINES = st.text(st.characters(exclude_characters="`~\r\n", codec="utf-8"), max_size=9) | st.sampled_from(
    ["\\", "a\\\\", "\\\\\\", "```", "~~~", "```py"]
)


@given(st.lists(LINES, max_size=6))
def test_plain_lines_come_one_by_one_unless_they_are_joined(lines: list[str]) -> None:
    inputs = [each for each in piped("".join(f"{line}\n" for line in lines))[0] if each is not None]
    assert [line for each in inputs for line in each.split("\n")] == lines
    assert not any(is_joined(each) for each in inputs[:-1])
    assert all(is_open(each.rpartition("\n")[0]) for each in inputs if "\n" in each)


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
