"""Counters of the gateway, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Metric(NamedTuple):
    """One counter: its help and the names of its labels."""

    help: str
    labels: tuple[str, ...] = ()


METRICS: Mapping[str, Metric] = {
    "ullage_requests_total": Metric("Requests by API and status of the answer.", ("api", "status")),
    "ullage_refused_total": Metric(
        "Requests that the gateway refused, by API and reason.", ("api", "reason")
    ),
    "ullage_prompt_tokens_total": Metric("Tokens of all prompts, as the upstreams charged them.", ("api",)),
    "ullage_completion_tokens_total": Metric(
        "Tokens of all answers, as the upstreams charged them.", ("api",)
    ),
    "ullage_removed_tokens_total": Metric("Tokens removed from requests so that they fit.", ("api",)),
    "ullage_dropped_messages_total": Metric("Messages removed from requests.", ("api",)),
    "ullage_truncated_messages_total": Metric("Messages shortened in requests.", ("api",)),
    "ullage_recalled_total": Metric("Passages brought back into requests.", ("api",)),
    "ullage_recall_calls_total": Metric("Calls of the recall tool that were answered here.", ("api",)),
    "ullage_lowered_outputs_total": Metric("Requests whose output limit was lowered.", ("api",)),
    "ullage_unread_total": Metric("Requests of an unknown form that were forwarded unchanged.", ("api",)),
    "ullage_estimated_total": Metric("Calls billed with a figure of our own count.", ("api",)),
    "ullage_broken_streams_total": Metric("Streams that the upstream did not complete.", ("api",)),
    "ullage_clients_gone_total": Metric("Clients that went away before the end of their answer.", ("api",)),
    "ullage_overhead_seconds_total": Metric(
        "Seconds from a whole request to its sending upstream.", ("api",)
    ),
}


class Metrics:
    """The counters since the gateway started; used on one event loop."""

    def __init__(self) -> None:
        self._counted: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in METRICS}

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        """Adds to a counter of `METRICS`."""
        self._counted[name][labels] += by  # type: ignore[assignment] # sums of seconds are floats

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Returns all counters, and these gauges by name: help and value."""
        return "\n".join([*self._lines(gauges), ""])

    def _lines(self, gauges: Mapping[str, tuple[str, float]]) -> Iterator[str]:
        for name, metric in METRICS.items():
            yield f"# HELP {name} {metric.help}"
            yield f"# TYPE {name} counter"
            for values, number in sorted(self._counted[name].items()):
                labels = ",".join(
                    f'{key}="{value}"' for key, value in zip(metric.labels, values, strict=True)
                )
                yield f"{name}{{{labels}}} {number:.10g}"
        for name, (told, value) in gauges.items():
            yield f"# HELP {name} {told}"
            yield f"# TYPE {name} gauge"
            yield f"{name} {value:.10g}"
