"""The loop of the shell: it reads an input line, runs it, and reads the next one."""

from __future__ import annotations

import asyncio
import itertools
import re
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from ullage.errors import BudgetExceeded, ContextOverflowError, ProviderError, StoreError, UllageError
from ullage.patience import patiently
from ullage.safety.input_line import InputDecision, classify_input, is_unfinished
from ullage.shell import question
from ullage.shell.commands import ALIASES, BARE, COMMANDS, command_named
from ullage.shell.completion import complete
from ullage.shell.detached import run_detached
from ullage.shell.interrupts import BrokenOff, NotEnding, leave, nothing, on_press, stoppable
from ullage.shell.job_output import shown_above
from ullage.shell.project_tree import restore_tree
from ullage.shell.remedies import error_text
from ullage.shell.typed_kind import kind_while_typed
from ullage.shell.workplace import Workplace
from ullage.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from pathlib import Path

    from ullage.session.chat import ChatSession
    from ullage.shell.prompt import Prompt, Suggestion
    from ullage.shell.screen import Screen
    from ullage.terminal import Runner

PRIVATE = "!!"
"""Begins a command whose output the model does not get. A leading blank does the same."""
LEAVES = re.compile(r"(?:exit|logout)(?:[ \t]+(?P<status>\d+))?")
"""Commands that end bash; typed here, they end this shell, with the status that they name."""
AGAIN = re.compile(r"(?P<before>[\w./-]+[ \t]+)?!!")
"""Runs the last command again, also behind one word: `!!`, `sudo !!`."""
_PATH = re.compile(r"(?:\.{1,2}|~)(?:/\S*)?")


