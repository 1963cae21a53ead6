from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pexpect
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world import PATIENCE, environment, gone, until
from ullage.errors import ConfigurationError
from ullage.terminal import Ran, Runner
from ullage.terminal.capture import Capture, cut

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRON = {
    "PATH": os.environ["PATH"],
    "HOME": "/",
    "HISTFILE": "",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
}


@contextlib.contextmanager
def running(cwd: Path, **options: Any) -> Iterator[Runner]:
    """A Runner, closed at the end."""
    with contextlib.closing(Runner(cwd=cwd, **{"environ": ENVIRON, **options})) as made:
        yield made


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with running(tmp_path, environ={**ENVIRON, "TOKEN": "s3cret"}) as made:
        yield made


def said(runner: Runner, *lines: str) -> str:
    """What the last of some lines prints."""
    return [runner.run(line, show=False) for line in lines][-1].output.strip()


# What lasts from line to line.


@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        (["cd /usr", "pwd"], "/usr"),
        (["cd /usr; cd /var", "cd -"], "/usr"),
        (["pushd /usr; pushd /var", "popd >/dev/null", "pwd"], "/usr"),
        (["export A='x y'", "bash -c 'echo \"$A\"'"], "x y"),
        (["A=\"line one\nline 'two'\"", 'echo "$A"'], "line one\nline 'two'"),
        (["A=$'\\xff\\x01\\t'", 'printf %s "$A" | od -An -tx1'], "ff 01 09"),
        (["export A=1", "unset A", "echo ${A-none}"], "none"),
        (["unset TOKEN", "env | grep -c TOKEN"], "0"),
        (["unset PATH", "echo ${PATH-none}"], "none"),
        (["declare -A m=([a]=1 ['b c']=2)", 'echo "${m[b c]}"'], "2"),
        (["a=(1 '2 3')", 'echo "${#a[@]} ${a[1]}"'], "2 2 3"),
        (["declare -i n=2", "n+=3; echo $n"], "5"),
        (["readonly R=7", "echo $R"], "7"),
        (["IFS=:", "x=a:b; echo $x"], "a b"),
        (["alias hi='echo hello'", "hi you"], "hello you"),
        (["alias echo='echo x'", "f() { echo a; }", "f", "f"], "x a"),
        (["alias hi=echo", "unalias hi", "type -t hi"], ""),
        (['greet() { echo "hello $1"; }', "greet you"], "hello you"),
        (["greet() { echo hi; }; export -f greet", "bash -c greet"], "hi"),
        (["greet() { :; }", "unset -f greet", "type -t greet"], ""),
        (["set -o pipefail", "false | true; echo $?"], "1"),
        (["set -u", "echo $nope; echo on"], "bash: nope: unbound variable"),
        (["set -f", "echo *"], "*"),
        (["set -x", "echo on"], "++ echo on\non"),
        (["set -n", "echo on"], "on"),
        (["shopt -s extglob", "x=aab; echo ${x##+(a)}"], "b"),
        (
            ["shopt -s extglob", "f() { case $1 in +(a)) ;; esac; }", "shopt -u extglob", "type -t f"],
            "function",
        ),
        (["shopt -s nullglob", "echo nothing*"], ""),
        (["umask 027", "umask"], "0027"),
        (["false", "echo $?"], "1"),
        (["exec 3>three; echo x >&3", "echo y >&3; exec 3>&-; tr -d '\\n' <three"], "xy"),
        (["ulimit -c 0; ulimit -S -n 300", "ulimit -n"], "300"),
        (["trap 'echo caught' USR1", "kill -USR1 $$; echo on"], "caught\non"),
        (["set -- a b", 'echo "$2"'], "b"),
        (["mkdir new", "cd $_; basename $PWD"], "new"),
        (["touch 'a b'", 'ls "$_"'], "a b"),
        (["A=1; exec >/dev/null", "echo $A"], "1"),
        (["A=1; exec 1>&- 2>&-", "echo $A"], "1"),
        (["A=1; trap 'echo bye' EXIT", "echo $A"], "1"),
        (["printf() { echo mine; }; declare() { echo mine; }; A=1", "echo $A"], "1"),
    ],
)
def test_a_line_finds_what_the_lines_before_it_left(runner: Runner, lines: list[str], printed: str) -> None:
    assert said(runner, *lines) == printed


def test_the_history_of_bash_has_the_lines(runner: Runner) -> None:
    assert re.fullmatch(
        r" *1  echo one\n +2  cd /\npwd\n +3  history", said(runner, "echo one", "cd /\npwd", "history")
    )


