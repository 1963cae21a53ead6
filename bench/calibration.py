"""Learning from returned usage: recorded requests in order, each predicted before it is learned from.

`error` is the median of |estimate − actual| ÷ actual, ours and as calibrated. `best` is what the best
straight line would have had, chosen afterwards with all these requests in view. `too low` counts the
requests whose ceiling was below the actual, ours and as calibrated. `excess` is the median of
ceiling ÷ actual − 1. The first 20 requests of each model are learned from and not judged.

The word says whether the error is at most `half` of ours; where it is not, whether the best line's is
(`less`) or even that one's is not (`noise`). `exact` was right before and still is; `more` got worse.
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import json
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.shared import data
from ullage import wire
from ullage.errors import UllageError
from ullage.target import Target
from ullage.tokens import Cost, count_request, counter_for
from ullage.tokens.calibration import ENOUGH, Calibration
from ullage.tokens.request_count import message_costs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

CLASSES = ("text", "tools", "schema", "toolmsgs")
NOBODY = "a-model-that-nobody-knows"
LARGE = 200
"""Requests from this size on are those whose excess matters: a short one always fits."""

Key = tuple[str, str]
"""(endpoint, model)."""


class Taken(NamedTuple):
    """A request: our own cost of it, and what the provider counted."""

    own: Cost
    actual: int


class Judged(NamedTuple):
    """A request that was predicted."""

    own: Cost
    calibrated: Cost
    actual: int


def main() -> None:
    """Prints a table for each kind of replay."""
    requests, steps = list(records("usage.jsonl.gz")), list(records("deltas.jsonl.gz"))
    show("single requests, as recorded", usage(requests))
    show("steps of coding sessions: by how much the prompt grew", deltas(steps))
    show(
        "the same sessions as whole requests: by how much it has grown since the session began", grown(steps)
    )
    unknown = {**usage(requests, NOBODY), **grown(steps, NOBODY)}
    show("requests and sessions, counted as if nobody knew the models", unknown, NOBODY)


# The records


def usage(entries: Iterable[Mapping[str, Any]], model: str | None = None) -> dict[Key, list[Taken]]:
    """The clean requests by endpoint and model; counted as `model`, if that is given."""
    streams: dict[Key, list[Taken]] = collections.defaultdict(list)
    for entry in entries:
        if not entry["clean"] or entry["class"] not in CLASSES or entry["input_tokens"] < 1:
            continue
        with contextlib.suppress(UllageError):  # what is no request has no count
            counted = count_request(entry["request"], entry["api"], model or entry["model"])
            key = f"{entry['provider']}/{entry['api']}", entry["model"]
            streams[key].append(Taken(Cost(counted.tokens, counted.ceiling), entry["input_tokens"]))
    return streams


def deltas(entries: Iterable[Mapping[str, Any]], model: str | None = None) -> dict[Key, list[Taken]]:
    """The growth of the prompt against the cost of the messages that were added."""
    streams: dict[Key, list[Taken]] = collections.defaultdict(list)
    for entry in entries:
        streams[entry["source"], entry["model"]].append(_step(entry, model))
    return streams


def grown(entries: Iterable[Mapping[str, Any]], model: str | None = None) -> dict[Key, list[Taken]]:
    """The growth since a session began, as often as it was sent; a shorter prompt begins another one."""
    streams: dict[Key, list[Taken]] = collections.defaultdict(list)
    last: Mapping[str, Any] = {}
    tokens = ceiling = actual = 0
    for entry in entries:
        went_on = last.get("model") == entry["model"]
        if not went_on or entry["prompt_tokens_before"] < last["prompt_tokens_after"]:
            tokens = ceiling = actual = 0
        step = _step(entry, model)
        tokens, ceiling, actual = tokens + step.own.tokens, ceiling + step.own.ceiling, actual + step.actual
        streams[f"{entry['source']}, grown", entry["model"]].append(Taken(Cost(tokens, ceiling), actual))
        last = entry
    return streams


def _step(entry: Mapping[str, Any], model: str | None) -> Taken:
    messages = wire.read({"messages": entry["added_messages"]}, "openai.chat").messages
    costs = list(message_costs(counter_for(model or entry["model"]), messages))
    own = Cost(sum(cost.tokens for cost in costs), sum(cost.ceiling for cost in costs))
    return Taken(own, entry["delta_tokens"])


def records(name: str) -> Iterator[dict[str, Any]]:
    """The records of a file of ULLAGE_DATA, in order."""
    with gzip.open(data(name), "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


# The replay


def replay(key: Key, stream: Sequence[Taken], model: str | None = None) -> list[Judged]:
    """Every request after the first ones, predicted and then learned from."""
    calibration = Calibration()
    endpoint, named = key
    target = Target(endpoint=endpoint, model=model or named)
    judged = []
    for own, actual in stream:
        calibrated = calibration.factor(target).cost(own)
        judged.append(Judged(own, calibrated, actual))
        calibration.observe(target, own, actual)
    return judged[ENOUGH:]


def error(pairs: Iterable[tuple[float, int]]) -> float:
    """The median error of (estimate, actual)."""
    return statistics.median(abs(estimate - actual) / actual for estimate, actual in pairs)


def best(judged: Sequence[Judged], ways: int = 60) -> float:
    """The least median error that a straight line over our estimates could have had."""
    pairs = [(own.tokens, actual) for own, _, actual in judged]
    scales = _spread([actual / tokens for tokens, actual in pairs if tokens], ways)
    lines = [
        (scale, offset)
        for scale in {1.0, *scales}
        for offset in {0.0, *_spread([actual - scale * tokens for tokens, actual in pairs], ways)}
    ]
    return min(error((scale * tokens + more, actual) for tokens, actual in pairs) for scale, more in lines)


def _spread(values: Iterable[float], ways: int) -> list[float]:
    """So many of the values, evenly over their ranks."""
    ordered = sorted(values)
    return ordered[:: max(1, len(ordered) // ways)]


# What is printed


def show(title: str, streams: Mapping[Key, Sequence[Taken]], model: str | None = None) -> None:
    """Prints a row for each model that was asked often enough, the most asked first, and the total."""
    print(f"\n{title}\n{'':58} {'n':>5} {'error':>15} {'best':>6} {'':6} {'too low':>9} {'excess':>15}")
    everything: list[Judged] = []
    for key, stream in sorted(streams.items(), key=lambda item: -len(item[1])):
        judged = replay(key, stream, model)
        if judged:
            _row(" ".join(key)[-58:], judged, best(judged))
            everything += judged
    if everything:
        _row("all", everything)
        large = [each for each in everything if each.actual >= LARGE]
        _row(f"all of {LARGE} tokens and more", large)


def _row(name: str, judged: Sequence[Judged], least: float | None = None) -> None:
    ours = error((own.tokens, actual) for own, _, actual in judged)
    learned = error((cost.tokens, actual) for _, cost, actual in judged)
    costs = [(own, actual) for own, _, actual in judged], [(cost, actual) for _, cost, actual in judged]
    low = [sum(cost.ceiling < actual for cost, actual in pairs) for pairs in costs]
    over = [statistics.median(cost.ceiling / actual - 1 for cost, actual in pairs) for pairs in costs]
    line = "" if least is None else f"{least:.2%}"
    word = "" if least is None else _word(ours, learned, least)
    print(
        f"{name:58} {len(judged):5} {ours:7.2%} {learned:7.2%} {line:>6} {word:6}"
        f" {low[0]:4} {low[1]:4} {over[0]:7.1%} {over[1]:7.1%}"
    )


def _word(ours: float, learned: float, least: float) -> str:
    if learned <= ours / 2:
        return "half" if ours else "exact"
    if learned > ours:
        return "more"
    return "less" if least <= ours / 2 else "noise"
