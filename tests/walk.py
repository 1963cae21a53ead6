"""The walk of one question through the code: `python -m tests.walk` prints the modules that it passes.

The question is typed into a shell with a real SQLite store, and a real server on loopback answers it. The
conversation is so long that the request is trimmed, gets a digest, and recalls a passage for the question.

A door is a module that another package calls. To follow a question, a reader opens the doors; what is behind
them is called by its own package alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tests.player import Request, Script, answered, playing, sent_json
from ullage import store
from ullage.config import load
from ullage.session.chat import ChatSession
from ullage.shell.loop import Shell
from ullage.shell.prompt import Prompt
from ullage.shell.screen import Screen
from ullage.terminal import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PACKAGE = "ullage."
OUTSIDE = "outside"
"""Stands for a caller that is not of Ullage: the test itself."""
FILE = """
model = "harbour"

[context]
token_budget = 1_600
max_turns = 1_000

[models.harbour]
endpoint = "{url}/v1"
model = "gpt-4o"
window = 16_000
"""
PIER = "The pilot boat Albatross lies at pier 7 with a broken winch."
TALK = "Ship number {0} unloaded {0}2 crates of tea in the morning and left the harbour before noon. " * 3
QUESTION = "Which boat has a broken winch, and at which pier does it lie?"


@dataclass(slots=True)
class Walk:
    """The modules of Ullage whose functions were entered, in the order of the first entry."""

    modules: dict[str, None] = field(default_factory=dict)
    doors: dict[str, None] = field(default_factory=dict)
    """The modules that another package called, in the same order."""
    called: set[tuple[str, str]] = field(default_factory=set)
    """The functions that were entered: module and name."""
    entered: set[tuple[str, str]] = field(default_factory=set)
    """Those of them that another package called."""

    def step(self, frame: FrameType, event: str, _: object) -> None:
        """Notes the module of a function that is entered, for `sys.setprofile`."""
        if event != "call" or (module := _module(frame)) is None:
            return
        function = (module, frame.f_code.co_qualname)
        self.modules[module] = None
        self.called.add(function)
        before = _caller(frame)
        if before is not None and _package(before) != _package(module):
            self.doors[module] = None
            self.entered.add(function)


def _module(frame: FrameType) -> str | None:
    """The module of a function of Ullage; None for others, imports, and methods that dataclasses made."""
    name: str = frame.f_globals.get("__name__", "")
    code = frame.f_code
    if not name.startswith(PACKAGE) or code.co_filename.startswith("<") or code.co_name == "<module>":
        return None
    return name.removeprefix(PACKAGE)


def _caller(frame: FrameType) -> str | None:
    """The module that calls a function; None if a thread begins, or the event loop goes on with a task.

    Code between the two that is not Ullage's is passed over, and so is `patience`, which calls the function
    that it is given.
    """
    caller = frame.f_back
    while caller is not None:
        module = _module(caller)
        if module is not None and module != "patience":
            return module
        if caller.f_globals.get("__name__") in {"asyncio.events", "threading"}:
            return None
        caller = caller.f_back
    return OUTSIDE


def _package(module: str) -> str:
    return module.partition(".")[0]


@contextlib.contextmanager
def traced() -> Iterator[Walk]:
    """Notes every function that is entered in the with block, in all threads that begin there."""
    walk = Walk()
    threading.setprofile(walk.step)
    sys.setprofile(walk.step)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def play(request: Request) -> Script:
    """Answers a question; other routes are not found."""
    if not request.path.endswith("/chat/completions"):
        return sent_json({"error": {"message": "not found"}}, 404)
    return Script(body=answered("The Albatross, at pier 7."))


def _talk(chat: ChatSession) -> None:
    """Fills the conversation beyond its limit, with the answer to the question at its start."""
    chat.context.append_user(PIER)
    chat.context.append({"role": "assistant", "content": "Noted."})
    for number in range(10, 40):
        chat.context.append_user(TALK.format(number))
        chat.context.append({"role": "assistant", "content": f"{number} ships."})


def walk_of_a_question(folder: Path) -> tuple[Walk, str]:
    """The walk of one question in a conversation under way, and the request that was sent."""
    with playing(play) as player, store.open(folder / "kept.db") as kept, asyncio.Runner() as loop:
        file = folder / "config.toml"
        file.write_text(FILE.format(url=player.url))
        settings = load(file, environ={}, cwd=folder)
        chat = loop.run(ChatSession.open(settings, kept, {}, folder))
        keyboard = io.StringIO()
        screen = Screen(Console(file=io.StringIO(), width=110), keyboard=keyboard)
        runner = Runner(cwd=folder, environ={"PATH": os.environ["PATH"], "HOME": str(folder)})
        shell = Shell(chat, screen, runner)
        prompt = Prompt(screen, None, shell.complete, shell.status)

        def ask(question: str) -> None:
            keyboard.seek(keyboard.truncate(0))
            keyboard.write(f"{question}\n")
            keyboard.seek(0)
            shell.run(prompt, loop)

        try:
            ask("Who are you?")  # what is loaded once is no part of the walk
            _talk(chat)
            with traced() as walk:
                ask(QUESTION)
        finally:
            loop.run(shell.close())
            runner.close()
        return walk, player.requests[-1].body.decode()


def main() -> None:
    """Prints the modules in the order of their first call; those that are no doors are indented."""
    with tempfile.TemporaryDirectory() as folder:
        walk, _ = walk_of_a_question(Path(folder))
    for module in walk.modules:
        sys.stdout.write(f"{module}\n" if module in walk.doors else f"    {module}\n")
    sys.stdout.write(f"One question passes {len(walk.doors)} doors and {len(walk.modules)} modules.\n")


if __name__ == "__main__":
    main()
