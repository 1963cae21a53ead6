"""`ullage run`: starts a coding agent behind a gateway of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec, positive_number, store_option

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

EXIT_CODES = """\
exit codes:
  the agent's own, or
  2  wrong usage: an unknown or missing agent, no model, a missing key, an unusable store"""

DESCRIPTION = """\
Starts a coding agent behind a gateway that lasts as long as the agent. Its requests are kept inside the
model's window and their cost is booked. The agent is configured for this run only, through its environment
and its arguments; nothing is left behind.

Agents: claude, codex, opencode, qwen, nanocoder, aider. Claude Code and Codex use their own provider with
your own key unless you name another upstream or model. The arguments after -- are the agent's."""

EXAMPLES = """\
examples:
  ullage run claude
  ullage run --upstream http://127.0.0.1:8080 claude -- -p "What does this project do?"
  ullage run --upstream http://127.0.0.1:8080 --upstream-api chat codex
  ullage run --upstream http://127.0.0.1:8080 --name qwen3 opencode
  ullage run --model fast aider -- README.md
"""


def add_options(command: ArgumentParser) -> None:
    """Adds the options of the command."""
    import argparse  # noqa: PLC0415 - the shell alone needs no parser

    where = command.add_mutually_exclusive_group()
    where.add_argument("--upstream", metavar="URL", help="the server that the agent's requests go to")
    where.add_argument("--model", metavar="NAME", help="the configured model that answers")
    where.add_argument("--gateway", metavar="URL", help="a gateway that runs already; none is started")
    command.add_argument(
        "--upstream-api",
        choices=("chat", "responses", "messages"),
        help="the only API of --upstream, into which the agent's requests are translated",
    )
    command.add_argument("--name", metavar="NAME", help="the model name that the agent sends")
    command.add_argument(
        "--window", type=positive_number, metavar="N", help="the window in tokens (default: the model's own)"
    )
    command.add_argument("--config", metavar="PATH", help="the configuration file (default: your own)")
    store_option(command, "the store of the bill")
    command.add_argument("agent", metavar="AGENT", help="the agent to start")
    rest = command.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the agent's arguments"
    )
    rest.required = False  # a usage error would name them


def run(options: Namespace) -> int:
    """Runs the agent and returns its exit code."""
    from ullage.cli.agent_run import run_agent  # noqa: PLC0415 - help texts need no gateway

    return run_agent(options)


SPEC = CommandSpec(
    name="run",
    usage="[options] AGENT [-- ARGS ...]",
    brief="start a coding agent behind a gateway",
    description=DESCRIPTION,
    examples=EXAMPLES.rstrip(),
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
    extra="gateway",
)
