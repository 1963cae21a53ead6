"""Refusals: the status and the body that the official SDKs of each API turn into their typed exceptions.

A refusal is a kind and a sentence. The kind is a row of `KINDS`; the body depends on the API of the request.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.errors import (
    BudgetExceeded,
    ConfigurationError,
    ContextOverflowError,
    InvalidConversation,
    InvalidRequest,
    KeyRefused,
    LocalModelError,
    ProviderError,
    RateLimited,
    StoreError,
    UllageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.target import ApiName

ANTHROPIC = frozenset({"anthropic.messages", "anthropic.count_tokens"})
"""The APIs with Anthropic's form of errors; all others have OpenAI's."""


class RefusalKind(NamedTuple):
    """One kind of refusal."""

    status: int
    openai_type: str
    openai_code: str | None
    anthropic_type: str
    may_retry: bool = False
    """True if the same request may succeed later; the SDKs then send it again by themselves."""


KINDS: Mapping[str, RefusalKind] = {
    "overflow": RefusalKind(400, "invalid_request_error", "context_length_exceeded", "invalid_request_error"),
    "invalid": RefusalKind(400, "invalid_request_error", None, "invalid_request_error"),
    "key": RefusalKind(401, "invalid_request_error", "invalid_api_key", "authentication_error"),
    "forbidden": RefusalKind(403, "permission_error", "forbidden", "permission_error"),
    "model": RefusalKind(404, "invalid_request_error", "model_not_found", "not_found_error"),
    "path": RefusalKind(404, "invalid_request_error", "unknown_url", "not_found_error"),
    "method": RefusalKind(405, "invalid_request_error", "method_not_allowed", "invalid_request_error"),
    "slow": RefusalKind(
        408, "invalid_request_error", "request_timeout", "invalid_request_error", may_retry=True
    ),
    "too large": RefusalKind(413, "invalid_request_error", "request_too_large", "request_too_large"),
    "head": RefusalKind(431, "invalid_request_error", "request_head_too_large", "invalid_request_error"),
    "rate": RefusalKind(429, "requests", "rate_limit_exceeded", "rate_limit_error", may_retry=True),
    "cap": RefusalKind(429, "insufficient_quota", "insufficient_quota", "rate_limit_error"),
    "busy": RefusalKind(503, "server_error", "gateway_busy", "api_error", may_retry=True),
    "set-up": RefusalKind(503, "server_error", "gateway_not_configured", "api_error"),
    "store": RefusalKind(503, "server_error", "ledger_unavailable", "api_error", may_retry=True),
    "upstream": RefusalKind(502, "server_error", "upstream_failed", "api_error", may_retry=True),
    "late": RefusalKind(504, "server_error", "upstream_timeout", "timeout_error", may_retry=True),
}

ERRORS: Mapping[type[UllageError], str] = {
    ContextOverflowError: "overflow",
    BudgetExceeded: "cap",
    RateLimited: "rate",
    KeyRefused: "key",
    InvalidRequest: "invalid",
    InvalidConversation: "invalid",
    ConfigurationError: "set-up",
    LocalModelError: "set-up",
    StoreError: "store",
    ProviderError: "upstream",
}
"""Ullage's errors → the kind of their refusal; the first class that matches decides."""


STATUSES: Mapping[int, str] = {
    401: "key",
    403: "forbidden",
    404: "model",
    408: "slow",
    413: "too large",
    429: "rate",
}
"""The status of an upstream's error → the kind of its refusal in another API."""


def kind_of_status(status: int) -> str:
    """Returns the kind of refusal that an upstream's status means."""
    return STATUSES.get(status, "invalid" if status < 500 else "upstream")


STORE_FAILED = "the gateway cannot use its ledger now: try again. Its owner finds the reason in its log"


