"""`ullage recall`: prints the exact text of a handle, or searches all conversations for words."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ullage.batch.request_text import encode
from ullage.cli.command_spec import CommandSpec, json_option, store_option
from ullage.cli.complaint import complain
from ullage.cli.open_store import MISSING, STORE_EXIT_CODES, open_store
from ullage.context.search import explain_nothing, read_handle, read_query
from ullage.fitting.pieces import HANDLE_LENGTH
from ullage.text import printable

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from ullage.context.search import Hit, Said


DESCRIPTION = """\
Searches your conversations. A handle prints exactly its text. Words print the texts that match best, the
best first, each with the turns before and after it. A text need not contain all words, but a phrase in
double quotation marks must occur exactly."""

EXAMPLES = """\
examples:
  ullage recall mfrggzdf > output.txt
  ullage recall which port does the database use
  ullage recall '"connection refused"' database
  ullage recall --session 2f6c timeout --json"""


def add_options(recall: ArgumentParser) -> None:
    """Adds the options of the command."""
    recall.add_argument("words", nargs="+", metavar="HANDLE|WORD", help="a handle, or words to search for")
    recall.add_argument(
        "--session", metavar="S", help="search only this session; for a handle, search it first"
    )
    recall.add_argument(
        "--most", type=_positive, default=10, metavar="N", help="print at most N texts (default: 10)"
    )
    json_option(recall, "print one JSON object per line, with whole texts")
    store_option(recall)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def run(options: Namespace) -> int:
    """Prints the texts that were found and returns the exit code."""
    words = " ".join(options.words)
    handle = read_handle(words)
    with open_store(options.store) as kept:
        if kept is None:
            return MISSING
        found = kept.journal.search(words, options.session, options.most)
    is_exact = bool(handle and found and found[0].handle.startswith(handle))
    if not found:
        complain(f"found nothing for {printable(words)!r}. {explain_nothing(words)}")
        return MISSING
    if options.json:
        sys.stdout.buffer.writelines(encode(hit_value(each)) for each in (found[:1] if is_exact else found))
    elif is_exact:
        _print_exactly(found[0].text)
    else:
        _print_hits(found, words)
    return 0


def hit_value(hit: Hit) -> dict[str, Any]:
    """Returns a text that was found, as plain data."""
    return {**hit._asdict(), "before": _make_dict(hit.before), "after": _make_dict(hit.after)}


def _make_dict(said: Said | None) -> dict[str, str] | None:
    return None if said is None else said._asdict()


def _print_exactly(text: str) -> None:
    """Prints the text unchanged. On a terminal, without control characters and with a newline at the end."""
    if sys.stdout.isatty():
        from ullage.window_chart import console  # noqa: PLC0415 - only people need the drawing

        console().file.write("".join(f"{printable(line)}\n" for line in text.splitlines()))
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))


def _print_hits(found: Sequence[Hit], words: str) -> None:
    from ullage.window_chart import console, draw_hit, put, tell_apart  # noqa: PLC0415 - only people need the drawing

    out, sought = console(), read_query(words).stems
    length = tell_apart([hit.handle for hit in found], HANDLE_LENGTH)
    for number, hit in enumerate(found):
        if number:
            put(out, "")
        for line in draw_hit(hit, sought, out.width, handle=length, session=True):
            put(out, line)


SPEC = CommandSpec(
    name="recall",
    usage="HANDLE|WORD ... [options]",
    brief="search your conversations",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=STORE_EXIT_CODES,
    add_options=add_options,
    run=run,
)
