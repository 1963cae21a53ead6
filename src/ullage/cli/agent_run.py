"""Runs a coding agent as a child process, beside the gateway that it uses."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from ullage import store
from ullage.broker.proxy import is_loopback
from ullage.cli.complaint import complain
from ullage.errors import ConfigurationError
from ullage.gateway import server
from ullage.gateway.agents import AGENTS, Aim
from ullage.gateway.upstream import api_named
from ullage.session.trust import load_trusted

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from ullage.config import Settings
    from ullage.gateway.agents import Agent

KILLED = 128
"""The exit code of a program that a signal ended is this plus the signal's number."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""Signals that the agent gets too."""
OF_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to the agent itself."""
END_WITH_PARENT = 1
"""Linux's number of the setting (`PR_SET_PDEATHSIG`) that sends a process a signal when its parent ends."""
HEALTH_SECONDS = 5.0
"""Seconds for a gateway that runs already to say so."""


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
        _check_gateway(url)
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


def _check_gateway(url: str) -> None:
    """Raises ConfigurationError if no gateway answers at this address."""
    proxies = ProxyHandler({}) if is_loopback(url) else ProxyHandler()
    is_there = False
    with suppress(OSError, ValueError, HTTPException):
        if urlsplit(url).scheme in {"http", "https"}:
            with build_opener(proxies).open(f"{url}/healthz", timeout=HEALTH_SECONDS) as answer:
                is_there = answer.status == HTTPStatus.OK
    if not is_there:
        raise ConfigurationError(
            f"no gateway answers at {url}: start one with `ullage serve`, or leave out --gateway"
        )


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
    """Runs a program with this terminal; Ctrl-C is the program's own, other requests to end are passed on."""
    process: subprocess.Popen[bytes] | None = None
    came: list[int] = []

    def pass_on(number: int) -> None:
        came.append(number)
        if process is not None:
            process.send_signal(number)

    with _ignore_keyboard_signals(), _handle_signals(pass_on):
        process = _start_program(command, environ)
        for number in came:  # those that came before it was started
            process.send_signal(number)
        try:
            code = await asyncio.to_thread(process.wait)
        finally:
            process.kill()
    return code if code >= 0 else KILLED - code


def _start_program(command: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts a program. The event loop could do it too, but some loops stop ignoring signals in the child."""
    try:
        return subprocess.Popen(  # noqa: S603 - the program that the user names
            command,
            env=environ,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509 - one call of the system, loaded before the fork
        )
    except OSError as error:
        raise ConfigurationError(f"{command[0]} cannot be started: {error.strerror}") from error


def _end_with_parent() -> Callable[[], object] | None:
    """Returns what a new process calls so that it gets SIGTERM if this one is killed; None if not on Linux.

    An agent without its gateway can do nothing, and nobody would know that it still runs.
    """
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - needed here only

    return partial(ctypes.CDLL(None).prctl, END_WITH_PARENT, int(signal.SIGTERM))


@contextmanager
def _handle_signals(pass_on: Callable[[int], None]) -> Iterator[None]:
    """Handles the signals that ask a program to end; one that is ignored stays so, for the child too."""
    loop = asyncio.get_running_loop()
    handled = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, pass_on, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


@contextmanager
def _ignore_keyboard_signals() -> Iterator[None]:
    """Ignores what the keyboard sends to both; a handler, unlike SIG_IGN, is not inherited by the child."""
    handled = [number for number in OF_THE_KEYBOARD if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, lambda *_: None) for number in handled]
    try:
        yield
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)
