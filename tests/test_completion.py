"""What Tab offers, on real folders, a real runner and a real store."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prompt_toolkit.completion import Completion, get_common_complete_suffix
from prompt_toolkit.document import Document
from rich.console import Console

from tests.terminal import CTRL_C, CTRL_D, opened
from tests.world import environment, until
from ullage import store
from ullage.broker.resolve import Opened
from ullage.config import load
from ullage.config.builder import plain_model
from ullage.session.accounts import ledger_for
from ullage.session.chat import ChatSession
from ullage.session.model_pool import open_model_on
from ullage.shell.commands import COMMANDS
from ullage.shell.completion import ARGUMENTS, alternatives, complete, paths
from ullage.shell.completion.paths import MOST
from ullage.shell.loop import Shell
from ullage.shell.screen import Screen
from ullage.terminal import Runner
from ullage.testing import ScriptedProvider
from ullage.tokens.calibration import Calibration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.store import Store

ROOT = Path(__file__).resolve().parent.parent
FREE = {"tokenize": "[TEXT]"}
"""Commands that take nothing but the user's own words."""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    with store.open(tmp_path / "store.db") as made:
        yield made


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    """A folder with a few files, one of each kind."""
    made = tmp_path / "harbour"
    for folder in ("quay", "quarry", ".hidden", "old boats", "quay/north"):
        (made / folder).mkdir(parents=True)
    for file in ("quota.txt", "tide", ".tides", "quay/crane", "quay/cargo.md", "-rf"):
        (made / file).write_text("")
    (made / "quay" / "crane").chmod(0o755)
    return made


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    made = tmp_path / "programs"
    made.mkdir()
    for name in ("haul-in", "haul-out", "ferry", "no program"):
        (made / name).write_text("#!/bin/sh\n")
        (made / name).chmod(0o755)
    (made / "haul-notes").write_text("not for running\n")
    return made


CONFIGURED = """
[context]
token_budget = 600
reserved_output = 100
[models.near]
endpoint = "http://127.0.0.1:8080"
[models.far]
model = "gpt-4o"
[routing.models]
code = "far"
goal = "near"
summarize = "near"
[routing.system_prompts]
prose = "Write well."
chart = "Draw."
[routing.rules]
chart = ["draw", "plot"]
[mcp.files]
command = "npx"
"""


@pytest.fixture
def shell(kept: Store, harbour: Path, programs: Path, tmp_path: Path) -> Iterator[Shell]:
    file = tmp_path / "config.toml"
    file.write_text(CONFIGURED)
    chosen = load(file, environ={}, cwd=harbour)
    ledger = ledger_for(chosen, kept, "session", harbour.name)
    calibration = Calibration(kept.calibration)
    provider = ScriptedProvider([])
    model = plain_model(provider.target.model)
    open_model = asyncio.run(
        open_model_on(Opened(provider, False), model, chosen, ledger=ledger, calibration=calibration)
    )
    chat = ChatSession(chosen, kept, {}, harbour, open_model, session="session")
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath), "/no/such/folder"])
    runner = Runner(cwd=harbour, environ={"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8"})
    made = Shell(chat, Screen(Console(file=io.StringIO())), runner)
    yield made
    asyncio.run(made.close())  # a summary may be on its way, and a server's thread
    runner.close()


def lines(shell: Shell, text: str) -> list[str]:
    """The input as each suggestion would leave it."""
    return [text[: len(text) - each.replaces] + each.text for each in complete(shell.workplace, text)]


def common(texts: list[str]) -> str:
    """What all of them begin with, as the prompt inserts it."""
    return get_common_complete_suffix(Document(), [Completion(text) for text in texts])


def notes(shell: Shell, text: str) -> dict[str, str]:
    return {each.text: each.note for each in complete(shell.workplace, text)}


# The commands of the shell itself ----------------------------------------------------------------------


def test_a_command_of_the_shell_is_completed_by_its_name_with_its_help(shell: Shell) -> None:
    assert lines(shell, ":mem") == [":memory"]
    assert lines(shell, "  /mem") == ["  /memory"]
    assert notes(shell, ":comp") == {"compact": COMMANDS["compact"].help}
    assert len(lines(shell, ":")) == len(lines(shell, "/")) == len(COMMANDS)
    assert lines(shell, ":nothing") == []
    assert lines(shell, ":nothing at all") == []


