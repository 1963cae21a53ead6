"""`ullage shell`: opens the shell on a terminal, or answers what is piped in."""
# ruff: noqa: PLC0415 - the options are always built; a shell is opened only here

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from argparse import Namespace
    from collections.abc import Callable, Iterator
    from types import FrameType

    from ullage.shell.loop import Shell

EXIT_CODES = """\
exit codes:
  0  left
  1  a session that this version cannot read; -c: what was asked for went wrong, or a command's own status
  2  wrong usage: an unknown option or model, a configuration or a store that cannot be used
  129, 143  the terminal was closed (SIGHUP), or it was asked to end (SIGTERM); all that ran is ended"""

SHELL = """\
What `ullage` alone opens: a shell in which commands run and everything else is asked. `!` in front of a
line runs it, `?` asks it, and :help lists the commands of the shell itself. Without a terminal each line
of the input is taken in turn, and nothing is ever confirmed by itself."""

EXAMPLES = """\
examples:
  ullage
  ullage --model ollama/qwen2.5:7b
  ullage --resume
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
    shell.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="SESSION",
        help="go on with this conversation (default: the latest)",
    )
    shell.add_argument("--config", metavar="PATH", help="the configuration (default: the user's own)")
    shell.add_argument("--store", metavar="PATH", help="the store (default: in the user's state directory)")


def unasked() -> Namespace:
    """The options where none is given: the parser of all commands would hold up the prompt."""
    from types import SimpleNamespace

    return SimpleNamespace(run=run, line=None, model=None, resume=None, config=None, store=None)  # type: ignore[return-value]


def run(options: Namespace) -> int:
    """Opens everything that a shell needs, runs it, and closes it all again, whatever ends it."""
    import gc

    gc.disable()  # nothing of what is loaded on the way to the prompt is garbage; Opening has it on again
    try:
        with leaving_in_order():
            return _run(options)
    finally:
        gc.enable()


def _run(options: Namespace) -> int:
    import asyncio
    import os
    import sys
    from pathlib import Path

    from ullage import store
    from ullage.config import load, trust_in
    from ullage.drawing import console
    from ullage.shell.opening import Opening
    from ullage.shell.prompt import Prompt
    from ullage.shell.screen import Screen

    cwd = Path.cwd()
    with store.open(options.store) as kept, asyncio.Runner() as loop:
        settings = load(options.config, environ=os.environ, cwd=cwd, trusted=trust_in(kept.preferences))
        screen = Screen(console())
        opening = Opening(
            settings, kept, screen, os.environ, cwd, session=options.resume, model=options.model
        )
        try:
            if opening.notice and (options.line is not None or not screen.is_interactive):
                sys.stderr.write(f"ullage: {opening.notice}\n")
            if options.line is not None:
                return _one(loop.run(opening.opened()), options.line, loop)
            history = None if kept.path is None else Path(kept.path).with_name("history")
            prompt = Prompt(
                screen,
                history,
                opening.complete,
                opening.status,
                most_history=settings.shell.history,
                goes_on=opening.goes_on,
            )
            opening.run(prompt, loop)
        except SystemExit:
            _stop(loop)
            raise
        finally:
            loop.run(opening.close())
    return 0


def _one(shell: Shell, line: str, loop: asyncio.Runner) -> int:
    """Does what a single line asks for, and gives the exit code."""
    import sys

    from ullage.errors import UllageError

    try:
        loop.run(shell.act(line))
    except UllageError as error:
        sys.stderr.write(f"ullage: {error}\n")
        return 1
    return shell.code


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit meanwhile, so that each place that they reach cleans up.

    That holds for the prompt, an answer, a question and a command, which hangs up its child first. A signal
    that is ignored, as nohup has it, stays so.
    """
    import signal
    import termios

    came: list[int] = []
    heard = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]

    def leave(number: int, _: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)  # a second one would break off what the first one ends
        came.append(number)
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, leave) for each in heard}
    # Ctrl-\ is for what runs in the shell; a handler, as what is ignored would be ignored there, too.
    before[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, lambda *_: None)
    try:
        yield
    except (OSError, termios.error) as error:
        if not came:
            raise
        # The terminal is gone: it can be neither restored nor written to, and there is nobody to tell.
        raise SystemExit(128 + came[0]) from error
    finally:
        if came:
            _flush()
        else:
            for each, handler in before.items():
                signal.signal(each, handler)


def _flush() -> None:
    """Writes what is still to be written; where that fails, the interpreter shall not fail with it again."""
    import os
    import sys

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _stop(loop: asyncio.Runner) -> None:
    """Ends what was under way, such as an answer, before that is closed which it uses."""
    import asyncio

    async def stop() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    while True:
        try:
            return loop.run(stop())
        except SystemExit:  # a task that waited for the one that the signal struck is ended by it, too
            continue
