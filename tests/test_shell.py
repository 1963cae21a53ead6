"""`ullage shell` as a person meets it: the real program in a pseudo-terminal, and what its screen shows."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import world
from tests.llama import needs_local
from tests.player import Player, Request, Script, answered, playing, sent_json, streamed
from tests.terminal import CTRL_C, CTRL_D, ENTER, PROGRAM, PROMPT, Terminal, opened
from ullage import store
from ullage.context import Context
from ullage.session.continuations import FOLLOW_UP
from ullage.shell.commands import COMMANDS
from ullage.shell.spinner import FRAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
LONG = "quay " * 3_000
TALK = "Seven **boats** are at the quay."


SLOW = answered("Slowly, one two three.")
STALLING = answered("Seven boats.")
SCRIPTS = {
    "suggest one": Script(body=answered("Look:\n\nCMD: echo sug''gested\n")),
    "suggest two": Script(body=answered("Look:\n\nCMD: echo one\nCMD: echo two\n")),
    "suggest a pause": Script(body=answered("Wait:\n\nCMD: echo be''gun; sleep 1\n")),
    "suggest a deletion": Script(body=answered("Away:\n\nCMD: rm -rf old\n")),
    "suggest a deletion and more": Script(body=answered("Away:\n\nCMD: rm -rf old\nCMD: echo after\n")),
    "stall": Script(body=STALLING, stall_at=STALLING.index(b"boats.")),
    "trickle": Script(body=answered("Seven boats are at the quay. " * 3_000), piece=60, pause=0.004),
    "break off": Script(body=STALLING, cut_at=STALLING.index(b"boats.")),
    "be slow": Script(body=SLOW, piece=40, held_at=SLOW.index(b"one")),
    "mislead me": Script(body=answered("See \x1b]0;evil\x07 this.\n\nCMD: echo \x1b]0;evil\x07 x\n")),
    "refuse me": sent_json({"error": {"message": "Incorrect API key provided"}}, 401),
}
"""What is asked → what is played; anything else gets TALK."""


def play(request: Request) -> Script:
    if not request.path.endswith("/chat/completions"):
        return sent_json({"error": {"message": "not found"}}, 404)  # asked at the start: whose server is it?
    return SCRIPTS.get(asked(request)[-1].splitlines()[-1], Script(body=answered(TALK)))


def asked(request: Request) -> list[str]:
    """The texts of the user's turns in a request."""
    return [each["content"] for each in request.json()["messages"] if each["role"] == "user"]


def questions(player: Player) -> list[list[str]]:
    """Each request for an answer, as the texts of the user's turns in it."""
    return [asked(request) for request in player.requests if request.path.endswith("/chat/completions")]


def environment(folder: Path, player: Player | None, **more: str) -> dict[str, str]:
    told = {"NO_PROXY": "*", "XDG_CONFIG_HOME": str(folder / "config")}
    if player is not None:
        told |= {"OPENAI_BASE_URL": f"{player.url}/v1", "OPENAI_API_KEY": "sk-harbour-0123456789"}
    return world.environment(folder, **{**told, **more})


def options(folder: Path, *more: str) -> tuple[str, ...]:
    return ("shell", "--store", str(folder / "ullage.db"), "--model", "openai/gpt-4o", *more)


@contextmanager
def shell(
    folder: Path, player: Player, *more: str, columns: int = 100, **variables: str
) -> Iterator[Terminal]:
    """A shell whose first prompt is there."""
    env = environment(folder, player, **variables)
    with opened(*options(folder, *more), env=env, cwd=folder, columns=columns) as terminal:
        terminal.ready()
        yield terminal


def piped(
    folder: Path, player: Player, *more: str, given: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *options(folder, *more)],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        cwd=folder,
        env=environment(folder, player, **variables),
    )


def last_session(folder: Path) -> str:
    with store.open(folder / "ullage.db") as kept:
        return kept.sessions()[0].id


# Lines ------------------------------------------------------------------------------------------------------