def test_a_slash_that_begins_no_command_begins_a_path(shell: Shell, harbour: Path) -> None:
    assert f"{harbour}/" in lines(shell, str(harbour)[:-3])
    assert lines(shell, f"{harbour}/quay/c") == [f"{harbour}/quay/crane "]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_command_lacks_completion(shell: Shell, name: str) -> None:
    usage = COMMANDS[name].usage
    words = alternatives(usage)
    assert bool(usage) is (bool(words) or name in ARGUMENTS or FREE.get(name) == usage)
    for word in words:
        assert f":{name} {word}" in lines(shell, f":{name} {word[:2]}")
    if not usage:
        assert lines(shell, f":{name} ") == []


def test_what_the_commands_take_is_completed(shell: Shell) -> None:
    assert lines(shell, ":cost ") == [":cost detail", ":cost days", ":cost reset"]
    assert lines(shell, "/cost   de") == ["/cost   detail"]
    assert lines(shell, ":cost detail ") == []
    assert lines(shell, ":rolling-context o") == [":rolling-context on", ":rolling-context off"]
    assert lines(shell, ":goal c") == [":goal continue"]
    assert lines(shell, ":help comp") == [":help compact"]
    assert lines(shell, ":help :comp") == [":help :compact"]
    assert notes(shell, ":model ") == {
        "embedded": "comes with Ullage",
        "near": "http://127.0.0.1:8080",
        "far": "gpt-4o",
    }
    assert notes(shell, ":mcp connect ") == {"files": "npx"}
    assert lines(shell, ":mcp connect mine haul-o") == [":mcp connect mine haul-out "]
    assert lines(shell, ":export quay/ca") == [":export quay/cargo.md"]
    assert lines(shell, ":export old") == [":export old boats/"]


def test_the_servers_that_are_connected_are_those_to_disconnect(shell: Shell) -> None:
    async def connected() -> list[str]:
        target = f"env PYTHONPATH={ROOT} {sys.executable} -m tests.harbour_server stdio"
        await shell.workplace.tools.connect("pier", target, shell.runner.environ)
        try:
            return lines(shell, ":mcp disconnect ")
        finally:
            await shell.workplace.tools.disconnect("pier")

    assert lines(shell, ":mcp disconnect ") == []
    assert asyncio.run(connected()) == [":mcp disconnect pier"]


def test_memories_sessions_and_handles_are_completed_with_what_they_are(shell: Shell) -> None:
    context = shell.chat.context
    item = context.remember("metric units\x1b[31m", "preference")
    assert lines(shell, ":memory forget ") == [f":memory forget {item.number}"]
    assert notes(shell, ":memory forget ")[str(item.number)] == "metric units [31m"
    for number in range(12):
        context.append_user(f"Boat {number} " + "has sailed away. " * 12)
        context.append({"role": "assistant", "content": "Noted."})
    context.fitted()
    assert context.changes
    found = notes(shell, ":recall ")
    assert set(found) == {each.handle for each in context.changes}
    assert any("Boat 0 has sailed" in note for note in found.values())
    assert notes(shell, ":resume ")["session"].startswith("Boat 0 has sailed")
    assert lines(shell, ":resume x") == []


def test_a_store_that_cannot_be_read_completes_nothing(shell: Shell, kept: Store) -> None:
    kept.close()
    assert lines(shell, ":resume ") == []


def test_a_question_is_completed_by_its_class_at_the_beginning_and_by_paths(shell: Shell) -> None:
    assert lines(shell, "@") == ["@main", "@chart", "@code", "@prose"]
    assert notes(shell, "?@co") == {"@code": "far"}
    assert lines(shell, "? @pro") == ["? @prose"]
    assert lines(shell, "what @co") == []
    assert lines(shell, "@code what's in quay/ca") == ["@code what's in quay/cargo.md"]
    assert lines(shell, "?what's in quay/ca") == ["?what's in quay/cargo.md"]
    assert lines(shell, "what's in quay/ca") == ["what's in quay/cargo.md"]
    assert lines(shell, "?hau") == []
    assert lines(shell, "? ") == []


