"""The shell: a loop around the straight line, with a keyboard and a screen."""

from __future__ import annotations

import shlex
from contextlib import aclosing
from typing import TYPE_CHECKING

from ullage.broker.embedded import ABOUT
from ullage.broker.events import Text
from ullage.config.using import environment_of
from ullage.errors import ConfigurationError, ContextOverflowError, UllageError
from ullage.fitting.shorten import HANDLE_LENGTH, letters_of
from ullage.shell.commands import COMMANDS, command_named
from ullage.shell.deciding import decide
from ullage.shell.desk import Called
from ullage.shell.goal import pending
from ullage.shell.prompt import Suggestion
from ullage.shell.safety import classify
from ullage.shell.screen import write
from ullage.shell.status import Figure, check, git_branch, render
from ullage.shell.suggestions import ALWAYS, ASKED, SKIPPED, commands_in
from ullage.turn import Settled

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from decimal import Decimal

    from ullage.shell.desk import Desk
    from ullage.shell.prompt import Prompt
    from ullage.shell.running import Ran, Runner
    from ullage.shell.screen import Screen
    from ullage.shell.servers import Servers

CHOICES = {"r": "run", "e": "edit", "s": "skip", "a": "always"}
LEAVES = ("exit", "logout")
"""Commands that would end a shell end this one."""
TOOLS = "always-call"
"""The preference with the tools that the user allows unasked."""