def test_a_line_is_run_or_asked_and_the_user_can_tell_which(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with playing(play) as player, shell(tmp_path, player) as terminal:
        assert "model: openai/gpt-4o" in terminal.text
        assert terminal.do("echo hel''lo") == "hello"
        assert terminal.do("(exit 3)") == "exit status 3"
        terminal.do("cd inner && tide=low")
        assert terminal.do('echo "${PWD##*/} $tide"') == "inner low"
        assert not questions(player)

        assert terminal.do("How many boats are there?") == "Seven boats are at the quay."
        first = questions(player)[-1][-1]
        assert first.endswith("How many boats are there?")
        assert "$ echo hel''lo\nhello\n[exit status 0]" in first
        assert "[exit status 3]" in first

        assert "reads like a sentence: sent as a question. To run it, put ! in front" in terminal.do(
            "find the boats"
        )
        assert len(questions(player)) == 2
        assert terminal.do("!echo the boats") == "the boats"
        assert len(questions(player)) == 2
        assert terminal.do("?ls") == "Seven boats are at the quay."
        assert questions(player)[-1][-1].endswith("ls")
        assert terminal.do("!") == "Type a command after !, or a question after ?"
        assert terminal.do(":helo").startswith("Unknown command :helo. Did you mean :help?")
        assert terminal.leave("exit\r") == 0


def test_an_answer_is_shown_as_it_comes(tmp_path: Path) -> None:
    rest = SCRIPTS["be slow"].released
    rest.clear()
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?be slow")
        terminal.wait("Slowly,")
        assert "three" not in terminal.text
        terminal.press("echo la''ter\r")
        rest.set()
        screen = terminal.wait("\nlater\n")
        asked, _, ran = screen.partition("\n")[2].partition("\n")
        assert screen.splitlines()[0].endswith("> ?be slow")
        assert asked == "Slowly, one two three."
        assert ran.partition("$ ")[2].startswith("echo la''ter\nlater\n")


def test_an_answer_cannot_steer_the_terminal(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?mislead me")
        assert "See ␛]0;evil␇ this." in terminal.wait("[s] skip")
        assert "$ echo <U+001B>]0;evil<U+0007> x" in terminal.text
        terminal.press("s")
        terminal.done()
        terminal.do(":history")
        assert b"\x1b]0;" not in terminal.raw
        assert terminal.leave(":quit\r") == 0


def test_what_left_the_window_is_told_below_the_answer_and_can_be_recalled(tmp_path: Path) -> None:
    small = {"ULLAGE_CONTEXT_TOKEN_BUDGET": "4096"}
    with playing(play) as player, shell(tmp_path, player, **small) as terminal:
        for place in range(3):
            terminal.do(f"seq {place}1000 {place}1900")
            shown = terminal.do("?what now").splitlines()
        assert shown[0] == "Seven boats are at the quay."
        assert shown[1].startswith("4 older turns are no longer sent; :history marks them")
        gone = [line for line in terminal.do(":history").splitlines() if "✗" in line]
        assert len(gone) == 4
        assert terminal.do(f":recall {gone[1].split()[-1]}") == TALK
        found = terminal.do(":recall which boats were at some quay?").splitlines()
        assert found[0].endswith("  assistant")
        assert any("Seven" in line and "boats" in line for line in found)
        assert any(line.startswith("  before, user: ") for line in found)
        assert "Try other words" in terminal.do(":recall submarine volcano")


def test_a_question_after_much_output_is_answered(tmp_path: Path) -> None:
    with playing(play) as player:
        done = piped(tmp_path, player, given="seq 1 3000\n?what now\n")
    assert done.stdout.endswith("Seven **boats** are at the quay.\n")


# Meta commands ----------------------------------------------------------------------------------------------


def test_help_tells_of_every_command_with_an_example(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player, columns=120) as terminal:
        listed = terminal.do(":help")
        for name, command in COMMANDS.items():
            assert command.help
            assert command.example.startswith(f":{name}")
            told = f":{name} {command.usage}".strip() + f" {command.help}. Example: {command.example}"
            assert told in " ".join(listed.split())
        assert terminal.do("/help") == listed
        assert terminal.do("/help cost").splitlines()[0] == ":cost [detail|days|reset]"
        assert not questions(player)


def test_the_conversation_is_shown_measured_taken_back_and_exported(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        assert terminal.do(":history") == "nothing has been said yet"
        assert terminal.do(":cost") == "$0: no question was asked yet in this conversation"
        assert "no price" not in terminal.ready()
        terminal.do("?one question")
        terminal.do("?another question")
        shown = terminal.do(":context")
        assert re.search(r"~[\d,]+ of 111,616 tokens \(<1%\)", shown)
        for block in ("system", "tools", "turns", "free"):
            assert re.search(rf"^  █ {block} +[\d,]+ +<?\d+%$", shown, re.MULTILINE)

        assert re.fullmatch(r"\$0\.\d+ for 82 prompt and 6 completion tokens", terminal.do(":cost"))
        detailed = terminal.do(":cost detail").splitlines()
        assert any("gpt-4o [main] 2 calls" in line for line in detailed)
        assert re.fullmatch(r"\[estimated session ctx: \d+ tokens\]", detailed[-1])

        rows = [line.split() for line in terminal.do(":history").splitlines()]
        assert [row[1] for row in rows] == ["user", "assistant", "user", "assistant"]

        assert terminal.do(":export talk.md") == "4 turns written to talk.md"
        assert terminal.do(":export talk.json") == "4 turns written to talk.json"
        assert terminal.do(":export nowhere/talk.md").startswith("nowhere/talk.md cannot be written")

        assert terminal.do(":undo") == "2 turns taken back"
        assert "another question" not in terminal.do(":history")
        assert terminal.do(":compact") == "nothing can be trimmed yet"
        terminal.type(":reset")
        terminal.wait("empty this conversation of 2 turns?")
        terminal.press("\r")
        assert terminal.done().endswith("→ keep it\nnothing was changed")
        terminal.type(":reset")
        terminal.wait("[r] empty it [s] keep it · Enter: keep it")
        terminal.press("r")
        assert "the conversation is empty now" in terminal.done()
        assert terminal.do(":history") == "nothing has been said yet"
        assert terminal.do(":undo") == "the reset is taken back: 2 turns"
        assert "one question" in terminal.do(":history")
        assert terminal.do(":undo") == "2 turns taken back"
        assert terminal.do(":undo") == "there is nothing to take back"
    assert "## assistant\n\nSeven **boats** are at the quay.\n" in (tmp_path / "talk.md").read_text()
    assert [each["role"] for each in json.loads((tmp_path / "talk.json").read_text())][:2] == [
        "user",
        "assistant",
    ]


def test_memory_and_tokens_are_told(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        number = terminal.do(":memory add preference: answer in metric units").rpartition(" ")[2]
        assert terminal.do(":memory list").split() == [
            number,
            "preference:",
            "answer",
            "in",
            "metric",
            "units",
        ]
        terminal.do("?how far is it")
        assert "answer in metric units" in player.requests[-1].body.decode()
        assert terminal.do(f":memory forget {number}") == "forgotten"
        assert terminal.do(":memory list") == ""
        assert terminal.do(f":memory forget {number}").startswith(f"no note has the number {number}")
        assert terminal.do(":tokenize hello world") == "2 tokens\n24912 2375"


def test_a_conversation_and_a_preference_outlive_the_shell(tmp_path: Path) -> None:
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            terminal.do("?the first question")
            assert terminal.do(":rolling-context off").startswith("nothing is trimmed")
            assert terminal.leave() == 0
        session = last_session(tmp_path)
        with shell(tmp_path, player) as terminal:
            assert terminal.do(":rolling-context").startswith("nothing is trimmed")
            assert session[:12] in terminal.do(":sessions")
            assert terminal.do(f":resume {session[:8]}").splitlines() == [
                "conversation resumed: 2 turns",
                "> the first question",
                TALK,
            ]
            terminal.do("?the second question")
        assert questions(player)[-1] == ["the first question", "the second question"]
        with shell(tmp_path, player, "--resume", session[:8]) as terminal:
            assert len(terminal.do(":history").splitlines()) == 4
        unknown = piped(tmp_path, player, "--resume", "nosuch")
        assert unknown.returncode == 2
        assert "nosuch" in unknown.stderr


def test_two_shells_cannot_go_on_with_the_same_conversation_unnoticed(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as here:
        here.do("?the first question")
        session = last_session(tmp_path)
        with shell(tmp_path, player, "--resume", session) as there:
            there.do("?a question from there")
        assert "was continued elsewhere" in " ".join(here.do("?a question from here").split())
        assert here.do(f":resume {session}").startswith("conversation resumed: 4 turns\n")
        assert here.do("?a question from here") == "Seven boats are at the quay."


def test_calls_that_a_crash_left_open_are_interrupted_by_the_next_question(tmp_path: Path) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with store.open(tmp_path / "ullage.db") as kept:
        context = Context(journal=kept.journal, session="monday", model="gpt-4o")
        context.append_user("Look for boats.")
        context.append({"role": "assistant", "content": None, "tool_calls": [call]})
    with playing(play) as player, shell(tmp_path, player, "--resume", "monday") as terminal:
        assert "look(…)" in terminal.do(":history")
        assert "tokens" in terminal.do(":context")
        with store.open(tmp_path / "ullage.db") as kept:
            assert len(kept.journal.events("monday")) == 2  # looking at it decides nothing
        assert terminal.do("?How many?") == TALK.replace("**", "")
        assert terminal.leave() == 0
        request = next(each for each in player.requests if each.path.endswith("/chat/completions"))
    roles = [(each["role"], each["content"]) for each in request.json()["messages"][1:]]
    assert roles[2:] == [("tool", "[interrupted]"), ("user", "How many?")]


def test_what_an_answer_uses_is_told_below_it_while_it_comes(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?stall")
        shown = terminal.wait(" out · ")
        row = next(line for line in shown.splitlines() if " out · " in line)
        assert re.fullmatch(
            rf"(?:[{FRAMES}] waiting · )?openai/gpt-4o [█·]·{{9}} ~\d+/112k <1% · ~\d+ out · \d+ s", row
        ), row
        terminal.wait("Seven")
        terminal.wait_until(lambda: re.search(r" · [1-9]\d* s", terminal.text), "the seconds")
        terminal.press(CTRL_C)
        assert terminal.done() == "Seven\nstopped"


# Suggested commands -----------------------------------------------------------------------------------------


def test_a_suggested_command_runs_only_as_the_user_says(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    offer = "[r] run [e] edit [s] skip [a] always"
    with playing(play) as player, shell(tmp_path, player) as terminal:

        def suggest(question: str, key: str, choices: str) -> str:
            terminal.type(f"?{question}")
            assert choices in terminal.wait("[s] skip")
            terminal.press(key)
            return terminal.done()

        went_on = (
            "\nsuggested\nthe model goes on with the results; Ctrl-C stops it\nSeven boats are at the quay."
        )
        assert suggest("suggest one", "r", offer).endswith(went_on)
        assert "\nsuggested" not in suggest("suggest one", "s", offer)

        terminal.type("?suggest one")
        terminal.wait("[a] always")
        terminal.press("e")
        terminal.wait("edit> echo sug''gested")
        terminal.press(" by hand\r")
        terminal.wait("\nsuggested by hand\n")
        terminal.ready()

        assert suggest("suggest one", "a", offer).endswith(went_on)
        assert terminal.do("?suggest one").endswith(went_on)

        terminal.type("?suggest a deletion")
        shown = terminal.wait("[s] skip")
        assert "destructive: " in shown
        assert "always" not in shown
        terminal.press("a")
        terminal.press(CTRL_C)
        terminal.done()
        assert (tmp_path / "old").exists()
        terminal.do("?what now")
        assert "[command skipped by the user] rm -rf old" in questions(player)[-1][-1]
        terminal.type("?suggest a deletion")
        terminal.wait("[s] skip")
        terminal.press("r")
        terminal.wait("type yes to run it")
        terminal.press("run the next one\r")
        terminal.done()
        assert (tmp_path / "old").exists()
        terminal.type("?suggest a deletion")
        terminal.wait("[s] skip")
        terminal.press("r")
        terminal.wait("type yes to run it")
        terminal.press("yes\r")
        terminal.done()
        assert not (tmp_path / "old").exists()


def test_a_command_is_edited_in_its_place_and_the_model_goes_on_with_the_results(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?suggest two")
        terminal.wait("echo one\n  [r] run")
        terminal.press("e")
        terminal.wait("edit> echo one")
        terminal.press(" and a half\r")
        terminal.wait("\none and a half\n")
        terminal.wait("echo two\n  [r] run")
        terminal.press("r")
        assert terminal.done().endswith("Ctrl-C stops it\nSeven boats are at the quay.")
        results = questions(player)[-1][-1]
        assert results.index("one and a half\n[exit status 0]") < results.index("$ echo two\ntwo\n")
        assert results.endswith(FOLLOW_UP)


def test_ctrl_c_at_an_offer_stops_the_rest_and_nothing_is_sent(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?suggest two")
        terminal.wait("echo one\n  [r] run")
        terminal.press("r")
        terminal.wait("echo two\n  [r] run")
        terminal.press(CTRL_C)
        assert terminal.done().endswith("stopped; the results are sent with your next question")
        assert len(questions(player)) == 1
        terminal.do("?what now")
        sent = questions(player)[-1][-1]
        assert "$ echo one\none\n" in sent
        assert "[command skipped by the user] echo two" in sent


def test_ctrl_c_in_place_of_the_word_stops_the_rest_too(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?suggest a deletion and more")
        terminal.wait("$ rm -rf old\n  [r] run")
        terminal.press("r")
        terminal.wait("type yes to run it")
        terminal.press(CTRL_C)
        assert "$ echo after" not in terminal.done()
    assert (tmp_path / "old").exists()


def test_an_empty_line_that_is_typed_meanwhile_stops_the_follow_ups(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?suggest a pause")
        terminal.wait("[r] run")
        terminal.press("r")
        terminal.wait("\nbegun\n")
        terminal.press("\r")
        terminal.wait("stopped; the results are sent with your next question")
        terminal.ready()
        assert len(questions(player)) == 1


def test_what_is_typed_while_a_command_runs_is_done_next(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("echo be''gun; sleep 1")
        terminal.wait("\nbegun\n")
        terminal.press("echo fi''rst\recho sec''ond\rlef")
        terminal.wait("\nsecond\n")
        terminal.wait("> lef")
        assert "\nfirst\n" in terminal.text


def test_lines_that_are_typed_ahead_run_in_their_order_and_are_remembered(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("true")
        wait = "until test -e go; do sleep 0.02; done"
        terminal.press(f"echo 1 >>did; {wait}\recho 2 >>did\r")  # the prompt reads both at once
        assert world.until((tmp_path / "did").exists)
        terminal.press("echo 3 >>did; rm go\recho 4 >>did\rhalf a")  # the command that runs reads these
        (tmp_path / "go").touch()
        assert world.until(lambda: "4" in (tmp_path / "did").read_text())
        terminal.wait("> half a")
        assert (tmp_path / "did").read_text().split() == list("1234")
        assert "+echo 3 >>did; rm go\n" in (tmp_path / "history").read_text()


def test_keys_that_a_pager_has_not_read_wait_for_enter(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        wait = "until read -t 0; do sleep 0.02; done"  # until the keys are there, which it does not read
        terminal.type(f"stty raw -echo; touch raw; {wait}; stty sane")
        assert world.until((tmp_path / "raw").exists)
        terminal.press("touch d''id\r")
        terminal.wait("$ touch d''id")
        assert not (tmp_path / "did").exists()
        terminal.press(ENTER)
        assert world.until((tmp_path / "did").exists)


def test_leaving_tells_once_of_stopped_jobs(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("sh -c 'echo on; cat'")
        terminal.wait("\non\n")
        terminal.press("\x1a")
        shown = terminal.done()
        assert "Stopped" in shown
        assert "exit status" not in shown  # bash has told of it
        assert (
            terminal.do("exit") == "stopped: sh. fg goes on with the last one; leave again to end all of them"
        )
        assert terminal.do("echo st''ay") == "stay"
        assert "leave again" in terminal.do(":quit")
        assert terminal.leave() == 0


def test_wait_waits_for_a_job(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("until test -e go; do sleep 0.02; done &")
        terminal.type("wait; echo wai''ted")
        terminal.wait("$ wait")
        (tmp_path / "go").touch()
        assert "waited" in terminal.done()
        terminal.do("sleep 0.1 &")
        terminal.do("wait")
        assert not questions(player)


def test_what_a_job_prints_appears_above_the_waiting_prompt(tmp_path: Path) -> None:
    job = "(until test -e go; do sleep 0.02; done; echo aho''y; printf 'cast%s' ' ') &"
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do(job)
        terminal.press("echo of''f")
        terminal.wait("echo of''f")
        (tmp_path / "go").touch()
        terminal.wait_until(lambda: "ahoy" in terminal.lines, "the output of the job")
        terminal.wait_until(lambda: terminal.lines[terminal.row].endswith("$ echo of''f"), "the typed line")
        terminal.press(ENTER)  # an unfinished line of a job waits for the next command
        terminal.wait_until(lambda: "cast off" in terminal.lines, "both outputs")


def test_the_first_prompt_has_the_folder_before_bash_is_open(tmp_path: Path) -> None:
    (tmp_path / "quay").mkdir()
    (tmp_path / ".bashrc").write_text("until test -e go; do sleep 0.02; done\n")
    with playing(play) as player:
        env = environment(tmp_path, player)
        with opened(*options(tmp_path), env=env, cwd=tmp_path / "quay") as terminal:
            terminal.ready()
            assert terminal.lines[terminal.row] == "quay >"
            (tmp_path / "quay" / "go").touch()


def test_keys_that_are_pressed_while_the_model_is_opened_are_not_shown_until_they_are_read(
    tmp_path: Path,
) -> None:
    (tmp_path / ".bashrc").write_text("until test -e go; do sleep 0.02; done\n")
    with playing(play) as player:
        env = environment(tmp_path, player)
        with opened(*options(tmp_path), env=env, cwd=tmp_path) as terminal:
            terminal.wait(PROMPT)
            terminal.press("echo on''e\r")
            terminal.wait("bash runs your start-up files · ")
            terminal.press("echo tw''o\r")
            later = re.compile(r"start-up files · [2-9] s")
            shown = terminal.wait_until(lambda: later.search(terminal.text) is not None, "a later second")
            assert "tw''o" not in shown
            (tmp_path / "go").touch()
            terminal.wait("\ntwo\n")


def test_a_command_line_that_bash_would_go_on_reading_goes_on(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("echo rea''dy")  # bash is asked as soon as the shell is open
        terminal.press("for n in 1 2; do\r")
        terminal.wait(" .\n")
        terminal.press("echo b''oat $n; done\r")
        terminal.wait("\nboat 2\n")
        terminal.ready()
        terminal.press("cat <<EOF\r")
        begun = re.compile(r"\$ cat <<EOF\n +\.\n")
        terminal.wait_until(lambda: begun.search(terminal.text) is not None, "the next line")
        terminal.press("he''ron\rEOF\r")
        terminal.wait("\nhe''ron\n")
    assert questions(player) == []


def test_quotation_marks_in_a_row_that_bash_reads_as_whole_need_no_more_lines(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("true")  # the shell is open then, and bash can be asked
        assert terminal.do("printf '<%s>' 'cas''t ' off") == "<cast ><off>"


def test_a_server_that_does_not_start_is_told_once_with_its_errors(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nosuchmodule\n")
    with playing(play) as player, shell(tmp_path, player) as terminal:
        shown = terminal.do(f":mcp connect tides {sys.executable} broken.py")
        assert shown.startswith("The MCP server tides did not start: its process ended\n")
        assert "    ModuleNotFoundError: No module named 'nosuchmodule'" in shown
        assert terminal.do("?how many") == TALK.replace("**", "")
        assert "tides: dead (its process ended)" in terminal.do(":mcp list")


def test_tools_of_a_server_that_has_ended_are_no_longer_sent(tmp_path: Path) -> None:
    server = Path(__file__).with_name("harbour_server.py")
    with playing(play) as player, shell(tmp_path, player) as terminal:
        assert "ready" in terminal.do(f":mcp connect harbour {sys.executable} {server} stdio")
        terminal.do("?how many")
        sent = player.requests[-1].json()["tools"]
        assert any(tool["function"]["name"].startswith("harbour__") for tool in sent)
        for child in children_of(terminal.child.pid):
            os.kill(child, signal.SIGKILL)
        terminal.wait_until(lambda: "dead" in terminal.do(":mcp list"), "a dead server")
        assert "The MCP server harbour has ended" in terminal.do("?how many")
        sent = player.requests[-1].json()["tools"]
        assert not any(tool["function"]["name"].startswith("harbour__") for tool in sent)


CALLS_TIDE = [
    {"role": "assistant", "tool_calls": [{"index": 0, "id": "a", "type": "function"}]},
    {"tool_calls": [{"index": 0, "function": {"name": "harbour__tide", "arguments": '{"port": "Brest"}'}}]},
]


def play_tide(request: Request) -> Script:
    if not request.path.endswith("/chat/completions"):
        return sent_json({"error": {"message": "not found"}}, 404)
    if request.json()["messages"][-1]["role"] == "tool":
        return Script(body=answered(TALK))
    return Script(body=streamed(CALLS_TIDE, "tool_calls"))


def test_a_tool_that_calls_itself_read_only_is_said_to_and_asks_all_the_same(tmp_path: Path) -> None:
    server = Path(__file__).with_name("harbour_server.py")
    with playing(play_tide) as player, shell(tmp_path, player) as terminal:
        terminal.do(f":mcp connect harbour {sys.executable} {server} stdio")
        terminal.type("?how high is the tide")
        asking = terminal.wait("[s] do not call it")
        assert "The server says that harbour__tide changes nothing" in asking
        terminal.press("y")
        assert "Seven" in terminal.done()
    assert player.requests[-1].json()["messages"][-1]["content"] == "Brest: 3 m"


def children_of(pid: int) -> list[int]:
    """The processes that any thread of a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def test_another_conversation_begins_and_the_latest_is_gone_on_with(tmp_path: Path) -> None:
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            terminal.do("?the first question")
            assert terminal.do(":new").startswith("a new conversation begins")
            terminal.do("?the second question")
            assert questions(player)[-1] == ["the second question"]
            assert len(terminal.do(":sessions").splitlines()) == 2
        with shell(tmp_path, player, "--resume") as terminal:
            terminal.do("?the third question")
        assert questions(player)[-1] == ["the second question", "the third question"]


def test_a_file_is_not_overwritten_by_an_export(tmp_path: Path) -> None:
    (tmp_path / "boats.md").write_text("seven")
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("?the first question")
        assert "boats.md already exists" in terminal.do(":export boats.md")
        assert ":export FILE.md or :export FILE.json" in terminal.do(":export boats.csv")
        assert terminal.do(":export talk.md") == "2 turns written to talk.md"
    assert (tmp_path / "boats.md").read_text() == "seven"


# Stopping ---------------------------------------------------------------------------------------------------


def test_ctrl_c_stops_what_goes_on_and_never_the_shell(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?stall")
        terminal.wait("Seven")
        terminal.press(CTRL_C)
        assert terminal.done() == "Seven\nstopped"
        assert player.wait_left()

        terminal.type("sh -c 'echo g\"\"o; exec sleep 100'")  # one process: no moment without one to stop
        terminal.wait("\ngo\n")
        terminal.press(CTRL_C)
        assert terminal.done().endswith("exit status 130")

        terminal.press("rm something")
        terminal.wait("> rm something")
        terminal.press(CTRL_C)
        terminal.ready()
        assert terminal.do("echo it goes o''n") == "it goes on"
        assert terminal.leave(CTRL_D) == 0
        assert b"Traceback" not in terminal.raw


def test_a_command_shows_what_is_typed_into_it_and_the_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("?How many boats?")
        terminal.type("echo re''ady; cat; stty -a")
        terminal.wait("\nready\n")
        terminal.press("seven\r")
        terminal.wait("\nseven\nseven\n")
        terminal.press(CTRL_D)
        assert {"echo", "-noflsh"} <= set(terminal.done().split())
        before = termios.tcgetattr(terminal.child.child_fd)[3]
        terminal.press(CTRL_D)
        while terminal.child.isalive():
            terminal._take()
        after = termios.tcgetattr(terminal.child.child_fd)[3]
        assert not before & termios.ECHO
        assert after & (termios.ECHO | termios.NOFLSH) == termios.ECHO


def pressed(terminal: Terminal, times: int, gap: float, *, keys: bool) -> None:
    """Presses Ctrl-C as a finger on the key does, or sends what the terminal would send for it."""
    for _ in range(times):
        if keys:
            terminal.press(CTRL_C)
        else:
            os.kill(terminal.child.pid, signal.SIGINT)
        time.sleep(gap)


@pytest.mark.parametrize("keys", [True, False])
def test_ctrl_c_many_times_in_a_row_ends_neither_the_shell_nor_an_entry_in_the_book(
    tmp_path: Path, keys: bool
) -> None:
    gaps = (0.0, 0.0005, 0.001, 0.002, 0.004, 0.005, 0.006, 0.03)
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            for gap in gaps:
                terminal.type("?trickle")
                terminal.wait("Seven")
                pressed(terminal, 6, gap, keys=keys)
                assert terminal.done().splitlines()[-1] == "stopped"
            pressed(terminal, 6, 0.001, keys=keys)
            terminal.ready()
            assert terminal.do("echo it goes o''n") == "it goes on"
            assert terminal.leave() == 0
            assert b"Traceback" not in terminal.raw
        asked_for = len(questions(player))
    assert asked_for == len(gaps)
    with store.open(tmp_path / "ullage.db") as kept:
        turns = Context(journal=kept.journal, session=last_session(tmp_path), model="gpt-4o").turns
    answers = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    assert len(answers) == asked_for
    assert all(text.startswith("Seven") for text in answers)
    assert billed(tmp_path) == (asked_for, 0)


def billed(folder: Path) -> tuple[int, int]:
    """How many calls are in the book, and how much is held for such as have not ended."""
    with closing(sqlite3.connect(folder / "ullage.db")) as book:
        (calls,) = book.execute("SELECT sum(calls) FROM entries").fetchone()
        (held,) = book.execute("SELECT sum(held) FROM totals").fetchone()
        assert book.execute("SELECT count(*) FROM reservations").fetchone() == (0,)
    return calls, held


@pytest.mark.parametrize("given", [("-c", "?stall"), ()])
def test_without_a_terminal_ctrl_c_ends_the_program_in_order(tmp_path: Path, given: tuple[str, ...]) -> None:
    with playing(play) as player:
        program = subprocess.Popen(
            [PROGRAM, *options(tmp_path, *given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment(tmp_path, player),
        )
        with program:
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write(b"?stall\necho lat''er\n")
            program.stdin.flush()
            if given:
                program.stdin.close()  # its end: it goes with the question
                program.stdin = None
            assert program.stdout.read(5) == b"Seven"
            program.send_signal(signal.SIGINT)
            shown, told = program.communicate(timeout=world.PATIENCE)
    assert program.returncode == 130
    assert told.endswith(b"ullage: interrupted\n")
    assert (b"sent with the question: piped input" in told) == bool(given)
    assert b"later" not in shown
    assert billed(tmp_path) == (1, 0)


def test_ctrl_c_ends_the_wait_for_piped_input(tmp_path: Path) -> None:
    with playing(play) as player:
        program = subprocess.Popen(
            [PROGRAM, *options(tmp_path, "-c", "?How many boats?")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment(tmp_path, player),
        )
        with program:
            assert program.stdin is not None
            program.stdin.write(
                b"tide " * 100_000
            )  # more than a pipe holds, so that it reads when this returns
            program.stdin.flush()
            program.send_signal(signal.SIGINT)
            _, told = program.communicate(timeout=world.PATIENCE)
    assert program.returncode == 130
    assert told == b"ullage: interrupted\n"
    assert not questions(player)


def test_what_cannot_be_asked_tells_why_and_goes_with_the_next_question(tmp_path: Path) -> None:
    configured = tmp_path / "ullage.toml"
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            assert "OPENAI_API_KEY" in terminal.do("?refuse me")
            assert terminal.text.count(":retry asks it again, :undo takes it back") == 1
            joined = "sent together with 1 unanswered question: “refuse me”; :undo takes all of it back"
            assert terminal.do("?and now") == f"{joined}\nSeven boats are at the quay."
            assert questions(player)[-1] == ["refuse me\n\nand now"]

        configured.write_text("[context]\ntoken_budget = 500\n")
        with shell(tmp_path, player, "--config", str(configured)) as terminal:
            sent = len(questions(player))
            terminal.press("\x1b[200~?" + LONG + "\x1b[201~\r")
            terminal.wait(":undo takes the question back")
            told = terminal.ready()
            assert "Cannot fit request" in told
            assert "limit: context.token_budget = 500, in a window of 128,000 tokens" in told
            assert terminal.do(":history").split()[1] == "user"
            assert len(questions(player)) == sent
            terminal.do(":undo")
            assert terminal.do("?and now") == "Seven boats are at the quay."

        configured.write_text("[cost]\ncap_at_dollars = 0.000001\n")
        with shell(tmp_path, player, "--config", str(configured)) as terminal:
            sent = len(questions(player))
            assert "could cost" in terminal.do("?dear question")
            assert len(questions(player)) == sent
            assert terminal.do("echo still he''re") == "still here"
        session = last_session(tmp_path)
        with shell(tmp_path, player, "--resume", session) as terminal:
            assert "the question is kept: :retry asks it again" in terminal.text
            terminal.do("?and now")
        joined = questions(player)[-1][-1]
        assert joined.startswith("dear question")
        assert joined.endswith("and now")
        assert "still here" in joined


def test_nothing_that_was_shown_is_lost_when_the_shell_is_killed(tmp_path: Path) -> None:
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            terminal.do("?the first question")
            terminal.do("echo a ma''rk")
            terminal.do(":memory add the harbour is small")
            os.kill(terminal.child.pid, signal.SIGKILL)
            terminal.leave("")
        with shell(tmp_path, player, "--resume", last_session(tmp_path)) as terminal:
            assert "the harbour is small" in terminal.do(":memory list")
            terminal.do("?the second question")
    first, second = questions(player)[-1]
    assert first == "the first question"
    assert "a mark" in second
    with store.open(tmp_path / "ullage.db") as kept:
        assert len(Context.resume(last_session(tmp_path), kept.journal)) == 4


# Other places -----------------------------------------------------------------------------------------------


def test_piped_lines_are_taken_in_turn_without_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    given = (
        "?How many boats?\necho hel''lo; (exit 3)\n:tokenize hello world\n?suggest a deletion\n?refuse me\n"
    )
    with playing(play) as player:
        done = piped(tmp_path, player, given=given)
    assert done.returncode == 1  # as -c: a script can tell that the last question has no answer
    assert "OPENAI_API_KEY" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "Seven **boats** are at the quay.",
        "hello",
        "exit status 3",
        "2 tokens",
        "24912 2375",
    ]
    assert "OPENAI_API_KEY" not in done.stdout
    assert (tmp_path / "old").exists()
    assert not any(line.startswith(">") for line in lines)
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("false\n", 1),
        ("(exit 7)\n", 7),
        ("false\necho hi\n", 0),
        ("?refuse me\n:tokenize x\n", 0),
        (":nosuch\n", 1),
        ("exit 3\ntouch gone\n", 3),
        ("false\nexit\n", 1),
        ("false\nlogout 0\n", 0),
        ("", 0),
    ],
)
def test_piped_lines_end_with_the_status_of_the_last_one(tmp_path: Path, given: str, code: int) -> None:
    with playing(play) as player:
        assert piped(tmp_path, player, given=given).returncode == code
    assert not (tmp_path / "gone").exists()


def test_exit_with_a_status_ends_the_shell_with_it(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("false")
        assert terminal.leave("exit 3\r") == 3


def test_a_folder_as_a_command_is_no_unknown_command_of_the_shell(tmp_path: Path) -> None:
    with playing(play) as player:
        done = piped(tmp_path, player, given=f"{tmp_path.parts[0]}{tmp_path.parts[1]}\n")
    assert (done.returncode, "Is a directory" in done.stdout) == (126, True)


def test_an_answer_that_breaks_off_says_how_to_ask_again(tmp_path: Path) -> None:
    with playing(play) as player:
        done = piped(tmp_path, player, given="?break off\n:history\n")
    assert "Seven" in done.stdout
    assert "the part that arrived is kept: :retry asks again and replaces it" in done.stderr


def test_a_loop_and_a_here_document_in_a_pipe_are_read_whole(tmp_path: Path) -> None:
    given = "for i in 1 2\ndo echo n$i\ndone\ncat <<END\ntide is\nlow\nEND\nHow many boats?\n"
    with playing(play) as player:
        done = piped(tmp_path, player, given=given)
        assert done.stdout == "n1\nn2\ntide is\nlow\nSeven **boats** are at the quay.\n"
        assert len(questions(player)) == 1


def test_one_line_is_taken_and_that_is_all(tmp_path: Path) -> None:
    with playing(play) as player:
        done = piped(tmp_path, player, "-c", "? How many boats?", given="echo not this")
        assert (done.returncode, done.stdout) == (0, "Seven **boats** are at the quay.\n")
        assert done.stderr == "sent with the question: piped input ~7 tokens\n"
        assert "piped input:\necho not this\n" in questions(player)[-1][-1]
        assert piped(tmp_path, player, "-c", "echo hel''lo").stdout == "hello\n"
        assert piped(tmp_path, player, "-c", "sort -r; wc -l", given="a\nc\nb\n").stdout == "c\nb\na\n0\n"
        refused = piped(tmp_path, player, "-c", "?refuse me")
    assert refused.returncode == 1
    assert "OPENAI_API_KEY" in refused.stderr


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("nosuch", "is not a provider"),
        pytest.param("no.gguf", "the model file no.gguf does not exist", marks=needs_local),
    ],
)
def test_a_model_that_cannot_be_opened_ends_the_shell_with_the_reason(
    tmp_path: Path, model: str, told: str
) -> None:
    arguments = ("--store", str(tmp_path / "ullage.db"), "--model", model)
    env = environment(tmp_path, None)
    done = subprocess.run(
        [PROGRAM, *arguments, "-c", "?hello"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    with opened(*arguments, env=env, cwd=tmp_path) as terminal:
        assert terminal.leave("") == 2
        assert told in " ".join(terminal.text.split())


@pytest.mark.parametrize("plain", [True, False])
def test_no_color_is_heeded(tmp_path: Path, plain: bool) -> None:
    with playing(play) as player, shell(tmp_path, player, **({"NO_COLOR": "1"} if plain else {})) as terminal:
        terminal.do("?How many boats?")
        terminal.do(":context")
        terminal.do(":nosuch")
        codes = {part for each in COLOUR.findall(terminal.raw) for part in each[2:-1].split(b";")}
    coloured = {code for code in codes if code.isdigit() and 30 <= int(code) <= 107}
    assert bool(coloured) is not plain


def test_forty_columns_are_enough(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player, columns=40) as terminal:
        answer = terminal.do("?How many boats are there at the quay?")
        assert " ".join(answer.split()).endswith("Seven boats are at the quay.")
        for line in (":context", ":cost detail", ":history", ":sessions", ":help memory"):
            assert terminal.do(line)
        assert terminal.do("echo hel''lo") == "hello"
        assert terminal.leave() == 0


@needs_local
def test_the_embedded_model_answers_and_says_what_it_is(tmp_path: Path) -> None:
    env = environment(tmp_path, None)
    arguments = ("shell", "--store", str(tmp_path / "ullage.db"), "--model", "embedded")
    with opened(*arguments, env=env, cwd=tmp_path) as terminal:
        terminal.ready()
        assert "model: embedded. Try these:" in terminal.text
        assert terminal.do("?Say hello.")
        assert [line.split()[1] for line in terminal.do(":history").splitlines()] == ["user", "assistant"]
        assert terminal.leave() == 0
