"""The text of a request: decodes it, with the place of a mistake, and encodes results."""

from __future__ import annotations

import json
from typing import Any

from ullage.errors import UllageError

# The first bytes of files in other formats, with the advice for each.
FOREIGN = {
    b"\x1f\x8b": "this is gzip data: unpack it first (zcat FILE | ullage …)",
    b"\x28\xb5\x2f\xfd": "this is zstd data: unpack it first (zstdcat FILE | ullage …)",
    b"\xff\xfe": "this is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "this is UTF-16 text: save it as UTF-8",
    b"PK\x03\x04": "this is a zip archive: unpack it first",
}
BODY = frozenset({"messages", "contents", "input"})
"""Members of which a request has one."""
MESSAGE = frozenset({"role", "type"})
"""Members of which a message or an item has one."""
BOM = b"\xef\xbb\xbf"


class InputError(UllageError, ValueError):
    """A text is not a JSON request; `line` counts from the first line of the text."""

    def __init__(self, reason: str, *, line: int = 1, column: int | None = None) -> None:
        self.line = line
        self.column = column
        super().__init__(reason if column is None else f"{reason} (column {column})")


def is_binary(line: bytes) -> bool:
    """Returns True if a file with this first line is binary; one message about it is then enough."""
    if line.startswith((b"{", b"[")):
        return False
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return "\0" in text


def opens_document(line: bytes) -> bool:
    """Returns True if a document continues after this line: printers break lines after these characters."""
    if line.endswith(b","):
        try:
            json.loads(line[:-1])
        except (ValueError, RecursionError):
            return True
        return False  # a whole request with a stray comma
    return line.endswith((b"[", b"{", b":"))


def parse(data: bytes) -> dict[str, Any]:
    """Returns the request in a text; a list becomes its messages. Raises InputError for anything else."""
    value = _decode_json(data)
    if isinstance(value, list):
        if any(map(_is_request, value)):
            raise InputError("this is a list of requests: write one request a line (jq -c '.[]' FILE)")
        return {"messages": value}
    if not isinstance(value, dict):
        raise InputError(f"a request must be an object or a list of messages, not {_kind(value)}")
    return value


def _is_request(value: object) -> bool:
    """Returns True if a member of a list is no message or item, but a whole request."""
    return isinstance(value, dict) and MESSAGE.isdisjoint(value) and not BODY.isdisjoint(value)


def _decode_json(data: bytes) -> Any:
    import orjson  # noqa: PLC0415 - the import takes 30 ms, and help and usage errors do not need it

    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _decode_slowly(data)


def _decode_slowly(data: bytes) -> Any:
    """Decodes with the standard library, which accepts lone surrogates and has better error messages."""
    if not data.strip():
        raise InputError("the input is empty; a request is expected")
    for start, advice in FOREIGN.items():
        if data.startswith(start):
            raise InputError(advice)
    try:
        return json.loads(data.decode("utf-8").rstrip("\r\n"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        line, column = _place(data, error.start)
        reason = "binary data" if is_binary(data.strip()) else "not UTF-8 text"
        raise InputError(f"{reason}: byte 0x{data[error.start]:02x}", line=line, column=column) from None
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise InputError("nested too deeply") from None


def _refuse(name: str) -> Any:
    raise InputError(f"not JSON: {name} is not a JSON number")


def _place(data: bytes, position: int) -> tuple[int, int]:
    start = data.rfind(b"\n", 0, position) + 1
    return data.count(b"\n", 0, position) + 1, position - start + 1


def _kind(value: object) -> str:
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}
    return names[type(value)]


def encode(value: object) -> bytes:
    """Returns a value as a line of JSON."""
    import orjson  # noqa: PLC0415 - as above, for the time of its import

    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # a lone surrogate, which must be escaped, or a very large number
        return json.dumps(value).encode() + b"\n"
