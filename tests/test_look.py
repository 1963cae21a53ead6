"""The look of the shell in a real terminal: what the prompt shows before Enter, its keys, and its figures."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import world
from tests.player import Script, answered, playing
from tests.terminal import CTRL_C, ENTER, PROGRAM, opened
from ullage.shell.escape_key import decode_keys
from ullage.shell.prompt_look import RememberedKind, folder_name, prefix, status_fragments
from ullage.shell.resumption import age
from ullage.shell.status import draw_gauge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.player import Player, Request
    from tests.terminal import Terminal

pytestmark = pytest.mark.enable_socket

ESCAPE = "\x1b"
ANSWER = "Seven boats are at the quay."


def play(request: Request) -> Script:
    if not request.path.endswith("/chat/completions"):
        return Script(status=404)
    if "stall" in request.body.decode():
        body = answered("Slowly, one boat after the other.")
        return Script(body=body, stall_at=len(body) // 2)
    return Script(body=answered(ANSWER))


@contextmanager
def shell(
    home: Path,
    player: Player,
    *more: str,
    columns: int = 100,
    folder: str = "harbour",
    wait: str = "",
    **variables: str,
) -> Iterator[Terminal]:
    """A shell in a folder that is open, or that shows `wait`."""
    told = {"NO_PROXY": "*", "OPENAI_BASE_URL": f"{player.url}/v1", "OPENAI_API_KEY": "sk-harbour-0123456789"}
    arguments = ("--store", str(home / "kept.db"), "--model", "openai/gpt-4o", *more)
    harbour = home / folder
    harbour.mkdir(exist_ok=True)
    env = world.environment(home, **{**told, **variables})
    with opened(*arguments, env=env, cwd=harbour, columns=columns) as terminal:
        if wait:
            terminal.wait(wait)
        else:
            terminal.ready()
            terminal.wait("█")  # the gauge is there as soon as the shell is open
        terminal.seen = terminal.text
        yield terminal


def colours(terminal: Terminal, text: str) -> set[str]:
    """The colours of a text in the line of the prompt."""
    row = terminal.row
    start = terminal.lines[row].index(text)
    return {terminal.cell(row, start + offset).fg for offset in range(len(text)) if text[offset] != " "}


# Before Enter ----------------------------------------------------------------------------------------------


def test_mark_and_colour_show_before_enter_what_becomes_of_the_line(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        for line, mark, colour in (
            ("ls -la", "$", "green"),
            ("why is it slow", ">", "default"),
            ("rm the old files", ">", "default"),
            (":context", ">", "magenta"),
            ("help", ">", "magenta"),
            ("!why", "$", "green"),
            ("?ls", ">", "default"),
            ('echo "hel', "$", "green"),
            ("cat <<EOF", "$", "green"),
            ("git isn't working", ">", "default"),
        ):
            terminal.press(line)
            terminal.wait(f"harbour {mark} {line}")
            terminal.wait_until(lambda: colours(terminal, line) == {colour}, f"{line} in {colour}")  # noqa: B023
            terminal.press(CTRL_C)
            terminal.ready()


def test_without_colour_the_mark_alone_shows_it(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player, NO_COLOR="1") as terminal:
        for line, mark in (("ls -la", "$"), ("why is it slow", ">")):
            terminal.press(line)
            terminal.wait(f"harbour {mark} {line}")
            assert colours(terminal, line) == {"default"}
            terminal.press(CTRL_C)
            terminal.ready()
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", terminal.raw)


def test_the_prompt_follows_the_folder_and_a_long_name_is_shortened(tmp_path: Path) -> None:
    long = "a-folder-with-a-long-name-for-a-narrow-terminal"
    with playing(play) as player, shell(tmp_path, player, columns=40) as terminal:
        (tmp_path / "harbour" / long).mkdir()
        terminal.do(f"cd {long}")
        assert terminal.lines[terminal.row].startswith("a-folder-…")
        terminal.do("cd ~")
        assert terminal.lines[terminal.row] == "~ >"
        terminal.do("cd /")
        assert terminal.lines[terminal.row] == "/ >"


def test_a_dumb_terminal_has_the_folder_and_no_escapes(tmp_path: Path) -> None:
    env = world.environment(tmp_path, TERM="dumb", NO_PROXY="*", OPENAI_API_KEY="sk-harbour-0123456789")
    arguments = ("--store", str(tmp_path / "kept.db"), "--model", "openai/gpt-4o")
    harbour = tmp_path / "harbour"
    harbour.mkdir()
    with opened(*arguments, env=env, cwd=harbour) as terminal:
        terminal.wait("harbour >")
        terminal.press(f"echo ha''llo{ENTER}")
        terminal.wait("\nhallo")
        assert b"\x1b[3" not in terminal.raw


@given(st.text())
def test_a_prefix_and_a_status_can_hold_any_name(name: str) -> None:
    assert "".join(text for _, text in status_fragments(name)) == name
    assert prefix(name, "shell")[-1][1] == "$ "


def test_a_kind_is_asked_for_once_and_again_after_the_last_command() -> None:
    asked: list[str] = []
    kind = RememberedKind(lambda text: asked.append(text) or "shell")
    assert [kind("ls"), kind("ls"), kind("l"), kind("ls")] == ["shell"] * 4
    assert asked == ["ls", "l", "ls"]
    kind.forget()
    assert kind("ls") == "shell"
    assert len(asked) == 4
    assert kind.version == 1


def test_the_name_of_a_folder_cannot_steer_the_terminal(tmp_path: Path) -> None:
    assert "\x1b" not in folder_name(tmp_path / "a\x1b]0;evil\x07b", 40)
    assert "\n" not in folder_name(tmp_path / "a\nb", 40)


# Words that people type -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["help", ":help", "/help", ":h"])
def test_help_lists_the_commands(word: str, tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        assert ":context" in terminal.do(word)
        assert not any(each.path.endswith("/chat/completions") for each in player.requests)


@pytest.mark.parametrize("word", ["quit", ":quit", ":q", "/q", ":exit", "/exit", "exit"])
def test_people_leave_by_the_word_that_they_know(word: str, tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        assert terminal.leave(f"{word}{ENTER}") == 0
        assert not any(each.path.endswith("/chat/completions") for each in player.requests)


@pytest.mark.parametrize("word", [":clear", "/clear"])
def test_clear_empties_the_screen_and_begins_anew_and_keeps_the_old_conversation(
    word: str, tmp_path: Path
) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("?how many")
        terminal.press(f"{word}{ENTER}")
        terminal.wait("a new conversation begins")
        terminal.ready()
        assert ANSWER not in terminal.text
        assert terminal.do(":history") == "nothing has been said yet"
        assert "how many" in terminal.do(":sessions")


# Keys ------------------------------------------------------------------------------------------------------


def test_escape_stops_an_answer_and_keys_typed_meanwhile_are_kept(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.type("?stall")
        terminal.wait("Slowly")
        terminal.press("\x1b[A")  # an arrow key is no Esc
        terminal.press("echo on\x7fe''more")
        terminal.press(ESCAPE)
        terminal.wait("stopped")
        terminal.wait("$ echo oe''more")
        terminal.press(ENTER)
        terminal.wait("\noemore\n")
        assert player.wait_left()


def test_ctrl_c_leaves_the_search_for_earlier_lines(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("echo fi''rst")
        terminal.press("\x12fi")
        terminal.wait("I-search backward: fi")
        terminal.press(CTRL_C)
        terminal.wait_until(lambda: "I-search" not in terminal.text, "the end of the search")
        terminal.ready()
        assert terminal.do("echo se''cond") == "second"


def test_enter_runs_what_the_search_for_earlier_lines_has_found(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        terminal.do("echo fi''rst")
        terminal.do("echo se''cond")
        terminal.type("\x12fi")
        assert terminal.done() == "first"
        assert terminal.do("echo thi''rd") == "third"


def test_ctrl_x_ctrl_e_opens_the_line_in_the_editor(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/fi/edi/; s/rst/ted/' \"$1\"\n")
    editor.chmod(0o755)
    with playing(play) as player, shell(tmp_path, player, VISUAL=str(editor)) as terminal:
        terminal.press("echo fi''rst")
        terminal.wait("$ echo fi''rst")
        terminal.press("\x18\x05")
        terminal.wait("$ echo edi''ted")
        terminal.press(ENTER)
        terminal.wait("\nedited\n")


@given(st.binary(max_size=60))
def test_text_typed_early_has_no_control_characters(keys: bytes) -> None:
    assert all(each.isprintable() or each in "\n\t" for each in decode_keys(keys))


def test_text_typed_early_is_edited_as_a_terminal_would() -> None:
    assert decode_keys(b"lz\x7fs\r") == "ls\n"
    assert decode_keys(b"rm -rf\x15ls") == "ls"
    assert decode_keys(b"\x1b[A\x1bOPls\x04") == "ls"


# Going on with a conversation ------------------------------------------------------------------------------


def test_resume_takes_the_last_conversation_of_the_folder_and_shows_where_it_was_left(tmp_path: Path) -> None:
    quay = tmp_path / "quay"
    quay.mkdir()
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            terminal.do("?how many boats")
            cost = terminal.do(":cost")
            assert terminal.leave() == 0
        with shell(tmp_path, player, folder="quay") as terminal:
            terminal.do("?which tide")
        with shell(tmp_path, player) as terminal:  # has nothing in it, so it is not taken
            terminal.do(":context")
            assert terminal.leave() == 0
        with shell(tmp_path, player, "--resume") as terminal:
            assert re.search(rf"conversation resumed: 2 turns\n> how many boats\n{ANSWER}\n", terminal.seen)
            assert terminal.do(":cost") == cost
            assert cost.startswith("$0.0001 for 41 prompt")
            terminal.do("?and ships")
            assert "for 82 prompt and 6 completion" in terminal.do(":cost")


def test_a_conversation_with_a_question_is_resumed_before_newer_ones_with_outputs_alone(
    tmp_path: Path,
) -> None:
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            terminal.do("echo bell''buoy")
            assert terminal.leave() == 0
        with shell(tmp_path, player, "--resume") as terminal:  # there is nothing else
            assert "conversation resumed: 0 turns" in terminal.seen
            assert terminal.leave() == 0
        with shell(tmp_path, player) as terminal:
            terminal.do("?how many boats")
            assert terminal.leave() == 0
        with shell(tmp_path, player) as terminal:
            terminal.do("echo fog''horn")
            assert terminal.leave() == 0
        with shell(tmp_path, player, "--resume") as terminal:
            assert "> how many boats" in terminal.seen


def test_a_resumed_exchange_is_broken_between_words_and_its_beginning_is_shown(tmp_path: Path) -> None:
    question = "harbour " * 40
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            terminal.do(f"?{question}")
            assert terminal.leave() == 0
        with shell(tmp_path, player, "--resume", columns=60) as terminal:
            assert re.search(r"\n> harbour[^\n]*\n(harbour ?)+\n(harbour ?)+\n… \(:history", terminal.seen)


def test_a_conversation_is_picked_from_a_list_by_number_words_or_enter(tmp_path: Path) -> None:
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            for question in ("?how many boats", "?which tide", "?whose boat"):
                terminal.do(question)
                terminal.do(":new")
        with shell(tmp_path, player, "--resume", "pick", wait="Enter: 1") as terminal:
            listed = terminal.text
            assert [line.split()[0] for line in listed.splitlines()[:3]] == ["1", "2", "3"]
            assert re.search(r"^  1 +(now|\d+ min) +2 turns +harbour +\[?whose boat", listed, re.MULTILINE)
            terminal.press(f"boat{ENTER}")
            terminal.wait("(Enter: 1, Ctrl-C: none; 3 in all) → boat")
            terminal.press(f"2{ENTER}")
            terminal.wait("> how many boats")
            terminal.ready()
            terminal.type(":resume")
            terminal.wait("Enter: 1")
            terminal.press(ENTER)
            assert "> whose boat" in terminal.done()
            terminal.type(":resume")
            terminal.wait("Enter: 1")
            terminal.press(CTRL_C)
            assert terminal.done().endswith("this conversation goes on")
            terminal.type(":resume")
            terminal.wait("Enter: 1")
            for typed, told in (("99", "there is no number 99"), ("no such", "no title has these words")):
                terminal.press(f"{typed}{ENTER}")
                terminal.wait(told)
                terminal.wait_until(lambda: terminal.lines[terminal.row].endswith("→"), "the question again")
            assert len(re.findall(r"^  1 ", terminal.text, re.MULTILINE)) == 1  # the list is shown once
            terminal.press(f"tide{ENTER}")
            assert "> which tide" in terminal.done()


def test_resume_in_a_folder_without_conversations_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    env = world.environment(tmp_path, OPENAI_API_KEY="sk-harbour-0123456789")
    done = subprocess.run(
        [PROGRAM, "--store", str(tmp_path / "kept.db"), "--resume"],
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        env=env,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "there is no saved conversation yet" in done.stderr
    assert "--resume SESSION" in done.stderr


def test_an_age_is_short() -> None:
    assert [age(seconds, 0) for seconds in (3, 61, 7_300, 90_000)] == ["now", "1 min", "2 h", "1 d"]
    assert age(1e8, 0) == "1970-01-01"


# The first screen ------------------------------------------------------------------------------------------


def test_the_first_screen_says_what_to_try_and_later_ones_only_the_model(tmp_path: Path) -> None:
    with playing(play) as player:
        with shell(tmp_path, player) as terminal:
            assert "model: openai/gpt-4o. Try these:\n  ls -l  " in terminal.seen
            assert terminal.seen.count("\n  ") == 4
            terminal.do("?how many")
        with shell(tmp_path, player) as terminal:
            assert "Try these" not in terminal.seen
            assert "model: openai/gpt-4o. :help lists the commands" in terminal.seen


def test_a_local_server_that_is_not_there_is_told_behind_the_prompt(tmp_path: Path) -> None:
    env = world.environment(tmp_path, NO_PROXY="*")
    arguments = ("--store", str(tmp_path / "kept.db"), "--model", "http://127.0.0.1:9/v1")
    with opened(*arguments, env=env, cwd=tmp_path, columns=120) as terminal:
        terminal.ready()
        terminal.press("half a li")
        terminal.wait("http://127.0.0.1:9 does not answer: start the server, or choose another model")
        terminal.press("ne")
        terminal.wait("> half a line")


def test_the_demonstration_is_marked_and_changes_nothing(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player) as terminal:
        (tmp_path / "harbour" / "boats.csv").write_text("heron")
        terminal.type(":demo")
        terminal.wait("This is scripted: no model is asked")
        terminal.wait("[r] run [s] skip · Enter: run")
        terminal.press(ENTER)
        terminal.wait("boats.csv\n")
        terminal.wait("$ git log --oneline -6")
        terminal.press(CTRL_C)
        terminal.wait("stopped")
        terminal.ready()
        assert terminal.do(":history") == "nothing has been said yet"
        assert not any(each.path.endswith("/chat/completions") for each in player.requests)


def test_without_a_terminal_the_demonstration_runs_to_its_end(tmp_path: Path) -> None:
    env = world.environment(tmp_path, NO_PROXY="*", OPENAI_API_KEY="sk-harbour-0123456789")
    done = subprocess.run(
        [PROGRAM, "--store", str(tmp_path / "kept.db"), "--model", "openai/gpt-4o", "-c", ":demo"],
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        env=env,
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert "with Ullage" in done.stdout
    assert "That was scripted." in done.stdout


# Figures ---------------------------------------------------------------------------------------------------


@given(st.floats(0, 3), st.floats(0, 3))
def test_a_gauge_has_its_width_and_shows_every_share(used: float, waiting: float) -> None:
    drawn = draw_gauge(used, waiting)
    assert len(drawn) == 10
    assert ("█" in drawn) == (used > 0)
    assert used + waiting >= 1 or "·" in drawn or waiting > 0
    assert "▒" not in drawn or waiting > 0
    if used == 0 or used < 0.9:
        assert ("▒" in drawn) == (waiting > 0)


def test_the_status_line_has_a_gauge_with_waiting_output_and_the_cap(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[cost]\ncap_at_dollars = 0.5\ncap_at_dollars_a_day = 2\n")
    with playing(play) as player, shell(tmp_path, player, "--config", str(config)) as terminal:
        terminal.do("?how many")
        terminal.wait("$0.0001 of $0.5000")
        terminal.do("seq 1 400")
        terminal.wait_until(lambda: re.search(r"█+▒+·+ ~\d", terminal.text) is not None, "the gauge")
        shown = terminal.do(":cost")
        assert re.search(r"this session +█·{19}  \$0.0001 of \$0.5000", shown)
        assert re.search(r"today \(UTC\) +█·{19}  \$0.0001 of \$2.00", shown)


def test_a_goal_shows_its_bounds_while_it_runs(tmp_path: Path) -> None:
    with playing(play) as player, shell(tmp_path, player, columns=140) as terminal:
        terminal.type(":goal stall")
        terminal.wait("[s] ask about each")
        terminal.press("s")
        terminal.wait("goal: step 1/20 · $0/$1.00 · 0/30 min")
        os.kill(terminal.child.pid, signal.SIGINT)
        terminal.wait("[r] continue [i] instruct [s] stop · Enter: continue")
        terminal.press("n")
        terminal.wait("goal stopped after 1 step")
