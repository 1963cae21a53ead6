"""`ullage ask`: asks a model one question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec, json_option, store_option

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

EXIT_CODES = """\
exit codes:
  0    answered
  1    the provider refused or failed, or another process continued the session
  2    wrong usage: an unknown model, a missing key, runtime or model file, an unusable store
  3    overflow: the part that must be sent does not fit
  4    the call could have exceeded a cap; nothing was sent
  5    the answer stopped early; the part that arrived is printed, saved and booked
  130  interrupted; the part that arrived is printed, saved and booked"""

DESCRIPTION = """\
Asks a model one question and prints the answer as it arrives. The store keeps the question, the answer
and the cost. --session continues an earlier conversation, fitted to the model's window. Piped input
becomes part of the question."""

EXAMPLES = """\
examples:
  ullage ask "How long is the Nile?"
  git diff | ullage ask "Write a commit message for this."
  ullage ask --session monday "And the Danube?"
  ullage ask --model anthropic/claude-sonnet-4-5 --cap 0.05 --json "Name three rivers."
"""


def add_options(ask: ArgumentParser) -> None:
    """Adds the options of the command."""
    ask.add_argument("question", nargs="*", metavar="QUESTION", help="the question")
    ask.add_argument(
        "--model",
        metavar="NAME",
        help="a configured model, embedded, a GGUF file, provider/model, an address or a model's name "
        "(default: the model chosen last)",
    )
    ask.add_argument("--system", metavar="TEXT", help="the system prompt; empty for none")
    ask.add_argument("--session", metavar="NAME", help="the conversation to continue (default: a new one)")
    ask.add_argument(
        "--project", metavar="NAME", help="the project to book the cost on (default: the folder's name)"
    )
    ask.add_argument(
        "--window", type=_tokens, metavar="N", help="the context window in tokens (default: from the server)"
    )
    ask.add_argument("--max-output", type=_tokens, metavar="N", help="the longest answer, in tokens")
    ask.add_argument(
        "--cap", metavar="DOLLARS", help="the cap on the cost of this session (default: as configured)"
    )
    json_option(ask, "print one JSON object at the end")
    ask.add_argument("--config", metavar="PATH", help="the configuration file (default: your own)")
    store_option(ask, "the store")


def run(options: Namespace) -> int:
    """Asks the question and returns the exit code."""
    from ullage.cli.single_answer import ask  # noqa: PLC0415 - help texts need no model

    return ask(options)


def _tokens(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


SPEC = CommandSpec(
    name="ask",
    usage="[QUESTION ...] [options]",
    brief="ask a model one question",
    description=DESCRIPTION,
    examples=EXAMPLES.rstrip(),
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
)
