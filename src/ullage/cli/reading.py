"""Files as numbered requests, read as a stream: JSONL line by line, a pretty-printed document whole."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ullage.errors import ConfigurationError, UllageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STDIN = "-"

# what a file that is not text begins with → what to do about it
FOREIGN = {
    b"\x1f\x8b": "this is gzip data: unpack it first (zcat FILE | ullage …)",
    b"\x28\xb5\x2f\xfd": "this is zstd data: unpack it first (zstdcat FILE | ullage …)",
    b"\xff\xfe": "this is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "this is UTF-16 text: save it as UTF-8",
    b"PK\x03\x04": "this is a zip archive: unpack it first",
}
BOM = b"\xef\xbb\xbf"


class InputError(UllageError, ValueError):
    """Text that is not a JSON request; `line` counts from where the text begins."""

    def __init__(self, reason: str, *, line: int = 1, column: int | None = None) -> None:
        self.line = line
        self.column = column
        super().__init__(reason if column is None else f"{reason} (column {column})")


class Line(NamedTuple):
    """One request as it stands in its file."""

    source: str
    number: int
    data: bytes


def check_files(names: Sequence[str]) -> list[str]:
    """The names to read; raises ConfigurationError for one that cannot be read, before any work is done."""
    for name in names:
        if name == STDIN:
            continue
        try:
            mode = Path(name).stat().st_mode
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
        if stat.S_ISDIR(mode):
            raise ConfigurationError(f"{name}: this is a directory; name the files in it")
        if not os.access(name, os.R_OK):
            raise ConfigurationError(f"{name}: this file may not be read")
    return list(names) or [STDIN]


def total_bytes(names: Sequence[str]) -> int | None:
    """How much there is to read; None where that is not known."""
    sizes = 0
    for name in names:
        status = os.fstat(sys.stdin.fileno()) if name == STDIN else Path(name).stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        sizes += status.st_size
    return sizes


def read(names: Sequence[str]) -> Iterator[Line]:
    """The requests of all files in their order."""
    for name in names:
        if name == STDIN:
            yield from _lines(STDIN, sys.stdin.buffer)
        else:
            with Path(name).open("rb") as stream:
                yield from _lines(name, stream)


def _lines(name: str, stream: BinaryIO) -> Iterator[Line]:
    empty = True
    for number, line in enumerate(stream, 1):
        data = line.removeprefix(BOM) if number == 1 else line
        if not data.strip():
            continue
        if empty and _is_binary(data.strip()):
            yield Line(name, number, data)
            return
        if empty and _opens_document(data.strip()):
            yield Line(name, number, data + stream.read())
            return
        empty = False
        yield Line(name, number, data)
    if empty:
        yield Line(name, 1, b"")


def _is_binary(line: bytes) -> bool:
    """Whether a file that begins like this has no requests in it, so that one complaint will do."""
    if line.startswith((b"{", b"[")):
        return False
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return "\0" in text


def _opens_document(line: bytes) -> bool:
    """Whether a document goes on after this line: printers break lines only after these characters."""
    if line.endswith(b","):
        try:
            json.loads(line[:-1])
        except (ValueError, RecursionError):
            return True
        return False  # a whole request with a stray comma
    return line.endswith((b"[", b"{", b":"))


def parse(data: bytes) -> dict[str, Any]:
    """The request in this text; a bare list is its messages. Raises InputError for anything else."""
    value = _decoded(data)
    if isinstance(value, list):
        return {"messages": value}
    if not isinstance(value, dict):
        raise InputError(f"a request is an object or a list of messages, this is {_kind(value)}")
    return value


def _decoded(data: bytes) -> Any:
    import orjson  # noqa: PLC0415 - 30 ms that help and usage errors need not pay

    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _decoded_slowly(data)


def _decoded_slowly(data: bytes) -> Any:
    """By the standard library: it takes lone surrogates, and says what is wrong in better words."""
    if not data.strip():
        raise InputError("there is nothing in it: a request is expected")
    for start, advice in FOREIGN.items():
        if data.startswith(start):
            raise InputError(advice)
    try:
        return json.loads(data.decode("utf-8").rstrip("\r\n"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        line, column = _place(data, error.start)
        reason = "binary data" if _is_binary(data.strip()) else "not UTF-8 text"
        raise InputError(f"{reason}: byte 0x{data[error.start]:02x}", line=line, column=column) from None
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise InputError("nested too deeply") from None


def _refuse(name: str) -> Any:
    raise InputError(f"not JSON: {name} is no number that JSON has")


def _place(data: bytes, position: int) -> tuple[int, int]:
    start = data.rfind(b"\n", 0, position) + 1
    return data.count(b"\n", 0, position) + 1, position - start + 1


def _kind(value: object) -> str:
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}
    return names[type(value)]


def encode(value: object) -> bytes:
    """A value as a line of JSON."""
    import orjson  # noqa: PLC0415 - see above

    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # a lone surrogate, which only its escape can carry, or a very large number
        return json.dumps(value).encode() + b"\n"
