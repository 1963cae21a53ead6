"""Reads files as chunks of requests: text as a stream, a pretty-printed document whole, Parquet by rows."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ullage.batch.chunk import CHUNK_BYTES, CHUNK_LINES, START, Chunk, InputPosition, RequestLine
from ullage.batch.request_text import BOM, InputError, is_binary, opens_document
from ullage.batch.source import STDIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.batch.source import Source


def read_chunks(
    sources: Sequence[Source], start: InputPosition = START, lines: int = CHUNK_LINES
) -> Iterator[Chunk]:
    """Yields all requests from this position on, at most `lines` in a chunk."""
    for file in range(start.file, len(sources)):
        source, begin = sources[file], start if file == start.file else InputPosition(file)
        if source.is_parquet:
            from ullage.batch.parquet import read_rows  # noqa: PLC0415 - only Parquet needs pyarrow

            yield from read_rows(source, begin, lines)
        elif source.path == STDIN:
            yield from _read_text(STDIN, sys.stdin.buffer, begin, lines)
        else:
            with Path(source.path).open("rb") as stream:
                stream.seek(begin.offset)
                yield from _read_text(source.name, stream, begin, lines)


def _read_text(name: str, stream: BinaryIO, begin: InputPosition, lines: int) -> Iterator[Chunk]:
    file, offset, number = begin
    pending: list[bytes] = []
    since, first, is_empty = offset, number, offset == 0
    for line in stream:
        data = line.removeprefix(BOM) if number == 1 else line
        offset, number = offset + len(line), number + 1
        is_blank = not data.strip()
        if is_blank and not pending:
            continue
        if is_empty:
            is_empty = False
            if is_binary(data.strip()):
                yield Chunk(name, number - 1, "document", data, len(line), file, InputPosition(file + 1))
                return
            if opens_document(data.strip()):
                whole = data + stream.read()
                yield Chunk(name, number - 1, "document", whole, len(whole), file, InputPosition(file + 1))
                return
        if not pending:
            first = number - 1
        pending.append(data)
        if len(pending) >= lines or offset - since >= CHUNK_BYTES:
            end = InputPosition(file, offset, number)
            yield Chunk(name, first, "lines", b"".join(pending), offset - since, file, end)
            pending, since = [], offset
    if pending:
        end = InputPosition(file, offset, number)
        yield Chunk(name, first, "lines", b"".join(pending), offset - since, file, end)
    if is_empty:
        yield Chunk(name, 1, "document", b"", 0, file, InputPosition(file + 1))


def requests_of(chunk: Chunk) -> Iterator[RequestLine]:
    """Yields the requests of a chunk; blank lines are left out."""
    if chunk.form == "rows":
        from ullage.batch.parquet import requests_of_rows  # noqa: PLC0415 - only Parquet needs pyarrow

        for place, body in enumerate(requests_of_rows(chunk.data)):
            yield RequestLine(chunk.source, chunk.number + place, body)
    elif chunk.form == "lines":
        for place, line in enumerate(io.BytesIO(chunk.data)):
            if line.strip():
                yield RequestLine(chunk.source, chunk.number + place, line)
    elif chunk.form == "broken":
        yield RequestLine(chunk.source, chunk.number, InputError(chunk.data.decode()))
    else:
        yield RequestLine(chunk.source, chunk.number, chunk.data)
