"""A whole request made to fit, in the shape in which it came, with all that is sent in it counted."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import wire
from ullage.cli.work import CHAT, checked, cost_of, sent
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.fitting import fit
from ullage.fitting.budget import limit_for
from ullage.models import model_info
from ullage.tokens import counter_for
from ullage.tokens.counting import system_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.cli.work import Job
    from ullage.fitting import FitPolicy, Fitted
    from ullage.tokens import Count
    from ullage.wire import Request


class FittedRequest(NamedTuple):
    """A request before and after."""

    request: Request
    model: str
    limit: int
    fitted: Fitted
    before: Count
    after: Count
    body: Mapping[str, Any]
    """What to send, in the shape in which it came."""


def fit_line(job: Job, body: Mapping[str, Any]) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    """The model, the figures, and the line to print of a request that is fitted."""
    done = fit_body(job, body)
    report = {
        "model": done.model,
        "limit": done.limit,
        "tokens_before": done.before.tokens,
        "tokens_after": done.after.tokens,
        "ceiling": done.after.ceiling,
        "exact": done.after.exact,
        "changed": done.fitted.changed,
        "dropped": done.fitted.dropped,
        "truncated": done.fitted.truncated,
        "changes": [asdict(change) for change in done.fitted.changes],
    }
    figures = {**report, "before": dict(done.before.breakdown), "after": dict(done.after.breakdown)}
    return done.model, figures, {**done.body, "ullage": report}


def fit_body(job: Job, body: Mapping[str, Any]) -> FittedRequest:
    """A request made to fit, counted with all that is sent in it before and after."""
    request, model = checked(job, body)
    api = job.api or CHAT
    limit = _limit(job, model)
    given = written = sent(body)
    before = after = cost_of(job, request, given, model)
    room = limit - _beyond(request, model, api)
    while room > 0:
        fitted = _fitted(request, model, room, limit, job.policy)
        if fitted.changed:
            shorter = replace(request, messages=tuple(fitted.messages))
            written = {**given, **wire.write(shorter, api)}
            after = cost_of(job, shorter, written, model)
        if after.ceiling <= limit:
            whole = {"id": body["id"], **written} if "id" in body else written
            return FittedRequest(request, model, limit, fitted, before, after, whole)
        room -= after.ceiling - limit  # this API charges more for a message than fit reckons with
    raise ContextOverflowError(before.ceiling, limit, before.breakdown)


def _fitted(request: Request, model: str, room: int, limit: int, policy: FitPolicy | None) -> Fitted:
    """The messages in `room`; an overflow tells of the limit, of which the room is a part."""
    try:
        return fit(request.messages, model, request.tools or None, room, policy=policy)
    except ContextOverflowError as error:
        raise ContextOverflowError(error.tokens + limit - room, limit, error.breakdown) from None


def _beyond(request: Request, model: str, api: str) -> int:
    """What the request costs beyond messages and tools: a schema, a choice of tool, thinking."""
    counter, system = counter_for(model, api), system_text(request.messages)
    whole = counter.request(
        request.tools,
        request.response_format,
        system=system,
        tool_choice=request.tool_choice,
        thinking=request.thinking,
    )
    return max(0, whole.ceiling - counter.request(request.tools, system=system).ceiling)


def _limit(job: Job, model: str) -> int:
    if job.limit is None and model_info(model) is None:
        raise ConfigurationError(f"the context window of {model!r} is not known: give --limit N")
    return limit_for(model, job.limit, job.reserve)
