"""Request bodies of every provider, read into one shape and written back.

    request = wire.read(body, "anthropic.messages")
    body = wire.write(request, "openai.chat")

Reading never changes the body. A body that its API would not understand raises InvalidRequest,
which names the API and the field; pairs of calls and results are not looked at here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidRequest
from ullage.wire.fields import Place
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# api → its reader, its writer; a module is loaded when it is first needed
TABLE: Mapping[str, tuple[str, str | None]] = {
    "openai.chat": ("openai_chat.read", "openai_chat.write"),
    "openai.responses": ("openai_responses.read", "openai_responses_writing.write"),
    "openai.responses.input_tokens": ("openai_responses.read", "openai_responses_writing.write"),
    "anthropic.messages": ("anthropic.read", "anthropic_writing.write"),
    "anthropic.count_tokens": ("anthropic.read", "anthropic_writing.write"),
    "gemini": ("gemini.read", None),
    "gemini.count_tokens": ("gemini.read", None),
    "bedrock.converse": ("bedrock.read", None),
    "bedrock.invoke": ("bedrock.read_invoke", None),
    "ollama.chat": ("ollama.read", "ollama_writing.write"),
    "cohere.chat.v1": ("cohere.read_v1", None),
    "cohere.chat.v2": ("cohere.read_v2", None),
}

# what the endpoints that only count take; anything else in a body is an error to them
COUNTED: Mapping[str, frozenset[str]] = {
    "openai.responses.input_tokens": frozenset(
        ("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text")
    ),
    "anthropic.count_tokens": frozenset(
        ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format")
    ),
}

APIS = tuple(TABLE)
"""Every API that can be read."""

WRITABLE = tuple(api for api, (_, writer) in TABLE.items() if writer is not None)
"""Every API that can be written."""


def read(body: Any, api: str) -> Request:
    """A request body of this API as a Request; raises InvalidRequest, naming the field, if it is none."""
    reader, _ = _entry(api)
    place = Place(body, api)
    place.object()
    parse: Callable[[Place], Request] = _function(reader)
    return parse(place)


def write(request: Request, api: str) -> dict[str, Any]:
    """A Request as a body of this API; raises InvalidRequest for what that API cannot say."""
    _, writer = _entry(api)
    if writer is None:
        raise InvalidRequest(f"can be read but not written; written can be {', '.join(WRITABLE)}", api=api)
    make: Callable[[Request], dict[str, Any]] = _function(writer)
    body = make(request)
    if api in COUNTED and request.api != api:
        return {name: value for name, value in body.items() if name in COUNTED[api]}
    return body


def _entry(api: str) -> tuple[str, str | None]:
    if not isinstance(api, str) or api not in TABLE:
        raise InvalidRequest(f"unknown API; one of {', '.join(APIS)}", api=str(api))
    return TABLE[api]


def _function(path: str) -> Any:
    module, _, name = path.partition(".")
    return getattr(import_module(f"ullage.wire.{module}"), name)


__all__ = ["APIS", "WRITABLE", "InvalidRequest", "Request", "read", "write"]
