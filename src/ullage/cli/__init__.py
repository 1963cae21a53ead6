"""The `ullage` command: parses the command line and runs the command."""
# ruff: noqa: PLC0415 - a command loads its modules when it runs: `ullage --version` needs none

from __future__ import annotations

import sys

from ullage import __version__

TYPE_CHECKING = False  # importing typing would take a fifth of the time of `ullage --version`
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

USAGE, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
SHELL_OPTIONS = ("--model", "--resume", "--config", "--store")
"""Options of the shell; `ullage` opens the shell if its first argument is one of them, or -c, or missing."""


def program() -> None:
    """Runs the command as the main program; after an interrupt it exits at once.

    Workers that were stopped during a batch can leave a lock for which Python would wait at its exit. By
    then all files are closed, and all output is written.
    """
    import os

    code = main()
    if code in {INTERRUPTED, BROKEN_PIPE} or _is_left_behind():
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _is_left_behind() -> bool:
    """Returns True if a detached thread still runs; it must not run while the interpreter shuts down."""
    detached = sys.modules.get("ullage.shell.detached")
    return detached is not None and bool(detached.is_running())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code; an error is reported as one line, not as a traceback."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments == ["--version"]:
        sys.stdout.write(f"ullage {__version__}\n")
        return 0
    try:
        code = _run(_options(arguments))
        if sys.stdout is not None:  # the caller may have closed it
            sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _say_interrupted()
        return INTERRUPTED
    return code


def _options(arguments: list[str]) -> Namespace:
    if not arguments:
        from ullage.cli.shell import default_options

        return default_options()
    from ullage.cli.parser import parse

    return parse(["shell", *arguments] if _is_for_the_shell(arguments[0]) else arguments)


def _is_for_the_shell(argument: str) -> bool:
    """Returns True for an option of the shell, with or without its value in the same argument."""
    return argument.partition("=")[0] in SHELL_OPTIONS or argument.startswith("-c")


def _run(options: Namespace) -> int:
    from ullage.cli.complaint import complain
    from ullage.errors import UllageError
    from ullage.extras import require

    try:
        _place_store(options)
        if options.extra is not None:
            require(options.extra)
        code: int = options.run(options)
    except BrokenPipeError:
        raise
    except UllageError as error:
        from ullage.cli.exit_codes import code_of

        complain(str(error))
        return code_of(error)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        complain(f"{place}{error.strerror or error}")
        return USAGE
    return code


def _place_store(options: Namespace) -> None:
    """Takes the place of the store from the configuration, if the command has a store and names none."""
    if getattr(options, "store", "") is None:
        import os

        from ullage.config import store_url

        options.store = store_url(getattr(options, "config", None), os.environ)


def _say_interrupted() -> None:
    from ullage.cli.complaint import complain

    try:
        complain("interrupted")
    except BrokenPipeError:
        _forget_output()


def _forget_output() -> None:
    """Discards the rest of the output: its reader is gone, and flushing it at exit would fail again."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
