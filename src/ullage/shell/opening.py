"""The prompt comes first: what answers is opened behind it, while the person types.

Most of what a shell needs is heavy: vocabularies, a model, the conversation. None of it is needed to type.
"""
# ruff: noqa: PLC0415 - that is what this module is about

from __future__ import annotations

import asyncio
import gc
import math
import threading
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from ullage.broker.about import ABOUT, EMBEDDED
from ullage.config.using import chosen_model, runs_here
from ullage.shell.apart import apart
from ullage.shell.interrupting import leave, nothing, on_press, stoppable
from ullage.shell.prompt import PATIENCE
from ullage.shell.status import check_settings, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ullage.config import ModelSettings, Settings
    from ullage.shell.loop import Shell
    from ullage.shell.prompt import Prompt, Suggestion
    from ullage.shell.screen import Screen
    from ullage.store import Store

WORD = "ullage"
"""What is counted first, so that nobody waits for the first count."""
PAUSE = 0.02
"""Seconds between two steps of loading: what was typed meanwhile is dealt with, and leaving is noticed."""


class Opening:
    """A shell on its way: `begin` it on the loop that it will live on, `opened` waits for it."""

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
    ) -> None:
        check_settings(settings)
        self.model, self.notice = chosen_model(settings, kept.preferences, model)
        self._settings, self._kept, self._screen = settings, kept, screen
        self._environ, self._cwd, self._session = environ, cwd, session
        self._task: asyncio.Task[Shell] | None = None
        self._ended = threading.Event()
        self._left = threading.Event()

    def begin(self, then: Callable[[BaseException | None], None] = lambda _: None) -> None:
        """Begins, on the loop that runs now; `then` is told when it is open, or why it is not."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._open())
            self._task.add_done_callback(lambda _: self._ended.set())
            self._task.add_done_callback(lambda task: None if task.cancelled() else then(task.exception()))

    async def opened(self) -> Shell:
        """The shell, as soon as it is open; raises what went wrong."""
        self.begin()
        assert self._task is not None  # noqa: S101 - begun above
        return await asyncio.shield(self._task)

    @property
    def shell(self) -> Shell | None:
        """The shell; None while it is being opened, and where it could not be."""
        task = self._task
        is_open = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result() if task is not None and is_open else None

    async def _open(self) -> Shell:
        # What takes its time is done in a thread: keys are heard meanwhile, and who leaves does not wait.
        await apart(partial(_warm, self.model, self._left))
        gc.freeze()  # what is loaded by now stays
        gc.enable()
        from ullage.shell.desk import Desk
        from ullage.shell.loop import Shell
        from ullage.shell.running import Runner

        desk = await Desk.open(
            self._settings,
            self._kept,
            self._environ,
            self._cwd,
            session=self._session,
            model=self.model.name,
        )
        async with AsyncExitStack() as undoing:
            undoing.push_async_callback(desk.close)
            runner = Runner(cwd=self._cwd, environ=self._environ)
            undoing.callback(runner.close)
            shell = Shell(desk, self._screen, runner)
            undoing.pop_all()
        return shell

    async def close(self) -> None:
        """Ends what was opened, or is being opened."""
        self._left.set()
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if self.shell is not None:
            async with AsyncExitStack() as closing:
                closing.push_async_callback(self.shell.close)
                closing.callback(self.shell.runner.close)

    # The first prompt -------------------------------------------------------------------------------

    def run(self, prompt: Prompt, loop: asyncio.Runner) -> None:
        """Greets, and reads the first line while the shell is being opened, which then goes on with it."""
        if self._session is not None or not self._screen.is_interactive:
            loop.run(self.opened())  # nobody types ahead of a conversation that they go on with
        self._greet()
        with on_press(nothing if self._screen.is_interactive else leave):
            while (line := prompt.read(run=loop.run, behind=lambda: self.begin(prompt.told))) is not None:
                waiting = stoppable(self.opened(), tell=self._screen.dim, patience=math.inf)
                try:
                    shell = loop.run(waiting)
                except asyncio.CancelledError:
                    self._screen.dim("stopped")
                else:
                    return shell.run(prompt, loop, line)
        return None

    def _greet(self) -> None:
        """Says what answers, and how to get help."""
        if not self._screen.is_interactive:
            return
        if self.model.name == EMBEDDED:
            for line in ABOUT.splitlines():
                self._screen.dim(line)
        self._screen.dim(f"{self.model.name} answers. :help lists the commands; Ctrl-D leaves.")
        for notice in filter(None, (*self._settings.notices, self.notice)):
            self._screen.dim(notice)
        if self.shell is not None:
            self.shell.tell_goal()

    def status(self) -> str:
        """The status line, as far as it is known."""
        shell = self.shell
        if shell is None:
            return render(self._settings.shell.status, {"model": self.model.name, "cwd": self._cwd})
        return shell.status()

    def goes_on(self, text: str) -> bool:
        """Whether a command line goes on; what is typed before the shell is open does not."""
        return self.shell is not None and self.shell.goes_on(text)

    def complete(self, text: str) -> Iterable[Suggestion]:
        """What may come next in a line; waits for the shell, in the thread that completes."""
        self._ended.wait(PATIENCE)
        shell = self.shell
        return () if shell is None else shell.complete(text)


def _warm(model: ModelSettings, left: threading.Event) -> None:
    """Loads what the first status and the first question need, step by step, until the user has left."""
    for _ in _loading(model):
        if left.wait(PAUSE):
            return


def _loading(model: ModelSettings) -> Iterator[None]:
    """Modules, and the model's vocabulary; a step cannot be broken off, and nothing else runs meanwhile."""
    import ullage.shell.loop  # noqa: F401 - and with it all that a shell is made of
    from ullage.tokens import count
    from ullage.tokens.bounds import ASKED, ASKING
    from ullage.tokens.families import family_of
    from ullage.tokens.vocabularies import vocabulary

    yield
    name = model.model or model.name
    if runs_here(model):
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
    count([{"role": "user", "content": WORD}], model=name)
