"""What the commands of the shell make of what is typed behind them."""

from __future__ import annotations

import asyncio
import io
import os
import stat
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tests.benches import new_bench, script
from ullage import store
from ullage.broker.events import Finished, Text, Used
from ullage.broker.resolve import Opened
from ullage.config import defaults
from ullage.config.builder import plain_model
from ullage.context import Context
from ullage.errors import ConfigurationError
from ullage.session.accounts import ledger_for
from ullage.session.chat import ChatSession
from ullage.session.model_pool import open_model_on
from ullage.shell.commands import command_named
from ullage.shell.loop import Shell
from ullage.shell.screen import Screen
from ullage.shell.views import as_markdown
from ullage.terminal import Runner
from ullage.testing import ScriptedProvider
from ullage.tokens.calibration import Calibration
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    answer = [Text("Seven."), Used(Usage(prompt=1_000, completion=10)), Finished("stop")]
    settings, provider = defaults(), ScriptedProvider([answer])
    runner = Runner(cwd=tmp_path, environ={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    with store.open(tmp_path / "kept.db") as kept:
        open_model = asyncio.run(
            open_model_on(
                Opened(provider, local=False),
                plain_model(provider.target.model),
                settings,
                ledger=ledger_for(settings, kept, "s", tmp_path.name),
                calibration=Calibration(kept.calibration),
            )
        )
        screen = Screen(Console(file=io.StringIO(), width=100), keyboard=io.StringIO())
        made = Shell(ChatSession(settings, kept, {}, tmp_path, open_model, session="s"), screen, runner)
        yield made
        asyncio.run(made.close())
    runner.close()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (":cost nonsense", ":cost detail or :cost reset"),
        (":export a\x00b.md", "not a valid file name"),
        (":export ~nobody-here/talk.md", "not a valid file name"),
        (":export nowhere/talk.md", "cannot be written"),
        (":export", "FILE.md or :export FILE.json"),
    ],
)
def test_what_a_command_does_not_take_is_an_error_that_says_so(shell: Shell, line: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        asyncio.run(shell.act(line))


def test_what_a_turn_cost_is_not_shown_for_another_conversation(shell: Shell) -> None:
    asyncio.run(shell.act("?How many?"))
    assert "$" in shell.status()
    Context(journal=shell.chat.kept.journal, session="other", model="gpt-4o").append_user("How many?")
    asyncio.run(shell.act(":resume other"))
    assert shell.chat.context.session == "other"
    assert "$" not in shell.status()


def test_an_export_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with store.open(tmp_path / "kept.db") as kept:
            shell = new_bench(kept, tmp_path, script()).shell
            shell.chat.context.append_user("Where are the boats?")
            for name in ("talk.md", "talk.json"):
                asyncio.run(command_named("export").run(shell, name))
                assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
                assert "Where are the boats?" in (tmp_path / name).read_text()
            shell.runner.close()
    finally:
        os.umask(before)


def test_an_export_has_what_was_called_with_what_and_what_that_gave() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"file": "a.md"}'}}
    turns = [
        {"role": "user", "content": "Read a.md."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "# A\n\n````\n```sh\nls\n```\n````"},
        {"role": "assistant", "content": "```sh\nls\n```"},
    ]
    assert as_markdown(turns) == (
        "## user\n\nRead a.md.\n\n"
        '## assistant\n\nread\n\n```\n{"file": "a.md"}\n```\n\n'
        "## tool\n\n`````\n# A\n\n````\n```sh\nls\n```\n````\n`````\n\n"
        "## assistant\n\n```sh\nls\n```\n"
    )
