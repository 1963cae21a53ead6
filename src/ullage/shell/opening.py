"""The prompt comes first: what answers is opened behind it, while the person types.

Most of what a shell needs is heavy: vocabularies, a model, the conversation. None of it is needed to type.
"""
# ruff: noqa: PLC0415 - that is what this module is about

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING

from ullage.broker.about import ABOUT, EMBEDDED
from ullage.config.using import chosen_model, runs_here
from ullage.shell.prompt import PATIENCE
from ullage.shell.status import check, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ullage.config import ModelSettings, Settings
    from ullage.shell.loop import Shell
    from ullage.shell.prompt import Prompt, Suggestion
    from ullage.shell.screen import Screen
    from ullage.store import Store


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
        check(settings.shell.status)
        self.model = chosen_model(settings, kept.preferences, model)
        self._settings, self._kept, self._screen = settings, kept, screen
        self._environ, self._cwd, self._session = environ, cwd, session
        self._task: asyncio.Task[Shell] | None = None
        self._ended = threading.Event()

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
        # What takes its time is done in a thread, so that keys are heard meanwhile.
        await asyncio.to_thread(_warm, self.model)
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
        return Shell(desk, self._screen, Runner(cwd=self._cwd, environ=self._environ))

    async def close(self) -> None:
        """Ends what was opened, or is being opened."""
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if self.shell is not None:
            self.shell.runner.close()
            await self.shell.close()

    # The first prompt -------------------------------------------------------------------------------

    def run(self, prompt: Prompt, loop: asyncio.Runner) -> None:
        """Greets, and reads the first line while the shell is being opened, which then goes on with it."""
        if self._session is not None or not self._screen.is_interactive:
            loop.run(self.opened())  # nobody types ahead of a conversation that they go on with
        self._greet()
        while (line := prompt.read(run=loop.run, behind=lambda: self.begin(prompt.told))) is not None:
            try:
                shell = loop.run(self.opened())
            except KeyboardInterrupt:
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
        for notice in self._settings.notices:
            self._screen.dim(notice)
        if self.shell is not None:
            self.shell.tell_goal()

    def status(self) -> str:
        """The status line, as far as it is known."""
        shell = self.shell
        if shell is None:
            return render(self._settings.shell.status, {"model": self.model.name, "cwd": self._cwd})
        return shell.status()

    def complete(self, text: str) -> Iterable[Suggestion]:
        """What may come next in a line; waits for the shell, in the thread that completes."""
        self._ended.wait(PATIENCE)
        shell = self.shell
        return () if shell is None else shell.complete(text)


def _warm(model: ModelSettings) -> None:
    """Loads what the first status and the first question need: modules, and the model's vocabulary."""
    import ullage.shell.loop  # noqa: F401 - and with it all that a shell is made of
    from ullage.tokens import count

    name = model.model or model.name
    if runs_here(model):
        from ullage.broker.embedded import count_exactly
        from ullage.broker.embedded.weights import SMOLLM2

        count_exactly()
        name = SMOLLM2.model
    count([{"role": "user", "content": "ullage"}], model=name)
