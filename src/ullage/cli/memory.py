"""`ullage memory`: what is remembered in every conversation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ullage.cli.kept import MISSING, complain, opened
from ullage.cli.reading import encode
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from ullage.context.journal import Item, Journal


def run(options: Namespace) -> int:
    """Does what the action says and returns the exit code."""
    action = ACTIONS[options.action]
    with opened(options.store, make=options.action == "add") as kept:
        return action(options, None if kept is None else kept.journal)


def _add(options: Namespace, journal: Journal | None) -> int:
    text = " ".join(options.text).strip()
    if not text:
        raise ConfigurationError("there is nothing to remember in an empty text")
    if journal is not None:
        item = journal.remember(text, options.kind.strip())
        _tell(options, [item], f"remembered as {item.number}")
    return 0


def _list(options: Namespace, journal: Journal | None) -> int:
    items = () if journal is None else journal.items()
    width = max((len(str(item.number)) for item in items), default=0)
    kinds = max((len(_clean(item.kind)) for item in items), default=0)
    lines = [
        f"{item.number:>{width}}  {_clean(item.kind) or '?':<{kinds}}  {_clean(item.content)}"
        for item in items
    ]
    _tell(options, items, "\n".join(lines))
    return 0


def _forget(options: Namespace, journal: Journal | None) -> int:
    if journal is None:
        return MISSING
    if not journal.forget(options.number):
        complain(f"there is no item {options.number}: `ullage memory list` shows what there is")
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


def _tell(options: Namespace, items: Sequence[Item], text: str) -> None:
    if options.json:
        for item in items:
            sys.stdout.buffer.write(encode(item._asdict()))
    elif text:
        from ullage.drawing import console  # noqa: PLC0415 - only people need the drawing

        console().file.write(f"{text}\n")


def _clean(text: str) -> str:
    from ullage.drawing import clean  # noqa: PLC0415 - see above

    return clean(text)
