"""`ullage shell`: opens the shell on a terminal, or answers what is piped in."""
# ruff: noqa: PLC0415 - the options are always built; a shell is opened only here

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

EXIT_CODES = """\
exit codes:
  0  left
  1  -c: what was asked for went wrong; a command's own status where it ran one
  2  wrong usage: an unknown option or model, a configuration or a store that cannot be used"""

SHELL = """\
What `ullage` alone opens: a shell in which commands run and everything else is asked. `!` in front of a
line runs it, `?` asks it, and :help lists the commands of the shell itself. Without a terminal each line
of the input is taken in turn, and nothing is ever confirmed by itself."""

EXAMPLES = """\
examples:
  ullage
  ullage --model ollama/qwen2.5:7b
  ullage --resume 2f6c
  ullage -c "? How long is the Nile?"
  echo "How long is the Nile?" | ullage"""

# name → usage, help in a line, description, examples, exit codes
COMMANDS = {"shell": ("[options]", "talk to a model where you work", SHELL, EXAMPLES.rstrip(), EXIT_CODES)}


def add_commands(commands: Any, command: Callable[[Any, str, Callable[..., int]], Any]) -> None:
    """Adds the command to the command line; `command` makes an empty one."""
    shell = command(commands, "shell", run)
    shell.add_argument("-c", dest="line", metavar="LINE", help="take this line only, and leave")
    shell.add_argument(
        "--model", metavar="NAME", help="the model that answers (default: the one chosen last)"
    )
    shell.add_argument("--resume", metavar="SESSION", help="go on with this conversation")
    shell.add_argument("--config", metavar="PATH", help="the configuration (default: the user's own)")
    shell.add_argument("--store", metavar="PATH", help="the store (default: in the user's state directory)")


def run(options: Namespace) -> int:
    """Opens everything that a shell needs, runs it, and closes it all again."""
    import asyncio
    import os
    import sys
    from pathlib import Path

    from ullage import store
    from ullage.config import load, trust_in
    from ullage.drawing import console
    from ullage.errors import UllageError
    from ullage.shell.desk import Desk
    from ullage.shell.loop import Shell
    from ullage.shell.prompt import Prompt
    from ullage.shell.running import Runner
    from ullage.shell.screen import Screen

    cwd = Path.cwd()
    with store.open(options.store) as kept, asyncio.Runner() as loop:
        settings = load(options.config, environ=os.environ, cwd=cwd, trusted=trust_in(kept.preferences))
        opening = Desk.open(settings, kept, os.environ, cwd, session=options.resume, model=options.model)
        desk = loop.run(opening)
        runner = Runner(cwd=cwd, environ=os.environ)
        shell = Shell(desk, Screen(console()), runner)
        try:
            if options.line is not None:
                loop.run(shell.act(options.line))
                return shell.code
            history = None if kept.path is None else Path(kept.path).with_name("history")
            shell.run(Prompt(shell.screen, history, shell.complete, shell.status), loop)
        except UllageError as error:
            sys.stderr.write(f"ullage: {error}\n")
            return 1
        finally:
            runner.close()
            loop.run(shell.close())
    return 0