def test_a_job_can_be_waited_for_in_a_later_line(runner: Runner) -> None:
    runner.run("sh -c 'until test -e go; do sleep 0.02; done; exit 7' & touch go", show=False)
    assert said(runner, "wait $!; echo $?") == "7"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("true", 0),
        ("(exit 7)", 7),
        ("exit 300", 44),
        ("nosuchcommand", 127),
        ("/", 126),
        ("kill -TERM $$", 0),  # an interactive bash ignores it
        ("sh -c 'kill -SEGV $$'", 139),
        ("exec sh -c 'exit 5'", 5),
        ("exec sh -c 'kill -9 $$'", 137),
        ("echo 'open", 2),
        ("cat <<END\ntext", 0),
        ("if true", 2),
        (")", 2),
        ("", 0),
        ("# nothing", 0),
        ("return 3", 2),
        ("true \0 \ud800", 0),
        ("set -u; echo $nope", 1),
        ("false && true", 1),
        ("break", 0),
        ("{", 2),
        ("echo ok }", 0),
        ("} <>/dev/null; }", 2),
        ("unset __ullage; unset -f __ullage_answer; false", 1),
    ],
)
def test_the_status_is_the_one_of_bash_and_the_next_line_runs(runner: Runner, line: str, status: int) -> None:
    ran = runner.run(line, show=False)
    assert (ran.line, ran.status, ran.interrupted) == (line, status, False)
    assert said(runner, "echo on") == "on"


def test_a_bash_that_ends_between_two_lines_is_replaced_with_a_word(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    pid = int(runner.run("cd inner; export x=3; echo $BASHPID", show=False).output)
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: gone(pid))
    ran = runner.run("echo $x in ${PWD##*/}", show=False)
    assert (
        ran.output
        == f"ullage: bash has ended (status 137); a new one runs in {tmp_path / 'inner'}\n3 in inner\n"
    )
    assert said(runner, "echo on") == "on"


def test_the_state_can_be_read_between_lines(runner: Runner) -> None:
    runner.run("cd /usr; export A=$'1\\n2' B=; unset TOKEN; C=not-exported", show=False)
    assert runner.cwd == Path("/usr")
    assert (runner.environ["A"], runner.environ["B"], runner.environ["PWD"]) == ("1\n2", "", "/usr")
    assert "TOKEN" not in runner.environ
    assert "C" not in runner.environ


@settings(max_examples=15, deadline=None)
@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60))
def test_every_value_survives_the_way_from_line_to_line(value: str) -> None:
    with running(Path("/"), environ={**ENVIRON, "GIVEN": value}) as runner:
        runner.run('export COPY="$GIVEN"', show=False)
        runner.run("true", show=False)
        assert (runner.environ["GIVEN"], runner.environ["COPY"]) == (value, value)


def test_names_that_bash_does_not_know_and_exported_functions_are_handed_on(tmp_path: Path) -> None:
    given_functions = {"BASH_FUNC_greet%%": "() {  echo hello\n}", "with.dot": "1"}
    with running(tmp_path, environ={**ENVIRON, **given_functions}) as runner:
        assert said(runner, "true", "greet; env | grep with.dot") == "hello\nwith.dot=1"
        assert said(runner, "unset -f greet", "type -t greet") == ""


def test_an_environment_too_large_for_any_program_can_be_lived_with(runner: Runner) -> None:
    ran = runner.run("export BIG=$(head -c 300000 /dev/zero | tr '\\0' x); echo ${#BIG}", show=False)
    assert ran.output == "300000\n"
    assert runner.run("/bin/true", show=False).status == 126  # as in every shell
    assert said(runner, "echo ${#BIG}") == "300000"
    assert runner.run("unset BIG; /bin/true", show=False).status == 0


def test_a_directory_that_is_gone_is_left_with_a_word(runner: Runner, tmp_path: Path) -> None:
    runner.run("mkdir -p a/b; cd a/b", show=False)
    runner.run("rmdir $PWD", show=False)
    assert (
        said(runner, "pwd")
        == f"ullage: {tmp_path}/a/b no longer exists; the folder is now {tmp_path}/a\n{tmp_path}/a"
    )


def test_a_symbolic_link_stays_the_way_in(runner: Runner, tmp_path: Path) -> None:
    assert said(runner, "mkdir -p real/in; ln -s real/in link; cd link", "cd ..; pwd") == str(tmp_path)


# What children see of us.


def test_children_get_the_environment_and_nothing_of_ours(runner: Runner) -> None:
    said(runner, "true")
    assert said(runner, "env | grep -ci ullage; echo $TOKEN") == "0\ns3cret"
    listing = said(runner, "ls /proc/self/fd | wc -l; tr '\\0' ' ' </proc/$$/cmdline | grep -c s3cret")
    assert listing == "4\n0"  # three, and the directory that is listed
    assert "bad file descriptor" in said(runner, "echo x >&3").lower()


