"""Fits a whole request and writes it back for the same API; everything in the request is counted."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import wire
from ullage.batch.job import CHAT, checked, cost_of, sent
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.fitting import fit
from ullage.fitting.budget import limit_for
from ullage.models import model_info
from ullage.target import Target
from ullage.tokens import counter_for
from ullage.tokens.request_count import system_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.batch.job import Job
    from ullage.fitting import FitPolicy, Fitted
    from ullage.target import ApiName
    from ullage.tokens import Count
    from ullage.wire import Request


class FittedLine(NamedTuple):
    """A request, with its count before and after fitting."""

    request: Request
    model: str
    limit: int
    fitted: Fitted[Any]
    before: Count
    after: Count
    body: Mapping[str, Any]
    """The fitted body, in the format of the original."""


def fit_line(job: Job, body: Mapping[str, Any]) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    """Fits a request; returns its model, its figures, and the object to print."""
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
        "recalled": list(done.fitted.recalled),
        "changes": [asdict(change) for change in done.fitted.changes],
    }
    figures = {**report, "before": dict(done.before.breakdown), "after": dict(done.after.breakdown)}
    return done.model, figures, {**done.body, "ullage": report}


def fit_body(job: Job, body: Mapping[str, Any]) -> FittedLine:
    """Fits a request; counts everything in it before and after."""
    request, model = checked(job, body)
    api = job.api or CHAT
    limit = _limit(job, model)
    given = written = sent(body)
    before = after = cost_of(job, request, given, model)
    room = limit - _beyond(request, model, api)
    while room > 0:
        fitted = _fitted(request, Target(model=model, api=api), room, limit, job.policy)
        if fitted.changed:
            shorter = replace(request, messages=tuple(fitted.messages))
            written = {**given, **wire.write(shorter, api)}
            after = cost_of(job, shorter, written, model)
        if after.ceiling <= limit:
            whole = {"id": body["id"], **written} if "id" in body else written
            return FittedLine(request, model, limit, fitted, before, after, whole)
        room -= after.ceiling - limit  # this API needs more tokens for a message than fit counts
    raise ContextOverflowError(before.ceiling, limit, before.ceilings)


def _fitted(request: Request, target: Target, room: int, limit: int, policy: FitPolicy | None) -> Fitted[Any]:
    """Fits the messages into `room`; an overflow error has the limit of the whole request, not the room."""
    try:
        return fit(request.messages, target, request.tools or None, room, policy=policy)
    except ContextOverflowError as error:
        beyond = limit - room
        blocks = {**error.breakdown, "tools": error.breakdown["tools"] + beyond}
        raise ContextOverflowError(error.tokens + beyond, limit, blocks) from None


def _beyond(request: Request, model: str, api: ApiName) -> int:
    """Returns the tokens of a response schema, a tool choice and thinking: all but messages and tools."""
    counter, system = counter_for(Target(model=model, api=api)), system_text(request.messages)
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
        raise ConfigurationError(f"the context window of {model!r} is unknown: set --limit N")
    return limit_for(model, job.limit, job.reserve)
