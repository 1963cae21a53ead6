"""The options of every command, and their help."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from ullage.cli import asking, configuring, demoing, keeping, model, shelling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ullage.fitting import FitPolicy

DESCRIPTION = """\
Keeps LLM conversations inside the model's context window, and keeps the bill. Without a command it opens
the shell; `ullage shell --help` tells its options.

A FILE holds requests: one JSON document, or JSONL with one request a line. A request is an object
with "messages" and perhaps "model", "tools", "id" and whatever else is sent, or a bare list of
messages. No FILE, or -, is standard input."""

EXIT_CODES = """\
exit codes:
  0  all done
  1  some lines were bad; each has an error object in its place, the others are done
  2  wrong usage: an unknown option, a missing file, no limit for a model whose window is not known
  3  overflow: what must be sent does not fit (and nothing else was wrong)"""

ALL_EXIT_CODES = EXIT_CODES.replace(
    "\n  2", "\n     (of recall and memory: what was asked for is not there)\n  2"
)

COUNT = """\
What each request costs in tokens and what fills its window, counted offline."""

COUNT_EXAMPLES = """\
examples:
  ullage count session.json
  ullage count --json --jobs 4 requests.jsonl > counts.jsonl
  curl -s example.org/body.json | ullage count --api anthropic.messages"""

FIT = """\
Makes each request fit: old tool outputs are shortened, old exchanges leave for a digest, and nothing
invalid is made. With --json the fitted requests are printed, one a line, ready to be sent."""

FIT_EXAMPLES = """\
examples:
  ullage fit session.json --limit 8000
  ullage fit --json --limit 32000 requests.jsonl > fitted.jsonl
  ullage fit --json --model claude-sonnet-4-5 --reserve 8000 < body.json"""

EXPLAIN = """\
What fit would do to a request and why, message by message, before and after."""

EXPLAIN_EXAMPLES = """\
examples:
  ullage explain session.json --limit 8000
  ullage explain requests.jsonl --line 17 --limit 32000"""


# name → usage, help in a line, description, examples, exit codes
COMMANDS = {
    "count": (
        "[FILE ...] [options]",
        "what requests cost, and what fills the window",
        COUNT,
        COUNT_EXAMPLES,
        EXIT_CODES,
    ),
    "fit": ("[FILE ...] [options]", "make requests fit", FIT, FIT_EXAMPLES, EXIT_CODES),
    "explain": (
        "[FILE] [options]",
        "what fit would do to a request, and why",
        EXPLAIN,
        EXPLAIN_EXAMPLES,
        EXIT_CODES,
    ),
    **shelling.COMMANDS,
    **asking.COMMANDS,
    **model.COMMANDS,
    **configuring.COMMANDS,
    **demoing.COMMANDS,
    **keeping.COMMANDS,
}


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help that is never wider than a book's page."""

    def __init__(self, prog: str, **more: Any) -> None:
        width = min(100, shutil.get_terminal_size().columns) - 2
        super().__init__(prog, **{**more, "width": width, "max_help_position": 32})


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line, with the way to more."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and leaves with code 2."""
        self.exit(2, f"ullage: {message}\ntry: {self.prog} --help\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; leaves with code 2 where it is wrong."""
    helping = not {"-h", "--help"}.isdisjoint(arguments)
    return parser(_defaults() if helping else {}).parse_args(arguments)


def _defaults() -> dict[str, Any]:
    """The policy's own defaults, loaded only to be shown."""
    from ullage.fitting import FitPolicy

    policy = FitPolicy()
    return {row[0]: getattr(policy, row[0]) for row in POLICY}


def parser(defaults: Mapping[str, Any]) -> argparse.ArgumentParser:
    """The whole command line; `defaults` of the policy are for its help."""
    root = Parser(
        prog="ullage",
        usage="ullage [COMMAND] [options]",
        description=DESCRIPTION,
        epilog=f"{ALL_EXIT_CODES}\n\nullage COMMAND --help tells more.",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    root.add_argument("--version", action="store_true", help="print the version and leave")
    root.set_defaults(run=lambda options: _nothing(root, options))
    commands = root.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser, prog="ullage")

    count = _command(commands, "count", _count)
    _files(count)
    _request_options(count)
    count.add_argument(
        "--limit", type=_tokens, metavar="N", help="draw the bar against N tokens, not the model's window"
    )
    _batch_options(count)

    fit = _command(commands, "fit", _fit)
    _files(fit)
    _request_options(fit)
    _fit_options(fit, defaults)
    _batch_options(fit)

    explain = _command(commands, "explain", _explain)
    explain.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="JSON or JSONL; - is standard input"
    )
    explain.add_argument(
        "--line", type=_tokens, metavar="N", help="the request on line N of a JSONL file (default: the first)"
    )
    _request_options(explain)
    _fit_options(explain, defaults)
    explain.add_argument("--json", action="store_true", help="print the explanation as one JSON object")

    shelling.add_commands(commands, _command)
    asking.add_commands(commands, _command)
    model.add_commands(commands, _command)
    configuring.add_commands(commands, _command)
    demoing.add_commands(commands, _command)
    keeping.add_commands(commands, _command)
    return root