def test_a_line_is_not_seen_in_the_list_of_processes(runner: Runner) -> None:
    assert said(runner, ": hidden''word; ps -ef 2>/dev/null | grep -c hidden''word'[:]'") == "0"


def test_the_state_has_no_name_in_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("there is no /proc")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with running(Path("/")) as runner:
        assert said(runner, "A=1", f"echo $A; ls -A {tmp_path}") == "1"


# Words.


def test_a_word_resolves_as_bash_would_find_it(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    (tmp_path / "text").write_text("no program")
    assert all(map(runner.resolves, ["ls", "cd", "if", "[[", "./mine", f"{tmp_path}/mine", "/bin/sh"]))
    assert not any(map(runner.resolves, ["", "what", "mine", "./text", "/", "./none", "a\0b", "x" * 5000]))
    runner.run("alias what=ls; mine() { :; }", show=False)
    assert runner.resolves("what")
    assert runner.resolves("mine")
    runner.run(f"unset -f mine; unalias what; PATH={tmp_path}", show=False)
    assert runner.resolves("mine")
    assert not runner.resolves("what")
    assert not runner.resolves("ls")


@pytest.mark.parametrize("word", ["in", "then", "else", "elif", "do", "done", "fi", "esac", "}", "]]"])
def test_a_keyword_that_cannot_begin_a_line_is_no_command(runner: Runner, tmp_path: Path, word: str) -> None:
    assert not runner.resolves(word)
    (tmp_path / word).write_text("#!/bin/sh\n")
    (tmp_path / word).chmod(0o755)
    runner.run(f"PATH={tmp_path}", show=False)
    assert runner.resolves(word)


def test_the_programs_of_the_path_are_listed_again_when_one_is_new(runner: Runner, tmp_path: Path) -> None:
    runner.run(f"PATH={tmp_path}/bin:{tmp_path}/none:$PATH; mkdir bin", show=False)
    assert "sh" in set(runner.programs())
    assert "mine" not in set(runner.programs())
    (tmp_path / "bin" / "mine").write_text("")
    os.utime(tmp_path / "bin", ns=(1, 1))
    assert "mine" in set(runner.programs())


def test_a_text_is_read_on_after_in_every_language_and_is_not_run(tmp_path: Path) -> None:
    runner = Runner(cwd=tmp_path, environ={**ENVIRON, "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"})
    assert all(
        map(runner.reads_on, ["touch a; (", "cat <<E", "ls |", "ls \\", "echo 'a", "[[ -f a &&", "{ ls"])
    )
    assert not any(map(runner.reads_on, ["touch a", "ls )", "ls \\\\", "", "shopt; case a in +(a)) ;; esac"]))
    assert not runner.reads_on("(" * 70_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shell", ["nosuchshell", "true"])
def test_without_bash_the_error_says_what_to_do(shell: str) -> None:
    with pytest.raises(ConfigurationError, match=r"install bash 4\.4 or newer"):
        Runner(cwd=Path("/"), environ=ENVIRON, shell=shell)


# Output.


def plain(*pieces: str | bytes) -> str:
    capture = Capture(most_chars=10_000, most_whole=100_000)
    for piece in pieces:
        capture.feed(piece if isinstance(piece, bytes) else piece.encode())
    return capture.text()[0]


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("10%\r20%\r100%\r\ndone\r\n", "100%\ndone\n"),
        ("long line\rshort\x1b[K\r\n", "short\n"),
        ("abc\b\bX", "aXc"),
        ("\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mrgb\x1b[m", "red rgb"),
        ("\x1b[01;31m\x1b[Kmatch\x1b[m\x1b[K rest", "match rest"),
        ("a: 1\nb: 1\n\x1b[2A\x1b[2Ka: 2\n\x1b[2Kb: 2\n", "a: 2\nb: 2\n"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
        ("\x1bPq#0;2;0~~@@\x1b\\after", "after"),
        ("before\r\n\x1b[?1049h\x1b[H~\r\n~ vim\x1b[?1049lafter\r\n", "before\nafter\n"),
        ("gone\n\x1b[H\x1b[2J\x1b[3Jleft", "left"),
        ("\x1b(B\x1b=\x1b>\x1b7text\x1b8", "text"),
        ("abcdef\x1b[4D\x1b[2P", "abef"),
        ("abc\x1b[6Gx", "abc  x"),
        ("\x1b[9999999999Cx\x1b[5;5H", None),
        ("tab\there\x00\x07\x1c", "tab\there"),
        ("a\nb\n\x1b[1A\x1b[JX", "a\nX"),
        ("\x1b]never ended\nnext", "\nnext"),
    ],
)
def test_control_sequences_leave_the_text_that_a_screen_would_show(printed: str, text: str | None) -> None:
    whole = plain(printed)
    assert text is None or whole == text
    assert plain(*printed) == whole  # a byte at a time


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "é", "漢", "\n", "\r\n", "bc d", "\t", "x" * 70]), max_size=200))
def test_text_without_controls_is_kept_as_it_is(pieces: list[str]) -> None:
    assert plain(*pieces) == "".join(pieces).replace("\r\n", "\n")


