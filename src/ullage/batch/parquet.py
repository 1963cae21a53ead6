"""Reads requests from Parquet files, and writes results to them.

The columns of a table are the keys of a request, and null is a missing key. A column may hold JSON text
instead of lists and structs. A table with a single column of text holds one whole request in each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ullage.batch.chunk import Chunk, InputPosition
from ullage.tokens.request_count import BLOCKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ullage.batch.source import Source

JSON_COLUMNS = frozenset(
    {
        "contents",
        "input",
        "messages",
        "response_format",
        "system",
        "thinking",
        "tool_choice",
        "toolConfig",
        "tools",
    }
)
"""Columns whose text is decoded if it is a JSON object or list."""
GROUP_ROWS = 16_384
"""Rows of a row group of results."""


# Requests ------------------------------------------------------------------------------------------------


def read_rows(source: Source, begin: InputPosition, rows: int) -> Iterator[Chunk]:
    """Yields the rows of a file from this position on, at most `rows` in a chunk."""
    try:
        file = pq.ParquetFile(source.path)
    except (pa.ArrowException, OSError) as error:
        reason = f"this Parquet file cannot be read: {str(error).partition(chr(10))[0]}".encode()
        yield Chunk(
            source.name, 1, "broken", reason, source.size or 0, begin.file, InputPosition(begin.file + 1)
        )
        return
    with file:
        share = (source.size or 0) / max(1, file.metadata.num_rows)
        group, done = _group_at(file.metadata, begin.offset)
        groups = list(range(group, file.metadata.num_row_groups))
        for batch in file.iter_batches(rows, row_groups=groups, use_threads=False):
            left = batch.slice(max(0, begin.offset - done))
            done += batch.num_rows
            if left.num_rows:
                first = done - left.num_rows
                size = round(share * done) - round(share * first)
                end = InputPosition(begin.file, done, done + 1)
                yield Chunk(source.name, first + 1, "rows", _stream_of(left), size, begin.file, end)


def _group_at(metadata: Any, row: int) -> tuple[int, int]:
    """Returns the row group that contains a row, and the number of rows before that group."""
    before = 0
    for group in range(metadata.num_row_groups):
        after = before + metadata.row_group(group).num_rows
        if after > row:
            return group, before
        before = after
    return metadata.num_row_groups, before


def _stream_of(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def requests_of_rows(data: bytes) -> Iterator[bytes | Mapping[str, Any]]:
    """Yields the requests of an Arrow stream: a JSON text, or an object with a key for each column."""
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    kinds = table.schema.types
    if len(kinds) == 1 and (pa.types.is_string(kinds[0]) or pa.types.is_large_string(kinds[0])):
        for text in table.column(0).to_pylist():
            yield b"" if text is None else text.encode("utf-8", "surrogatepass")
        return
    for row in table.to_pylist(maps_as_pydicts="lossy"):
        yield {name: _decode_value(name, value) for name, value in row.items() if value is not None}


def _decode_value(name: str, value: Any) -> Any:
    if name in JSON_COLUMNS and isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value  # a system prompt may begin with a bracket
    return _without_nulls(value)


def _without_nulls(value: Any) -> Any:
    """Returns a value as JSON has it; the null fields of structs are left out."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# Results -------------------------------------------------------------------------------------------------

_COMMON = (("id", pa.string()), ("model", pa.string()))
_ERROR = (("line", pa.int64()), ("error", pa.string()))
SCHEMAS = {
    "count": pa.schema(
        [
            *_COMMON,
            ("tokens", pa.int64()),
            ("ceiling", pa.int64()),
            ("exact", pa.bool_()),
            ("breakdown", pa.struct([(name, pa.int64()) for name in BLOCKS])),
            *_ERROR,
        ]
    ),
    "fit": pa.schema(
        [
            *_COMMON,
            ("limit", pa.int64()),
            ("tokens_before", pa.int64()),
            ("tokens_after", pa.int64()),
            ("ceiling", pa.int64()),
            ("exact", pa.bool_()),
            ("changed", pa.bool_()),
            ("dropped", pa.int64()),
            ("truncated", pa.int64()),
            ("request", pa.string()),
            *_ERROR,
        ]
    ),
}
"""Columns of the results of each command; `request` is the fitted request as JSON text."""


def write_results(command: str, lines: Path, path: Path) -> None:
    """Writes results, given as lines of JSON, to a Parquet file; the same lines make the same bytes."""
    schema = SCHEMAS[command]
    with lines.open("rb") as stream, pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(stream):
            rows = [_row(command, each) for each in group]
            writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=GROUP_ROWS)


def _groups(lines: Iterable[bytes]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    for line in lines:
        group.append(orjson.loads(line))
        if len(group) == GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def _row(command: str, result: dict[str, Any]) -> dict[str, Any]:
    name = result.pop("id", None)
    row = {"id": name if name is None or isinstance(name, str) else _json(name)}
    if "error" in result:
        return {**row, "line": result["line"], "error": _json(result["error"])}
    if command == "fit":
        report = result.pop("ullage")
        return {**row, **report, "request": _json(result)}
    return {**row, **result}


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