class Shell:
    """The shell of one user: runs commands and meta commands, and asks the model."""

    def __init__(self, chat: ChatSession, screen: Screen, runner: Runner) -> None:
        self.workplace = Workplace(chat, screen, runner)
        self.chat, self.screen, self.runner = chat, screen, runner
        self._last = ""
        """The command that ran last; empty before the first."""
        self._was_private = False
        """True if its output was kept out of the conversation."""
        self._has_warned = False
        """True if the last line has only told the user of stopped jobs that leaving would end."""
        restore_tree(chat.context, chat.kept.preferences, chat.settings.project, runner.cwd)

    @property
    def code(self) -> int:
        """The exit status of the last line: that of its command, or 1 after an error."""
        return self.workplace.input.code

    @property
    def exit_code(self) -> int:
        """The exit status of the program: in a terminal 0, unless the user has left with a status."""
        is_script = not self.screen.is_interactive
        return self.code if is_script or self.workplace.input.has_status else 0

    def run(self, prompt: Prompt, loop: asyncio.Runner, line: str | None = None) -> None:
        """Runs `line` and then all further input lines. An error in a line does not end the shell."""
        waiting = self.workplace.input
        jobs = (
            shown_above(prompt, self.runner, loop.get_loop()) if self.screen.is_interactive else nullcontext()
        )
        with jobs, on_press(nothing if self.screen.is_interactive else leave):
            while True:
                if line is None and waiting.lines:
                    line = waiting.lines.popleft()
                    prompt.echo(line)
                elif line is None:
                    draft, waiting.draft = waiting.draft, ""
                    line = prompt.read(draft, run=loop.run)
                if line is not None:
                    waiting.take(prompt.take_type_ahead())
                    self._turn(line, loop)
                if (line is None or waiting.over) and self._may_leave():
                    break
                self._has_warned = self._has_warned and (line is None or waiting.over)
                waiting.over, waiting.has_status, line = False, False, None

    def _may_leave(self) -> bool:
        """Returns False the first time if jobs are stopped, and tells the user of them, as bash does."""
        stopped = self.runner.stopped if self.screen.is_interactive else ()
        if not stopped or self._has_warned:
            return True
        self._has_warned = True
        names = one_line(", ".join(stopped))
        self.screen.notice(f"stopped: {names}. fg goes on with the last one; leave again to end all of them")
        return False

    def _turn(self, line: str, loop: asyncio.Runner) -> None:
        """Runs one input line. Ctrl-C cancels it; without a terminal it ends the program."""
        before = len(self.chat.context)
        try:
            loop.run(stoppable(self.act(line), tell=self.screen.dim))
        except (asyncio.CancelledError, BrokenOff):
            if not self.screen.is_interactive:
                raise KeyboardInterrupt from None
            self.screen.dim("stopped")
            self._tell_unanswered(before)
        except NotEnding:
            self.screen.error(
                "The running work does not stop, so the shell ends. "
                f"Continue the conversation with ullage --resume {self.chat.context.session}"
            )
            raise KeyboardInterrupt from None
        except UllageError as error:
            self.workplace.input.code = 1
            self.screen.error(error_text(error))
            if isinstance(error, ContextOverflowError):
                if error.limit == self.chat.context.limit:  # else a routed model's
                    self.screen.dim(self.chat.describe_limit())
                # the question would be sent with every later one
                self.screen.dim(":undo takes the question back; :reset empties the conversation")
            elif isinstance(error, ProviderError | BudgetExceeded):
                self._tell_unanswered()
                if len(self.chat.context) > before and self.chat.context.turns[-1]["role"] == "assistant":
                    self.screen.notice(question.INCOMPLETE)

    def _tell_unanswered(self, before: int = -1) -> None:
        """Says what to do with a question that has no answer, if there are more than `before` turns."""
        context = self.chat.context
        if len(context) > before and question.find_unanswered(context):
            self.screen.notice(question.UNANSWERED)

    async def act(self, line: str, piped: Callable[[], str] | None = None) -> None:
        """Runs one input line: a meta command, a command, or a question with the text of `piped`."""
        try:
            await self._act(line, piped)
        finally:
            with suppress(StoreError):  # the next line tries it again
                await patiently(self.workplace.note_folder)

    async def _act(self, line: str, piped: Callable[[], str] | None) -> None:
        decision = self._decide(line, self._names)
        leaving = LEAVES.fullmatch(decision.text.strip()) if decision.kind == "shell" else None
        if leaving is None:
            self.workplace.input.code = 0
        if decision.hint:
            self.screen.dim(decision.hint)
        if decision.kind == "meta":
            name, _, rest = decision.text.partition(" ")
            await command_named(name).run(self.workplace, rest.strip())
        elif leaving is not None:
            self._leave(leaving["status"])
        elif decision.kind == "shell":
            is_private = line[:1].isspace() or line.strip() not in {
                line.strip().removeprefix(PRIVATE),
                PRIVATE,
            }
            if AGAIN.fullmatch(line.strip()):  # what was kept out stays out
                is_private = is_private or self._was_private
            self._last, self._was_private = decision.text, is_private
            await self.workplace.execute(decision.text, private=is_private)
        elif decision.kind == "ask":
            # In a thread: input that never ends must not keep Ctrl-C from working.
            await question.ask(self.workplace, decision.text, await run_detached(piped) if piped else "")

    def _leave(self, status: str | None) -> None:
        """Ends the shell. Without a status, a script ends with that of its last line, as in bash."""
        self.workplace.input.over = True
        if status is not None:
            self.workplace.input.code = int(status) & 255
            self.workplace.input.has_status = True

    def _decide(self, line: str, names: Callable[[], Iterable[str]] | None = None) -> InputDecision:
        """Decides about a line; the prompt shows the same decision while the line is typed."""
        text = line.strip()
        if text in BARE:
            return InputDecision("meta", BARE[text])
        if text.startswith(PRIVATE) and text.strip("!?"):
            return InputDecision("shell", text.removeprefix(PRIVATE).strip())
        if text.startswith("@") and not self.runner.resolves(text.split()[0]):
            return InputDecision("ask", text)  # a category or a file, and not a misspelled command
        metas = COMMANDS.keys() | ALIASES
        known = decide_by_habit(
            text, metas=metas, folder=self.runner.cwd, has_jobs=bool(self.runner.jobs), last=self._last
        )
        return known or classify_input(line, resolves=self.runner.resolves, metas=metas, names=names)

    def _names(self) -> Iterable[str]:
        return itertools.chain(self.runner.names, self.runner.programs())

    async def close(self) -> None:
        """Ends the servers and closes the models."""
        await self.workplace.close()

    # The prompt -------------------------------------------------------------------------------------

    def status(self) -> str:
        """Returns the current status line."""
        return self.workplace.report.status()

    def kind(self, text: str) -> str:
        """Returns the kind of a line that is being typed."""
        return kind_while_typed(text, self._decide, self.runner.resolves)

    def goes_on(self, text: str) -> bool:
        """Returns True if bash would read another line after this text."""
        if text.lstrip().startswith(PRIVATE):
            text = text.lstrip()[1:]
        return is_unfinished(text, resolves=self.runner.resolves, reads_on=self.runner.reads_on)

    def complete(self, text: str) -> Iterable[Suggestion]:
        """Returns the completions of a line that is being typed."""
        return complete(self.workplace, text)


def decide_by_habit(
    text: str, *, metas: Container[str], folder: Path, has_jobs: bool, last: str
) -> InputDecision | None:
    """Returns the decision about a line that means the same in every shell, or None for any other line.

    These are comments, paths, `wait`, and the last command again (`!!`).

    `metas` are the names of the shell's own commands, which may also begin with a slash. `has_jobs` is True
    if bash has background jobs, and `last` is the command that ran last; it may be empty.
    """
    if text.startswith("#") and "\n" not in text:
        return InputDecision("nothing", text)
    if text == "wait" and has_jobs:
        return InputDecision("shell", text)
    if last and (again := AGAIN.fullmatch(text)):
        line = f"{again['before'] or ''}{last}"
        return InputDecision("shell", line, hint=f"$ {line}")
    words = text.split(maxsplit=2)
    if not words:
        return None
    is_meta = words[0][1:] in metas
    is_path = _PATH.fullmatch(words[0]) or (
        words[0].startswith("/") and not is_meta and _exists(folder / words[0])
    )
    if is_path and (len(words) == 1 or words[1].startswith("-")):
        return InputDecision("shell", text)  # bash says what is wrong with it
    return None


def _exists(path: Path) -> bool:
    with suppress(OSError, ValueError):  # too long, or no valid path
        return path.exists()
    return False
