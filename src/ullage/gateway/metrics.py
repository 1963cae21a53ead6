"""Counters and histograms of the gateway, as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Metric(NamedTuple):
    """One counter or histogram: its help, the names of its labels, and the upper bounds of its buckets."""

    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Empty for a counter."""


SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
MILLISECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
RATIOS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0)

METRICS: Mapping[str, Metric] = {
    "ullage_requests_total": Metric("Requests by API and status of the answer.", ("api", "status")),
    "ullage_refused_total": Metric(
        "Requests that the gateway refused, by API and reason.", ("api", "reason")
    ),
    "ullage_prompt_tokens_total": Metric("Tokens of all prompts, as the upstreams charged them.", ("api",)),
    "ullage_completion_tokens_total": Metric(
        "Tokens of all answers, as the upstreams charged them.", ("api",)
    ),
    "ullage_cached_tokens_total": Metric("Tokens of prompts that upstreams read from a cache.", ("api",)),
    "ullage_fits_total": Metric("Trims by API and by pass that changed something.", ("api", "pass")),
    "ullage_removed_tokens_total": Metric("Tokens removed from requests so that they fit.", ("api",)),
    "ullage_dropped_messages_total": Metric("Messages removed from requests.", ("api",)),
    "ullage_truncated_messages_total": Metric("Messages shortened in requests.", ("api",)),
    "ullage_recalled_total": Metric("Passages brought back into requests.", ("api",)),
    "ullage_recalled_tokens_total": Metric("Tokens of passages brought back into requests.", ("api",)),
    "ullage_recall_calls_total": Metric("Calls of the recall tool that were answered here.", ("api",)),
    "ullage_lowered_outputs_total": Metric("Requests whose output limit was lowered.", ("api",)),
    "ullage_unread_total": Metric("Requests of an unknown form that were forwarded unchanged.", ("api",)),
    "ullage_estimated_total": Metric("Calls billed with a figure of our own count.", ("api",)),
    "ullage_broken_streams_total": Metric("Streams that the upstream did not complete.", ("api",)),
    "ullage_clients_gone_total": Metric("Clients that went away before the end of their answer.", ("api",)),
    "ullage_overhead_seconds": Metric(
        "Time from a whole request to its sending upstream.", ("api",), MILLISECONDS
    ),
    "ullage_first_token_seconds": Metric(
        "Time from sending a request to the first bytes of its answer.", ("api",), SECONDS
    ),
    "ullage_request_seconds": Metric(
        "Time from a whole request to the end of its answer.", ("api",), SECONDS
    ),
    "ullage_count_ratio": Metric(
        "Tokens of a prompt by the upstream's count, divided by our estimate.", ("api",), RATIOS
    ),
    "ullage_prefix_reuse": Metric(
        "Share of a request that repeats the beginning of the conversation's request before it.",
        ("api",),
        SHARES,
    ),
}


class Metrics:
    """The counters and histograms since the gateway started; used on one event loop."""

    def __init__(self) -> None:
        self._counted: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in METRICS}
        self._buckets: dict[str, dict[tuple[str, ...], list[int]]] = {name: {} for name in METRICS}

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        """Adds to a counter of `METRICS`."""
        self._counted[name][labels] += by  # type: ignore[assignment] # sums of seconds are floats

    def observe(self, name: str, *labels: str, value: float) -> None:
        """Adds a value to a histogram of `METRICS`."""
        bounds, known = METRICS[name].buckets, self._buckets[name]
        counts = known.get(labels)
        if counts is None:
            counts = known[labels] = [0] * (len(bounds) + 1)
        counts[bisect_left(bounds, value)] += 1
        self._counted[name][labels] += value  # type: ignore[assignment] # the same

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Returns all metrics, and these gauges by name: help and value."""
        return "\n".join([*self._lines(gauges), ""])

    def _lines(self, gauges: Mapping[str, tuple[str, float]]) -> Iterator[str]:
        for name, metric in METRICS.items():
            yield f"# HELP {name} {metric.help}"
            yield f"# TYPE {name} {'histogram' if metric.buckets else 'counter'}"
            for values, number in sorted(self._counted[name].items()):
                labels = ",".join(
                    f'{key}="{value}"' for key, value in zip(metric.labels, values, strict=True)
                )
                if metric.buckets:
                    yield from _histogram(name, labels, metric.buckets, self._buckets[name][values], number)
                else:
                    yield f"{name}{{{labels}}} {number:.10g}"
        for name, (help_text, value) in gauges.items():
            yield f"# HELP {name} {help_text}"
            yield f"# TYPE {name} gauge"
            yield f"{name} {value:.10g}"


def _histogram(
    name: str, labels: str, bounds: tuple[float, ...], counts: list[int], total: float
) -> Iterator[str]:
    """Yields the lines of one histogram; its buckets are cumulative."""
    sums = [*accumulate(counts)]
    for bound, number in zip([*(f"{bound:g}" for bound in bounds), "+Inf"], sums, strict=True):
        yield f'{name}_bucket{{{labels},le="{bound}"}} {number}'
    yield f"{name}_sum{{{labels}}} {total:.10g}"
    yield f"{name}_count{{{labels}}} {sums[-1]}"
