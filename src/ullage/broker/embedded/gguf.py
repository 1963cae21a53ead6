"""The metadata of a GGUF file, read without the model runtime."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, BinaryIO

from ullage.errors import LocalModelError

if TYPE_CHECKING:
    from pathlib import Path

# type number → format for struct; strings and lists have their own readers
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_TEXT, _LIST = 8, 9
_COUNT = _SCALARS[10]
_KIND = _SCALARS[4]
_HEAD = struct.Struct("<4sIQQ")
_MOST = 1 << 28
"""The largest valid length in the metadata; a larger one means that the file is damaged."""


def metadata(path: Path) -> dict[str, Any]:
    """Returns the metadata of a GGUF file, by name; raises LocalModelError if it is not a GGUF file."""
    try:
        with path.open("rb") as file:
            magic, version, _, entries = _HEAD.unpack(_bytes(file, _HEAD.size))
            if magic != b"GGUF" or version not in (2, 3) or entries > _MOST:
                raise LocalModelError(f"{path} is not a GGUF file of version 2 or 3")
            return {_text(file): _value(file, _number(file, _KIND)) for _ in range(entries)}
    except OSError as error:
        raise LocalModelError(f"{path} cannot be read: {error.strerror or error}") from error
    except (_DamagedError, UnicodeDecodeError) as error:
        raise LocalModelError(
            f"{path} is damaged: its metadata is incomplete or invalid. Fetch it again"
        ) from error


class _DamagedError(Exception):
    """The file has bytes that are not valid GGUF."""


def _bytes(file: BinaryIO, length: int) -> bytes:
    if length > _MOST:
        raise _DamagedError
    read = file.read(length)
    if len(read) < length:
        raise _DamagedError
    return read


def _number(file: BinaryIO, form: struct.Struct) -> int:
    number: int = form.unpack(_bytes(file, form.size))[0]
    return number


def _text(file: BinaryIO) -> str:
    return _bytes(file, _number(file, _COUNT)).decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        return _list(file, _number(file, _KIND), _number(file, _COUNT))
    if kind not in _SCALARS:
        raise _DamagedError
    return _number(file, _SCALARS[kind])


def _list(file: BinaryIO, kind: int, length: int) -> list[Any]:
    if kind not in _SCALARS:
        if length > _MOST:
            raise _DamagedError
        return [_value(file, kind) for _ in range(length)]
    # Read at once, because a vocabulary has as many numbers as tokens.
    form = _SCALARS[kind]
    return [number for (number,) in form.iter_unpack(_bytes(file, form.size * length))]