@pytest.mark.parametrize("piece", ["\x1b[999@", "\x1b[999Cx", "\x1b[999X", "\rb", "\x1b[999@x\x1b[999D"])
def test_the_work_grows_with_the_output_and_not_with_its_square(piece: str) -> None:
    def spent(times: int) -> float:
        output = "a" * 100_000 + piece * times
        since = time.process_time()
        plain(output)
        return time.process_time() - since

    assert spent(32_000) < 40 * max(min(spent(4_000), spent(4_000)), 0.005)


def test_what_is_inserted_pushes_text_over_the_edge_as_on_a_terminal() -> None:
    assert plain("abc\r\x1b[2@x") == "x abc"
    assert len(plain("abc\r" + "\x1b[999@" * 8_000)) <= 2_000


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 300))
def test_garbage_gives_text_without_controls_wherever_it_is_cut(data: bytes, at: int) -> None:
    text = plain(data[:at], data[at:])
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


@settings(deadline=None)
@given(st.text("ab\n", max_size=400), st.integers(60, 200))
def test_a_cut_text_keeps_its_ends_and_its_bound(text: str, most: int) -> None:
    short = cut(text, most)
    assert len(short) <= most
    if len(text) > most:
        head, tail = re.split(r"\n\[\.\.\. [\d,]+ characters left out \.\.\.\]\n", short)
        assert text.startswith(head)
        assert text.endswith(tail)
    else:
        assert short == text


def test_ten_megabytes_are_capped_fast_and_kept_whole(runner: Runner) -> None:
    began = time.process_time()
    ran = runner.run("seq 1 1300000", show=False)
    assert time.process_time() - began < 2
    assert ran.whole == "".join(f"{n}\n" for n in range(1, 1_300_001))
    assert len(ran.output) <= 16_000
    assert ran.output.startswith("1\n2\n")
    assert ran.output.endswith("1300000\n")
    assert "characters left out" in ran.output


def test_beyond_the_bound_of_the_whole_its_middle_is_left_out(tmp_path: Path) -> None:
    with running(tmp_path, most_chars=100, most_whole=10_000) as runner:
        ran = runner.run("seq 1 100000", show=False)
    assert ran.whole is not None
    assert len(ran.whole) < 10_100
    assert ran.whole.startswith("1\n2\n")
    assert ran.whole.endswith("\n100000\n")
    lost = int(re.findall(r"\[\.\.\. ([\d,]+) characters", ran.whole)[0].replace(",", ""))
    mark = len(f"\n[... {lost:,} characters left out ...]\n")
    assert lost + len(ran.whole) - mark == sum(len(f"{n}\n") for n in range(1, 100_001))


def test_one_endless_line_is_bounded_too(tmp_path: Path) -> None:
    with running(tmp_path, most_whole=100_000) as runner:
        ran = runner.run("head -c 5000000 /dev/zero | tr '\\0' x", show=False)
    assert ran.whole is not None
    assert len(ran.whole) < 100_100


# Without a terminal.


def test_without_a_terminal_nothing_waits_for_input(runner: Runner) -> None:
    assert (
        said(runner, "cat; read x; echo status $?; test -t 0 || test -t 1 || echo none") == "status 1\nnone"
    )
    assert runner.run("exec 3</dev/tty", show=False).status == 1


def test_a_background_job_goes_on_and_is_not_waited_for(runner: Runner, tmp_path: Path) -> None:
    waiting = "until test -e go; do sleep 0.02; done; echo late; echo done > mark"
    ran = runner.run(f"({waiting}) & echo started", show=False)
    assert re.fullmatch(r"\[1\] \d+\nstarted\n", ran.output)
    assert not (tmp_path / "mark").exists()
    (tmp_path / "go").touch()
    assert until((tmp_path / "mark").exists)


