"""The loop of the shell: it reads an input line, runs it, and reads the next one."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING

from ullage.errors import ContextOverflowError, UllageError
from ullage.patience import patiently
from ullage.safety.input_line import classify_input, is_unfinished
from ullage.shell.answer import AnswerProgress
from ullage.shell.commands import COMMANDS, command_named
from ullage.shell.completion import complete
from ullage.shell.confirmation import EDIT, FOR_GOOD, RUN, SKIP, SKIPPED
from ullage.shell.directives import commands_in
from ullage.shell.interrupts import BrokenOff, NotEnding, leave, nothing, on_press, stoppable
from ullage.shell.project_tree import restore_tree
from ullage.shell.prompt import MARK
from ullage.shell.remedies import error_text
from ullage.shell.workplace import Workplace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.session.chat import ChatSession
    from ullage.shell.prompt import Prompt, Suggestion
    from ullage.shell.screen import Screen
    from ullage.terminal import Runner

CHOICES = RUN + EDIT + SKIP + FOR_GOOD
"""Keys of the choices that the user has for a suggested command."""
LEAVES = ("exit", "logout")
"""Commands that end bash; typed here, they end this shell."""


class Shell:
    """The shell of one user: runs commands and meta commands, and asks the model."""

    def __init__(self, chat: ChatSession, screen: Screen, runner: Runner) -> None:
        self.workplace = Workplace(chat, screen, runner)
        self.chat, self.screen, self.runner = chat, screen, runner
        restore_tree(chat.context, chat.kept.preferences, chat.settings.project, runner.cwd)

    @property
    def code(self) -> int:
        """The exit status of the last command."""
        return self.workplace.input.code

    def run(self, prompt: Prompt, loop: asyncio.Runner, line: str | None = None) -> None:
        """Runs `line` and then all further input lines. An error in a line does not end the shell."""
        # The screen is quiet all the time: a ^C that the terminal echoes would shift the prompt.
        waiting = self.workplace.input
        with on_press(nothing if self.screen.is_interactive else leave), self.screen.quiet():
            while not waiting.over:
                if line is None and waiting.lines:
                    line = waiting.lines.popleft()
                    self.screen.say(f"{MARK}{line}")
                elif line is None:
                    draft = waiting.drafts.popleft() if waiting.drafts else ""
                    line = prompt.read(draft, run=loop.run)
                if line is None:
                    break
                self._turn(line, loop)
                line = None

    def _turn(self, line: str, loop: asyncio.Runner) -> None:
        """Runs one input line. Ctrl-C cancels it; without a terminal it ends the program."""
        try:
            loop.run(stoppable(self.act(line), tell=self.screen.dim))
        except (asyncio.CancelledError, BrokenOff):
            if not self.screen.is_interactive:
                raise KeyboardInterrupt from None
            self.screen.dim("stopped")
        except NotEnding:
            self.screen.error(
                "The running work does not stop, so the shell ends. "
                f"Continue the conversation with ullage --resume {self.chat.context.session}"
            )
            raise KeyboardInterrupt from None
        except UllageError as error:
            self.screen.error(error_text(error))
            if isinstance(error, ContextOverflowError):  # the question would be sent with every later one
                self.screen.dim(":undo takes the question back; :reset empties the conversation")

    async def act(self, line: str) -> None:
        """Runs one input line: a meta command, a command, or a question."""
        decision = classify_input(line, resolves=self.runner.resolves, metas=COMMANDS, names=self._names)
        if decision.hint:
            self.screen.dim(decision.hint)
        if decision.kind == "meta":
            name, _, rest = decision.text.partition(" ")
            await command_named(name).run(self.workplace, rest.strip())
        elif decision.kind == "shell" and decision.text.strip() in LEAVES:
            self.workplace.input.over = True
        elif decision.kind == "shell":
            await self.workplace.execute(decision.text)
        elif decision.kind == "ask":
            await self.ask(decision.text)

    def _names(self) -> Iterable[str]:
        return itertools.chain(self.runner.names, self.runner.programs())

    async def ask(self, text: str) -> None:
        """Asks the model, shows its answer as it arrives, and offers the commands in it."""
        routed = self.chat.route(text)
        if routed.hint:
            self.screen.dim(routed.hint)
        answer = AnswerProgress()
        self.workplace.tools.send()  # leaves out the tools of servers that have ended
        async with self.chat.routed(routed.category):
            await patiently(partial(self.chat.context.append_user, routed.question))
            await self.workplace.stream(answer, category=routed.category)
        self.workplace.tools.tell_ended()
        for command in commands_in(answer.text):
            await self._offer(command)
            await asyncio.sleep(0)  # a Ctrl-C between two commands takes effect here

    async def _offer(self, command: str) -> None:
        """Runs, edits or skips a suggested command, as the rules or the user decide."""
        chosen = self.workplace.offer(command, CHOICES)
        if chosen == RUN:
            await self.workplace.execute(command)
        elif chosen == EDIT:
            self.workplace.input.drafts.append(f"!{command}")
        else:
            await patiently(partial(self.chat.context.append_exec_output, SKIPPED.format(command)))

    async def close(self) -> None:
        """Ends the servers and closes the models."""
        await self.workplace.close()

    # The prompt -------------------------------------------------------------------------------------

    def status(self) -> str:
        """Returns the current status line."""
        return self.workplace.report.status()

    def goes_on(self, text: str) -> bool:
        """Returns True if bash would read another line after this text."""
        return is_unfinished(text, resolves=self.runner.resolves, reads_on=self.runner.reads_on)

    def complete(self, text: str) -> Iterable[Suggestion]:
        """Returns the completions of a line that is being typed."""
        return complete(self.workplace, text)
