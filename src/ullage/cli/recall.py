"""`ullage recall`: a piece by its handle, as it was, or the pieces in which words stand."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from ullage.cli.kept import MISSING, complain, opened
from ullage.cli.reading import encode
from ullage.fitting.shorten import HANDLE_LENGTH
from ullage.printable import printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Sequence

    from ullage.context.journal import Journal, Piece

HANDLE = re.compile(rf"[a-z2-7]{{{HANDLE_LENGTH},}}")


def run(options: Namespace) -> int:
    """Prints what is found and returns the exit code."""
    with opened(options.store) as kept:
        if kept is None:
            return MISSING
        piece = _by_handle(kept.journal, options.words, options.session)
        words = " ".join(options.words)
        found = [piece] if piece else kept.journal.search(words, options.session, options.most)
    if not found:
        complain(f"nothing is kept under the handle or with all the words {printable(words)!r}")
        return MISSING
    if options.json:
        sys.stdout.buffer.writelines(encode(each) for each in _values(found))
    elif piece:
        _print_exactly(piece.text)
    else:
        _print_list(found)
    return 0


def _by_handle(journal: Journal, words: Sequence[str], session: str | None) -> Piece | None:
    """The piece whose handle the only word is; a word that cannot be one is searched for instead."""
    if len(words) != 1 or not HANDLE.fullmatch(words[0].strip().lower()):
        return None
    return journal.recall(words[0], session)


def _values(found: Iterable[Piece]) -> Iterator[dict[str, str]]:
    for piece in found:
        yield {"handle": piece.handle, "session": piece.session, "text": piece.text}


def _print_exactly(text: str) -> None:
    """The text byte by byte; on a terminal without what that would obey, and with a line's end."""
    if sys.stdout.isatty():
        from ullage.drawing import console  # noqa: PLC0415 - only people need the drawing

        console().file.write("".join(f"{printable(line)}\n" for line in text.splitlines()))
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))


def _print_list(found: Sequence[Piece]) -> None:
    from ullage.drawing import clean, console, short  # noqa: PLC0415 - see above

    out = console()
    length = _telling([piece.handle for piece in found])
    for piece in found:
        begin = f"{piece.handle[:length]}  {clean(piece.session)}  "
        first = next((clean(line) for line in piece.text.splitlines() if line.strip()), "")
        out.file.write(begin + short(first, max(20, out.width - len(begin))) + "\n")


def _telling(handles: Sequence[str]) -> int:
    """How many letters it takes to tell the handles apart, and at least those of a short one."""
    length = HANDLE_LENGTH
    while len({handle[:length] for handle in handles}) < len(set(handles)):
        length += 1
    return length