@pytest.mark.parametrize("job", ["timeout 60 yes", "for n in {1..3000}; do echo tick; sleep 0.02; done"])
def test_a_background_job_that_goes_on_printing_is_not_waited_for(
    runner: Runner, tmp_path: Path, job: str
) -> None:
    ran = runner.run(f"({job}) & sleep 0.2; touch ended", show=False)
    assert ran.seconds < 30
    assert (tmp_path / "ended").exists()
    assert re.search(r"^(y|tick)$", ran.output, re.MULTILINE)


def test_another_thread_can_interrupt(runner: Runner) -> None:
    def interrupt() -> None:
        until((runner.cwd / "begun").exists)
        runner.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    # The program itself tells that it runs: bash may lose an interrupt while it starts one.
    begins = f"sh -c ': > {runner.cwd}/begun; exec sleep 100'"
    ran = runner.run(f"cd /usr; {begins}; echo not here", show=False)
    thread.join()
    assert (ran.status, ran.interrupted, ran.output) == (130, True, "")
    assert said(runner, "pwd") == "/usr"


PIPED = """
import os, sys
from pathlib import Path
from ullage.terminal import Runner
runner = Runner(cwd=Path("/"), environ=dict(os.environ))
for line in sys.argv[1:]:
    print("ran", runner.run(line).status, flush=True)
runner.close()
"""


def test_output_is_streamed_into_a_pipe_as_it_comes() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PIPED, "echo first; sleep 250", "echo next"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as piped:
        assert piped.stdout is not None
        assert piped.stdout.readline() == "first\n"
        time.sleep(0.2)
        piped.send_signal(signal.SIGINT)  # as Ctrl-C where only the output is a terminal
        assert piped.stdout.read() == "ran 130\nnext\nran 0\n"
    assert piped.returncode == 0


def test_a_closed_output_ends_the_line() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PIPED, "echo $$; while sleep 0.05; do echo more; done"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as piped:
        assert piped.stdout is not None
        line = int(piped.stdout.readline())
        piped.stdout.close()
        piped.wait(PATIENCE)
    assert until(lambda: gone(line))


# With a terminal.

DRIVER = textwrap.dedent("""
    import contextlib, dataclasses, json, os, sys, termios
    from pathlib import Path
    from ullage.terminal import Runner
    runner = Runner(cwd=Path(sys.argv[1]), environ=dict(os.environ))
    before = termios.tcgetattr(0)
    with open(sys.argv[2], "w") as told, contextlib.closing(runner):
        while (line := input("ready> ")) != "quit":
            ran = runner.run(line)
            told.write(json.dumps(dataclasses.asdict(ran)) + "\\n")
            told.flush()
            same = "same" if termios.tcgetattr(0) == before else "changed"
            print(f"[status {ran.status}, terminal {same}]")
""")


class Shell:
    """The driver in a pseudo-terminal, and what its Runner gave for the last line."""

    def __init__(self, place: Path) -> None:
        self._told = place / "told"
        self.child = pexpect.spawn(
            sys.executable,
            ["-c", DRIVER, str(place), str(self._told)],
            env=environment(**ENVIRON, VIMINIT="", LESS=""),
            encoding="utf-8",
            codec_errors="replace",
            timeout=PATIENCE,
            dimensions=(30, 100),
        )
        self.child.delaybeforesend = None
        self.child.expect("ready> ")

    def begin(self, line: str, seen: str | None = None) -> None:
        self.child.sendline(line)
        self.child.expect_exact("\r\n")  # the echo
        if seen is not None:
            self.child.expect(seen)

    def end(self) -> Ran:
        self.child.expect(r"\[status \d+, terminal (\w+)\]\r\nready> ")
        assert self.child.match[1] == "same"
        told: dict[str, Any] = json.loads(self._told.read_text().splitlines()[-1])
        return Ran(**told)

    def run(self, line: str) -> Ran:
        self.begin(line)
        return self.end()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    with contextlib.suppress(OSError):
        made.child.close(force=True)


def needs(program: str) -> None:
    if not Runner(cwd=Path("/"), environ=ENVIRON).resolves(program):
        pytest.skip(f"{program} is not installed")


def test_programs_have_a_terminal_of_the_users_size(shell: Shell) -> None:
    assert (
        shell.run("test -t 0 && test -t 1 && test -t 2 && stty size && tty >/dev/null").output == "30 100\n"
    )
    shell.begin(
        """sh -c 'trap "stty size; exit" WINCH; echo waiting; while :; do sleep 0.05; done'""", "waiting"
    )
    shell.child.setwinsize(40, 120)
    assert shell.end().output == "waiting\n40 120\n"
    assert shell.run("stty size").output == "40 120\n"


