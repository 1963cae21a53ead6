"""`ullage shell`: opens the shell on a terminal, or runs the lines of piped input."""
# ruff: noqa: PLC0415 - the options are always built; the shell's modules are loaded when it opens

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec, store_option
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator
    from types import FrameType

    from ullage.config import Settings
    from ullage.shell.loop import Shell
    from ullage.shell.prompt import Prompt
    from ullage.shell.screen import Screen
    from ullage.shell.startup import Startup
    from ullage.store import Store

MOST_PIPED = 10_000_000
"""The most bytes of piped input that go with a question."""
EXIT_CODES = """\
exit codes:
  0  ended normally
  1  a session that this version cannot read; with -c or piped lines: the last question failed
  2  wrong usage: an unknown option or model, an invalid configuration, an unusable store
  129, 143  ended by SIGHUP (the terminal was closed) or SIGTERM; running commands are ended
  with -c or piped lines, the exit code of a command that ran last"""

DESCRIPTION = """\
Opens the shell, as `ullage` alone does. A line that is a command runs; any other line is a question to
the model. `!` in front of a line runs it, `?` asks it, and :help lists the shell's own commands. Without
a terminal the shell runs each line of the input, and never confirms anything by itself. With -c, piped
input goes with the question."""

EXAMPLES = """\
examples:
  ullage
  ullage --model ollama/qwen2.5:7b
  ullage --resume
  ullage --resume pick
  ullage -c "? How long is the Nile?"
  git diff | ullage -c "what is this"
  echo "How long is the Nile?" | ullage"""


def add_options(shell: ArgumentParser) -> None:
    """Adds the options of the command."""
    shell.add_argument("-c", dest="line", metavar="LINE", help="run only this line, and exit")
    shell.add_argument(
        "--model", metavar="NAME", help="the model that answers (default: the model chosen last)"
    )
    shell.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="SESSION",
        help="continue this conversation (default: the last one in this folder); `pick` shows a list",
    )
    shell.add_argument("--config", metavar="PATH", help="the configuration file (default: your own)")
    store_option(shell, "the store")


def default_options() -> Namespace:
    """Returns the options of `ullage` without arguments; loading the parser would delay the prompt."""
    from types import SimpleNamespace

    return SimpleNamespace(
        run=run, extra="shell", line=None, model=None, resume=None, config=None, store=None
    )  # type: ignore[return-value]


def run(options: Namespace) -> int:
    """Opens the store, the settings and the shell, runs the shell, and closes everything at the end."""
    import gc

    gc.disable()  # nothing that is loaded before the prompt is garbage; Startup enables collection again
    try:
        with leaving_in_order():
            return _run(options)
    finally:
        gc.enable()


def _run(options: Namespace) -> int:
    import asyncio
    import os
    from pathlib import Path

    from ullage import store
    from ullage.cli.complaint import complain
    from ullage.session.trust import load_trusted
    from ullage.shell.screen import Screen
    from ullage.shell.startup import Startup
    from ullage.window_chart import console

    cwd = Path.cwd()
    with store.open(options.store) as kept, asyncio.Runner() as loop:
        settings = load_trusted(options.config, kept.preferences, os.environ, cwd)
        screen = Screen(console())
        opening = Startup(
            settings,
            kept,
            screen,
            os.environ,
            cwd,
            session=options.resume,
            model=options.model,
            reads_input=options.line is not None and _is_piped(),
        )
        # The screen is quiet all the time: keys wait for the next prompt without being shown. The terminal
        # gets its own modes back last, when no task of the loop can change them any more.
        with nullcontext() if options.line is not None else screen.quiet():
            try:
                if opening.notice and (options.line is not None or not screen.is_interactive):
                    complain(opening.notice)
                if options.line is not None:
                    return _one(loop.run(opening.wait_until_open()), options.line, loop)
                return opening.run(_prompt(screen, opening, kept, settings), loop)
            except SystemExit:
                _stop(loop)
                raise
            finally:
                loop.run(opening.close())


def _prompt(screen: Screen, opening: Startup, kept: Store, settings: Settings) -> Prompt:
    """Returns the prompt of the shell; its history lies beside the store."""
    from pathlib import Path

    from ullage.shell.prompt import Prompt
    from ullage.shell.prompt_look import PromptLook

    return Prompt(
        screen,
        None if kept.path is None else Path(kept.path).with_name("history"),
        opening.complete,
        opening.status,
        most_history=settings.shell.history,
        goes_on=opening.goes_on,
        look=PromptLook(opening.folder, opening.kind),
    )


def _one(shell: Shell, line: str, loop: asyncio.Runner) -> int:
    """Runs a single line and returns the exit code."""
    from ullage.cli.complaint import complain
    from ullage.errors import UllageError
    from ullage.shell.remedies import error_text

    try:
        loop.run(shell.act(line, _read_piped_input))
    except UllageError as error:
        complain(error_text(error))
        return 1
    return shell.code


def _is_piped() -> bool:
    """Returns True if the standard input is a pipe or a file, which a single line reads."""
    import sys

    return not (sys.stdin is None or sys.stdin.closed or sys.stdin.isatty())


def _read_piped_input() -> str:
    """Returns the piped input, which goes with the question; empty in a terminal."""
    import os
    import sys

    if not _is_piped():
        return ""
    # Not through sys.stdin: a thread that waits inside it would break the end of the program.
    handle, read = sys.stdin.fileno(), bytearray()
    while piece := os.read(handle, 65_536):
        read += piece
        if len(read) > MOST_PIPED:
            raise ConfigurationError(
                f"The piped input has more than {MOST_PIPED // 1_000_000} MB. Pipe a part of it."
            )
    return read.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """Inside this context, SIGTERM and SIGHUP raise SystemExit, so that the running code cleans up.

    The prompt, an answer and a question to the user end; a command first sends SIGHUP to its child. A signal
    that is ignored, as under nohup, stays ignored.
    """
    import signal
    import termios

    came: list[int] = []
    heard = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]

    def leave(number: int, _: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)  # a second signal would interrupt the cleanup
        came.append(number)
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, leave) for each in heard}
    # Ctrl-\ is for the commands in the shell. It needs a handler: commands would inherit an ignored signal.
    before[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, lambda *_: None)
    try:
        yield
    except (OSError, termios.error) as error:
        if not came:
            raise
        # The terminal is gone: it can be neither restored nor written to, so the error is not reported.
        raise SystemExit(128 + came[0]) from error
    finally:
        if came:
            _flush()
        else:
            for each, handler in before.items():
                signal.signal(each, handler)


def _flush() -> None:
    """Flushes the output; if that fails, discards it, so that the interpreter does not fail at exit."""
    import os
    import sys

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _stop(loop: asyncio.Runner) -> None:
    """Cancels running tasks, such as an answer, before the store and the models are closed."""
    import asyncio

    async def stop() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    while True:
        try:
            return loop.run(stop())
        except SystemExit:  # a task that waited for the interrupted task ends with SystemExit too
            continue


SPEC = CommandSpec(
    name="shell",
    usage="[options]",
    brief="open the shell: commands run, and a model answers questions",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
)
