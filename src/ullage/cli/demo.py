"""`ullage demo`: replays a session that shows how fitting works."""
# ruff: noqa: PLC0415 - the options are always built; the session is replayed only here

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

EXIT_CODES = """\
exit codes:
  0    done
  2    wrong usage: an unknown option, an invalid speed
  130  interrupted"""

DESCRIPTION = """\
Replays an agent's session in a minute, without a model. You see the window fill up and be fitted, the
tokens and the cost grow, and an evicted text come back. The session is a script; all numbers are computed
while it runs. Without a terminal there are no pauses."""

EXAMPLES = """\
examples:
  ullage demo
  ullage demo --speed 3
  ullage demo --fast | tail -5"""

SLOWEST, FASTEST = 0.1, 1000


def add_options(demo: ArgumentParser) -> None:
    """Adds the options of the command."""
    pace = demo.add_mutually_exclusive_group()
    pace.add_argument(
        "--speed", type=_speed, default=1.0, metavar="N", help="N times as fast, 0.5 for half (default: 1)"
    )
    pace.add_argument("--fast", action="store_true", help="no pauses at all")


def run(options: Namespace) -> int:
    """Replays the session, with pauses if it runs on a terminal."""
    import time

    from ullage.demo.replay import run as replay
    from ullage.window_chart import console

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
        raise ArgumentTypeError(f"the speed must be from {SLOWEST} to {FASTEST}, not {text!r}")
    return number


SPEC = CommandSpec(
    name="demo",
    usage="[options]",
    brief="watch a session being fitted, in a minute",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
)
