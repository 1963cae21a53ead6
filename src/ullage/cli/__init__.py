"""The `ullage` command: parse, build, call."""
# ruff: noqa: PLC0415 - what a command needs is loaded when it runs: `ullage --version` needs nothing

from __future__ import annotations

import sys

from ullage import __version__

TYPE_CHECKING = False  # the typing module would be a fifth of what `ullage --version` takes
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

USAGE, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
SHELL_OPTIONS = ("--model", "--resume", "--config", "--store")
"""Without a command, or with one of these or -c in its place, `ullage` is the shell."""


def program() -> None:
    """The command as a process of its own: what was broken off waits for nobody.

    Workers that were stopped in the middle of a batch can leave a lock behind that Python would wait for at
    its end; all that has to be closed is closed by then, and what was printed is written.
    """
    import os

    code = main()
    if code in {INTERRUPTED, BROKEN_PIPE} or _is_left_behind():
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _is_left_behind() -> bool:
    """Whether a thread that nobody waits for is still at work: Python would take itself apart around it."""
    apart = sys.modules.get("ullage.shell.apart")
    return apart is not None and bool(apart.is_at_work())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code; what goes wrong is told in a line, not a traceback."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments == ["--version"]:
        sys.stdout.write(f"ullage {__version__}\n")
        return 0
    try:
        code = _run(_options(arguments))
        if sys.stdout is not None:  # it may have been closed before we began
            sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        sys.stderr.write("ullage: interrupted\n")
        return INTERRUPTED
    return code


def _options(arguments: list[str]) -> Namespace:
    if not arguments:
        from ullage.cli.shelling import unasked

        return unasked()
    from ullage.cli.parser import parse

    return parse(["shell", *arguments] if _is_for_the_shell(arguments[0]) else arguments)


def _is_for_the_shell(argument: str) -> bool:
    """Whether it is an option of the shell; its value may stand in the same argument."""
    return argument.partition("=")[0] in SHELL_OPTIONS or argument.startswith("-c")


def _run(options: Namespace) -> int:
    from ullage.errors import UllageError

    try:
        code: int = options.run(options)
    except BrokenPipeError:
        raise
    except UllageError as error:
        from ullage.cli.codes import code_of

        sys.stderr.write(f"ullage: {error}\n")
        return code_of(error)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"ullage: {place}{error.strerror or error}\n")
        return USAGE
    return code


def _forget_output() -> None:
    """Whoever read our output has gone; what is still in the buffer must not fail once more at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
