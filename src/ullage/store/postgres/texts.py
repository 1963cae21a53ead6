r"""Texts with any characters in PostgreSQL's TEXT, which takes neither NUL nor lone surrogates.

Nearly every text is stored as it is, so that people can read it with `psql`. The others begin with U+0001:

| a column of the store is | stored as |
|---|---|
| text with a NUL, or that begins with U+0001 | U+0001, `t`, and the text with `\0` for NUL and `\\` for `\` |
| text that SQLite keeps as bytes | U+0001, `b`, and the bytes in hexadecimal |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format

from ullage.store.values import RawText

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.abc import Buffer

_MARK = "\x01"
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def encode(text: str | RawText) -> str:
    """Returns the text for a TEXT column."""
    if isinstance(text, RawText):
        return f"{_MARK}b{text.hex()}"
    if "\0" in text or text.startswith(_MARK):
        escaped = text.replace("\\", "\\\\").replace("\0", "\\0")
        return f"{_MARK}t{escaped}"
    return text


def decode(stored: str) -> str | RawText:
    """Returns the text that `encode` has encoded."""
    if not stored.startswith(_MARK):
        return stored
    if stored[1:2] == "b":
        return RawText.fromhex(stored[2:])
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], stored[2:])


class TextDumper(Dumper):
    """Passes a text to the server, which takes its type from the column."""

    format = Format.TEXT

    def dump(self, obj: str | RawText) -> bytes:
        """Returns the text in UTF-8."""
        return encode(obj).encode()


class TextLoader(Loader):
    """Reads a TEXT column."""

    format = Format.TEXT

    def load(self, data: Buffer) -> str | RawText:
        """Returns the text."""
        return decode(bytes(data).decode())


def adapt_texts(connection: Connection) -> None:
    """Makes a connection read and write texts in this way."""
    connection.adapters.register_dumper(str, TextDumper)
    connection.adapters.register_dumper(RawText, TextDumper)
    connection.adapters.register_loader("text", TextLoader)
