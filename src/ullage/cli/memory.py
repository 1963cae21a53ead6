"""`ullage memory`: adds, lists and deletes texts that are sent in every conversation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ullage.batch.request_text import encode
from ullage.cli.command_spec import ActionSpec, CommandSpec, json_option, store_option
from ullage.cli.complaint import complain
from ullage.cli.open_store import MISSING, STORE_EXIT_CODES, open_store
from ullage.errors import ConfigurationError
from ullage.text import one_line

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    from ullage.context.journal import Item, Journal


DESCRIPTION = """\
Manages the memory: short texts that are sent with the system prompt in every conversation."""

EXAMPLES = """\
examples:
  ullage memory add --kind preference "answer in metric units"
  ullage memory list
  ullage memory forget 3"""


def _add_options_of_add(action: ArgumentParser) -> None:
    action.add_argument(
        "text", nargs="+", metavar="TEXT", help="the text to remember; several words are joined"
    )
    action.add_argument("--kind", default="", metavar="K", help="a word of your choice that sorts items")
    _add_output_options(action)


def _add_options_of_forget(action: ArgumentParser) -> None:
    action.add_argument("number", type=int, metavar="NUMBER", help="the number from `ullage memory list`")
    _add_output_options(action)


def _add_output_options(action: ArgumentParser) -> None:
    json_option(action)
    store_option(action)


def run(options: Namespace) -> int:
    """Runs the action and returns the exit code."""
    action = ACTIONS[options.action]
    with open_store(options.store, make=options.action == "add") as kept:
        return action(options, None if kept is None else kept.journal)


def _add(options: Namespace, journal: Journal | None) -> int:
    text = " ".join(options.text).strip()
    if not text:
        raise ConfigurationError("the text is empty: write the text to remember")
    if journal is not None:
        item = journal.remember(text, options.kind.strip())
        _print_result(options, [item], f"remembered as {item.number}")
    return 0


def _list(options: Namespace, journal: Journal | None) -> int:
    items = () if journal is None else journal.items()
    width = max((len(str(item.number)) for item in items), default=0)
    kinds = max((len(one_line(item.kind)) for item in items), default=0)
    lines = [
        f"{item.number:>{width}}  {one_line(item.kind) or '?':<{kinds}}  {one_line(item.content)}"
        for item in items
    ]
    _print_result(options, items, "\n".join(lines))
    return 0


def _forget(options: Namespace, journal: Journal | None) -> int:
    if journal is None:
        return MISSING
    if not journal.forget(options.number):
        complain(f"no item {options.number}: `ullage memory list` shows all items")
        return MISSING
    if options.json:
        sys.stdout.buffer.write(encode({"forgotten": 1}))
    return 0


def _clear(options: Namespace, journal: Journal | None) -> int:
    items = () if journal is None else journal.items()
    gone = sum(journal.forget(item.number) for item in items) if journal is not None else 0
    if options.json:
        sys.stdout.buffer.write(encode({"forgotten": gone}))
    else:
        sys.stdout.write(f"forgot {gone:,} item{'s' if gone != 1 else ''}\n")
    return 0


ACTIONS: dict[str, Callable[[Namespace, Journal | None], int]] = {
    "add": _add,
    "list": _list,
    "forget": _forget,
    "clear": _clear,
}


def _print_result(options: Namespace, items: Sequence[Item], text: str) -> None:
    if options.json:
        for item in items:
            sys.stdout.buffer.write(encode(item._asdict()))
    elif text:
        from ullage.window_chart import console  # noqa: PLC0415 - only people need the drawing

        console().file.write(f"{text}\n")


SPEC = CommandSpec(
    name="memory",
    usage="ACTION [options]",
    brief="manage texts that are sent in every conversation",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=STORE_EXIT_CODES,
    run=run,
    actions=(
        ActionSpec(
            name="add", usage="TEXT ... [options]", brief="remember a text", add_options=_add_options_of_add
        ),
        ActionSpec(name="list", usage="[options]", brief="print all items", add_options=_add_output_options),
        ActionSpec(
            name="forget",
            usage="NUMBER [options]",
            brief="delete an item",
            add_options=_add_options_of_forget,
        ),
        ActionSpec(
            name="clear", usage="[options]", brief="delete all items", add_options=_add_output_options
        ),
    ),
)