def test_vim_opens_writes_and_quits(shell: Shell, tmp_path: Path) -> None:
    needs("vim")
    shell.begin("vim -u NONE -i NONE -n new.txt", "new.txt")
    time.sleep(0.2)
    shell.child.send("ihello\x1b")
    time.sleep(0.1)
    shell.child.send("\x1a")
    assert shell.end().status == 148
    assert re.search(r"Stopped .*vim", shell.run("jobs").output)
    shell.begin("fg", "hello")
    time.sleep(0.2)
    shell.child.send(":wq\r")
    ran = shell.end()
    assert ran.status == 0
    assert (tmp_path / "new.txt").read_text() == "hello\n"
    assert "~" not in ran.output


def test_less_scrolls(shell: Shell) -> None:
    needs("less")
    shell.begin("seq 1 500 | less", "29\r\n")
    shell.child.send("G")
    shell.child.expect("500")
    shell.child.send("q")
    assert shell.end().status == 0


def test_a_password_is_read_without_echo(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "ask").write_text(
        "stty -echo </dev/tty; printf 'Password: ' >/dev/tty; read p </dev/tty; stty echo </dev/tty\n"
        "echo; echo got ${#p}\n"
    )
    shell.begin("sh ask", "Password: ")
    shell.child.sendline("hunter2")
    assert shell.end().output == "Password: \ngot 7\n"


def test_a_program_reads_lines_and_the_end_of_input(shell: Shell) -> None:
    shell.begin(f"{sys.executable} -q", ">>> ")
    shell.child.send("6*7\r")
    shell.child.expect("42")
    shell.child.send("\x03")
    shell.child.expect("KeyboardInterrupt")
    shell.child.send("\x04")
    ran = shell.end()
    assert (ran.status, ran.interrupted) == (0, False)


@pytest.mark.parametrize(
    "line", ["sleep 100", "while :; do sleep 1; done", "sleep 100 | cat", "cat", "exec sleep 100"]
)
def test_ctrl_c_ends_the_line_and_not_the_shell(shell: Shell, line: str) -> None:
    shell.begin(f"cd /usr; echo go; {line}; echo not here", "go\r\n")
    time.sleep(0.15)
    shell.child.send("\x03")
    ran = shell.end()
    assert (ran.status, ran.interrupted) == (130, True)
    assert "not here" not in ran.output
    assert shell.run("pwd").output == ("/usr\n" if "exec" not in line else shell.run("pwd").output)


RUNS = "sh -c 'echo go; exec sleep 100'"
"""A program that says when it runs: until then Ctrl-Z would meet bash itself, which ignores it."""


def test_ctrl_z_stops_a_command_and_fg_and_bg_continue_it(shell: Shell) -> None:
    shell.begin(RUNS, "go\r\n")
    time.sleep(0.1)
    shell.child.send("\x1a")
    ran = shell.end()
    assert (ran.status, ran.interrupted) == (148, False)
    assert "Stopped" in ran.output
    shell.run("bg")
    assert re.search(r"\[1\]\+ +Running", shell.run("jobs").output)
    shell.begin("fg", r"sh -c .*\r\n")
    time.sleep(0.2)
    shell.child.send("\x03")
    ran = shell.end()
    assert (ran.status, ran.interrupted) == (130, True)
    assert shell.run("jobs").output == ""


def test_ctrl_z_leaves_the_rest_of_the_line_to_bash(shell: Shell) -> None:
    shell.begin(f"{RUNS}; echo rest", "go\r\n")
    time.sleep(0.1)
    shell.child.send("\x1a")
    assert shell.end().output.endswith("rest\n")
    shell.run("kill -KILL %1")


def test_ctrl_backslash_ends_the_line_and_not_the_shell(shell: Shell) -> None:
    shell.begin("ulimit -c 0; sh -c 'echo go; exec sleep 100'", "go\r\n")
    time.sleep(0.1)
    shell.child.send("\x1c")
    assert shell.end().status == 131
    shell.begin("ulimit -c 0; sh -c 'echo go; exec sleep 100'", "go\r\n")
    time.sleep(0.1)
    shell.child.kill(signal.SIGQUIT)  # typed before the terminal was raw, it comes to the shell itself
    assert shell.end().status == 131
    assert shell.run("echo on").output == "on\n"


def test_a_program_that_stops_itself_becomes_a_job(shell: Shell) -> None:
    assert shell.run("""sh -c 'kill -STOP $$; echo on'""").status == 147
    assert shell.run("fg").output.endswith("on\n")


@pytest.mark.parametrize("line", ["suspend; echo on", "kill -STOP $$; echo on"])
def test_a_bash_that_stops_itself_goes_on_with_a_word(shell: Shell, line: str) -> None:
    ran = shell.run(line)
    assert (ran.status, "goes on" in ran.output) == (0, True)
    assert ran.output.endswith("on\n")