# Command lines -----------------------------------------------------------------------------------------


PROGRAMS = [
    "{}",
    "!{}",
    "! {}",
    "tide | {}",
    "tide|{}",
    "tide; {}",
    "tide && {}",
    "tide || {}",
    "tide & {}",
    "echo $({}",
    'echo "it is $({}',
    "echo `{}",
    "({}",
    "diff <({}",
    "sudo {}",
    "sudo -u root {}",
    "sudo -n env A=b {}",
    "env -u HOME A=b {}",
    "timeout 5 {}",
    "timeout -k 3 5 {}",
    "xargs -n 1 {}",
    "nice -n 5 nohup {}",
    "if {}",
    "if tide; then {}",
    "while ! {}",
    "A=b {}",
    "tide 2>&1 | {}",
    "tide > out; {}",
    "echo one\n{}",
    "echo 'a | b' | {}",
]


@pytest.mark.parametrize("line", PROGRAMS)
def test_where_a_command_begins_programs_are_offered(shell: Shell, line: str) -> None:
    typed = line.format("haul-")
    assert lines(shell, typed) == [line.format("haul-in"), line.format("haul-out")]


PATHS = [
    "ls {}",
    "sudo ls {}",
    "timeout {}",
    "sudo -u {}",
    "> {}",
    "tide 2> {}",
    "tide < {}",
    "tide &> {}",
    "tide>{}",
    "echo $(tide) {}",
    'echo "$(tide)" {}',
    "cat --file={}",
    "dd if={}",
    "QUOTA={}",
    "for each in {}",
    "echo \\\n{}",
    "echo it\\'s {}",
]


@pytest.mark.parametrize("line", PATHS)
def test_elsewhere_paths_are_offered(shell: Shell, line: str) -> None:
    assert lines(shell, line.format("quo")) == [line.format("quota.txt ")]


def test_what_bash_knows_by_itself_and_what_the_user_defined_are_offered(shell: Shell) -> None:
    assert "pushd " in lines(shell, "push")
    assert lines(shell, "whilst") == []
    shell.runner.run("alias mooring=ls; mooring_line() { :; }", show=False)
    assert lines(shell, "moor") == ["mooring", "mooring_line"]


def test_our_own_command_is_completed_without_any_installation(shell: Shell) -> None:
    shell.runner.open()
    # A busy machine may need longer than a completion may take
    assert until(lambda: lines(shell, "ullage config e") == ["ullage config edit "])


def test_a_program_that_is_new_on_the_path_is_found(shell: Shell, programs: Path) -> None:
    assert lines(shell, "fer") == ["ferry "]
    (programs / "ferret-out").write_text("#!/bin/sh\n")
    (programs / "ferret-out").chmod(0o755)
    os.utime(programs, ns=(1, 1))
    assert lines(shell, "fer") == ["ferret-out", "ferry"]
    (programs / "ferry").chmod(0o644)
    assert lines(shell, "fer") == ["ferret-out "]


def test_an_empty_command_and_a_comment_complete_nothing(shell: Shell) -> None:
    for text in ("", "   ", "!", "sudo ", "ls | ", "ls # qu", "?", "\n"):
        assert lines(shell, text) == []


def test_paths_are_relative_to_where_the_shell_is_and_folders_end_in_a_slash(shell: Shell) -> None:
    assert lines(shell, "ls qua") == ["ls quarry/", "ls quay/"]
    assert lines(shell, "ls quay/") == ["ls quay/cargo.md", "ls quay/crane", "ls quay/north/"]
    shell.runner.run("cd quay", show=False)
    assert lines(shell, "ls c") == ["ls cargo.md", "ls crane"]
    assert lines(shell, "ls ../ti") == ["ls ../tide "]
    assert lines(shell, "ls ..") == ["ls ../"]


