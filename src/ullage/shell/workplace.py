"""The parts of an open shell, for the meta commands, goals and completion."""

from __future__ import annotations

import signal
from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ullage.categories import MAIN
from ullage.errors import ConfigurationError
from ullage.patience import to_the_end
from ullage.session.saved_talks import note_folder
from ullage.session.secrets import SecretKeeper
from ullage.shell.answer import AnswerProgress, stream_answer
from ullage.shell.confirmation import SKIP, offer_command
from ullage.shell.escape_key import escape_stops
from ullage.shell.report import SessionReport
from ullage.shell.spinner import waiting_for
from ullage.shell.tool_servers import ToolServers
from ullage.terminal.capture import cut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from ullage.session.chat import ChatSession
    from ullage.shell.screen import Screen
    from ullage.terminal import Ran, Runner


STOPS = (signal.SIGTSTP, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU)
"""The signals that stop a program, which then is a job."""


@dataclass(slots=True)
class PendingInput:
    """Input that waits for the next prompts, and the state that ends the shell."""

    lines: deque[str] = field(default_factory=deque)
    """Lines that the user typed while a command ran; they run next."""
    draft: str = ""
    """The text that the next prompt contains at its start, for the user to edit."""
    over: bool = False
    """True once the user has left."""
    code: int = 0
    """The exit status of the last line."""
    has_status: bool = False
    """True if the user has left with a status, as by `exit 3`."""

    def take(self, typed: str, *, unseen: bool = False) -> None:
        """Takes a text that was typed too early: whole lines run next, the rest begins the next prompt.

        A text that follows another one continues its last line. An unseen text runs nothing by itself: all of
        it begins the next prompt.
        """
        if unseen:
            self.draft += typed.rstrip("\n")
            return
        first, *more = typed.split("\n")
        *whole, self.draft = (self.draft + first, *more)
        self.lines.extend(whole)


class Workplace:
    """A chat session, a screen and a bash, with the operations that need several of them."""

    def __init__(self, chat: ChatSession, screen: Screen, runner: Runner) -> None:
        self.chat = chat
        self.screen = screen
        self.runner = runner
        self.tools = ToolServers(chat, screen)
        self.report = SessionReport(chat, screen, runner)
        self.input = PendingInput()
        self._noted = ""
        """The conversation whose folder was noted last."""
        self.secrets = SecretKeeper(enabled=chat.settings.shell.mask_secrets)
        self.category = MAIN
        """The category of the last question."""
        self.last = AnswerProgress()
        """The last answer."""

    def begin_anew(self) -> None:
        """Starts a new conversation."""
        self.chat.begin()
        self.report.forget()

    def resume(self, session: str) -> None:
        """Continues another conversation."""
        self.chat.resume(session)
        self.report.forget()

    def note_folder(self) -> None:
        """Remembers the folder of this conversation, as soon as the conversation has something in it."""
        context = self.chat.context
        if context.session != self._noted and (len(context) or context.printed_tokens):
            note_folder(self.chat.kept, context.session, self.chat.cwd)
            self._noted = context.session

    def mask(self, text: str) -> str:
        """Returns a text without what looks like a secret, and tells the user if something was masked."""
        masked, notice = self.secrets.mask(text)
        if notice:
            self.screen.notice(notice)
        return masked

    @asynccontextmanager
    async def routed(self, category: str) -> AsyncIterator[None]:
        """Inside the with block, the model of a category answers; a spinner shows while it is opened."""
        async with AsyncExitStack() as leaving:
            name = self.chat.settings.routing.models.get(category)
            async with waiting_for(self.screen, f"opening the model {name}") if name else nullcontext():
                await leaving.enter_async_context(self.chat.routed(category))
            yield

    async def execute(self, line: str, *, private: bool = False) -> Ran:
        """Runs a command, shows its output, and keeps the output for the next question, unless `private`."""
        if "\0" in line:
            raise ConfigurationError(
                "The command contains a NUL character, which bash cannot take. Remove it."
            )
        with self.screen.loud():
            ran = self.runner.run(line)
        if not private:
            await self._keep_output(line, ran)
        if ran.status and not self._has_stopped(ran):
            self.screen.dim(f"exit status {ran.status}")
        if private:
            self.screen.dim("kept out of the conversation")
        self.input.code = ran.status
        self.input.take(ran.typed, unseen=ran.typed_unseen)
        return ran

    def _has_stopped(self, ran: Ran) -> bool:
        """Returns True if the line ended because its program was stopped, of which bash has told."""
        return bool(self.runner.stopped) and ran.status - 128 in STOPS

    async def _keep_output(self, line: str, ran: Ran) -> None:
        """Keeps the output of a command for the next question, without secrets."""
        context, output = self.chat.context, ran.output
        if ran.whole is None:
            output = self.mask(f"$ {line}\n{output}")
        else:  # masked before it is cut, as a cut could hide the beginning of a secret
            whole = self.mask(f"$ {line}\n{ran.whole}")
            output = cut(whole, len(output))
            await to_the_end(partial(self.chat.kept.journal.keep, context.session, [whole]))
        text = f"{output.rstrip()}\n[exit status {ran.status}]"
        await to_the_end(partial(context.append_exec_output, text))  # the command has run: this must finish

    async def stream(
        self, answer: AnswerProgress, *, category: str = MAIN, enough: Callable[[], bool] = lambda: False
    ) -> None:
        """Asks the model and shows its answer, as `stream_answer` does."""
        self.last = answer
        watched = self.screen.is_interactive
        with escape_stops(self.screen, self.input.take) if watched else nullcontext():
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
        refuse: str | None = SKIP,
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
            shadows=self.runner.shadows,
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
