"""Chunks of the input, which are the units of work; each has the position from which a run can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.batch.request_text import InputError

CHUNK_BYTES, CHUNK_LINES = 256 * 1024, 64
"""Largest chunk, in bytes and in requests."""


class InputPosition(NamedTuple):
    """A place in the input: everything before it has been read."""

    file: int = 0
    """Index of the source."""
    offset: int = 0
    """Bytes of a text file, or rows of a Parquet file, that have been read."""
    number: int = 1
    """Number of the next line or row."""


START = InputPosition()


class Chunk(NamedTuple):
    """Some requests of one file, not yet decoded."""

    source: str
    """The name of the file."""
    number: int
    """Number of the first line or row."""
    form: Literal["lines", "document", "rows", "broken"]
    """JSONL, one document, an Arrow stream, or a message about a file that cannot be read."""
    data: bytes
    size: int
    """Bytes of the input that it stands for."""
    file: int
    """Index of the source."""
    end: InputPosition


class RequestLine(NamedTuple):
    """One request, with its file and its line or row number."""

    source: str
    number: int
    data: bytes | Mapping[str, Any] | InputError
    """JSON text, the request that a row of a table holds, or the reason why the file cannot be read."""
