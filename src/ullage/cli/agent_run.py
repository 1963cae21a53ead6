"""Runs a coding agent as a child process, beside the gateway that it uses."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ullage import store
from ullage.cli.complaint import complain
from ullage.errors import ConfigurationError
from ullage.gateway import server
from ullage.gateway.agents import AGENTS, Aim
from ullage.gateway.upstream import api_named
from ullage.session.trust import load_trusted

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from ullage.config import Settings
    from ullage.gateway.agents import Agent

KILLED = 128
"""The exit code of a program that a signal ended is this plus the signal's number."""


def run_agent(options: Namespace) -> int:
    """Starts a gateway if none is named, runs the agent to its end, and returns its exit code."""
    agent = AGENTS.get(options.agent)
    if agent is None:
        known = ", ".join(AGENTS)
        raise ConfigurationError(f"{options.agent!r} is not an agent that Ullage knows: use one of {known}")
    program = shutil.which(agent.program)
    if program is None:
        raise ConfigurationError(f"{agent.program} is not installed. Install it with: {agent.install}")
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    if options.gateway is not None:
        url = options.gateway.rstrip("/").removesuffix("/v1")
        command, environ = _command(agent, program, Aim(url, _name(agent, options), os.environ), arguments)
        return asyncio.run(_to_its_end(command, environ))
    with store.open(options.store) as kept:
        settings = load_trusted(options.config, kept.preferences, os.environ, Path.cwd())
        chosen = _server_options(agent, options, settings)
        name = _name(agent, options, chosen.model)

        async def work() -> int:
            async with server.running(chosen, settings, kept, os.environ, complain) as gateway:
                for line in gateway.lines:
                    complain(line)
                aim = Aim(gateway.url, name, os.environ)
                return await _to_its_end(*_command(agent, program, aim, arguments))

        return server.run(work)


def _server_options(agent: Agent, options: Namespace, settings: Settings) -> server.ServerOptions:
    """Returns the options of the gateway: the named upstream or model, else the agent's own provider."""
    upstream, model = options.upstream, options.model
    if upstream is None and model is None:
        upstream = agent.upstream
        model = None if upstream else settings.default_model
    return server.ServerOptions(
        port=0,
        upstream=upstream,
        upstream_api=api_named(options.upstream_api, options.upstream),
        model=model,
        window=options.window,
        is_open=True,
    )


def _name(agent: Agent, options: Namespace, model: str | None = None) -> str | None:
    """Returns the model name that the agent sends; None for its own default."""
    name: str | None = options.name or model
    if name is None and agent.needs_model:
        raise ConfigurationError(f"{options.agent} needs the name of a model: add --name NAME")
    return name


def _command(agent: Agent, program: str, aim: Aim, arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    launch = agent.launch(aim)
    return [program, *launch.arguments, *arguments], {**aim.environ, **launch.environ}


async def _to_its_end(command: list[str], environ: dict[str, str]) -> int:
    """Runs a program with this terminal; Ctrl-C is the program's own, and SIGTERM is passed on to it."""
    with _left_to_the_child():
        process = await asyncio.create_subprocess_exec(*command, env=environ)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, process.terminate)
        try:
            code = await process.wait()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            if process.returncode is None:
                process.kill()
                await process.wait()
    return code if code >= 0 else KILLED - code


@contextmanager
def _left_to_the_child() -> Iterator[None]:
    """Ignores Ctrl-C in this process; a handler, unlike SIG_IGN, is not inherited by the child."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
