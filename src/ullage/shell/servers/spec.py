"""How an MCP server is reached: by a command that is run here, or at an address."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ullage.config.kinds import NO_SERVER_NAME, SERVER_NAME
from ullage.config.using import environment_of, headers_of
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.config import McpSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How a server is reached: by a command that is run, or at an address."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All that the process gets beside HOME, LOGNAME, PATH, SHELL, TERM and USER."""
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 30.0
    """Seconds that connecting may take, and each call."""

    def __post_init__(self) -> None:
        if not SERVER_NAME.fullmatch(self.name):
            raise ConfigurationError(f"{self.name!r}: {NO_SERVER_NAME}")
        if (self.command is None) == (self.url is None):
            raise ConfigurationError(f"MCP server {self.name!r} needs either a command or a url")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"MCP server {self.name!r}: its url begins with http:// or https://")
        if not self.timeout > 0:
            raise ConfigurationError(f"MCP server {self.name!r}: its timeout is more than 0 seconds")

    @property
    def transport(self) -> Literal["stdio", "http"]:
        """Which way it is reached."""
        return "http" if self.command is None else "stdio"


def spec_of(configured: McpSettings, environ: Mapping[str, str]) -> ServerSpec:
    """How a configured server is reached; raises ConfigurationError where a variable is not there."""
    return ServerSpec(
        name=configured.name,
        command=configured.command,
        args=configured.args,
        env=environment_of(configured, environ),
        url=configured.url,
        headers=headers_of(configured, environ),
        timeout=configured.timeout,
    )


def spec_for(
    name: str, target: str, configured: Mapping[str, McpSettings], environ: Mapping[str, str]
) -> ServerSpec:
    """How the server that `:mcp connect NAME [COMMAND|URL]` means is reached.

    A target goes before what is configured under the name, and takes nothing from it. Raises
    ConfigurationError where there is neither.
    """
    if target.startswith(("http://", "https://")):
        return ServerSpec(name=name, url=target)
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise ConfigurationError(f"MCP server {name!r}: {target} is no command: {error}") from error
    if words:
        return ServerSpec(name=name, command=words[0], args=tuple(words[1:]))
    if name in configured:
        return spec_of(configured[name], environ)
    known = f"; there are {', '.join(configured)}" if configured else ""
    raise ConfigurationError(
        f"no MCP server {name!r} is configured{known}. Give its command or address: "
        f":mcp connect {name or 'NAME'} COMMAND|URL"
    )
