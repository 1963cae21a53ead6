"""What the commands of the shell make of what is typed behind them."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from ullage import store
from ullage.broker.events import Finished, Text, Used
from ullage.broker.opening import Opened
from ullage.config import defaults
from ullage.config.building import plain_model
from ullage.config.seats import seated
from ullage.context import Context
from ullage.errors import ConfigurationError
from ullage.shell.desk import Desk, ledger_of
from ullage.shell.loop import Shell
from ullage.shell.running import Runner
from ullage.shell.screen import Screen
from ullage.shell.showing import as_markdown
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
        seat = asyncio.run(
            seated(
                Opened(provider, local=False),
                plain_model(provider.model),
                settings,
                ledger=ledger_of(settings, kept, "s", tmp_path),
                calibration=Calibration(kept.calibration),
            )
        )
        screen = Screen(Console(file=io.StringIO(), width=100), keyboard=io.StringIO())
        made = Shell(Desk(settings, kept, {}, tmp_path, seat, session="s"), screen, runner)
        yield made
        asyncio.run(made.close())
    runner.close()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (":cost nonsense", ":cost detail or :cost reset"),
        (":export a\x00b.md", "no name of a file"),
        (":export ~nobody-here/talk.md", "no name of a file"),
        (":export nowhere/talk.md", "cannot be written"),
        (":export", "FILE.md or FILE.json"),
    ],
)
def test_what_a_command_does_not_take_is_an_error_that_says_so(shell: Shell, line: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        asyncio.run(shell.act(line))


def test_what_a_turn_cost_is_not_shown_for_another_conversation(shell: Shell) -> None:
    asyncio.run(shell.act("?How many?"))
    assert "$" in shell.status()
    Context(journal=shell.desk.kept.journal, session="other").append_user("How many?")
    asyncio.run(shell.act(":resume other"))
    assert shell.desk.context.session == "other"
    assert "$" not in shell.status()


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