def test_a_bash_that_always_stops_is_replaced(shell: Shell) -> None:
    assert shell.run("while :; do kill -STOP $$; done").status == 137
    assert shell.run("echo on").output == "on\n"


def test_background_jobs_outlive_their_line_and_their_output_is_shown_later(
    shell: Shell, tmp_path: Path
) -> None:
    assert shell.run("(sleep 0.3; echo from the job; touch mark) & echo started").output.endswith("started\n")
    assert until((tmp_path / "mark").exists)
    shell.begin("echo next", "from the job")
    assert shell.end().output == "next\n"


# What is typed while a line runs.


def typing(shell: Shell, line: str, *keys: str) -> str:
    """What is given back of keys that are typed while a line runs, each when the line has said `go` again."""
    shell.begin(line)
    for each in keys:
        shell.child.expect_exact("go\r\n")
        shell.child.send(each)
    return shell.end().typed


GO = "echo go; sleep 0.5"
COME = "until read -t 0; do sleep 0.05; done"
"""Waits until a line, or in raw mode a key, is there to be read."""
UNSEEN = f"stty -echo; echo go; {COME}"
RAW = "stty raw -echo; printf 'go\\r\\n'"


@pytest.mark.parametrize(
    ("line", "keys", "typed"),
    [
        ("echo go", [""], ""),
        (GO, ["echo queued\r"], "echo queued\n"),
        (GO, ["echo quex\x7fued\rls -l"], "echo queued\nls -l"),
        (GO, ["größe 漢"], "größe 漢"),
        (GO, ["\x1b[A\x1bOB\x1b[12;1R\x1b[200~ls\x1b[201~\x1b]11;rgb:0/0/0\x1b\\\x04\r"], "ls\n"),
        (GO, [f"{'x' * 3000}\r{'y' * 3000}\r{'z' * 3000}\r"], f"{'x' * 3000}\n{'y' * 3000}\n{'z' * 3000}\n"),
        (f"{GO}; head -n 1", ["one\rtwo\r"], "two\n"),
        (f"{GO}; read x; {GO}", ["one\r", "two"], "two"),
        (f"{GO}; {GO}", ["one\r", "two\r"], "one\ntwo\n"),
        (f"{GO}; {GO}", ["one\r", "\x03"], ""),
        (f"sleep 1 & {GO}", ["ls\r"], "ls\n"),
        # What may be a secret.
        (f"(sleep 1; read x) <&0 & {GO}", ["ls\r"], "ls\n"),  # a job in the background cannot read them
        (UNSEEN, ["hunter2\r"], ""),
        (f"{GO}; stty -echo", ["hunter2\r"], ""),
        (f"{UNSEEN}; stty echo", ["hunter2\r"], ""),
        (f"stty -echo; {GO}; stty echo; {GO}", ["hunt", "er2\r"], ""),
        (f"{UNSEEN}; stty echo; {GO}", ["hunter2\r", "ls\r"], ""),
        (f"{UNSEEN}; read p; stty echo; {GO}", ["hunter2\r", "ls\r"], "ls\n"),
        (f"{UNSEEN}; read p; stty echo; {GO}", ["hunter2\rhun", "ter2\r"], ""),
        # Single keys without echo, as a pager takes them, are no password.
        (f"{RAW}; {COME}; stty sane", ["ls -l"], "ls -l"),
        (f"{RAW}; {COME}; stty sane; {GO}", ["ls -l", " x\r"], "ls -l x\n"),
        (f"{UNSEEN}; stty raw; printf 'go\\r\\n'; sleep 0.2; stty sane", ["hunter2\r", "ls"], ""),
        (
            f"{RAW}; head -c 2 >/dev/null; stty sane; sleep 0.1; {GO}",
            ["ZZ", "ls\r"],
            "ls\n",
        ),
        (
            f"{GO}; {sys.executable} -c 'import termios; termios.tcflush(0, termios.TCIFLUSH)'",
            ["hunter2\r"],
            "",
        ),
    ],
)
def test_what_a_line_does_not_read_is_given_back(
    shell: Shell, line: str, keys: list[str], typed: str
) -> None:
    assert typing(shell, line, *keys) == typed
    assert shell.run("read -t 0.01 x; echo $?").output == "142\n"  # and is not there a second time


def test_keys_that_nobody_saw_are_told_from_others(shell: Shell) -> None:
    assert typing(shell, GO, "ls\r") == "ls\n"
    assert not shell.run("true").typed_unseen
    shell.begin(f"{RAW}; {COME}; stty sane")
    shell.child.expect_exact("go\r\n")
    shell.child.send("ls\r")
    ran = shell.end()
    assert (ran.typed, ran.typed_unseen) == ("ls\n", True)


