"""Runs `count` or `fit` on one request; returns a result, or an error for a bad request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.batch.job import cost_of, read_request, remove_own_keys
from ullage.batch.reader import requests_of
from ullage.batch.request_text import InputError, encode, parse
from ullage.errors import (
    ContextOverflowError,
    InvalidConversation,
    InvalidRequest,
    UllageError,
)
from ullage.models import model_info

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.batch.chunk import Chunk, InputPosition, RequestLine
    from ullage.batch.job import Job
    from ullage.tokens import Count


class Outcome(NamedTuple):
    """The outcome of one request: figures for people, and a line of JSON if the job asks for it."""

    source: str
    number: int
    name: str
    """The request's id as text; empty if it has none."""
    model: str
    result: Mapping[str, Any]
    """The figures of the request, or the error object."""
    problem: str
    """The class of the error; empty if there is none."""
    encoded: bytes
    """The line of JSON; empty if the job does not ask for it."""


class FinishedChunk(NamedTuple):
    """A chunk that has been worked on."""

    outcomes: list[Outcome]
    size: int
    """Bytes of the input that it stands for."""
    file: int
    """Index of the source."""
    end: InputPosition


def work(job: Job, chunk: Chunk) -> FinishedChunk:
    """Returns the outcomes of a chunk, in order."""
    return FinishedChunk(
        [outcome(job, line) for line in requests_of(chunk)], chunk.size, chunk.file, chunk.end
    )


def outcome(job: Job, line: RequestLine) -> Outcome:
    """Returns the outcome of a request: a result, or an error with its place and its reason."""
    body: Mapping[str, Any] = {}
    try:
        body = body_of(line)
        model, result, printed = COMMANDS[job.command](job, body)
        encoded = encode(printed) if job.json else b""
        problem = ""
    except (UllageError, RecursionError) as error:
        model, result = "", failure(error)
        problem = result["type"]
    except Exception as error:  # noqa: BLE001 - a bug on one line is reported there and does not stop the batch
        result = {"type": "InternalError", "message": f"{type(error).__name__}: {error}; please report this"}
        model, problem = "", "InternalError"
    number = line.number
    if problem:
        number += result.pop("line", 1) - 1
        encoded = _encode_error(body.get("id"), number, result) if job.json else b""
    name = body.get("id")
    return Outcome(line.source, number, "" if name is None else str(name), model, result, problem, encoded)


def body_of(line: RequestLine) -> Mapping[str, Any]:
    """Returns the request of a line; raises InputError if it cannot be read."""
    if isinstance(line.data, InputError):
        raise line.data
    return parse(line.data) if isinstance(line.data, bytes) else line.data


def _encode_error(name: object, number: int, error: Mapping[str, Any]) -> bytes:
    try:
        return encode({"id": name, "line": number, "error": error})
    except RecursionError:  # the id is nested too deeply
        return encode({"id": None, "line": number, "error": error})


# Commands --------------------------------------------------------------------------------------------


def count_line(job: Job, body: Mapping[str, Any]) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    """Counts a request; returns its model, its figures, and the object to print."""
    request, model = read_request(job, body)
    counted = cost_of(job, request, remove_own_keys(body), model)
    figures = _figures(counted)
    return (
        model,
        {**figures, "window": job.limit or _window(model)},
        {"id": body.get("id"), **figures, "model": model},
    )


def _fit_line(job: Job, body: Mapping[str, Any]) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    from ullage.batch.fitted_request import fit_line  # noqa: PLC0415 - count does not need it

    return fit_line(job, body)


COMMANDS = {"count": count_line, "fit": _fit_line}


def _window(model: str) -> int | None:
    info = model_info(model)
    return None if info is None else info.window


def _figures(counted: Count) -> dict[str, Any]:
    return {
        "tokens": counted.tokens,
        "ceiling": counted.ceiling,
        "exact": counted.exact,
        "breakdown": dict(counted.breakdown),
    }


# Errors ----------------------------------------------------------------------------------------------


def failure(error: Exception) -> dict[str, Any]:
    """Returns the error object for a bad line."""
    found: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, RecursionError):
        found = {"type": InputError.__name__, "message": "nested too deeply"}
    elif isinstance(error, InputError):
        found["line"] = error.line
    elif isinstance(error, InvalidConversation):
        found["message"] = error.reason
        found["field"] = _path(error.index, error.field)
    elif isinstance(error, InvalidRequest):
        found["message"] = error.reason
        found["field"] = error.field
    elif isinstance(error, ContextOverflowError):
        found.update(tokens=error.tokens, limit=error.limit, breakdown=dict(error.breakdown))
    return {key: value for key, value in found.items() if value is not None}


def _path(index: int | None, field: str | None) -> str:
    if index is None:
        return "messages"
    return f"messages[{index}].{field}" if field else f"messages[{index}]"