def test_a_home_and_a_variable_are_looked_up_and_stay_as_typed(shell: Shell, tmp_path: Path) -> None:
    tmp_path.with_name(f"{tmp_path.name}-of-another").mkdir()
    for home in ("~", "$HOME", "${HOME}", '"$HOME"'):
        assert lines(shell, f"ls {home}/harbour/quo") == [f"ls {home}/harbour/quota.txt "]
    assert lines(shell, "ls --out=~/harb") == ["ls --out=~/harbour/"]
    assert lines(shell, "ls ~") == ["ls ~/"]
    assert lines(shell, "ls '$HOME/harb") == []
    assert lines(shell, "ls $NONE/harb") == []
    assert lines(shell, "ls $(pwd)/quo") == []
    assert lines(shell, "~/harbour/quay/cr") == ["~/harbour/quay/crane "]


def test_hidden_names_need_a_dot(shell: Shell) -> None:
    assert lines(shell, "cat t") == ["cat tide "]
    assert not any("hidden" in line or ".tides" in line for line in lines(shell, "cat "))
    assert lines(shell, "cat .") == ["cat .hidden/", "cat .tides"]


def test_cd_takes_folders_and_a_command_with_a_slash_what_can_be_run(shell: Shell, harbour: Path) -> None:
    (harbour / "quilt").symlink_to("quay")
    (harbour / "quip").symlink_to("quip")
    assert lines(shell, "cd qu") == ["cd quarry/", "cd quay/", "cd quilt/"]
    assert lines(shell, "pushd quo") == []
    assert lines(shell, "cat qui") == ["cat quilt/", "cat quip"]
    assert lines(shell, "quay/") == ["quay/crane", "quay/north/"]
    assert lines(shell, "sudo ./quay/c") == ["sudo ./quay/crane "]


def test_a_name_that_would_be_an_option_is_made_a_path(shell: Shell) -> None:
    assert "cat ./-rf" in lines(shell, "cat ")
    assert lines(shell, "cat -") == []
    assert lines(shell, "cat ./-") == ["cat ./-rf "]


ODD = ["a b", "it's", 'say "hi"', "$HOME", "a\\b", "a;b", "a&b", "(x)", "[y]", "{z}", "*", "#1", "~x", "a`b"]
ODD += ["ärger", "🚢 boat", "e=mc2", "!bang", "a|b", "<in>", "a?", "-n", "x^y", "a~", "a#b"]


def odd_folders(harbour: Path) -> Iterator[tuple[str, str]]:
    """Each odd name with a folder that has nothing else in it."""
    for number, name in enumerate(ODD):
        (harbour / f"{number}").mkdir()
        (harbour / f"{number}" / name).write_text("")
        yield f"{number}", name


@pytest.mark.parametrize("opening", ["{}/", "./{}/", "'{}/", '"{}/', "--file={}/", "'{}'/"])
def test_bash_reads_a_completed_name_as_that_file(shell: Shell, harbour: Path, opening: str) -> None:
    completed = []
    for folder, _ in odd_folders(harbour):
        [line] = lines(shell, "printf '%s\\n' " + opening.format(folder))
        assert line.endswith(" ")
        completed.append(line)
    printed = shell.runner.run(";".join(completed), show=False).output.splitlines()
    assert [line.rpartition("/")[2] for line in printed] == ODD


def test_bash_reads_a_completed_word_as_that_file(shell: Shell, harbour: Path) -> None:
    completed = []
    for folder, _ in odd_folders(harbour):
        shell.runner.run(f"cd {harbour}/{folder}", show=False)
        [line] = lines(shell, "printf '%s\\n' ")
        completed.append(line)
    printed = shell.runner.run(";".join(completed), show=False).output.splitlines()
    assert [line.removeprefix("./") for line in printed] == ODD


def test_every_beginning_of_a_completed_name_is_completed_to_it(shell: Shell, harbour: Path) -> None:
    for folder, name in odd_folders(harbour):
        for mark in ("", '"', "'" if "'" not in name else ""):
            start = f"cat {mark}{folder}/"
            [whole] = lines(shell, start)
            whole = whole.removesuffix(f"{mark} ")
            for end in range(len(start), len(whole)):
                assert [line.removesuffix(f"{mark} ") for line in lines(shell, whole[:end])] == [whole]


