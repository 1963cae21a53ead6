"""The options of `ullage demo`."""
# ruff: noqa: PLC0415 - the options are always built; the session is replayed only here

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

EXIT_CODES = """\
exit codes:
  0    shown to its end
  2    wrong usage: an unknown option, a speed that is none
  130  interrupted"""

DEMO = """\
Replays an agent's session in a minute, without a model: the window fills and is fitted, the gauge and the
bill move, and what was evicted is recalled. The session is a script; every figure is reckoned as it is
shown. Without a terminal there are no pauses."""

EXAMPLES = """\
examples:
  ullage demo
  ullage demo --speed 3
  ullage demo --fast | tail -5"""

SLOWEST, FASTEST = 0.1, 1000

# name → usage, help in a line, description, examples, exit codes
COMMANDS = {"demo": ("[options]", "see a session being fitted, in a minute", DEMO, EXAMPLES, EXIT_CODES)}


def add_commands(commands: Any, command: Callable[[Any, str, Callable[..., int]], Any]) -> None:
    """Adds the command to the command line; `command` makes an empty one."""
    demo = command(commands, "demo", run)
    pace = demo.add_mutually_exclusive_group()
    pace.add_argument(
        "--speed", type=_speed, default=1.0, metavar="N", help="N times as fast, 0.5 for half (default: 1)"
    )
    pace.add_argument("--fast", action="store_true", help="no pauses at all")


def run(options: Namespace) -> int:
    """Replays the session, with pauses where a person is watching."""
    import time

    from ullage.drawing import console
    from ullage.shell.demo import run as replay

    out = console()
    still = options.fast or not out.is_terminal
    replay(out, lambda seconds: None if still else time.sleep(seconds / options.speed))
    return 0


def _speed(text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not SLOWEST <= number <= FASTEST:
        raise ArgumentTypeError(f"a speed goes from {SLOWEST} to {FASTEST}; {text!r} does not")
    return number
