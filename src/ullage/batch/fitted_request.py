"""Fits the request of one line, and reports its figures before and after."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.batch.job import CHAT, cost_of, read_request, remove_own_keys
from ullage.errors import ConfigurationError
from ullage.fitting import fit_request
from ullage.models import model_info
from ullage.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.batch.job import Job
    from ullage.fitting import FittedRequest
    from ullage.tokens import Count


class LineFit(NamedTuple):
    """The request of a line that was fitted."""

    name: object
    """The id of the line; None if it has none."""
    model: str
    before: Count
    """The cost of the request as it was given."""
    done: FittedRequest


def fit_line(job: Job, body: Mapping[str, Any]) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    """Fits a request; returns its model, its figures, and the object to print."""
    line = fit_body(job, body)
    done, after = line.done, line.done.count
    report = {
        "model": line.model,
        "limit": done.limit,
        "tokens_before": line.before.tokens,
        "tokens_after": after.tokens,
        "ceiling": after.ceiling,
        "exact": after.exact,
        "changed": done.changed,
        "dropped": done.dropped,
        "truncated": done.truncated,
        "recalled": list(done.recalled),
        "changes": [asdict(change) for change in done.changes],
    }
    figures = {**report, "before": dict(line.before.breakdown), "after": dict(after.breakdown)}
    name = {"id": body["id"]} if "id" in body else {}
    return line.model, figures, {**name, **done.body, "ullage": report}


def fit_body(job: Job, body: Mapping[str, Any]) -> LineFit:
    """Fits a request; raises ContextOverflowError if its mandatory part does not fit."""
    request, model = read_request(job, body)
    if job.limit is None and model_info(model) is None:
        raise ConfigurationError(f"the context window of {model!r} is unknown: set --limit N")
    given, api = remove_own_keys(body), job.api or CHAT
    before = cost_of(job, request, given, model)
    done = fit_request(
        given,
        api,
        model=Target(model=model, api=api),
        limit=job.limit,
        reserve=job.reserve,
        policy=job.policy,
    )
    return LineFit(body.get("id"), model, before, done)
