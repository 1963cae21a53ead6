"""The shell: a loop around the straight line, with a keyboard and a screen."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ullage.errors import ContextOverflowError, UllageError
from ullage.fitting.shorten import HANDLE_LENGTH, letters_of
from ullage.shell import trees
from ullage.shell.commands import COMMANDS, command_named
from ullage.shell.completing import complete
from ullage.shell.deciding import decide
from ullage.shell.goal import pending
from ullage.shell.hearing import Heard, hear
from ullage.shell.routing import route
from ullage.shell.safety import classify
from ullage.shell.status import Figure, git_branch, render
from ullage.shell.suggestions import ALWAYS, ASKED, SKIPPED, commands_in

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping
    from decimal import Decimal

    from ullage.shell.desk import Desk
    from ullage.shell.prompt import Prompt, Suggestion
    from ullage.shell.running import Ran, Runner
    from ullage.shell.screen import Screen
    from ullage.shell.servers import Servers
    from ullage.tokens import Count
    from ullage.turn import Settled

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
        self._failure = ""
        self._servers: Servers | None = None
        trees.take_up(desk, runner.cwd)

    def run(self, prompt: Prompt, loop: asyncio.Runner, line: str | None = None) -> None:
        """Acts on a line, and on all that come until the end; nothing that goes wrong in a turn ends it."""
        while not self.over:
            if line is None:
                edited, self._edited = self._edited, ""
                line = prompt.read(edited, run=loop.run)
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
            line = None

    def tell_goal(self) -> None:
        """Says that the conversation has a goal that has not ended, where it has."""
        told = pending(self.desk)
        if told:
            self.screen.dim(told)

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
        routed = route(text, self.desk.settings.routing)
        if routed.hint:
            self.screen.dim(routed.hint)
        heard = Heard()
        async with self.desk.routed(routed.kind):
            self.desk.context.append_user(routed.question)
            await hear(self, heard)
        for command in commands_in(heard.text):
            await self._offer(command)

    def tell(self, settled: Settled) -> None:
        """Says what a turn is the first to have crossed, and what left the window."""
        self._cost = settled.cost
        for warning in settled.warnings:
            self.screen.error(warning.text)
        done = Counter(kind for kind, *_ in settled.fitted.record.pending)
        gone, cut = done.pop("evict", 0), done.total()
        told = [f"{gone} turns left the window"] * bool(gone) + [f"{cut} outputs were shortened"] * bool(cut)
        if told:
            self.screen.dim(f"{', '.join(told)}; :history shows which, :recall brings them back")
        failure = self.desk.context.summary_failure
        if failure is not None and str(failure) != self._failure:  # the same every time is told once
            self._failure = str(failure)
            self.screen.dim(f"no summary was written of it: {failure}")

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
        from ullage.shell.servers import Servers, spec_for  # noqa: PLC0415 - only where there is a server

        spec = spec_for(name, target, self.desk.settings.mcp, self.runner.environ)
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
        return render(self.desk.settings.shell.status, self._figures(self.desk.context.count()))

    def gauge(self, heard: Heard) -> str:
        """The same while an answer comes: what it has written so far is in the window already."""
        template = self.desk.settings.shell.status
        if "{output_tokens}" not in template:
            template += " · {output_tokens}"
        sent = self.desk.context.rendered
        figures = self._figures(self.desk.context.count() if sent is None else sent.count, heard.written)
        return render(template, figures) + f" · {heard.seconds} s"

    def _figures(self, count: Count, written: int | None = None) -> Mapping[str, object]:
        context = self.desk.context
        used = count.tokens + (written or 0)
        estimate = written is not None or not count.exact
        figures = {
            "model": self.desk.model.name,
            "ctx_used": Figure(used, estimate),
            "ctx_max": context.limit,
            "ctx_free": Figure(max(0, context.limit - used), estimate),
            "ctx_percent": Figure(100 * used / context.limit, estimate),
            "cost": Figure(self._cost),
            "session_cost": Figure(context.total_cost()),
            "session": context.session[:8],
            "cwd": self.runner.cwd,
            "git": git_branch(self.runner.cwd),
        }
        if context.goal:
            figures["mode"] = "goal"
        return figures if written is None else {**figures, "output_tokens": Figure(written, estimate=True)}

    def complete(self, text: str) -> Iterable[Suggestion]:
        """What may come next in a line."""
        return complete(self, text)