HARMFUL = ["new\nline", "esc\x1b[2J", "tab\tbed", "bell\x07", "right\u202eleft", "\udcff", "del\x7f"]


def test_names_that_a_terminal_might_obey_are_not_offered(
    shell: Shell, harbour: Path, programs: Path
) -> None:
    for name in HARMFUL:
        (harbour / "quay" / "north" / name).write_text("")
        (programs / name).write_text("")
        (programs / name).chmod(0o755)
    (harbour / "quay" / "north" / "family 👩‍🚀").write_text("")  # its joiner does no harm
    assert lines(shell, "cat quay/north/") == ["cat quay/north/family\\ 👩‍🚀 "]
    for name in HARMFUL:
        assert not any(
            name in line for line in lines(shell, name[:2]) + lines(shell, f"cat quay/north/{name[:2]}")
        )


def test_of_many_names_a_bounded_number_is_offered_that_has_the_same_beginning(
    shell: Shell, harbour: Path
) -> None:
    many = harbour / "many"
    many.mkdir()
    for number in range(2 * MOST):
        (many / f"log-{number:04}").write_text("")
    found = lines(shell, "cat many/")
    assert len(found) == MOST
    assert common(found) == "cat many/log-0"
    (many / "log-9999").write_text("")
    assert common(lines(shell, "cat many/")) == "cat many/log-"


def test_a_folder_with_too_many_entries_completes_nothing(
    shell: Shell, harbour: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "MOST_READ", 2)
    assert lines(shell, "cat quay/ca") == []
    assert lines(shell, "cat quay/north/") == []
    (harbour / "quay" / "north" / "one").write_text("")
    assert lines(shell, "cat quay/north/") == ["cat quay/north/one "]


def test_what_cannot_be_read_completes_nothing(shell: Shell, harbour: Path) -> None:
    (harbour / "shut").mkdir()
    (harbour / "shut").chmod(0)
    for text in (
        "cat shut/",
        "cat tide/",
        "cat none/",
        "cat \0/",
        "cat \ud800/",
        "cat ~nobody-here/x",
        "cat ~\0/x",
        "cat ~\ud800/x",
        "cat " + "a" * 5_000,
    ):
        assert lines(shell, text) == []
    (harbour / "shut").chmod(0o755)


SIGNS = st.text(st.sampled_from(list("ab quay/.~$(){}`'\"\\|;&<>=#!?@:-\n\t\0é\x1b\ud800")), max_size=25)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(SIGNS | st.text(max_size=20))
def test_whatever_is_typed_completion_neither_fails_nor_offers_what_is_harmful(
    shell: Shell, text: str
) -> None:
    for each in complete(shell.workplace, text):
        assert 0 <= each.replaces <= len(text)
        assert not re.search(r"[\x00-\x1f\x7f]", each.text)


def test_a_pasted_document_is_not_completed(shell: Shell) -> None:
    assert lines(shell, "cat qu" + " qu" * 100_000) == []


# The whole program -------------------------------------------------------------------------------------


def test_tab_completes_what_is_unique_and_shows_what_is_not(harbour: Path, tmp_path: Path) -> None:
    env = environment(
        tmp_path,
        NO_PROXY="*",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
        OPENAI_API_KEY="sk-harbour-0123456789",
    )
    arguments = ("shell", "--store", str(tmp_path / "typed.db"), "--model", "openai/gpt-4o")
    with opened(*arguments, env=env, cwd=harbour, rows=30) as terminal:
        terminal.ready()
        terminal.press("cat quo\t")
        terminal.wait("$ cat quota.txt")
        terminal.press(CTRL_C)
        terminal.ready()
        terminal.press("cd q\t")
        terminal.wait("quay/")
        screen = terminal.wait("quarry/")
        assert "$ cd qua\n" in screen
        assert "quota.txt" not in screen
        terminal.press("y\t")
        terminal.wait("$ cd quay/\n")
        terminal.press("\r")
        terminal.ready()
        terminal.press(":comp\t")
        terminal.wait("> :compact")
        terminal.press(CTRL_C)
        terminal.ready()
        assert terminal.leave(CTRL_D) == 0
