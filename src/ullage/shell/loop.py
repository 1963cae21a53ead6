"""The shell: a loop around the straight line, with a keyboard and a screen."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from typing import TYPE_CHECKING

from ullage.errors import ContextOverflowError, UllageError
from ullage.fitting.shorten import HANDLE_LENGTH, letters_of
from ullage.shell import trees
from ullage.shell.commands import COMMANDS, command_named
from ullage.shell.completing import complete
from ullage.shell.deciding import decide, is_unfinished
from ullage.shell.goal import pending
from ullage.shell.hearing import Heard, hear
from ullage.shell.interrupting import BrokenOff, NotEnding, leave, nothing, on_press, stoppable
from ullage.shell.offering import EDIT, FOR_GOOD, RUN, SKIP, SKIPPED, offer
from ullage.shell.prompt import MARK
from ullage.shell.routing import route
from ullage.shell.status import Figure, git_branch, render
from ullage.shell.suggestions import commands_in

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from ullage.shell.desk import Desk
    from ullage.shell.prompt import Prompt, Suggestion
    from ullage.shell.running import Ran, Runner
    from ullage.shell.screen import Screen
    from ullage.shell.servers import Servers
    from ullage.tokens import Count
    from ullage.turn import Settled

CHOICES = RUN + EDIT + SKIP + FOR_GOOD
"""What the user may do with a suggested command."""
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
        self._lines: deque[str] = deque()
        """What was typed while a command ran, to be done next."""
        self._drafts: deque[str] = deque()
        """What the next prompts begin with, to be edited."""
        self._cost: Decimal | None = None
        self._failure = ""
        self._servers: Servers | None = None
        self._dead: set[str] = set()
        trees.take_up(desk, runner.cwd)

    def run(self, prompt: Prompt, loop: asyncio.Runner, line: str | None = None) -> None:
        """Acts on a line, and on all that come until the end; nothing that goes wrong in a turn ends it."""
        # Quiet all the time: a ^C that the terminal shows between a turn and the prompt would shift both.
        with on_press(nothing if self.screen.is_interactive else leave), self.screen.quiet():
            while not self.over:
                if line is None and self._lines:
                    line = self._lines.popleft()
                    self.screen.say(f"{MARK}{line}")
                elif line is None:
                    draft = self._drafts.popleft() if self._drafts else ""
                    line = prompt.read(draft, run=loop.run)
                if line is None:
                    break
                self._turn(line, loop)
                line = None

    def _turn(self, line: str, loop: asyncio.Runner) -> None:
        """Acts on a line; Ctrl-C stops that, and where nobody could type another line the whole as well."""
        try:
            loop.run(stoppable(self.act(line), tell=self.screen.dim))
        except (asyncio.CancelledError, BrokenOff):
            if not self.screen.is_interactive:
                raise KeyboardInterrupt from None
            self.screen.dim("stopped")
        except NotEnding:
            self.screen.error(f"it does not stop: ullage --resume {self.desk.context.session} goes on")
            raise KeyboardInterrupt from None
        except UllageError as error:
            self.screen.error(str(error))
            if isinstance(error, ContextOverflowError):  # it would go with every further question
                self.screen.dim(":undo takes the question back, :reset begins anew")

    def begin_anew(self) -> None:
        """Begins another conversation."""
        self.desk.begin()
        self._cost, self._failure = None, ""

    def resume(self, session: str) -> None:
        """Goes on with another conversation; what was shown of this one does not hold for it."""
        self.desk.resume(session)
        self._cost, self._failure = None, ""

    def tell_goal(self) -> None:
        """Says that the conversation has a goal that has not ended, where it has."""
        told = pending(self.desk)
        if told:
            self.screen.dim(told)

    async def act(self, line: str) -> None:
        """Does what a line asks for."""
        decision = decide(line, resolves=self.runner.resolves, metas=COMMANDS, names=self._names)
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

    def _names(self) -> Iterable[str]:
        return itertools.chain(self.runner.names, self.runner.programs())

    # Commands ---------------------------------------------------------------------------------------

    async def execute(self, line: str) -> Ran:
        """Runs a command, shows what it prints, and keeps that for the next question."""
        with self.screen.loud():
            ran = self.runner.run(line)
        context = self.desk.context
        if ran.whole is not None:
            self.desk.kept.journal.keep(context.session, [ran.whole])
        context.append_exec_output(f"$ {line}\n{ran.output}".rstrip() + f"\n[exit status {ran.status}]")
        if ran.status:
            self.screen.dim(f"exit status {ran.status}")
        self.code = ran.status
        *whole, rest = ran.typed.split("\n")
        self._lines.extend(whole)
        if rest:
            self._drafts.appendleft(rest)
        return ran

    # Questions --------------------------------------------------------------------------------------

    async def ask(self, text: str) -> None:
        """Asks the model, streams its answer, and offers the commands in it."""
        routed = route(text, self.desk.settings.routing)
        if routed.hint:
            self.screen.dim(routed.hint)
        heard = Heard()
        self._send_tools()  # those of a server that has ended since are no longer there
        async with self.desk.routed(routed.kind):
            self.desk.context.append_user(routed.question)
            await hear(self, heard, category=routed.kind)
        self._tell_servers()
        for command in commands_in(heard.text):
            await self._offer(command)
            await asyncio.sleep(0)  # Ctrl-C that was pressed between two of them stops here

    def tell(self, settled: Settled) -> None:
        """Says which warnings were reached, by this turn or behind it, and what left the window."""
        self._cost = settled.cost
        for warning in self.desk.context.meter.untold():
            self.screen.error(warning.text)
        done = Counter(self.desk.context.news())
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
            self.desk.kept.preferences.change(TOOLS, lambda known: sorted({*known, tool}), [])
        return chosen != "n"

    async def _offer(self, command: str) -> None:
        """Does with a suggested command what the rule or the user says."""
        chosen = offer(self, command, CHOICES)
        if chosen == RUN:
            await self.execute(command)
        elif chosen == EDIT:
            self._drafts.append(f"!{command}")
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

    def _tell_servers(self) -> None:
        """Says which servers have ended, once each."""
        listed = () if self._servers is None else self._servers.listed()
        dead = {each.name: each.why for each in listed if each.state == "dead"}
        for name in dead.keys() - self._dead:
            self.screen.error(f"the server {name} is no longer there: {dead[name]}")
        self._dead = set(dead)

    def _send_tools(self) -> None:
        if self._servers is not None:
            self.desk.use_tools(tuple(self._servers.tools()), self._servers.call)

    def _kept(self, text: str) -> str:
        self.desk.kept.journal.keep(self.desk.context.session, [text])
        return letters_of(text)[:HANDLE_LENGTH]

    async def close(self) -> None:
        """Ends the servers and lets go of the models."""
        try:
            if self._servers is not None:
                await self._servers.close()
        finally:
            await self.desk.close()

    # The prompt -------------------------------------------------------------------------------------

    def status(self) -> str:
        """The status line, as it is now."""
        waiting = self.desk.context.printed_tokens
        figures = self._figures(self.desk.count(), waiting, is_estimate=waiting > 0)
        return render(self.desk.settings.shell.status, figures)

    def gauge(self, heard: Heard) -> str:
        """The same while an answer comes: what it has written so far is in the window already."""
        template = self.desk.settings.shell.status
        if "{output_tokens}" not in template:
            template += " · {output_tokens}"
        sent = self.desk.context.rendered
        count = self.desk.count() if sent is None else sent.count
        figures = self._figures(count, heard.written, is_estimate=True)
        figures["output_tokens"] = Figure(heard.written, estimate=True)
        return render(template, figures) + f" · {heard.seconds} s"

    def _figures(self, count: Count, more: int, *, is_estimate: bool) -> dict[str, object]:
        context = self.desk.context
        used = count.tokens + more
        estimate = is_estimate or not count.exact
        figures: dict[str, object] = {
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
        if context.in_goal_mode:
            figures["mode"] = "goal"
        return figures

    def goes_on(self, text: str) -> bool:
        """Whether bash would go on reading after this."""
        return is_unfinished(text, resolves=self.runner.resolves, reads_on=self.runner.reads_on)

    def complete(self, text: str) -> Iterable[Suggestion]:
        """What may come next in a line."""
        return complete(self, text)
