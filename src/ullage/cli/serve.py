"""`ullage serve`: a gateway that keeps any client's requests inside the window of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.command_spec import CommandSpec, positive_number, store_option, whole_number

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

EXIT_CODES = """\
exit codes:
  0  stopped by SIGTERM or Ctrl-C, after the answers under way
  2  wrong usage: an unknown model, a missing key, a port in use, an unusable store"""

DESCRIPTION = """\
Serves OpenAI's chat completions and responses and Anthropic's messages to any client. Every request is
counted and made to fit the model's window, its worst case is reserved and its cost is booked. What does
not have to change is forwarded as it came.

With --upstream every model name goes to that server, with the client's own key. With --model one
configured model answers under every name. Otherwise the configured models are served by their names; without
a configuration that is the embedded model."""

EXAMPLES = """\
examples:
  ullage serve --upstream http://127.0.0.1:8080 --window 32768
  ullage serve --upstream https://api.anthropic.com
  ullage serve --upstream http://127.0.0.1:8080 --upstream-api chat
  ullage serve --model embedded --port 9000
  ANTHROPIC_BASE_URL=http://127.0.0.1:8787 claude
"""


HIGHEST_PORT = 65_535


def _port_number(text: str) -> int:
    """Returns the number of a port."""
    from argparse import ArgumentTypeError  # noqa: PLC0415 - `ullage` alone needs no parser

    number = whole_number(text)
    if number > HIGHEST_PORT:
        raise ArgumentTypeError(f"{text} is more than {HIGHEST_PORT}, the highest port")
    return number


def add_options(serve: ArgumentParser) -> None:
    """Adds the options of the command."""
    serve.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="the address to listen on")
    serve.add_argument(
        "--port", type=_port_number, metavar="N", help="the port to listen on; 0 for any (default: 8787)"
    )
    where = serve.add_mutually_exclusive_group()
    where.add_argument("--upstream", metavar="URL", help="the server that every model name goes to")
    where.add_argument("--model", metavar="NAME", help="the model that answers under every name")
    serve.add_argument(
        "--upstream-api",
        choices=("chat", "responses", "messages"),
        help="the only API of --upstream, into which others are translated (default: it may have all)",
    )
    serve.add_argument(
        "--window", type=positive_number, metavar="N", help="the window in tokens (default: each model's own)"
    )
    serve.add_argument(
        "--keep-bodies",
        action="store_true",
        help="show the texts of changed messages on the page; they stay in memory, without keys",
    )
    serve.add_argument(
        "--recall",
        action="store_true",
        help="let models look up what was removed, for clients without a key (a key has its own --recall)",
    )
    serve.add_argument("--config", metavar="PATH", help="the configuration file (default: your own)")
    store_option(serve, "the store of the bill")


def run(options: Namespace) -> int:
    """Serves until it is stopped, and returns the exit code."""
    import os  # noqa: PLC0415 - help texts need none of these
    from pathlib import Path  # noqa: PLC0415

    from ullage import store  # noqa: PLC0415
    from ullage.cli.complaint import complain  # noqa: PLC0415
    from ullage.gateway import server  # noqa: PLC0415
    from ullage.gateway.upstream import api_named  # noqa: PLC0415
    from ullage.session.trust import load_trusted  # noqa: PLC0415

    chosen = server.ServerOptions(
        host=options.host,
        port=server.PORT if options.port is None else options.port,
        upstream=options.upstream,
        upstream_api=api_named(options.upstream_api, options.upstream),
        model=options.model,
        window=options.window,
        keep_bodies=options.keep_bodies,
        offers_recall=options.recall,
    )
    with store.open(options.store) as kept:
        settings = load_trusted(options.config, kept.preferences, os.environ, Path.cwd())
        for notice in settings.notices:
            complain(notice)
        server.allow_many_files()
        server.run(lambda: server.serve(chosen, settings, kept, os.environ, complain))
    return 0


SPEC = CommandSpec(
    name="serve",
    usage="[options]",
    brief="serve models to any client, inside their windows",
    description=DESCRIPTION,
    examples=EXAMPLES.rstrip(),
    exit_codes=EXIT_CODES,
    add_options=add_options,
    run=run,
    extra="gateway",
)
