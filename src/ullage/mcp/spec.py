"""The settings to reach an MCP server: a command that is run here, or an address."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ullage.config.kinds import NO_SERVER_NAME, SERVER_NAME, is_header_value
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.config import McpSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """The command or the address of a server, with its variables, headers and timeout."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The variables that the process gets in addition to HOME, LOGNAME, PATH, SHELL, TERM and USER."""
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 30.0
    """Most seconds for connecting, and for each call."""

    def __post_init__(self) -> None:
        if not SERVER_NAME.fullmatch(self.name):
            raise ConfigurationError(f"{self.name!r}: {NO_SERVER_NAME}")
        if (self.command is None) == (self.url is None):
            raise ConfigurationError(f"MCP server {self.name!r} needs either a command or a url")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"MCP server {self.name!r}: its url must begin with http:// or https://")
        if not self.timeout > 0:
            raise ConfigurationError(f"MCP server {self.name!r}: its timeout must be more than 0 seconds")

    @property
    def target(self) -> str:
        """The command or the address of the server, without keys."""
        return self.url or shlex.join((self.command or "", *self.args))

    @property
    def transport(self) -> Literal["stdio", "http"]:
        """The transport: "stdio" for a command, "http" for an address."""
        return "http" if self.command is None else "stdio"


def spec_of(configured: McpSettings, environ: Mapping[str, str]) -> ServerSpec:
    """Returns the spec of a configured server; raises ConfigurationError if a variable is missing."""
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
    """Returns the spec for `:mcp connect NAME [COMMAND|URL]`.

    A command or URL replaces the configured server of that name completely. Raises ConfigurationError if
    there is neither.
    """
    if target.startswith(("http://", "https://")):
        return ServerSpec(name=name, url=target)
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise ConfigurationError(f"MCP server {name!r}: {target} is not a valid command: {error}") from error
    if words:
        return ServerSpec(name=name, command=words[0], args=tuple(words[1:]))
    if name in configured:
        return spec_of(configured[name], environ)
    known = f"; configured are {', '.join(configured)}" if configured else ""
    raise ConfigurationError(
        f"no MCP server {name!r} is configured{known}. Give its command or address: "
        f":mcp connect {name or 'NAME'} COMMAND|URL"
    )


def environment_of(server: McpSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of a server, with references replaced by the user's own variables."""
    return _resolve(f"mcp.{server.name}.env", server.env, environ)


def headers_of(server: McpSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of each request to a server, with references replaced by the user's variables."""
    setting = f"mcp.{server.name}.headers"
    headers = {name: value.strip() for name, value in _resolve(setting, server.headers, environ).items()}
    for name, value in headers.items():
        if not is_header_value(value):
            raise ConfigurationError(
                f"{setting}.{name}: a header cannot hold this variable. It must be one line of plain ASCII"
            )
    return headers


def _resolve(setting: str, pairs: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Returns texts by name; each `env:NAME` is replaced by that variable of the user's environment."""
    given: dict[str, str] = {}
    for name, value in pairs.items():
        kind, _, source = value.partition(":")
        if kind != "env":
            given[name] = value
        elif source in environ:
            given[name] = environ[source]
        else:
            raise ConfigurationError(
                f"{setting}.{name} needs the variable {source}: set it in the environment"
            )
    return given