class Shell:
    """One person, one conversation, one loop."""

    def __init__(self, desk: Desk, screen: Screen, runner: Runner) -> None:
        self.desk = desk
        self.screen = screen
        self.runner = runner
        self.over = False
        self.code = 0
        """The exit status of the last command."""
        self._edited = ""
        self._cost: Decimal | None = None
        self._servers: Servers | None = None

    def run(self, prompt: Prompt, loop: asyncio.Runner) -> None:
        """Reads and acts until the end of the input; nothing that goes wrong in a turn ends the shell."""
        check(self.desk.settings.shell.status)
        self.greet()
        while not self.over:
            edited, self._edited = self._edited, ""
            line = prompt.read(edited)
            if line is None:
                break
            try:
                loop.run(self.act(line))
            except KeyboardInterrupt:
                self.screen.dim("stopped")
            except UllageError as error:
                self.screen.error(str(error))
                if isinstance(error, ContextOverflowError):  # it would go with every further question
                    self.screen.dim(":undo takes the question back, :reset begins anew")

    def greet(self) -> None:
        """Says what answers, and how to get help."""
        if not self.screen.is_interactive:
            return
        if self.desk.is_embedded:
            for line in ABOUT.splitlines():
                self.screen.dim(line)
        self.screen.dim(f"{self.desk.model.name} answers. :help lists the commands; Ctrl-D leaves.")
        for notice in (*self.desk.settings.notices, pending(self.desk)):
            if notice:
                self.screen.dim(notice)

    async def act(self, line: str) -> None:
        """Does what a line asks for."""
        decision = decide(line, resolves=self.runner.resolves, metas=COMMANDS)
        if decision.hint:
            self.screen.dim(decision.hint)
        if decision.kind == "meta":
            name, _, rest = decision.text.partition(" ")
            await command_named(name).run(self, rest.strip())
        elif decision.kind == "shell" and decision.text.strip() in LEAVES:
            self.over = True
        elif decision.kind == "shell":
            await self.execute(decision.text)
        elif decision.kind == "ask":
            await self.ask(decision.text)

    # Commands ---------------------------------------------------------------------------------------

    async def execute(self, line: str) -> Ran:
        """Runs a command, shows what it prints, and keeps that for the next question."""
        ran = self.runner.run(line)
        context = self.desk.context
        if ran.whole is not None:
            self.desk.kept.journal.keep(context.session, [ran.whole])
        context.append_exec_output(f"$ {line}\n{ran.output}".rstrip() + f"\n[exit status {ran.status}]")
        if ran.status:
            self.screen.dim(f"exit status {ran.status}")
        self.code = ran.status
        return ran

    # Questions --------------------------------------------------------------------------------------

    async def ask(self, text: str) -> None:
        """Asks the model, streams its answer, and offers the commands in it."""
        self.desk.context.append_user(text)
        said: list[str] = []
        with self.screen.quiet(), self.screen.answer() as answer:
            async with aclosing(self.desk.answer(self.allow)) as events:  # type: ignore[type-var]
                async for event in events:
                    if isinstance(event, Text):
                        said.append(event.text)
                        answer.feed(event.text)
                    elif isinstance(event, Called):
                        said.append("\n")
                        answer.end()
                        self.screen.dim(f"{event.name}: {'called' if event.allowed else 'not allowed'}")
                    elif isinstance(event, Settled):
                        answer.end()  # its last line is still open
                        self.tell(event)
        if said and not (self.screen.is_terminal or said[-1].endswith("\n")):
            write(self.screen.console.file, "\n")
        for command in commands_in("".join(said)):
            await self._offer(command)

    def tell(self, settled: Settled) -> None:
        """Says what a turn is the first to have crossed, and what left the window."""
        self._cost = settled.cost
        for warning in settled.warnings:
            self.screen.error(warning.text)
        gone = sum(1 for kind, *_ in settled.fitted.record.pending if kind == "evict")
        if gone:
            self.screen.dim(f"{gone} turns left the window; :history shows which, :recall brings them back")

    async def allow(self, tool: str, arguments: str) -> bool:
        """Whether a tool may be called: asks, unless it was allowed for good."""
        servers = self._servers
        if servers is not None and not servers.needs_confirmation(tool):
            return True
        choices = {"y": "call it", "n": "do not", "a": "always this tool"}
        chosen = self.screen.ask(f"{tool} {arguments[:200]}", choices, refuse="n")
        if chosen == "a" and servers is not None:
            servers.always.add(tool)
            self.desk.kept.preferences.set(TOOLS, sorted(servers.always))
        return chosen != "n"

    async def _offer(self, command: str) -> None:
        """Shows a suggested command and its class, and runs it if the user says so."""
        verdict = classify(command, cwd=self.runner.cwd)
        always = set(self.desk.kept.preferences.get(ALWAYS, []))
        asked = verdict.kind in ASKED[self.desk.settings.shell.confirm] and command not in always
        if not asked and verdict.kind != "destructive":
            await self.execute(command)
            return
        choices = dict(CHOICES)
        if verdict.kind == "destructive":
            del choices["a"]
        self.screen.dim(f"{verdict.kind}: {verdict.reason}")
        chosen = self.screen.ask(f"$ {command}", choices, refuse="s")
        if chosen == "a":
            self.desk.kept.preferences.set(ALWAYS, sorted(always | {command}))
        if chosen in {"r", "a"}:
            await self.execute(command)
        elif chosen == "e":
            self._edited = f"!{command}"
        else:
            self.desk.context.append_exec_output(SKIPPED.format(command))

    # Servers ----------------------------------------------------------------------------------------

    async def connect(self, name: str, target: str = "") -> None:
        """Connects an MCP server: one that is configured, a command, or an address."""
        from ullage.shell.servers import Servers, ServerSpec  # noqa: PLC0415 - only where there is a server

        configured = self.desk.settings.mcp.get(name)
        if target.startswith(("http://", "https://")):
            spec = ServerSpec(name=name, url=target)
        elif target:
            command, *arguments = shlex.split(target)
            spec = ServerSpec(name=name, command=command, args=tuple(arguments))
        elif configured is not None:
            spec = ServerSpec(
                name=name,
                command=configured.command,
                args=configured.args,
                env=environment_of(configured, self.runner.environ),
                url=configured.url,
            )
        else:
            raise ConfigurationError(f"no server {name!r} is configured; :mcp connect {name} COMMAND or URL")
        if self._servers is None:
            allowed = self.desk.kept.preferences.get(TOOLS, [])
            self._servers = Servers(always=allowed, kept=self._kept)
        await self._servers.connect(spec)
        self._send_tools()

    async def disconnect(self, name: str) -> bool:
        """Ends a server; False where there is none of this name."""
        gone = self._servers is not None and await self._servers.disconnect(name)
        self._send_tools()
        return gone

    def servers_in_lines(self) -> Iterable[str]:
        """A line for each server: its state, its tools, and what they cost in each request."""
        listed = () if self._servers is None else self._servers.listed(self.desk.context.bounds.model)
        for each in listed:
            tools = ", ".join(tool.original for tool in each.tools)
            cost = "" if each.tokens is None else f", {each.tokens:,} tokens"
            yield f"{each.name}: {each.state}{f' ({each.why})' if each.why else ''}{cost}  {tools}"

    def _send_tools(self) -> None:
        if self._servers is not None:
            self.desk.use_tools(tuple(self._servers.tools()), self._servers.call)

    def _kept(self, text: str) -> str:
        self.desk.kept.journal.keep(self.desk.context.session, [text])
        return letters_of(text)[:HANDLE_LENGTH]

    async def close(self) -> None:
        """Ends the servers and lets go of the model."""
        if self._servers is not None:
            await self._servers.close()
        await self.desk.close()

    # The prompt -------------------------------------------------------------------------------------

    def status(self) -> str:
        """The status line, as it is now."""
        context = self.desk.context
        count = context.count()
        estimate = not count.exact
        values = {
            "model": self.desk.model.name,
            "ctx_used": Figure(count.tokens, estimate),
            "ctx_max": context.limit,
            "ctx_percent": Figure(100 * count.tokens / context.limit, estimate),
            "cost": Figure(self._cost),
            "session_cost": Figure(context.total_cost()),
            "cwd": self.runner.cwd,
            "git": git_branch(self.runner.cwd),
        }
        return render(self.desk.settings.shell.status, values)

    def complete(self, text: str) -> Iterable[Suggestion]:
        """Meta commands by their names."""
        if text[:1] in {":", "/"} and " " not in text:
            for name, command in COMMANDS.items():
                if name.startswith(text[1:]):
                    yield Suggestion(name, len(text) - 1, note=command.help)
