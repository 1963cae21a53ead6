"""The job that is run on every line of a file, and the request on a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage import wire
from ullage.call_pairs import check_conversation
from ullage.errors import ConfigurationError, InvalidRequest
from ullage.tokens import Count, count, count_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.fitting import FitPolicy
    from ullage.target import ApiName
    from ullage.wire import Request

CHAT: ApiName = "openai.chat"
DEFAULT_MODEL = "gpt-4o"


@dataclass(frozen=True, slots=True)
class Job:
    """A command and its options, for every line."""

    command: str
    """count, fit or explain."""
    model: str | None = None
    api: ApiName | None = None
    limit: int | None = None
    reserve: int | None = None
    policy: FitPolicy | None = None
    json: bool = False


def read_request(job: Job, body: Mapping[str, Any]) -> tuple[Request, str]:
    """Returns the request and its model; raises if a strict API would reject the request."""
    request = wire.read(remove_own_keys(body), job.api or CHAT)
    check_conversation(request.messages)
    if not request.messages and not request.tools:
        raise InvalidRequest("there are no messages", api=job.api or CHAT, field="messages")
    model = job.model or request.model or ("" if job.api else DEFAULT_MODEL)
    if not model:
        raise ConfigurationError("no model: name one in the request or with --model")
    return request, model


def cost_of(job: Job, request: Request, body: Mapping[str, Any], model: str) -> Count:
    """Returns the tokens of a request: by `count` if it has only messages and tools, else by its body."""
    more = (request.response_format, request.tool_choice, request.thinking or None)
    if job.api is None and more == (None, None, None):
        return count(request.messages, model, request.tools or None)
    return count_request(body, job.api or CHAT, model)


def remove_own_keys(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body without the keys `id` and `ullage`, which are not sent."""
    return {key: value for key, value in body.items() if key not in ("id", "ullage")}