def _command(commands: Any, name: str, run: Callable[..., int]) -> Any:
    usage, brief, description, examples, codes = COMMANDS[name]
    made = commands.add_parser(
        name,
        usage=f"ullage {name} {usage}",
        help=brief,
        description=description,
        epilog=f"{examples}\n\n{codes}",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    made.set_defaults(run=run)
    return made


def _files(command: Any) -> None:
    command.add_argument(
        "files", nargs="*", metavar="FILE", help="JSON or JSONL; - or none is standard input"
    )


def _request_options(command: Any) -> None:
    command.add_argument(
        "--model",
        metavar="M",
        help="count as this model, whatever the request says (default: its own, else gpt-4o)",
    )
    command.add_argument(
        "--api",
        metavar="API",
        type=_api,
        help="the API that the requests are written for (default: openai.chat)",
    )


def _batch_options(command: Any) -> None:
    command.add_argument(
        "--json", action="store_true", help="print one JSON result a line, in the order of the input"
    )
    command.add_argument(
        "--jobs",
        type=_tokens,
        metavar="N",
        help="processes (default: one a core for big input; 1 answers each line as it comes)",
    )


def _fit_options(command: Any, defaults: Mapping[str, Any]) -> None:
    command.add_argument(
        "--limit",
        type=_tokens,
        metavar="N",
        help="the most input tokens (default: the model's window less the reserve)",
    )
    command.add_argument(
        "--reserve",
        type=_whole,
        metavar="N",
        help="tokens kept free for the answer, where there is no --limit",
    )
    group = command.add_argument_group("policy", "What may be taken out; docs/fitting.md tells more.")
    for name, kind, metavar, text in POLICY:
        shown = text.format(default=defaults.get(name) if defaults.get(name) is not None else "none")
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=shown)
    group.add_argument(
        "--pin",
        type=_whole,
        metavar="I",
        action="append",
        help="keep message I (from 0) as it is; may be given often",
    )
    group.add_argument(
        "--recall",
        action="store_true",
        default=None,
        help="name the handle of what was taken out in its place",
    )


def _tokens(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small; it is at least 1")
    return number


def _whole(text: str) -> int:
    try:
        number = int(text.replace(",", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _api(text: str) -> str:
    from ullage.wire import APIS

    if text not in APIS:
        raise argparse.ArgumentTypeError(f"unknown API {text!r}; one of {', '.join(APIS)}")
    return text


# field of FitPolicy, how it is read, its metavar, help
POLICY: tuple[tuple[str, Callable[[str], Any], str, str], ...] = (
    (
        "low_water",
        _share,
        "X",
        "how far down a trim goes, as a share of the room (default: {default}; 1 fills the window)",
    ),
    ("digest_share", _share, "X", "the share of the room for the digest (default: {default}; 0 for none)"),
    ("max_turns", _tokens, "N", "the most messages beside the system prompt (default: {default})"),
    ("max_age", _whole, "N", "a tool output is old after N more steps (default: {default})"),
    ("max_tokens_per_output", _tokens, "N", "what is left of an old, long tool output (default: {default})"),
    ("small_output_threshold", _whole, "N", "leave outputs of fewer tokens alone (default: {default})"),
    (
        "preserve_recent_turns",
        _whole,
        "N",
        "the newest exchanges, which are touched last (default: {default})",
    ),
)


def policy_of(options: argparse.Namespace) -> FitPolicy:
    """The policy that the options ask for; raises ConfigurationError where it cannot work."""
    from ullage.fitting import FitPolicy

    given = {name: getattr(options, name) for name in (*(row[0] for row in POLICY), "recall")}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return FitPolicy(pins=frozenset(options.pin or ()), **chosen)


# What the commands run -------------------------------------------------------------------------------


def _nothing(root: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from ullage import __version__

    sys.stdout.write(f"ullage {__version__}\n" if options.version else root.format_help())
    return 0


def _count(options: argparse.Namespace) -> int:
    from ullage.cli.batch import run
    from ullage.cli.work import Job

    job = Job("count", model=options.model, api=options.api, limit=options.limit, json=options.json)
    return run(job, options.files, options.jobs)


def _fit(options: argparse.Namespace) -> int:
    from ullage.cli.batch import run

    return run(_fit_job(options, "fit"), options.files, options.jobs)


def _explain(options: argparse.Namespace) -> int:
    from ullage.cli.explain import run

    return run(_fit_job(options, "explain"), options.file, options.line)


def _fit_job(options: argparse.Namespace, command: str) -> Any:
    from ullage.cli.work import Job
    from ullage.errors import ConfigurationError
    from ullage.wire import WRITABLE

    if options.api is not None and options.api not in WRITABLE:
        raise ConfigurationError(
            f"requests of {options.api} can be counted but not written back; fit takes {', '.join(WRITABLE)}"
        )
    return Job(
        command,
        model=options.model,
        api=options.api,
        limit=options.limit,
        reserve=options.reserve,
        policy=policy_of(options),
        json=options.json,
    )