class Refused(Exception):  # noqa: N818 - an answer to the client, not a fault
    """A request is refused; `kind` is a row of `KINDS`."""

    def __init__(
        self, kind: str, message: str, *, retry_after: float | None = None, allowed: str = ""
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        """Seconds after which the request may be sent again; None if that is unknown."""
        self.allowed = allowed
        """The methods of the path, if the method was wrong."""


class GatewayAnswer(NamedTuple):
    """A whole answer of the gateway itself."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def make_refusal(error: UllageError, api: ApiName | None) -> Refused:
    """Returns the refusal for an error of Ullage, in the words that clients of this API look for."""
    if isinstance(error, ContextOverflowError) and error.limit:
        return Refused("overflow", _overflow(error, api))
    kind = next((kind for known, kind in ERRORS.items() if isinstance(error, known)), "set-up")
    if isinstance(error, ProviderError) and error.code == "timeout":
        kind = "late"
    if isinstance(error, StoreError):  # its text has the place of the store
        return Refused(kind, STORE_FAILED)
    if isinstance(error, KeyRefused) and error.reason in {"model", "limit", "policy"}:
        kind = "forbidden"
    return Refused(
        kind, str(error), retry_after=error.retry_after if isinstance(error, RateLimited) else None
    )


def _overflow(error: ContextOverflowError, api: ApiName | None) -> str:
    """Returns the provider's own sentence, which clients parse, and then what to do."""
    tokens, limit = error.tokens, error.limit
    advice = str(error).partition("Narrow the scope")[2]
    advice = f"Ullage removed all that it may. Narrow the scope{advice}"
    if api in ANTHROPIC:
        return f"prompt is too long: {tokens} tokens > {limit} maximum. {advice}"
    return (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} "
        f"tokens. {advice}"
    )


def answer(refusal: Refused, api: ApiName | None, request_id: str) -> GatewayAnswer:
    """Returns the answer to a request that is refused."""
    kind = KINDS[refusal.kind]
    headers = {"content-type": "application/json", "x-should-retry": "true" if kind.may_retry else "false"}
    headers["request-id" if api in ANTHROPIC else "x-request-id"] = request_id  # the SDKs show it
    if refusal.retry_after is not None:
        headers["retry-after"] = str(math.ceil(refusal.retry_after))
    if refusal.allowed:
        headers["allow"] = refusal.allowed
    return GatewayAnswer(kind.status, headers, orjson.dumps(_body(refusal, kind, api, request_id)))


def _body(refusal: Refused, kind: RefusalKind, api: ApiName | None, request_id: str) -> dict[str, Any]:
    if api in ANTHROPIC:
        error = {"type": kind.anthropic_type, "message": refusal.message}
        return {"type": "error", "error": error, "request_id": request_id}
    return {"error": _openai(refusal, kind)}


def _openai(refusal: Refused, kind: RefusalKind) -> dict[str, Any]:
    return {
        "message": refusal.message,
        "type": kind.openai_type,
        "param": None,
        "code": kind.openai_code,
    }


def event(refusal: Refused, api: ApiName | None, request_id: str) -> bytes:
    """Returns the event that ends a stream which has begun, because the SDKs do not notice a cut one."""
    kind = KINDS[refusal.kind]
    body = _body(refusal, kind, api, request_id)
    if api == "openai.chat":
        return b"data: %b\n\n" % orjson.dumps(body)
    if api == "openai.responses":
        error = _openai(refusal, kind)
        body = {"type": "error", "code": kind.openai_code, "message": refusal.message, "param": None}
        body |= {"sequence_number": 0, "error": error}
    return b"event: error\ndata: %b\n\n" % orjson.dumps(body)


def make_failed_response(refusal: Refused, model: str | None, request_id: str) -> GatewayAnswer:
    """Returns an overflow as a stream of the responses API, which is how Codex recognises it."""
    kind = KINDS[refusal.kind]
    response = {
        "id": f"resp_{request_id}",
        "object": "response",
        "created_at": 0,
        "status": "failed",
        "model": model,
        "output": [],
        "error": {"code": kind.openai_code, "message": refusal.message},
    }
    failed = {"type": "response.failed", "sequence_number": 0, "response": response}
    headers = {"content-type": "text/event-stream", "cache-control": "no-cache"}
    return GatewayAnswer(200, headers, b"event: response.failed\ndata: %b\n\n" % orjson.dumps(failed))
