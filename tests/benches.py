"""A shell around a scripted provider, in this process, with everything else as it is."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ullage.broker.events import Event, Finished, Text, Used
from ullage.broker.resolve import Opened
from ullage.config.builder import defaults, plain_model
from ullage.session.accounts import ledger_for
from ullage.session.chat import ChatSession
from ullage.session.model_pool import open_model_on
from ullage.shell.goal import GoalOutcome, pursue
from ullage.shell.loop import Shell
from ullage.shell.screen import Screen
from ullage.terminal import Runner
from ullage.testing import ScriptedProvider
from ullage.tokens.calibration import Calibration
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ullage.context import Context
    from ullage.store import Store

GOAL = "Count the boats in the harbour"
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"}


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def answer(text: str, prompt: int = 100, completion: int = 10) -> list[Event]:
    return [Text(text), Used(Usage(prompt=prompt, completion=completion)), Finished("stop")]


def script(*texts: str) -> ScriptedProvider:
    return ScriptedProvider([answer(text) for text in texts])


@dataclass
class Bench:
    """The shell, who answers it, and what it shows."""

    shell: Shell
    provider: Any
    out: io.StringIO

    def pursue(self, text: str = GOAL, **options: Any) -> GoalOutcome:
        return asyncio.run(pursue(self.shell.workplace, text, **options))

    @property
    def context(self) -> Context:
        return self.shell.chat.context

    def said(self) -> list[Any]:
        """What the model was told, turn by turn."""
        return [turn["content"] for turn in self.context.turns if turn["role"] == "user"]


def new_bench(
    kept: Store,
    folder: Path,
    provider: Any,
    *,
    confirm: str = "writes",
    session: str = "s",
    screen: Screen | None = None,
    local: bool = False,
    budget: int = 8_000,
    reserved: int = 100,
    cost: Mapping[str, Any] | None = None,
    routes: Mapping[str, str] | None = None,
    prompts: Mapping[str, str] | None = None,
    **bounds: Any,
) -> Bench:
    """A shell in a folder; `bounds` are those of a goal, and its runner is to be closed."""
    settings = defaults()
    settings = replace(
        settings,
        context=replace(settings.context, token_budget=budget, reserved_output=reserved),
        cost=replace(settings.cost, **(cost or {})),
        shell=replace(settings.shell, confirm=confirm),
        goal=replace(settings.goal, **bounds),
        routing=replace(settings.routing, models=routes or {}, system_prompts=prompts or {}),
    )
    open_model = asyncio.run(
        open_model_on(
            Opened(provider, local),
            plain_model(provider.target.model),
            settings,
            ledger=ledger_for(settings, kept, session, folder.name),
            calibration=Calibration(kept.calibration),
        )
    )
    chat = ChatSession(settings, kept, {}, folder, open_model, session=session)
    out = io.StringIO()
    shown = screen or Screen(Console(file=out, width=110), keyboard=io.StringIO(), errors=out)
    return Bench(Shell(chat, shown, Runner(cwd=folder, environ=ENVIRON)), provider, out)
