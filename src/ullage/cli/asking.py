"""The options of `ullage ask`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

EXIT_CODES = """\
exit codes:
  0    answered
  1    the provider refused or failed, or the session went on elsewhere
  2    wrong usage: an unknown model, a missing key, runtime or model file, a store that cannot be used
  3    overflow: what must be sent does not fit
  4    the call could have crossed a cap; nothing was sent
  5    the answer broke off; what had come was printed, is kept and is on the bill
  130  interrupted; the same"""

ASK = """\
Asks a model one question and prints its answer as it comes. The turn is kept in the store and is on the
bill; --session goes on with an earlier conversation, fitted to the model's window. What is piped in is
part of the question."""

EXAMPLES = """\
examples:
  ullage ask "How long is the Nile?"
  git diff | ullage ask "Write a commit message for this."
  ullage ask --session monday "And the Danube?"
  ullage ask --model anthropic/claude-sonnet-4-5 --cap 0.05 --json "Name three rivers."
"""

# name → usage, help in a line, description, examples, exit codes
COMMANDS = {
    "ask": ("[QUESTION ...] [options]", "ask a model one question", ASK, EXAMPLES.rstrip(), EXIT_CODES)
}


def add_commands(commands: Any, command: Callable[[Any, str, Callable[..., int]], Any]) -> None:
    """Adds the command to the command line; `command` makes an empty one."""
    ask = command(commands, "ask", run)
    ask.add_argument("question", nargs="*", metavar="QUESTION", help="what to ask")
    ask.add_argument(
        "--model",
        metavar="NAME",
        help="a configured model, embedded, a GGUF file, provider/model, an address or a model's name "
        "(default: the one chosen last)",
    )
    ask.add_argument("--system", metavar="TEXT", help="the system prompt; empty for none")
    ask.add_argument("--session", metavar="NAME", help="the conversation to go on with (default: a new one)")
    ask.add_argument(
        "--project", metavar="NAME", help="the project that the cost is booked on (default: the folder's)"
    )
    ask.add_argument(
        "--window", type=_tokens, metavar="N", help="the context window (default: as the server says)"
    )
    ask.add_argument("--max-output", type=_tokens, metavar="N", help="the longest answer, in tokens")
    ask.add_argument(
        "--cap", metavar="DOLLARS", help="the most that this session may cost (default: as configured)"
    )
    ask.add_argument("--json", action="store_true", help="print one JSON object at the end")
    ask.add_argument("--config", metavar="PATH", help="the configuration (default: the user's own)")
    ask.add_argument("--store", metavar="PATH", help="the store (default: in the user's state directory)")


def run(options: Namespace) -> int:
    """Loads what asking needs, and asks."""
    from ullage.cli.ask import run as ask  # noqa: PLC0415 - the options are always built, a model is not

    return ask(options)


def _tokens(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
