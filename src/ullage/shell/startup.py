"""Startup of the shell: the prompt appears first, and the rest is loaded while the user types.

Vocabularies, the model and the conversation take time to load, and none of them is needed to type.
"""
# ruff: noqa: PLC0415 - late imports are the purpose of this module

from __future__ import annotations

import asyncio
import gc
import math
import threading
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from ullage.session.model_choice import choose_model
from ullage.shell.detached import run_detached
from ullage.shell.interrupts import leave, nothing, on_press, stoppable
from ullage.shell.prompt import PATIENCE
from ullage.shell.status import check_settings, render
from ullage.shell.welcome import greeting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ullage.config import ModelSettings, Settings
    from ullage.shell.loop import Shell
    from ullage.shell.prompt import Prompt, Suggestion
    from ullage.shell.screen import Screen
    from ullage.store import Store

WORD = "ullage"
"""A text that is counted at startup, so that the first real count is fast."""
PAUSE = 0.02
"""Seconds between two steps of loading. In this time the prompt handles keys, and the user can leave."""


class Startup:
    """Opens a shell in the background: `begin` starts on the running event loop, `wait_until_open` waits."""

    def __init__(
        self,
        settings: Settings,
        kept: Store,
        screen: Screen,
        environ: Mapping[str, str],
        cwd: Path,
        *,
        session: str | None = None,
        model: str | None = None,
        reads_input: bool = False,
    ) -> None:
        check_settings(settings)
        self.model, self.notice = choose_model(settings, kept.preferences, model)
        self._settings, self._kept, self._screen = settings, kept, screen
        self._environ, self._cwd = environ, cwd
        self._reads_input = reads_input
        self._session = session if session is None else self._choose_session(session)
        self._task: asyncio.Task[Shell] | None = None
        self._warmed = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        self._opening = f"opening the model {self.model.name}"
        """The step of opening that the user waits for now."""
        self._ended = threading.Event()
        self._left = threading.Event()

    def _choose_session(self, wanted: str) -> str | None:
        """Returns the conversation to continue; None for a new one, if the user picks none."""
        from ullage.shell.resumption import choose

        return choose(self._kept, self._screen, self._cwd, wanted)

    def begin(self, then: Callable[[BaseException | None], None] = lambda _: None) -> None:
        """Starts opening on the running event loop; then calls `then` with None, or with the error."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._open())
            self._task.add_done_callback(lambda _: self._ended.set())
            self._task.add_done_callback(lambda task: None if task.cancelled() else then(task.exception()))

    async def wait_until_open(self) -> Shell:
        """Waits until the shell is open and returns it; raises the error if it could not be opened."""
        self.begin()
        assert self._task is not None  # noqa: S101 - begun above
        return await asyncio.shield(self._task)

    async def _wait_with_spinner(self) -> Shell:
        """Does the same as `wait_until_open`, with a spinner in a terminal."""
        from ullage.shell.spinner import spin

        return await spin(self._screen, lambda: self._opening, self.wait_until_open())

    @property
    def shell(self) -> Shell | None:
        """The shell; None while it is being opened, and if it could not be opened."""
        task = self._task
        is_open = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result() if task is not None and is_open else None

    async def _open(self) -> Shell:
        # Slow loading is done in a thread: the prompt handles keys meanwhile, and leaving does not wait.
        await run_detached(partial(_warm, self.model, self._left))
        self._warmed.set()
        gc.freeze()  # the loaded objects live until the end, so the collector need not look at them
        gc.enable()
        from ullage.session.chat import ChatSession
        from ullage.shell.loop import Shell
        from ullage.terminal import Runner

        chat = await ChatSession.open(
            self._settings,
            self._kept,
            self._environ,
            self._cwd,
            session=self._session,
            model=self.model.name,
        )
        async with AsyncExitStack() as undoing:
            undoing.push_async_callback(chat.close)
            self._opening = "bash runs your start-up files"
            runner = Runner(
                cwd=self._cwd,
                environ=self._environ,
                startup=self._settings.shell.startup,
                reads_input=self._reads_input,
            )
            undoing.callback(runner.close)
            await run_detached(runner.open)
            shell = Shell(chat, self._screen, runner)
            undoing.pop_all()
        return shell

    async def close(self) -> None:
        """Closes the shell, or cancels its opening."""
        self._left.set()
        task = self._task
        if task is None:
            return
        tasks = [task] if self._probing is None else [task, self._probing]
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
        if self.shell is not None:
            async with AsyncExitStack() as closing:
                closing.push_async_callback(self.shell.close)
                closing.callback(self.shell.runner.close)

    # The first prompt -------------------------------------------------------------------------------

    def run(self, prompt: Prompt, loop: asyncio.Runner) -> int:
        """Greets the user, reads the first line while the shell opens, and then runs the shell with it.

        Returns the exit code of the program: that of the last line if the input is not a terminal.
        """
        if self._session is not None or not self._screen.is_interactive:
            loop.run(self._wait_with_spinner())  # a resumed conversation must be loaded before the user types
        self._greet()
        with on_press(nothing if self._screen.is_interactive else leave):
            while (line := prompt.read(run=loop.run, behind=lambda: self._begin_behind(prompt))) is not None:
                waiting = stoppable(self._wait_with_spinner(), tell=self._screen.dim, patience=math.inf)
                try:
                    shell = loop.run(waiting)
                except asyncio.CancelledError:
                    self._screen.dim("stopped")
                else:
                    shell.run(prompt, loop, line)
                    return shell.exit_code
        return 0

    def _begin_behind(self, prompt: Prompt) -> None:
        """Opens the shell behind the visible prompt, and finds out if the model's server is there."""
        self.begin(prompt.refresh)
        if self._probing is None:
            self._probing = asyncio.get_running_loop().create_task(self._probe(prompt))

    async def _probe(self, prompt: Prompt) -> None:
        """Prints above the prompt if the model's server is near and does not accept connections."""
        await self._warmed.wait()  # before that, loading its modules would delay the keys
        from ullage.session.reachability import address_of, is_reachable

        if await is_reachable(self.model, self._environ) is False:
            address = address_of(self.model, self._environ)
            advice = "start the server, or choose another model with :model NAME"
            prompt.notify(partial(self._screen.error, f"{address} does not answer: {advice}"))

    def _greet(self) -> None:
        """Prints the current model, how to get help, and the notices."""
        if not self._screen.is_interactive:
            return
        is_first = self._session is None and not self._kept.sessions(1)
        for line in greeting(self.model.name, is_first=is_first, width=self._screen.width):
            self._screen.dim(line)
        for notice in filter(None, (*self._settings.notices, self.notice)):
            self._screen.dim(notice)
        if self.shell is not None:
            from ullage.shell.goal import tell_pending
            from ullage.shell.resumption import tell_resumed

            tell_resumed(self.shell.chat, self.shell.screen)
            tell_pending(self.shell.chat, self.shell.screen)

    def status(self) -> str:
        """Returns the status line; before the shell is open, only with the model and the folder."""
        shell = self.shell
        if shell is None:
            return render(self._settings.shell.status, {"model": self.model.name, "cwd": self._cwd})
        return shell.status()

    def folder(self) -> Path:
        """Returns the folder in which the next command runs."""
        return self._cwd if self.shell is None else self.shell.runner.cwd

    def kind(self, text: str) -> str:
        """Returns the kind of a line that is being typed; empty until the shell is open."""
        return "" if self.shell is None else self.shell.kind(text)

    def goes_on(self, text: str) -> bool:
        """Returns True if bash would read another line after this text; False until the shell is open."""
        return self.shell is not None and self.shell.goes_on(text)

    def complete(self, text: str) -> Iterable[Suggestion]:
        """Returns the completions of a line; blocks the completer's thread until the shell is open."""
        self._ended.wait(PATIENCE)
        shell = self.shell
        return () if shell is None else shell.complete(text)


def _warm(model: ModelSettings, left: threading.Event) -> None:
    """Loads everything that the first status and the first question need; stops if the user leaves."""
    for _ in _loading(model):
        if left.wait(PAUSE):
            return


def _loading(model: ModelSettings) -> Iterator[None]:
    """Loads modules and the model's vocabulary; yields after each step, as a step cannot be interrupted."""
    import ullage.shell.loop  # imports all other modules of the shell
    from ullage.tokens import count
    from ullage.tokens.ceilings import ASKED, ASKING
    from ullage.tokens.families import family_of
    from ullage.tokens.vocabularies import vocabulary

    yield
    name = model.model or model.name
    if model.runs_here:
        from ullage.broker.embedded import count_exactly
        from ullage.broker.embedded.weights import SMOLLM2

        count_exactly()
        name = SMOLLM2.model
    else:
        family = family_of(name)
        for each in (family.vocabulary, *(ASKED if family.bound in ASKING else ())):
            loaded = vocabulary(each)
            yield
            loaded.count(WORD)
            yield
        import ullage.broker.connector  # noqa: F401 - the HTTP client, for the first question

        yield
    count([{"role": "user", "content": WORD}], model=name)
