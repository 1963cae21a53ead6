"""One line in, one result out: what `count` and `fit` do to a request, and what they say of a bad one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import wire
from ullage.cli.codes import FAILED, code_of
from ullage.cli.reading import InputError, encode, parse
from ullage.errors import (
    ConfigurationError,
    ContextOverflowError,
    InvalidConversation,
    InvalidRequest,
    UllageError,
)
from ullage.models import model_info
from ullage.pairing import check_conversation
from ullage.tokens import Count, count, count_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.cli.reading import Line
    from ullage.fitting import FitPolicy
    from ullage.wire import Request

CHAT = "openai.chat"
DEFAULT_MODEL = "gpt-4o"

BAD = FAILED
"""The exit codes of a batch whose failed lines all failed alike."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done to every line."""

    command: str
    """count, fit or explain."""
    model: str | None = None
    api: str | None = None
    limit: int | None = None
    reserve: int | None = None
    policy: FitPolicy | None = None
    json: bool = False


class Outcome(NamedTuple):
    """What became of one line: small figures for people, and the JSON line where one was asked for."""

    source: str
    number: int
    name: str
    """The request's id, as text; empty where it has none."""
    model: str
    result: Mapping[str, Any]
    """The figures of a request that went well, the error of one that did not."""
    code: int
    """0, or the exit code that this failure alone would have."""
    encoded: bytes
    size: int
    """How many bytes of input this was."""


def work(job: Job, lines: Sequence[Line]) -> list[Outcome]:
    """The outcomes of these lines, in their order; the unit of work of a process."""
    return [outcome(job, line) for line in lines]


def outcome(job: Job, line: Line) -> Outcome:
    """What becomes of this line: a result, or an error that says where and why."""
    body: Mapping[str, Any] = {}
    try:
        body = parse(line.data)
        model, result, printed = COMMANDS[job.command](job, body)
        encoded = encode(printed) if job.json else b""
        code = 0
    except (UllageError, RecursionError) as error:
        model, (code, result) = "", failure(error)
    except Exception as error:  # noqa: BLE001 - a bug met on one line is reported there and ends no batch
        result = {"type": "InternalError", "message": f"{type(error).__name__}: {error}; please report this"}
        model, code = "", BAD
    number = line.number
    if code:
        number += result.pop("line", 1) - 1
        encoded = _encoded_error(body.get("id"), number, result) if job.json else b""
    name = body.get("id")
    return Outcome(
        line.source, number, "" if name is None else str(name), model, result, code, encoded, len(line.data)
    )


def _encoded_error(name: object, number: int, error: Mapping[str, Any]) -> bytes:
    try:
        return encode({"id": name, "line": number, "error": error})
    except RecursionError:  # by the id itself
        return encode({"id": None, "line": number, "error": error})


# What the commands do --------------------------------------------------------------------------------


def count_line(job: Job, body: Mapping[str, Any]) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    """The model, the figures, and the line to print of a request that is counted."""
    request, model = checked(job, body)
    counted = cost_of(job, request, sent(body), model)
    figures = _figures(counted)
    return (
        model,
        {**figures, "window": job.limit or _window(model)},
        {"id": body.get("id"), **figures, "model": model},
    )


def _fit_line(job: Job, body: Mapping[str, Any]) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    from ullage.cli.fitting import fit_line  # noqa: PLC0415 - counting does without

    return fit_line(job, body)


COMMANDS = {"count": count_line, "fit": _fit_line}


def checked(job: Job, body: Mapping[str, Any]) -> tuple[Request, str]:
    """The request and its model; raises where it is none that a strict API would take."""
    request = wire.read(sent(body), job.api or CHAT)
    check_conversation(request.messages)
    if not request.messages and not request.tools:
        raise InvalidRequest("there are no messages", api=job.api or CHAT, field="messages")
    model = job.model or request.model or ("" if job.api else DEFAULT_MODEL)
    if not model:
        raise ConfigurationError("no model: give one in the request or by --model")
    return request, model


def cost_of(job: Job, request: Request, body: Mapping[str, Any], model: str) -> Count:
    """What a request costs: by `count` where messages and tools are all of it, else by its body."""
    more = (request.response_format, request.tool_choice, request.thinking or None)
    if job.api is None and more == (None, None, None):
        return count(request.messages, model, request.tools or None)
    return count_request(body, job.api or CHAT, model)


def sent(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body without what is ours."""
    return {key: value for key, value in body.items() if key not in ("id", "ullage")}


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


# What went wrong -------------------------------------------------------------------------------------


def failure(error: Exception) -> tuple[int, dict[str, Any]]:
    """The exit code and the error object of a line that could not be done."""
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
    code = code_of(error) if isinstance(error, UllageError) else BAD
    return code, {key: value for key, value in found.items() if value is not None}


def _path(index: int | None, field: str | None) -> str:
    if index is None:
        return "messages"
    return f"messages[{index}].{field}" if field else f"messages[{index}]"
