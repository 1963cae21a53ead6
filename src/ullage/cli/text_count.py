"""Counts the tokens of plain text files, as `wc` counts their words."""
# ruff: noqa: PLC0415 - the counter is loaded only for plain text

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ullage.batch.request_text import FOREIGN
from ullage.batch.source import MAGIC, STDIN, SUFFIXES
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ullage.tokens import Cost

BEGINNING = 4_096
"""The bytes of a file that show if it contains requests."""
REQUESTS = (b"{", b"[", b'"', MAGIC)
"""Beginnings of a file with requests, or with a JSON document that is no request."""


class _Counted(NamedTuple):
    name: str
    """The file's name; empty for the total, and for standard input without any file."""
    cost: Cost


def are_texts(names: Sequence[str]) -> bool:
    """Returns True if all files are named and none of them looks like a file with requests."""
    return bool(names) and all(map(_is_text, names))


def _is_text(name: str) -> bool:
    path = Path(name)
    if name == STDIN or path.suffix.lower() in SUFFIXES or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING)
    except OSError:  # reading the requests reports it
        return False
    if beginning.startswith(tuple(FOREIGN)):  # it is packed: reading the requests says how to unpack it
        return False
    return not beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(REQUESTS)


def count_texts(options: Namespace) -> int:
    """Prints the tokens of each file, and a total if there are several; returns the exit code."""
    if options.output is not None or options.resume or options.engine == "ray":
        raise ConfigurationError("plain text is counted at once: -o, --resume and --engine are for requests")
    from ullage.tokens import Cost, counter_for

    counter = counter_for(options.model)  # without a model: an estimate for any model
    names = options.files or [STDIN]
    rows = [_Counted("" if options.files == [] else name, counter.text(_read(name))) for name in names]
    if options.json:
        from ullage.batch.request_text import encode

        for row in rows:
            result = {"source": row.name or STDIN, "tokens": row.cost.tokens, "ceiling": row.cost.ceiling}
            sys.stdout.buffer.write(encode(result))
        return 0
    if len(rows) > 1:
        total = Cost(sum(row.cost.tokens for row in rows), sum(row.cost.ceiling for row in rows))
        rows.append(_Counted("total", total))
    sys.stdout.write(_table(rows))
    return 0


def _read(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{name}: {error.strerror or error}") from error
    return data.decode("utf-8", "replace")


def _table(rows: Sequence[_Counted]) -> str:
    """Returns a line for each count, the numbers under each other; `~` marks an estimate."""
    from ullage.text import printable

    figures = [f"{'' if each.cost.tokens == each.cost.ceiling else '~'}{each.cost.tokens:,}" for each in rows]
    width = max(map(len, figures))
    lines = (
        f"{figure:>{width}} {'token' if figure == '1' else 'tokens'}  {printable(row.name)}"
        for figure, row in zip(figures, rows, strict=True)
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)
