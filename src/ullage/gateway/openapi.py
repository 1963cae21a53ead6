"""The OpenAPI document of the gateway, made from one row for each path."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping


class Operation(NamedTuple):
    """One path: its method, its summary, and the required fields of its body."""

    method: str
    summary: str
    fields: Mapping[str, Mapping[str, Any]] | None = None
    """The fields of the body, all required; None if it has no body."""
    answers: tuple[int, ...] = (200,)


NAME: Mapping[str, Any] = {"type": "string", "minLength": 1}
MESSAGES: Mapping[str, Any] = {"type": "array", "items": {"type": "object"}, "minItems": 1}
CALL = (200, 400, 401, 403, 404, 408, 413, 429, 502, 503, 504)
"""The statuses of a call to a model; the upstream may answer with others."""

OPERATIONS: Mapping[str, Operation] = {
    "/v1/chat/completions": Operation(
        "post", "OpenAI chat completions", {"model": NAME, "messages": MESSAGES}, CALL
    ),
    "/v1/responses": Operation("post", "OpenAI responses", {"model": NAME, "input": {}}, CALL),
    "/v1/responses/compact": Operation(
        "post", "OpenAI's own compaction, relayed", {"model": NAME, "input": {}}, CALL
    ),
    "/v1/messages": Operation(
        "post",
        "Anthropic messages",
        {"model": NAME, "messages": MESSAGES, "max_tokens": {"type": "integer", "minimum": 1}},
        CALL,
    ),
    "/v1/messages/count_tokens": Operation(
        "post", "Tokens of an Anthropic request", {"model": NAME, "messages": MESSAGES}, CALL
    ),
    "/v1/responses/input_tokens": Operation(
        "post", "Tokens of an OpenAI responses request", {"model": NAME, "input": {}}, CALL
    ),
    "/v1/models": Operation("get", "The models, with windows and output limits", None, (200, 401, 403)),
    "/tokenize": Operation(
        "post",
        "Tokens of a text, by Ullage's own count",
        {"prompt": {"type": "string"}},
        (200, 400, 401, 403),
    ),
    "/healthz": Operation("get", "The process runs"),
    "/readyz": Operation("get", "Calls are accepted", None, (200, 503)),
    "/metrics": Operation("get", "Counters for Prometheus", None, (200, 401, 403)),
    "/openapi.json": Operation("get", "This document", None, (200, 401, 403)),
}


@cache
def document() -> dict[str, Any]:
    """Returns the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ullage gateway",
            "version": __version__,
            "description": "Keeps the requests of any client inside the window of its model.",
        },
        "paths": {path: {each.method: _operation(each)} for path, each in OPERATIONS.items()},
    }


def _operation(each: Operation) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": each.summary,
        "responses": {str(status): {"description": _describe_status(status)} for status in each.answers},
    }
    if each.fields is not None:
        schema = {"type": "object", "required": [*each.fields], "properties": dict(each.fields)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _describe_status(status: int) -> str:
    return "the answer" if status == 200 else "a refusal, in the form of the API"
