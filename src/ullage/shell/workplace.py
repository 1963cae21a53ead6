"""The parts of an open shell, for the meta commands, goals and completion."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ullage.categories import MAIN
from ullage.errors import ConfigurationError
from ullage.patience import to_the_end
from ullage.shell.answer import stream_answer
from ullage.shell.confirmation import SKIP, offer_command
from ullage.shell.report import SessionReport
from ullage.shell.tool_servers import ToolServers

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ullage.session.chat import ChatSession
    from ullage.shell.answer import AnswerProgress
    from ullage.shell.screen import Screen
    from ullage.terminal import Ran, Runner


@dataclass(slots=True)
class PendingInput:
    """Input that waits for the next prompts, and the state that ends the shell."""

    lines: deque[str] = field(default_factory=deque)
    """Lines that the user typed while a command ran; they run next."""
    drafts: deque[str] = field(default_factory=deque)
    """Texts that the next prompts contain at their start, for the user to edit."""
    over: bool = False
    """True once the user has left."""
    code: int = 0
    """The exit status of the last command."""


class Workplace:
    """A chat session, a screen and a bash, with the operations that need several of them."""

    def __init__(self, chat: ChatSession, screen: Screen, runner: Runner) -> None:
        self.chat = chat
        self.screen = screen
        self.runner = runner
        self.tools = ToolServers(chat, screen)
        self.report = SessionReport(chat, screen, runner)
        self.input = PendingInput()

    def begin_anew(self) -> None:
        """Starts a new conversation."""
        self.chat.begin()
        self.report.forget()

    def resume(self, session: str) -> None:
        """Continues another conversation."""
        self.chat.resume(session)
        self.report.forget()

    async def execute(self, line: str) -> Ran:
        """Runs a command, shows its output, and keeps the output for the next question."""
        if "\0" in line:
            raise ConfigurationError(
                "The command contains a NUL character, which bash cannot take. Remove it."
            )
        with self.screen.loud():
            ran = self.runner.run(line)
        context = self.chat.context
        if ran.whole is not None:
            await to_the_end(partial(self.chat.kept.journal.keep, context.session, [ran.whole]))
        output = f"$ {line}\n{ran.output}".rstrip() + f"\n[exit status {ran.status}]"
        await to_the_end(
            partial(context.append_exec_output, output)
        )  # the command has run, so this must finish
        if ran.status:
            self.screen.dim(f"exit status {ran.status}")
        self.input.code = ran.status
        *whole, rest = ran.typed.split("\n")
        self.input.lines.extend(whole)
        if rest:
            self.input.drafts.appendleft(rest)
        return ran

    async def stream(
        self, answer: AnswerProgress, *, category: str = MAIN, enough: Callable[[], bool] = lambda: False
    ) -> None:
        """Asks the model and shows its answer, as `stream_answer` does."""
        await stream_answer(
            self.chat,
            self.screen,
            answer,
            category=category,
            enough=enough,
            allow=self.tools.allow,
            below=partial(self.report.gauge, answer),
            settled=self.report.tell,
        )

    def offer(
        self,
        command: str,
        choices: str,
        *,
        refuse: str = SKIP,
        granted: set[str] | None = None,
        waiting: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> str:
        """Asks the user about a suggested command in the current folder, as `offer_command` does."""
        return offer_command(
            self.screen,
            self.chat.kept.preferences,
            command,
            choices,
            folder=self.runner.cwd,
            confirm=self.chat.settings.shell.confirm,
            refuse=refuse,
            granted=granted,
            waiting=waiting,
        )

    async def close(self) -> None:
        """Ends the servers and closes the models."""
        try:
            await self.tools.close()
        finally:
            await self.chat.close()