ALL_KEYS = textwrap.dedent("""
    import os, select, sys, termios, tty
    from pathlib import Path
    from ullage.terminal import Runner
    runner = Runner(cwd=Path("/"), environ=dict(os.environ))
    typed = runner.run("echo go; sleep 0.3").typed.encode()
    runner.close()
    tty.setraw(0, termios.TCSANOW)  # which keeps what is there
    rest = b""
    while select.select([0], [], [], 0.3)[0]:
        rest += os.read(0, 65536)
    Path(sys.argv[1]).write_bytes(typed + b"|" + rest.replace(b"\\r", b"\\n"))
""")


def test_of_a_paste_that_is_too_much_for_a_terminal_nothing_is_lost(tmp_path: Path) -> None:
    lines = "".join(f"{n} {'x' * 70}\r" for n in range(2500))
    child = pexpect.spawn(sys.executable, ["-c", ALL_KEYS, str(tmp_path / "keys")], timeout=PATIENCE)
    child.delaybeforesend = None
    child.expect_exact("go\r\n")
    pasting = threading.Thread(target=child.send, args=(lines,))
    pasting.start()
    child.expect(pexpect.EOF)
    pasting.join()
    child.close()
    typed, _, rest = (tmp_path / "keys").read_text().partition("|")
    assert typed + rest == lines.replace("\r", "\n")
    assert len(typed) > 65_536


def test_no_descriptor_stays_open_behind_what_was_typed(shell: Shell) -> None:
    def opened() -> int:
        return len(list(Path(f"/proc/{shell.child.pid}/fd").iterdir()))

    if not Path("/proc/self/fd").exists():
        pytest.skip("there is no /proc")
    shell.run("true")
    before = opened()
    assert typing(shell, GO, "ls\r") == "ls\n"
    assert typing(shell, UNSEEN, "ls\r") == ""
    assert opened() == before


def test_without_a_terminal_nothing_is_given_back(runner: Runner) -> None:
    assert runner.run("echo go", show=False).typed == ""


def test_garbage_leaves_a_terminal_that_works(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 20 + b"\x1b[?1049h\x1b[?25l\x1b]0;open")
    ran = shell.run("cat garbage; stty raw -echo")
    assert ran.status == 0
    assert "\x1b" not in ran.output
    assert shell.run("echo fine").output == "fine\n"


def test_the_terminal_is_calmed_only_after_programs_that_moved_it(shell: Shell) -> None:
    shell.begin("printf 'plain \\033[31mred\\033[m\\n'")
    shell.end()
    assert "\x1b[?25h" not in shell.child.before
    shell.begin("printf '\\033[?25l\\033[?1049h'")
    shell.end()
    assert "\x1b[?1049l" in shell.child.before
    assert "\x1b[?25h" in shell.child.before


def test_a_line_without_its_end_is_ended_on_the_screen(shell: Shell) -> None:
    shell.begin("printf abc", r"abc\r\n\[status 0")
    shell.child.expect("ready> ")


def test_a_prompt_command_that_sets_the_title_adds_no_empty_line(shell: Shell) -> None:
    shell.begin(r"PROMPT_COMMAND='printf \\\e]0\;tide\\\a'; echo abc", r"abc\r\n\x1b\]0;tide\x07\[status 0")
    shell.child.expect("ready> ")
    shell.begin(r"PROMPT_COMMAND='printf ebb'; echo abc", r"abc\r\nebb\r?\n\[status 0")
    shell.child.expect("ready> ")


def test_a_large_paste_into_a_busy_program_does_not_block(shell: Shell) -> None:
    shell.begin("stty raw -echo; echo go; seq 1 50000; head -c 20000 | wc -c; stty sane", "go")
    pasting = threading.Thread(target=shell.child.send, args=("x" * 20_000,))  # terminals read meanwhile
    pasting.start()
    assert shell.end().output.split()[-1] == "20000"
    pasting.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_us_restores_the_terminal_and_hangs_up_the_line(
    shell: Shell, number: signal.Signals
) -> None:
    import termios

    before = termios.tcgetattr(shell.child.child_fd)
    shell.begin("echo $$; sleep 100", r"(\d+)\r\n")
    line = int(shell.child.match[1])
    assert until(lambda: termios.tcgetattr(shell.child.child_fd) != before)
    shell.child.kill(number)
    shell.child.expect(pexpect.EOF)
    shell.child.wait()
    assert shell.child.signalstatus == number
    assert until(lambda: gone(line))
