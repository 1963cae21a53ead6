"""The MCP servers of a shell: connects them, and asks the user before a tool is called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ullage.fitting.pieces import HANDLE_LENGTH, letters_of
from ullage.patience import patiently
from ullage.session.allowances import TOOL, keep_allowance, list_allowed_tools
from ullage.shell.approval import approve
from ullage.shell.confirmation import FOR_GOOD
from ullage.shell.screen import NO, YES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.mcp import Servers
    from ullage.session.chat import ChatSession
    from ullage.shell.screen import Screen

MOST_ERRORS = 5
"""The most lines of a server's standard error that are shown if it does not start."""


class ToolServers:
    """The servers that the user has connected; their tools are sent with each question."""

    def __init__(self, chat: ChatSession, screen: Screen) -> None:
        self._chat = chat
        self._screen = screen
        self._servers: Servers | None = None
        self._dead: set[str] = set()

    async def connect(self, name: str, target: str, environ: Mapping[str, str]) -> None:
        """Connects an MCP server: a configured one, a command to start, or a URL."""
        from ullage.mcp import Servers, spec_for  # noqa: PLC0415 - most shells have no server

        spec = spec_for(name, target, self._chat.settings.mcp, environ)
        if self._servers is None:
            self._servers = Servers(kept=self._keep)
        self._servers.allow(spec.name, list_allowed_tools(self._chat.kept.preferences, spec.target))
        await self._servers.connect(spec)
        self.send()

    async def disconnect(self, name: str) -> bool:
        """Ends a server; returns False if no server has this name."""
        gone = self._servers is not None and await self._servers.disconnect(name)
        self.send()
        return gone

    async def allow(self, tool: str, arguments: str) -> bool:
        """Returns True if the tool may be called; asks the user, unless the tool is always allowed."""
        servers = self._servers
        if servers is not None and not servers.needs_confirmation(tool):
            why = "because you chose “always this tool” (:always lists these)"
            self._screen.dim(f"{tool} is called without a question, {why}")
            return True
        offered = None if servers is None else servers.offered(tool)
        if offered is not None and offered.read_only:
            self._screen.dim(f"The server says that {tool} changes nothing. Ullage cannot verify this.")
        choices = {YES: "call it", NO: "do not call it", FOR_GOOD: "always this tool"}
        chosen = approve(
            self._screen,
            f"{tool} {arguments}",
            choices,
            approving={YES, FOR_GOOD},
            refuse=NO,
            default=YES,
        )
        if chosen == FOR_GOOD and servers is not None:
            servers.always.add(tool)
            await patiently(
                partial(keep_allowance, self._chat.kept.preferences, TOOL, tool, servers.target_of(tool))
            )
        return chosen != NO

    def forget(self, tool: str) -> None:
        """Removes the permission of a tool, so that the user is asked again."""
        if self._servers is not None:
            self._servers.always.discard(tool)

    def tell_start(self, name: str) -> None:
        """Prints why a server did not start, if so, with the last lines of its errors; never again."""
        state = None if self._servers is None else self._servers.state(name)
        if state is None or state.state != "dead":
            return
        self._dead.add(name)
        self._screen.error(f"The MCP server {name} did not start: {state.why}")
        for line in state.stderr.strip().splitlines()[-MOST_ERRORS:]:
            self._screen.dim(f"    {line}")

    def lines(self) -> Iterator[str]:
        """Yields a line for each server: its state, its tools, and the tokens of their definitions."""
        listed = () if self._servers is None else self._servers.listed(self._chat.context.bounds.target)
        for each in listed:
            tools = ", ".join(tool.original for tool in each.tools)
            cost = "" if each.tokens is None or not each.tools else f", {each.tokens:,} tokens"
            yield f"{each.name}: {each.state}{f' ({each.why})' if each.why else ''}{cost}  {tools}".rstrip()

    def is_connected(self, name: str) -> bool:
        """Returns True if a server has started and has not ended."""
        state = None if self._servers is None else self._servers.state(name)
        return state is not None and state.state != "dead"

    def tell_ended(self) -> None:
        """Prints the servers that have ended, each of them once."""
        listed = () if self._servers is None else self._servers.listed()
        dead = {each.name: each.why for each in listed if each.state == "dead"}
        for name in dead.keys() - self._dead:
            self._screen.error(
                f"The MCP server {name} has ended: {dead[name]}. Reconnect it with :mcp connect"
            )
        self._dead = set(dead)

    def send(self) -> None:
        """Sends the tools of all running servers with each question from now on."""
        if self._servers is not None:
            self._chat.use_tools(tuple(self._servers.tools()), self._servers.call)

    async def close(self) -> None:
        """Ends the servers."""
        if self._servers is not None:
            await self._servers.close()

    def _keep(self, text: str) -> str:
        self._chat.kept.journal.keep(self._chat.context.session, [text])
        return letters_of(text)[:HANDLE_LENGTH]
